"""What a training step logs: the schema, and sums over rollouts that processes add up."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from spnb.core.types import Sample, role_label

METRICS = {
    "step": "training steps done (one rollout and its updates), from 1",
    "loss": "TRL's loss, mean over the step's updates",
    "grad_norm": "norm of the joint gradient before clipping, mean over the step's updates",
    "loss/<policy>": "loss of a policy that learns in the same steps",
    "grad_norm/<policy>": "norm of its gradient before clipping",
    "learning_rate": "learning rate",
    "entropy": "mean entropy of the policy over trained tokens, nats",
    "kl": "mean KL to the reference policy over trained tokens, nats; only with grpo.beta > 0",
    "clip_ratio": "share of trained tokens whose ratio was clipped",
    "engine_gap": "mean |engine - trainer| log-probability a token of some rows, nats; some steps",
    "samples": "rows rolled out, in all processes",
    "trained": "share of them that is trained (weight not 0)",
    "seconds/generate": "wall time of the rollout, s",
    "seconds/update": "wall time of scoring and updates, s",
    "seconds/step": "wall time of the step, s",
    "tokens_per_second": "sampled tokens per second of wall time",
    "reward/<role>": "mean reward of the role's rows, trained or not",
    "length/<role>": "mean number of sampled tokens a row",
    "entropy/<role>": "mean negative log-probability of the role's sampled tokens, nats",
    "kl/<role>": "mean KL to the reference policy a trained token (k3), nats; grpo.beta > 0",
    "advantage_mean/<role>": "mean advantage of all rows",
    "advantage_std/<role>": "standard deviation of the advantages of all rows",
    "truncated/<role>": "share of rows cut at max_new_tokens",
    "invalid/<role>": "share of rows whose output could not be used (no legal action, no answer)",
    "trained/<role>": "share of the role's rows that is trained",
    "preference/<name>": "of a loss over pairs: rewards of chosen and rejected answers, margin and "
    "accuracy (share with a margin above 0), mean log-probability of an answer, the second term",
    "method/<name>": "the method's own numbers, described in its file",
}
TIMINGS = ("seconds/generate", "seconds/update", "seconds/step", "tokens_per_second")


def kl_sums(rows: Sequence[Sample], out: Mapping[str, Any]) -> dict[str, tuple[float, int]]:
    """Sum of KL to the reference policy (k3: exp(d) - d - 1, d = reference - policy) and number of
    trained tokens, by role; empty where there is no reference or no log-probabilities."""
    reference = out.get("ref_per_token_logps")
    if reference is None or reference.shape != out["completion_ids"].shape:
        return {}
    sums: dict[str, tuple[float, int]] = {}
    for row, ref in zip(rows, reference.tolist(), strict=True):
        for logp, other, mask in zip(row.logps or (), ref, row.mask, strict=False):
            if mask:
                gap = other - logp
                total, count = sums.get(role_label(row.role), (0.0, 0))
                sums[role_label(row.role)] = (total + math.exp(gap) - gap - 1, count + 1)
    return sums


def role_sums(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Sums over all rows of each role, trained or not: what `rollout_metrics` adds up."""
    sums: dict[str, dict[str, float]] = {}
    for sample in samples:
        of_role = sums.setdefault(role_label(sample.role), {})
        advantage = sample.advantage or 0.0
        logps = [lp for lp, m in zip(sample.logps or (), sample.mask, strict=False) if m]
        for key, value in (
            ("rows", 1),
            ("trained", float(sample.weight != 0)),
            ("reward", sample.reward),
            ("length", sum(sample.mask)),
            ("logp", math.fsum(logps)),
            ("logps", len(logps)),
            ("advantage", advantage),
            ("advantage_squared", advantage**2),
            ("truncated", float(sample.truncated)),
            ("invalid", float(sample.invalid)),
        ):
            of_role[key] = of_role.get(key, 0.0) + value
    return sums


def rollout_metrics(
    parts: Sequence[Mapping[str, Mapping[str, float]]],
    kl_parts: Sequence[Mapping[str, tuple[float, int]]],
) -> dict[str, float]:
    """A rollout's numbers in all and by role, from the sums of all processes (see `METRICS`).

    `tokens_per_second` holds the number of sampled tokens; the caller divides by the time.
    """
    totals: dict[str, dict[str, float]] = {}
    for part in parts:
        for role, sums in part.items():
            of_role = totals.setdefault(role, {})
            for key, value in sums.items():
                of_role[key] = of_role.get(key, 0.0) + value
    rows = sum(sums["rows"] for sums in totals.values())
    metrics = {
        "samples": rows,
        "trained": sum(sums["trained"] for sums in totals.values()) / max(rows, 1),
        "tokens_per_second": sum(sums["length"] for sums in totals.values()),
    }
    for role in sorted(totals):
        sums = totals[role]
        count = sums["rows"]
        for key in ("reward", "length", "truncated", "invalid", "trained"):
            metrics[f"{key}/{role}"] = sums[key] / count
        if sums["logps"]:
            metrics[f"entropy/{role}"] = -sums["logp"] / sums["logps"]
        mean = sums["advantage"] / count
        variance = max(0.0, sums["advantage_squared"] / count - mean**2)
        metrics[f"advantage_mean/{role}"] = mean
        metrics[f"advantage_std/{role}"] = math.sqrt(variance)
        kl = [part[role] for part in kl_parts if role in part]
        if kl:
            metrics[f"kl/{role}"] = sum(total for total, _ in kl) / sum(count for _, count in kl)
    return metrics


def mean_of(values: Sequence[float]) -> float | None:
    """The mean, None of nothing."""
    return sum(values) / len(values) if values else None

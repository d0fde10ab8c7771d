"""What a training step logs: the schema, and sums over rollouts that processes add up."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import yaml

from spnb.core.types import Sample, role_label

METRICS: dict[str, str] = yaml.safe_load((files("spnb") / "train" / "metrics.yaml").read_text())
"""What each key of a step's row is, with its unit; a row has no other keys."""
TIMINGS = ("seconds/generate", "seconds/update", "seconds/step", "tokens_per_second")


def kl_sums(rows: Sequence[Sample], out: Mapping[str, Any]) -> dict[str, tuple[float, int]]:
    """Sum of KL to the reference policy (k3: exp(d) - d - 1, d = reference - policy) and number of
    trained tokens, by role; empty where there is no reference. Rows that the engine has not scored
    have TRL's log-probabilities, or none.

    Unsloth's start up to `max_left_pad` tokens before a completion: each row is moved to the left
    by its prompt's padding.
    """
    reference = out.get("ref_per_token_logps")
    if reference is None:
        return {}
    before = reference.shape[1] - out["completion_ids"].shape[1]
    padding = out["prompt_ids"].shape[1] if before else 0
    sums: dict[str, tuple[float, int]] = {}
    own = out.get("old_per_token_logps")
    own = [()] * len(rows) if own is None else own.tolist()
    for row, ref, logps in zip(rows, reference.tolist(), own, strict=True):
        first = before and before - (padding - len(row.prompt_ids))
        scored = row.logps if row.scored else logps[first:]
        for logp, other, mask in zip(scored, ref[first:], row.mask, strict=False):
            if mask:
                gap = other - logp
                total, count = sums.get(role_label(row.role), (0.0, 0))
                sums[role_label(row.role)] = (total + math.exp(gap) - gap - 1, count + 1)
    return sums


def role_sums(samples: Sequence[Sample]) -> dict[str, Counter[str]]:
    """Sums over all rows of each role, trained or not: what `rollout_metrics` adds up."""
    sums: dict[str, Counter[str]] = {}
    for sample in samples:
        of_role = sums.setdefault(role_label(sample.role), Counter())
        advantage = sample.advantage or 0.0
        scored = sample.logps if sample.scored else ()
        logps = [lp for lp, m in zip(scored, sample.mask, strict=False) if m]
        of_role["rows"] += 1.0
        of_role["trained"] += float(sample.weight != 0)
        of_role["reward"] += sample.reward
        of_role["length"] += float(sum(sample.mask))
        of_role["logp"] += math.fsum(logps)
        of_role["logps"] += len(logps)
        of_role["advantage"] += advantage
        of_role["advantage_squared"] += advantage**2
        of_role["truncated"] += float(sample.truncated)
        of_role["invalid"] += float(sample.invalid)
    return sums


def rollout_metrics(
    parts: Sequence[Mapping[str, Mapping[str, float]]],
    kl_parts: Sequence[Mapping[str, tuple[float, int]]],
) -> dict[str, float]:
    """A rollout's numbers in all and by role, from the sums of all processes (see `METRICS`).

    `tokens_per_second` holds the number of sampled tokens; the caller divides by the time.
    """
    totals: dict[str, Counter[str]] = {}
    for role, sums in (item for part in parts for item in part.items()):
        totals.setdefault(role, Counter()).update(sums)
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

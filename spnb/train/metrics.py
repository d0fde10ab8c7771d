"""What a training step logs: the schema, and sums over rollouts that processes add up."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from spnb.core.paths import packaged_yaml
from spnb.core.types import Sample, role_label

METRICS: dict[str, str] = packaged_yaml("train/metrics.yaml")
"""What each key of a step's row is, with its unit; a row has no other keys."""
BY_REASON = ("method/filter/", "method/stopped/")
"""Metrics that are shares by reason."""
TIMINGS = ("seconds/generate", "seconds/update", "seconds/step", "tokens_per_second")


def kl_sums(rows: Sequence[Sample], out: Mapping[str, Any]) -> dict[str, tuple[float, int]]:
    """Sum of KL to the reference policy (k3: exp(d) - d - 1, d = reference - policy) and number of
    trained tokens, by role; empty where there is no reference. Rows that the engine has not scored
    have TRL's log-probabilities, or none.
    """
    sums: dict[str, tuple[float, int]] = {}
    pairs = zip(trl_logps(rows, out, "old"), trl_logps(rows, out, "ref"), strict=True)
    for row, (own, reference) in zip(rows, pairs, strict=True):
        scored = row.logps if row.scored else own
        for logp, other, mask in zip(scored, reference, row.mask, strict=False):
            if mask:
                gap = other - logp
                total, count = sums.get(role_label(row.role), (0.0, 0))
                sums[role_label(row.role)] = (total + math.exp(gap) - gap - 1, count + 1)
    return sums


def ratio_sums(rows: Sequence[Sample], out: Mapping[str, Any], most: float) -> Counter[str]:
    """The `tokens` that an engine has scored, the sum of their `ratio`, the trainer's probability
    over the engine's, and how many of these are `above` the most that the loss takes."""
    sums: Counter[str] = Counter()
    for row, own in zip(rows, trl_logps(rows, out, "old"), strict=True):
        scored = row.logps if row.scored else ()
        told = zip(scored, own, row.mask, strict=False)
        ratios = [math.exp(trainer - logp) for logp, trainer, mask in told if mask]
        if ratios:
            above = sum(ratio > most for ratio in ratios)
            sums.update(tokens=len(ratios), ratio=sum(ratios), above=above)
    return sums


def trl_logps(
    rows: Sequence[Sample], out: Mapping[str, Any], kind: Literal["old", "ref"]
) -> list[Sequence[float]]:
    """TRL's log-probabilities of each row, from its completion's first token; nothing where TRL has
    none of this kind.

    Unsloth's start up to `max_left_pad` tokens before a completion: each row is moved to the left
    by its prompt's padding.
    """
    values = out.get(f"{kind}_per_token_logps")
    if values is None:
        return [()] * len(rows)
    before = values.shape[1] - out["completion_ids"].shape[1]
    padding = out["prompt_ids"].shape[1] if before else 0
    firsts = [before and before - (padding - len(row.prompt_ids)) for row in rows]
    return [own[first:] for own, first in zip(values.tolist(), firsts, strict=True)]


def role_sums(samples: Sequence[Sample]) -> dict[str, Counter[str]]:
    """Sums over all rows of each role, trained or not: what `rollout_metrics` adds up."""
    sums: dict[str, Counter[str]] = {}
    for sample in samples:
        of_role = sums.setdefault(role_label(sample.role), Counter())
        advantage = sample.advantage or 0.0
        scored = sample.logps if sample.scored else ()
        logps = [lp for lp, m in zip(scored, sample.mask, strict=False) if m]
        of_role.update(rows=1.0, trained=float(sample.weight != 0), reward=sample.reward)
        of_role.update(length=float(sum(sample.mask)), logp=math.fsum(logps), logps=len(logps))
        of_role.update(advantage=advantage, advantage_squared=advantage**2)
        of_role.update(truncated=float(sample.truncated), invalid=float(sample.invalid))
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
        if kl := [part[role] for part in kl_parts if role in part]:
            metrics[f"kl/{role}"] = sum(total for total, _ in kl) / sum(count for _, count in kl)
    return metrics


def method_metrics(processes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A method's metrics over all processes: means over those that have one; of shares by reason
    (`BY_REASON`) over all, because a process without a case names none."""
    keys = dict.fromkeys(key for metrics in processes for key in metrics)
    none = {key: 0.0 for key in keys if key.startswith(BY_REASON)}
    every = [none | metrics for metrics in processes]
    return {key: mean_of([one[key] for one in every if key in one]) for key in keys}


def mean_of(values: Sequence[float]) -> float | None:
    """The mean, None of nothing."""
    return sum(values) / len(values) if values else None

"""From rewards to advantages: the estimators of the papers behind one call.

Every estimator is called as `estimator(rewards, groups, roles)` with three sequences of equal
length, one entry per sample, and returns one advantage per sample in the same order. Stateful
estimators carry their baselines through `state_dict` and `load_state_dict`, so that a resumed run
continues as if it had never stopped.
"""

import math
import random
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from spnb.core.types import Sample


class Estimator:
    """Base of all estimators: checks the call, groups the samples; stateless unless a subclass says
    otherwise."""

    def __call__(
        self, rewards: Sequence[float], groups: Sequence[Hashable], roles: Sequence[Hashable]
    ) -> list[float]:
        """Advantages, one per sample.

        Args:
            rewards: scalar rewards, length N.
            groups: what each sample is compared within (a question, a document, a game), length N.
            roles: who produced it (questioner, ("kuhn_poker", 0)), length N.

        Raises:
            ValueError: lengths differ, or a reward is not finite.
        """
        if not len(rewards) == len(groups) == len(roles):
            raise ValueError(
                f"rewards, groups, roles have lengths {len(rewards)}, {len(groups)}, {len(roles)}"
            )
        for index, reward in enumerate(rewards):
            if not math.isfinite(reward):
                raise ValueError(f"rewards[{index}] is {reward!r}; allowed: a finite number")
        return self._estimate(list(rewards), list(groups), list(roles))

    def _estimate(
        self, rewards: list[float], groups: list[Hashable], roles: list[Hashable]
    ) -> list[float]:
        return rewards

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, but was given {sorted(state)}")


def _normalise(
    rewards: list[float], keys: Sequence[Hashable], rule: Callable[[list[float]], list[float]]
) -> list[float]:
    """Applies `rule` to the rewards of each key and puts the results back in the order given."""
    members: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    advantages = [0.0] * len(rewards)
    for indices in members.values():
        for index, value in zip(indices, rule([rewards[i] for i in indices]), strict=True):
            advantages[index] = value
    return advantages


def _centred(values: list[float]) -> list[float]:
    mean = statistics.fmean(values)
    return [value - mean for value in values]


def _zscores(values: list[float]) -> list[float]:
    """Z-scores with the sample standard deviation (n - 1); zeros where all values are equal."""
    if max(values) - min(values) < 1e-9:
        return [0.0] * len(values)
    deviation = statistics.stdev(values)
    return [value / deviation for value in _centred(values)]


class Raw(Estimator):
    """The reward itself, no baseline: A = R. REINFORCE as SPIRAL's ablation without RAE uses it
    (SPIRAL eq. 1)."""


class GroupMean(Estimator):
    """Reward minus the mean of its group and role, not scaled: A = r - mean(r). Dr.GRPO, and
    SPICE's advantages."""

    def _estimate(
        self, rewards: list[float], groups: list[Hashable], roles: list[Hashable]
    ) -> list[float]:
        return _normalise(rewards, list(zip(groups, roles, strict=True)), _centred)


class GroupZScore(Estimator):
    """GRPO: A = (r - mean) / std within group and role, sample standard deviation; 0 for a group of
    equal rewards.

    Source: DeepSeekMath's GRPO, as SPELL, SCOPE and SSP use it. A group of one sample has no spread
    and gives 0. TRL adds 1e-4 to the standard deviation; we do not.
    """

    def _estimate(
        self, rewards: list[float], groups: list[Hashable], roles: list[Hashable]
    ) -> list[float]:
        return _normalise(rewards, list(zip(groups, roles, strict=True)), _zscores)


class BatchZScore(Estimator):
    """A = (r - mean) / std over all samples of a role in the batch, sample standard deviation
    (REINFORCE++)."""

    def _estimate(
        self, rewards: list[float], groups: list[Hashable], roles: list[Hashable]
    ) -> list[float]:
        return _normalise(rewards, roles, _zscores)


class RoleEMA(Estimator):
    """SPIRAL's role-conditioned advantage estimation, RAE (SPIRAL eq. 2 and 3, algorithm 1).

    One baseline per role, starting at 0. Samples with the same group and role are the turns of one
    game: they have one return R and share one advantage. In the order given, A = R - b with the old
    baseline, then once per game b <- decay * b + (1 - decay) * R. The paper prints the update
    before the advantage, which only scales A by `decay`; the released code subtracts first, and so
    do we. No division by a standard deviation.

    Raises:
        ValueError: decay outside [0, 1], or two samples of one group and role with different
            rewards.
    """

    def __init__(self, decay: float = 0.95):
        if not 0 <= decay <= 1:
            raise ValueError(f"decay is {decay!r}; allowed: a number from 0 to 1")
        self.decay = decay
        self.baselines: dict[Hashable, float] = {}

    def _estimate(
        self, rewards: list[float], groups: list[Hashable], roles: list[Hashable]
    ) -> list[float]:
        games: dict[tuple[Hashable, Hashable], tuple[float, float]] = {}
        for reward, group, role in zip(rewards, groups, roles, strict=True):
            seen = games.get((group, role))
            if seen is None:
                baseline = self.baselines.get(role, 0.0)
                games[group, role] = (reward, reward - baseline)
                self.baselines[role] = self.decay * baseline + (1 - self.decay) * reward
            elif seen[0] != reward:
                raise ValueError(
                    f"group {group!r}, role {role!r}: rewards {seen[0]}, {reward}; a game has one"
                )
        return [games[group, role][1] for group, role in zip(groups, roles, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """The baselines as pairs of role and value; a role that is a tuple is written as a list."""
        pairs = self.baselines.items()
        return {"baselines": [[list(k) if isinstance(k, tuple) else k, v] for k, v in pairs]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the baselines."""
        pairs = state["baselines"]
        self.baselines = {tuple(k) if isinstance(k, list) else k: v for k, v in pairs}


ESTIMATORS: dict[str, type[Estimator]] = {
    "group_zscore": GroupZScore,
    "group_mean": GroupMean,
    "raw": Raw,
    "batch_zscore": BatchZScore,
    "role_ema": RoleEMA,
}


def make_estimator(name: str, **options: Any) -> Estimator:
    """An estimator by name.

    Raises:
        ValueError: an unknown name, or an option that the estimator does not have.
    """
    if name not in ESTIMATORS:
        raise ValueError(f"estimator is {name!r}; allowed: {', '.join(ESTIMATORS)}")
    try:
        return ESTIMATORS[name](**options)
    except TypeError as error:
        raise ValueError(
            f"estimator {name!r} does not take the options {sorted(options)}: {error}"
        ) from None


def assign(samples: Sequence[Sample], estimators: Mapping[Hashable, Estimator]) -> None:
    """Sets the advantage of every sample that has none yet, each role by its own estimator.

    Args:
        estimators: by the sample's role. A role without one keeps its samples out of the loss:
            advantage 0 and weight 0.
    """
    by_role: dict[Hashable, list[Sample]] = {}
    for sample in samples:
        if sample.advantage is None:
            by_role.setdefault(sample.role, []).append(sample)
    for role, members in by_role.items():
        estimator = estimators.get(role)
        if estimator is None:
            for sample in members:
                sample.advantage = 0.0
                sample.weight = 0.0
            continue
        rewards = [sample.reward for sample in members]
        groups = [sample.group for sample in members]
        for sample, value in zip(
            members, estimator(rewards, groups, [role] * len(members)), strict=True
        ):
            sample.advantage = value


def skip_zero_advantage(samples: Sequence[Sample]) -> None:
    """Gives rows with advantage 0 the weight 0, and the others the share of rows that stay.

    The mean over the rows that stay, so weighted, is the mean over all of them: the gradient is the
    same and costs less. It holds for losses that are means over rows, without a KL term.
    """
    kept = [sample for sample in samples if sample.advantage]
    for sample in samples:
        sample.weight *= len(kept) / len(samples) if sample.advantage else 0.0


def token_mean(groups: Sequence[Sequence[Sample]], rows: int) -> None:
    """Sets weights that turn a mean over `rows` rows' token means into SPELL's eq. 12.

    Each group is the mean over all of its tokens; groups count alike. The result is the mean over
    groups: weight = the row's share of its group's tokens, times rows / groups.
    """
    for group in groups:
        tokens = sum(sum(sample.mask) for sample in group)
        for sample in group:
            sample.weight = sum(sample.mask) / max(tokens, 1) * rows / len(groups)


def permute_rewards(samples: Sequence[Sample], rng: random.Random) -> None:
    """The control of a reward: each role's rewards go to any of its rows."""
    for role in dict.fromkeys(sample.role for sample in samples):
        rows = [sample for sample in samples if sample.role == role]
        earned = rng.sample([row.reward for row in rows], len(rows))
        for row, reward in zip(rows, earned, strict=True):
            row.reward = reward

"""From rewards to advantages: the estimators of the papers behind one call.

Every estimator is called as `estimator(rewards, groups, roles)` with three sequences of equal
length, one entry per sample, and returns one advantage per sample in the same order. Stateful
estimators carry their baselines through `state_dict` and `load_state_dict`, so that a resumed run
continues as if it had never stopped.
"""

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from spnb.core.types import Sample, grouped

Totals = Callable[[Counter], Counter]
"""Adds counts up over all processes, all of which have to call it (`spnb.core.method.Share`)."""


def raw(values: list[float]) -> list[float]:
    """The reward itself, no baseline: A = R. REINFORCE as SPIRAL's ablation without RAE uses it
    (SPIRAL eq. 1)."""
    return values


def centred(values: list[float]) -> list[float]:
    """Reward minus the mean, not scaled: A = r - mean(r). Dr.GRPO, and SPICE's advantages."""
    mean = statistics.fmean(values)
    return [value - mean for value in values]


def zscores(values: list[float]) -> list[float]:
    """A = (r - mean) / std, sample standard deviation (n - 1); zeros where all values are equal.

    Source: DeepSeekMath's GRPO, as SPELL, SCOPE and SSP's released code use it (SSP's eq. 4 is
    `centred`); over a batch REINFORCE++. TRL adds 1e-4 to the standard deviation; we do not.
    """
    if max(values) - min(values) < 1e-9:
        return [0.0] * len(values)
    deviation = statistics.stdev(values)
    return [value / deviation for value in centred(values)]


class Estimator:
    """Applies a rule to the rewards of each role, within its groups or over the whole `batch`;
    `shared` groups, and a batch, are those of all processes together.

    Stateless; a subclass may carry something from call to call.
    """

    def __init__(
        self,
        rule: Callable[[list[float]], list[float]] = raw,
        batch: bool = False,
        shared: bool = False,
    ):
        self.rule = rule
        self.batch = batch
        self.shared = batch or shared

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
        keys = roles if self.batch else list(zip(groups, roles, strict=True))
        advantages = [0.0] * len(rewards)
        for indices in grouped(range(len(rewards)), keys.__getitem__).values():
            values = self.rule([rewards[index] for index in indices])
            for index, value in zip(indices, values, strict=True):
                advantages[index] = value
        return advantages

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, but was given {sorted(state)}")


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
        super().__init__()
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


ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    "group_zscore": partial(Estimator, zscores),
    "group_mean": partial(Estimator, centred),
    "raw": partial(Estimator, raw),
    "batch_zscore": partial(Estimator, zscores, batch=True),
    "batch_mean": partial(Estimator, centred, batch=True),
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


def leave_out(row: Sample, gone: bool = True) -> None:
    """Takes a row out of estimates and training."""
    if gone:
        row.advantage = row.weight = 0.0


def assign(
    samples: Sequence[Sample],
    estimators: Mapping[Hashable, Estimator],
    gather: Callable[[list[Any]], list[Any]] = list,
    rank: int = 0,
) -> None:
    """Sets the advantage of every sample that has none yet, each role by its own estimator; a
    `shared` one takes in the rewards of all processes, all of which have to call this.

    Args:
        estimators: by the sample's role. A role without one keeps its samples out of the loss:
            advantage 0 and weight 0.
        gather: makes one list of every process's list.
    """
    missing = [sample for sample in samples if sample.advantage is None]
    by_role = grouped(missing, attrgetter("role"))
    own = {role: [(one.reward, one.group) for one in rows] for role, rows in by_role.items()}
    everyone = sorted(gather([(rank, own)]), key=itemgetter(0))
    for role, members in by_role.items():
        estimator = estimators.get(role)
        if estimator is None:
            for sample in members:
                leave_out(sample)
            continue
        first, rows = 0, own[role]
        if getattr(estimator, "shared", False):
            first = sum(len(each.get(role, [])) for other, each in everyone if other < rank)
            rows = [row for _, each in everyone for row in each.get(role, [])]
        rewards, groups = zip(*rows, strict=True)
        advantages = estimator(rewards, groups, [role] * len(rows))
        advantages = advantages[first : first + len(members)]
        for sample, advantage in zip(members, advantages, strict=True):
            sample.advantage = advantage


def skip_zero_advantage(
    samples: Sequence[Sample],
    counts: Callable[[Sample], Any] = lambda sample: sample.advantage,
    total: Totals = Counter,
) -> None:
    """Gives rows that add nothing to the gradient the weight 0, the others the share that stays.

    The mean over the rows of a policy that stay, so weighted, is the mean over all of its rows that
    had a weight: the gradient is the same and costs less. It holds for losses that are means over
    rows.

    Args:
        counts: whether a row adds to the gradient; by its advantage, where there is no KL term.
        total: counts of all processes, from those of this one.
    """
    weighted = [sample for sample in samples if sample.weight]
    number = total(Counter((sample.policy, bool(counts(sample))) for sample in weighted))
    for sample in weighted:
        staying, others = number[sample.policy, True], number[sample.policy, False]
        sample.weight *= staying / (staying + others) if counts(sample) else 0.0


def sum_of_means(groups: Collection[Sequence[Sample]], total: Totals = Counter) -> None:
    """Scales weights so that a policy's mean over all of its rows that have one is the sum of its
    groups' means, each over those of its rows. `total` as in `skip_zero_advantage`."""
    weighted = [[sample for sample in group if sample.weight] for group in groups]
    own = Counter((place, one.policy) for place, group in enumerate(weighted) for one in group)
    number = total(own)
    rows: Counter[str] = Counter()
    for (_, policy), count in number.items():
        rows[policy] += count
    for place, group in enumerate(weighted):
        for sample in group:
            sample.weight *= rows[sample.policy] / number[place, sample.policy]


def token_mean(groups: Collection[Sequence[Sample]], rows: int, count: int) -> None:
    """Sets weights that turn a mean over `rows` rows' token means into SPELL's eq. 12.

    Each group is the mean over all of its tokens; the `count` groups, of which other processes may
    have some, weigh alike. The result is the mean over groups: weight = the row's share of its
    group's tokens, times rows / count.
    """
    for group in groups:
        tokens = sum(sum(sample.mask) for sample in group)
        for sample in group:
            sample.weight = sum(sample.mask) / max(tokens, 1) * rows / count


def permute(items: Sequence[Any], rng: random.Random, name: str = "reward") -> None:
    """The control of a reward: what the items have under `name` goes to any of them."""
    values = [getattr(item, name) for item in items]
    rng.shuffle(values)
    for item, value in zip(items, values, strict=True):
        setattr(item, name, value)


def permute_rewards(samples: Sequence[Sample], rng: random.Random) -> None:
    """The control of a reward: each role's rewards go to any of its rows."""
    for rows in grouped(samples, attrgetter("role")).values():
        earned = rng.sample([row.reward for row in rows], len(rows))
        for row, reward in zip(rows, earned, strict=True):
            row.reward = reward

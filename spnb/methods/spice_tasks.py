"""What SPICE and the methods that it is compared with share: attempts at tasks, answers, suites.

An attempt is what a challenger wrote; where it is valid it holds a task. Answers are given to the
question alone. The oracle's judgement goes into the metrics, never into a reward.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, get_args

from spnb.core import rewards
from spnb.core.advantages import make_estimator
from spnb.core.episodes import Episode, ask_group, single_turn
from spnb.core.grading import grade, majority_vote, read_answer
from spnb.core.method import ROW_MEAN_LOSSES, Role, SelfPlayMethod, Suite
from spnb.core.types import Sample, Sampling, Trajectory, derive_seed
from spnb.corpus.segments import Segment, Segments
from spnb.evaluate.items import Records, record
from spnb.lab import ladder, segments
from spnb.lab import segment_suites as evaluation
from spnb.lab.segment_oracle import judge
from spnb.lab.segments import GRADES, HALVES, Written
from spnb.methods import spice_prompts

ESTIMATORS = {"spice": "group_mean", "r_zero": "group_zscore", "absolute_zero": "batch_zscore"}
"""What each algorithm compares rewards with: Dr.GRPO's group mean, GRPO, REINFORCE++."""

Pay = Literal["variance", "absolute_zero", "threshold", "r_zero"]
PAYS = {name: getattr(rewards, name) for name in get_args(Pay)}
"""The rewards of the paper's figure 7."""


@dataclass(frozen=True)
class Source:
    """What a challenger is shown: a type of answer, and a segment where there is a corpus."""

    answer_type: str
    segment: Segment | None = None

    @property
    def text(self) -> str | None:
        """The segment's text."""
        return self.segment.text if self.segment else None


@dataclass
class Attempt:
    """What a challenger wrote: its row, the task (None: not valid), how it was answered.

    `success` is the share of answers that agree with the stated one, `agreement` with the most
    frequent one, `label`.
    """

    source: Source
    trajectory: Trajectory | None
    written: Written | None
    success: float = 0.0
    agreement: float = 0.0
    label: str | None = None
    pay: float = 0.0
    judged: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """A valid task as columns of a record."""
        facts = {"question": self.written.question, "answer": self.written.answer}
        facts |= {"success": self.success, "pay": self.pay, "agreement": self.agreement}
        return facts | {"answer_type": self.source.answer_type} | self.judged


class Tasks(SelfPlayMethod):
    """Writing and answering tasks; `params` are those of `spnb.methods.spice`."""

    params: Any

    def __init__(self, params: Any, tokenizer: Any):
        super().__init__(params, tokenizer)
        halves = [name for name in params.corpus if name in HALVES]
        if halves or not params.corpus:
            ladder.check_names(tokenizer)
        self.corpus = self.open_corpus("train", params.documents) if params.corpus else None
        self.programs: list[str] = []  # earlier ones, of Absolute Zero

    @cached_property
    def held_out(self) -> list[Segment]:
        """What evaluation writes tasks on, always the same: segments of `eval_tasks` documents,
        none twice before all have come. Documents of a corpus by path are in training too."""
        corpus = self.open_corpus("heldout", self.params.eval_tasks)
        return corpus.draw(random.Random(derive_seed("evaluation")), self.params.eval_tasks)

    def open_corpus(self, pool: ladder.Pool, count: int) -> Segments:
        """The documents: halves of the testbed's, together `count`, on people of a pool, and
        corpora by path."""
        params = self.params
        halves = [name for name in params.corpus if name in HALVES]
        corpora: list[Any] = []
        for name in params.corpus:
            if name in HALVES:
                each = -(-count // len(halves))
                corpora.append(segments.documents(name, each, params.task_types, pool))
            else:
                corpora.append(name)
        corpora = [rows for rows in corpora if len(rows)]
        return Segments(corpora, self.chat.tokenizer, params.segment_tokens)

    def default_roles(self) -> dict[str, Role]:
        """Both learn, on one set of weights; `grpo.beta` holds only the challenger to its start."""
        name, sampling = ESTIMATORS[self.params.algorithm], self.params.sampling
        return {
            "challenger": Role(sampling, make_estimator(name)),
            "reasoner": Role(sampling, make_estimator(name), kl=False),
        }

    def role_of(self, sample: Sample) -> str:
        """Absolute Zero's rows are recorded under role and kind of task."""
        return sample.role[0] if isinstance(sample.role, tuple) else str(sample.role)

    # --- writing

    def draw(self, count: int, seed: int, read: Sequence[Segment] = ()) -> Episode[list[Source]]:
        """Segments of documents, drawn unless they are given, and the type of answer for each:
        drawn, or chosen by the challenger (not trained; drawn where it cannot be read)."""
        params, rng = self.params, random.Random(derive_seed(seed, "sources"))
        if self.corpus is None:
            return [Source(rng.choice(params.task_types)) for _ in range(count)]
        read = read or self.corpus.draw(rng, count)
        kinds = [segments.kind_of(segment.text) for segment in read]
        allowed = [
            [one for one in params.task_types if kind is None or one in segments.KINDS[kind].types]
            for kind in kinds
        ]
        types = [rng.choice(ones or params.task_types) for ones in allowed]
        if params.selection == "asked":
            prompts = [spice_prompts.select(segment.text) for segment in read]
            seeds = partial(derive_seed, seed, "select")
            groups = yield from self.say("challenger", prompts, 1, seeds)
            chosen = [spice_prompts.read_selection(one.policy_text) for (one,) in groups]
            pairs = zip(chosen, allowed, types, strict=True)
            types = [one if one in ones else drawn for one, ones, drawn in pairs]
        return [Source(*pair) for pair in zip(types, read, strict=True)]

    def attempt(
        self, sources: Sequence[Source], copies: int, seed: int
    ) -> Episode[list[list[Attempt]]]:
        """`copies` attempts at a task on each source."""
        style = self.params.prompts
        prompts = [spice_prompts.challenge(style, one.answer_type, one.text) for one in sources]
        groups = yield from self.say("challenger", prompts, copies, partial(derive_seed, seed))
        return [
            [self.read(source, trajectory) for trajectory in group]
            for source, group in zip(sources, groups, strict=True)
        ]

    def read(self, source: Source, trajectory: Trajectory) -> Attempt:
        """An attempt from a challenger's text; a truncated one is not valid."""
        text = trajectory.policy_text if trajectory.finish != "length" else ""
        written = spice_prompts.read_task(self.params.prompts, text, source.answer_type)
        return self.judge(Attempt(source, trajectory, written))

    def judge(self, attempt: Attempt) -> Attempt:
        """Adds what the oracle says of a valid task, where it can read the document, or without one
        the question."""
        text = attempt.source.text
        entries = None if text is None else segments.read_segment(text)
        if attempt.written and (entries or text is None):
            judgement = judge(attempt.written, entries)
            if entries or judgement.kind:
                attempt.judged = evaluation.judged(judgement)
        return attempt

    def say(
        self, role: str, prompts: Sequence[Any], copies: int, seed_of: Any
    ) -> Episode[list[list[Trajectory]]]:
        """`copies` turns of a role to each prompt; `seed_of(place, copy)`."""
        one = self.roles[role]

        def turn(place: int, messages: Any, copy: int) -> Episode[Trajectory]:
            seed = seed_of(place, copy)
            return single_turn(self.chat.request(messages, one.sampling, seed, one.policy))

        return (yield from ask_group(prompts, copies, turn))

    # --- answering

    def answer(self, attempts: Sequence[Attempt], seed: int) -> Episode[list[list[Sample]]]:
        """K answers to each valid task's question, 1 for one that agrees with the stated answer;
        sets success, agreement and label."""
        style = self.params.prompts
        prompts = [spice_prompts.reason(style, one.written.question) for one in attempts]
        seeds = partial(derive_seed, seed, "answer")
        groups = yield from self.say("reasoner", prompts, self.params.answers, seeds)
        rows = []
        for place, (one, group) in enumerate(zip(attempts, groups, strict=True)):
            tag, kind = spice_prompts.answer_tag(style), GRADES[one.source.answer_type]
            said = [read_answer(trajectory.policy_text, tag) for trajectory in group]
            one.label = majority_vote(said)
            one.success = share_right(said, one.written.answer, kind)
            one.agreement = share_right(said, one.label, kind)
            new = []
            for trajectory, answer in zip(group, said, strict=True):
                right = share_right([answer], one.written.answer, kind)
                sample = trajectory.sample(right, "reasoner", place)
                sample.invalid = answer is None
                sample.info |= {"gold": one.written.answer, "answer": answer}
                new.append(sample)
            rows.append(new)
        return rows

    def paid(self, attempts: Sequence[Attempt], group: int) -> list[Sample]:
        """A challenger's rows, compared within `group`: a valid task's pay, or the penalty."""
        samples = []
        for one in attempts:
            if one.trajectory is None:
                continue
            reward = one.pay if one.written else self.params.invalid_reward
            sample = one.trajectory.sample(reward, "challenger", group)
            sample.invalid = one.written is None
            sample.info |= one.facts() if one.written else {}
            samples.append(sample)
        return samples

    # --- training and evaluation

    def select(self, samples: Sequence[Sample]) -> None:
        """The mean over all rows with a weight, of both roles alike; rows that add nothing to it
        (no advantage, no KL) are left out."""
        grpo = self.params.grpo
        chosen = [one for one in samples if one.weight]
        if grpo.get("loss_type", "dr_grpo") not in ROW_MEAN_LOSSES:
            return
        held = {name for name, role in self.roles.items() if role.kl and grpo.get("beta")}
        trained = [one for one in chosen if one.advantage or self.role_of(one) in held]
        for one in chosen:
            one.weight = 0.0
        for one in trained:
            one.weight = len(trained) / len(chosen)

    def note(
        self, attempts: Sequence[Attempt], answered: Sequence[Attempt], **numbers: float
    ) -> None:
        """The step's metrics: the share of valid attempts; `task_numbers` of the answered ones."""
        valid = [one for one in attempts if one.written]
        numbers |= {"attempts": len(attempts), "answers": len(answered) * self.params.answers}
        numbers |= {"valid": len(valid) / max(1, len(attempts))}
        numbers |= evaluation.task_numbers([one.facts() for one in answered])
        self.metrics = {f"method/{name}": float(value) for name, value in numbers.items()}

    def state_dict(self) -> dict[str, Any]:
        """Absolute Zero's programs too."""
        return super().state_dict() | {"programs": self.programs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""
        super().load_state_dict(state)
        self.programs = state["programs"]

    def suites(self, step: int) -> list[Suite]:
        """The closed-book suites and those with documents; tasks on held-out documents."""
        params, style = self.params, self.params.prompts
        how = partial(spice_prompts.reason, style), spice_prompts.answer_tag(style)
        policy = self.roles["reasoner"].policy
        sampling = Sampling(params.max_new_tokens)
        suites = evaluation.segment_suites(params.eval_items, self.chat, sampling, *how, policy)
        asks = params.algorithm != "absolute_zero" and params.writer == "policy"
        return [*suites, self.challenge_suite()] if asks else suites

    def challenge_suite(self) -> Suite:
        """One attempt on each of `eval_tasks` held-out documents, answered K times, each role by
        its policy: the same documents always, for cross-play too."""

        def ask(place: int) -> Episode[Records]:
            seed, source = yield from self.challenge_source(place)
            ((attempt,),) = yield from self.attempt([source], 1, seed)
            if not attempt.written:
                return [record(evaluation.CHALLENGES, str(place), 0.0)]
            yield from self.answer([attempt], seed)
            attempt.pay = self.value(attempt)
            return [record(evaluation.CHALLENGES, str(place), 1.0, **attempt.facts())]

        places = range(self.params.eval_tasks)
        return Suite(evaluation.CHALLENGES, places, ask, evaluation.challenge_rows)

    def challenge_source(self, place: int) -> Episode[tuple[int, Source]]:
        """The seed of a place in the challenger's suite, and what it is shown there."""
        seed = derive_seed("evaluation", "challenges", place)
        (source,) = yield from self.draw(1, seed, [self.held_out[place]] if self.corpus else [])
        return seed, source

    def value(self, attempt: Attempt) -> float:
        """What a valid task pays. R-Zero's reward is of the agreement with the most frequent
        answer (section 4.3 of the paper), the others of the share of right ones."""
        share = attempt.agreement if self.params.pay == "r_zero" else attempt.success
        return float(PAYS[self.params.pay](share))


def share_right(answers: Sequence[str | None], gold: str | None, kind: str) -> float:
    """The share of answers that agree with a gold one."""
    right = [grade(one, gold, kind) for one in answers if one is not None and gold is not None]
    return sum(right) / len(answers)

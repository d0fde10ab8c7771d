"""What SPICE, R-Zero and Absolute Zero share: a challenger's attempts at tasks, their answers.

An attempt is what a challenger wrote; where it is valid it holds a task. Answers are given to the
question alone. The oracle's judgement goes into the metrics, never into a reward.
"""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from spnb.core.advantages import make_estimator
from spnb.core.documents import Context, Judgement, Proposal, check_source, open_source
from spnb.core.episodes import Episode
from spnb.core.grading import grade, majority_vote, read_answer
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Suite
from spnb.core.plugins import find, foreign, reward, reward_name
from spnb.core.types import Sample, Trajectory, derive_seed
from spnb.corpus.segments import GRADES, SegmentSource
from spnb.evaluate.items import Records, Rows, mean_row, record
from spnb.evaluate.proposals import CHALLENGES, challenge_rows, judged_columns, task_numbers
from spnb.methods import spice_prompts
from spnb.methods.spice_prompts import Style

GENERATED = "lab:segments"
"""The source of generated documents, and of the oracle."""
HALVES = ("math", "general")
"""Of the generated corpus; other names are paths."""
PAYS = ("variance", "absolute_zero", "threshold", "r_zero")
"""The rewards of the paper's figure 7."""
STARTS = "start tasks"
"""The suite of tasks that the start wrote. A record's item is the document, its score the share of
right answers; it has the question."""
INVALID_REWARD = -0.1
"""What an invalid task pays where nothing else is said; Absolute Zero has constants of its own."""
POLICIES = {"challenger", "policy"}
"""R-Zero's: the challenger's weights, and the reasoner's."""


class Params(MethodParams):
    """SPICE's own parameters, and those of the methods that it is compared with; defaults are the
    paper's (section 3.1, table 5).

    `corpus` names halves of the generated corpus, corpora by path, or a plugin's source; without
    any the challenger writes from nothing. With `writer: oracle` an oracle writes. The control
    `reward: random` permutes what valid tasks pay, and the answers' rewards, within each step.
    R-Zero takes stages (`challenger`, `policy` in turn) and a policy of this name.
    """

    role_names = ("challenger", "reasoner")
    asks = {
        "step": "documents_per_step * attempts + documents_per_step * group_size * answers",
        "evaluation": "eval_items + eval_tasks * answers + start_tasks * eval_tasks * answers",
        "run": "documents",
    }

    algorithm: Literal["spice", "r_zero", "absolute_zero"] = "spice"
    corpus: list[str] = list(HALVES)
    documents: int = Field(20_000, ge=1, description="of the generated corpus")
    segment_tokens: int = Field(5992, ge=1, description="of a segment at most")
    documents_per_step: int = Field(128, ge=1, description="B")
    attempts: int = Field(1024, ge=1, description="N: on a document at most, of SPICE alone")
    group_size: int = Field(8, ge=1, description="G: attempts that are paid, on one document")
    answers: int = Field(8, ge=2, description="K: to each valid task")
    task_types: list[Literal[tuple(GRADES)]] = list(GRADES)  # type: ignore[valid-type]
    selection: Literal["drawn", "asked"] = "drawn"
    writer: Literal["policy", "oracle"] = "policy"
    writer_wrong: float = Field(0, ge=0, le=1, description="share of an oracle's wrong answers")
    prompts: Style = "plain"
    pay: reward_name(*PAYS) = "variance"
    invalid_reward: float = Field(INVALID_REWARD, le=0)
    reward: Literal["rule", "random"] = "rule"
    references: int = Field(0, ge=0, description="Absolute Zero: earlier programs in a prompt")
    eval_temperature: float = Field(0.0, ge=0, description="the paper's answers are greedy")
    eval_items: int = Field(64, ge=1, description="held-out questions of each level and suite")
    eval_tasks: int = Field(128, ge=1, description="held-out documents to write tasks on")
    start_tasks: bool | None = Field(None, description="at both ends also tasks of the start there")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        pay = self.pay if self.algorithm == "spice" else self.algorithm
        stages = {stage.policy for stage in getattr(self, "stages", None) or []}
        alone = self.algorithm != "r_zero" or not hasattr(self, "stages")
        need = self.need
        types = self.task_types
        need(types and len(set(types)) == len(types), "task_types", "one or more, each once")
        need(len(set(self.corpus)) == len(self.corpus), "corpus", "each once")
        learn = {"reasoner", *(["challenger"] if self.writer == "policy" else [])}
        need(learn - {*self.frozen}, "roles", "one that learns")
        enough = self.attempts >= self.group_size
        need(enough, "attempts", f"group_size ({self.group_size}) or more")
        taught = self.writer == "oracle" or not self.writer_wrong
        need(taught, "writer_wrong writer", "above 0 with writer oracle alone")
        need(self.pay == pay, "pay algorithm", pay)
        shown = self.algorithm == "absolute_zero" or not self.references
        need(shown, "references algorithm", "0, or absolute_zero")
        paid = self.algorithm != "absolute_zero" or self.invalid_reward == INVALID_REWARD
        need(paid, "invalid_reward algorithm", f"{INVALID_REWARD}, as its own are fixed")
        for name, only in (("reward", "rule"), ("writer", "policy")):
            usual = self.algorithm == "spice" or getattr(self, name) == only
            need(usual, f"{name} algorithm", only)
        need(alone or stages == POLICIES, "stages algorithm", f"stages of {sorted(POLICIES)}")
        own = [name for name in self.corpus if find("source", name)]
        single = own == self.corpus[:1] == self.corpus
        fits = single and not foreign("source", own, self.plugins)
        need(fits or not own, "corpus plugins", "one source of this run's plugin alone, or corpora")
        check_source(GENERATED, self)
        return self

    @property
    def paths(self) -> dict[str, list[str]]:
        """The corpora that are not generated."""
        return {"corpus": [name for name in super().paths["corpus"] if name not in HALVES]}


@dataclass
class Attempt:
    """What a challenger wrote: its row, the task (None: not valid), how it was answered.

    `success` is the share of answers that agree with the stated one, `agreement` with the most
    frequent one, `label`, however it is spelled; of equally frequent ones the first.
    """

    context: Context
    trajectory: Trajectory | None
    task: Proposal | None
    judgement: Judgement | None = None
    success: float = 0.0
    agreement: float = 0.0
    label: str | None = None
    pay: float = 0.0

    def facts(self) -> dict[str, Any]:
        """A valid task as columns of a record."""
        facts = {"question": self.task.question, "answer": self.task.answer}
        facts |= {"success": self.success, "pay": self.pay, "agreement": self.agreement}
        judged = judged_columns(self.judgement) if self.judgement else {}
        return facts | {"answer_type": self.context.kind} | judged


class ChallengerReasoner(SelfPlayMethod):
    """Writing and answering tasks. A subclass writes `rollout`, and names its `estimator`.

    Metrics: `valid` (share of attempts); of the answered tasks what `task_numbers` says: the
    oracle's judgement, level, p, pay, diversity.
    """

    Params = Params
    estimator: ClassVar[str]

    def __init__(self, params: Any, tokenizer: Any):
        super().__init__(params, tokenizer)
        generated = not params.corpus or set(HALVES) & set(params.corpus)
        name = GENERATED if generated else params.corpus[0]
        self.source = open_source(name, params, tokenizer, SegmentSource, SegmentSource)
        self.snapshots = ("start",) if params.start_tasks else ()

    def default_roles(self) -> dict[str, Role]:
        """Both learn, on one set of weights; `grpo.beta` holds only the challenger to its start."""
        sampling = self.params.sampling
        return {
            "challenger": Role(sampling, make_estimator(self.estimator)),
            "reasoner": Role(sampling, make_estimator(self.estimator), kl=False),
        }

    # --- writing

    def draw(self, count: int, seed: int, read: Sequence[Any] = ()) -> Episode[list[Context]]:
        """Segments of documents, drawn unless they are given, and the type of answer for each:
        drawn, or chosen by the challenger (not trained; drawn where it cannot be read)."""
        rng = random.Random(derive_seed(seed, "sources"))
        drawn = self.source.draw_several(rng, count, read)
        params = self.params
        if params.selection == "drawn" or params.writer == "oracle" or not params.corpus:
            return drawn
        prompts = [spice_prompts.select(context.texts[0]) for context in drawn]
        seeds = partial(derive_seed, seed, "select")
        groups = yield from self.sample("challenger", prompts, 1, seeds)
        chosen = []
        for context, (trajectory,) in zip(drawn, groups, strict=True):
            kind = spice_prompts.read_selection(trajectory.policy_text)
            allowed = self.source.allowed(context.texts[0])
            chosen.append(Context(kind, context.documents) if kind in allowed else context)
        return chosen

    def propose(
        self, contexts: Sequence[Context], copies: int, seed: int
    ) -> Episode[list[list[Attempt]]]:
        """`copies` attempts at a task on each context."""
        texts = [context.texts[0] if context.documents else None for context in contexts]
        prompts = [
            spice_prompts.challenge(self.params.prompts, context.kind, text)
            for context, text in zip(contexts, texts, strict=True)
        ]
        groups = yield from self.sample("challenger", prompts, copies, partial(derive_seed, seed))
        pairs = zip(contexts, groups, strict=True)
        return [[self.read(context, row) for row in group] for context, group in pairs]

    def read(self, context: Context, trajectory: Trajectory) -> Attempt:
        """An attempt from a challenger's text; a truncated one is not valid."""
        text = trajectory.policy_text if trajectory.finish != "length" else ""
        task = spice_prompts.read_task(self.params.prompts, text, context.kind)
        return self.attempt(context, trajectory, task if isinstance(task, Proposal) else None)

    def attempt(self, context: Context, trajectory: Any, task: Proposal | None) -> Attempt:
        """An attempt with what the oracle says of its task."""
        judgement = self.source.judge(task, context) if task else None
        return Attempt(context, trajectory, task, judgement)

    # --- answering

    def answer(self, attempts: Sequence[Attempt], seed: int) -> Episode[list[list[Sample]]]:
        """K answers to each valid task's question, 1 for one that agrees with the stated answer;
        sets success, agreement and label."""
        style = self.params.prompts
        tag = spice_prompts.answer_tag(style)
        prompts = [spice_prompts.reason(style, attempt.task.question) for attempt in attempts]
        seeds = partial(derive_seed, seed, "answer")
        groups = yield from self.sample("reasoner", prompts, self.params.answers, seeds)
        rows = []
        for place, (attempt, group) in enumerate(zip(attempts, groups, strict=True)):
            gold = attempt.task.answer
            agree = partial(share_right, kind=GRADES[attempt.context.kind])
            answers = [read_answer(trajectory.policy_text, tag) for trajectory in group]
            attempt.label = majority_vote(answers, GRADES[attempt.context.kind])
            attempt.success = agree(answers, gold)
            attempt.agreement = agree(answers, attempt.label)
            samples = []
            for trajectory, answer in zip(group, answers, strict=True):
                right = agree([answer], gold)
                about = {"gold": gold, "answer": answer}
                samples.append(trajectory.sample(right, "reasoner", place, answer is None, **about))
            rows.append(samples)
        return rows

    def reward(self, attempt: Attempt) -> float:
        """What a valid task pays. R-Zero's reward is of the agreement with the most frequent
        answer (section 4.3 of the paper), the others of the share of right ones."""
        share = attempt.agreement if self.params.pay == "r_zero" else attempt.success
        return float(reward(self.params.pay)(share))

    def challenger_rows(self, groups: Sequence[Sequence[Attempt]]) -> list[Sample]:
        """A challenger's rows, compared within their group: a valid task's pay, or the penalty."""
        rows = []
        for place, group in enumerate(groups):
            for attempt in group:
                if attempt.trajectory is None:
                    continue
                pay = attempt.pay if attempt.task else self.params.invalid_reward
                facts = attempt.facts() if attempt.task else {}
                invalid = attempt.task is None
                rows.append(attempt.trajectory.sample(pay, "challenger", place, invalid, **facts))
        return rows

    # --- evaluation

    def log_tasks(
        self, attempts: Sequence[Attempt], answered: Sequence[Attempt], **numbers: float
    ) -> None:
        """The step's metrics: the share of valid attempts; `task_numbers` of the answered ones."""
        valid = sum(attempt.task is not None for attempt in attempts)
        facts = [attempt.facts() for attempt in answered]
        answers = len(answered) * self.params.answers
        self.log(**numbers, attempts=len(attempts), answers=answers, **task_numbers(facts))
        self.log(valid=valid / max(1, len(attempts)))

    def suites(self, step: int) -> list[Suite]:
        """The source's, closed-book and with documents, at both ends greedily too where
        `eval_temperature` is not 0; tasks on held-out documents."""
        params = self.params
        samplings = {"": params.eval_sampling}
        if params.eval_temperature and step in (0, params.steps):
            samplings["greedy"] = replace(params.eval_sampling, temperature=0.0)
        suites = []
        for decoding, sampling in samplings.items():
            suites += self.source.suites(
                params.eval_items,
                self.chat,
                sampling,
                prompt=partial(spice_prompts.reason, params.prompts),
                tag=spice_prompts.answer_tag(params.prompts),
                policy=self.roles["reasoner"].policy,
                seed_of=params.eval_seed,
                decoding=decoding,
            )
        if params.start_tasks and step in (0, params.steps):
            suites.append(self.start_suite())
        return [*suites, self.challenge_suite()] if params.writer == "policy" else suites

    def challenge_suite(self) -> Suite:
        """One attempt on each of `eval_tasks` held-out documents, answered K times, each role by
        its policy: the same documents always, for cross-play too."""

        def ask(place: int) -> Episode[Records]:
            seed, context = yield from self.challenge_context(place)
            ((attempt,),) = yield from self.propose([context], 1, seed)
            if not attempt.task:
                return [record(CHALLENGES, str(place), 0.0)]
            yield from self.answer([attempt], seed)
            attempt.pay = self.reward(attempt)
            return [record(CHALLENGES, str(place), 1.0, **attempt.facts())]

        return Suite(CHALLENGES, range(self.params.eval_tasks), ask, challenge_rows)

    def start_suite(self) -> Suite:
        """What the start asks on the same documents, answered K times: as before and after training
        the start is the same, so are its tasks (where an engine repeats itself bit by bit)."""
        writer = copy.copy(self)
        challenger = replace(self.roles["challenger"], policy="start")
        writer.roles = self.roles | {"challenger": challenger}

        def ask(place: int) -> Episode[Records]:
            seed, context = yield from writer.challenge_context(place)
            ((attempt,),) = yield from writer.propose([context], 1, seed)
            if not attempt.task:
                return []
            yield from self.answer([attempt], seed)
            facts = {"question": attempt.task.question, "kind": context.kind}
            return [record(STARTS, str(place), attempt.success, **facts)]

        def rows(records: Records) -> Rows:
            return [mean_row(STARTS, "success", [one["score"] for one in records])]

        return Suite(STARTS, range(self.params.eval_tasks), ask, rows)

    def challenge_context(self, place: int) -> Episode[tuple[int, Context]]:
        """The seed of a place in the challenger's suite, and what it is shown there."""
        seed = self.params.eval_seed("challenges", place)
        read = [self.source.held_out[place]] if self.params.corpus else []
        (context,) = yield from self.draw(1, seed, read)
        return seed, context


def share_right(answers: Sequence[str | None], gold: str | None, kind: str) -> float:
    """The share of answers that agree with a gold one."""
    read = [answer for answer in answers if answer is not None and gold is not None]
    return sum(grade(answer, gold, kind) for answer in read) / len(answers)

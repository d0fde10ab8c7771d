"""SPELL (arXiv 2509.23863): one policy asks, answers and judges questions about long documents.

Algorithm 1. A questioner reads m documents of a cluster, with its latest solvable questions and
their documents (`Memory`), and writes a question with its answer. One answer without documents
filters out what is not grounded in them. A responder answers G times from all n documents of the
cluster; a verifier compares each answer G times with the stated one and the majority decides beside
a rule. Rewards are eq. 4 to 7 (`Question.settle`), advantages eq. 8 and 9, the loss eq. 12: the sum
of each role's mean over groups, a group being the mean over its tokens.

    spnb run spell --scale cpu --variant full --seed 0

Where the released code differs from the paper, the paper is the default and the code's way a named
option (`tie`, `malformed`, `memory_rule`, `normalise`). `question_source: static` is the RLVR
baseline: a fixed set that an oracle wrote, no questioner; with `judgments_per_answer` above 0 it is
QwenLong-L1's reward. `alignment` learns from preference pairs on that set (`spell_pairs`). With
`question_source: start` the start writes the fixed set, which needs no oracle.
"""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from spnb.core import prompts
from spnb.core.advantages import (
    Estimator,
    leave_out,
    make_estimator,
    permute_rewards,
    token_mean,
    zscores,
)
from spnb.core.documents import Context, Judgement, Proposal, check_source, open_source
from spnb.core.episodes import OVERLONG, Episode
from spnb.core.grading import read_answer
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Suite
from spnb.core.params import ParamError
from spnb.core.plugins import foreign, reward, reward_name
from spnb.core.types import Messages, Sample, Task, Trajectory, derive_seed, grouped, in_turn
from spnb.corpus import clusters
from spnb.evaluate.items import Records
from spnb.evaluate.proposals import DIFFICULTY, difficulty, difficulty_rows, spell_numbers
from spnb.methods.spell_memory import Memory
from spnb.methods.spell_pairs import make_pairs, preference

TaskType = Literal[tuple(clusters.TYPES)]  # type: ignore[valid-type]
GENERATED = "lab:clusters"
"""The source where there is no corpus."""
PHASES = dict(ask="questioning", ground="grounding", respond="responding", verify="verifying")
"""Phases of a round, by what their seeds are derived from, as the log calls them."""
BAD_FORMAT = -1.0
UNGROUNDED = -0.5
"""What a questioner gets for a question that is answered without documents."""


class Params(MethodParams):
    """SPELL's own parameters; quantities a step are for all processes together."""

    role_names = ("questioner", "responder", "verifier", "external")
    silent = ("external",)
    asks = {
        "step": "questions_per_round * rounds * group_size"
        " + questions_per_round * rounds * group_size * judgments",
        "evaluation": "eval_items * tasks * eval_documents * eval_samples"
        " + eval_proposals * group_size",
        "run": "clusters + static_questions * group_size",
    }

    corpus: str = Field("", description="a path, or a plugin's source; empty: generated")
    document_tokens: int | None = Field(None, ge=1, description="a corpus's are cut after so many")
    tasks: list[TaskType] = Field(list(clusters.TYPES), min_length=1, description="drawn evenly")
    clusters: int = Field(24, ge=1, description="generated clusters, of all types together")
    documents: list[PositiveInt] = Field([4], min_length=1, description="n, of clusters, in turn")
    documents_read: int = Field(2, ge=1, description="m, new ones that a questioner reads")
    memory: int = Field(3, ge=0, description="L, solvable questions that a questioner sees")
    memory_rule: Literal["paper", "code"] = "paper"
    question_source: Literal["policy", "static", "start"] = "policy"
    static_questions: int = Field(96, ge=1, description="of a fixed set; start: it is asked for")
    static_levels: list[int] = Field([], description="of the static set; empty: all, evenly")
    static_wrong: float | None = Field(None, ge=0, le=1, description="its share of wrong answers")
    context: list[int] = Field([], description="static: documents in equal parts of the training")
    questions_per_round: int = Field(12, ge=1, description="rounds go on until groups are enough")
    rounds: int = Field(10, ge=1, description="most rounds of questions in a step")
    groups: int = Field(8, ge=1, description="N, questions with mixed answers that are trained on")
    group_size: int = Field(8, ge=2, description="G, answers to a question")
    judgments_per_answer: int | None = Field(None, ge=0, description="default G, 0: no verifier")
    judge: Literal["rule", "oracle"] = Field("rule", description="beside the verifier")
    format_penalty: bool = True
    grounding: bool = Field(True, description="whether one answer without documents filters")
    consistency: bool = Field(True, description="verifiers learn where their majority is the rule")
    mapping: reward_name("gaussian", "absolute_zero", "r_zero") = "gaussian"
    sigma: float = Field(1 / 6, gt=0, description="of the Gaussian (eq. 7)")
    rewards: Literal["earned", "random"] = "earned"
    tie: Literal["no", "first"] = "no"
    malformed: Literal["ignored", "penalised"] = "ignored"
    normalise: Literal["batch", "task"] = Field("batch", description="questioners (eq. 9)")
    balance: Literal["", "counts"] = Field("", description="empty: roles weigh alike (eq. 10)")
    verifier_draw: Literal["", "even"] = Field("", description="even: yes and no in turn")
    alignment: Literal["longpo", "solopo"] | None = Field(None, description="pairs (table 9)")
    eval_items: int = Field(4, ge=1, description="questions of each type and level")
    eval_samples: int = Field(8, ge=1, description="answers to each")
    eval_documents: list[int] = Field([4, 16], min_length=1, description="the first every time")
    eval_proposals: int = Field(36, ge=1, description="questions that the external policy answers")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        static = self.question_source == "static"
        need = self.need
        enough = self.documents_read <= min(self.documents)
        need(enough, "documents_read documents", "1 to the fewest documents of a cluster")
        need(static or not self.context, "context question_source", "with static")
        of_static = self.static_levels or self.static_wrong
        need(static or not of_static, "static_levels static_wrong question_source", "with static")
        own = "policy, start; there is no oracle"
        need(not (self.corpus and static), "question_source corpus", own)
        asks = self.roles.get("questioner")
        needs = self.question_source != "start" or (asks and asks.policy == "start")
        need(needs, "question_source roles", "start with questioner: {policy: start}")
        need(not self.corpus or self.judge == "rule", "judge corpus", "rule, there is no oracle")
        need(static or not self.alignment, "question_source alignment", "static")
        need(not (self.alignment and self.judgments), "judgments_per_answer alignment", "0")
        need(not (self.alignment and self.context), "context alignment", "nothing")
        need(self.rewards == "earned" or not self.alignment, "rewards alignment", "earned")
        learn = {"responder", *(["questioner"] if self.question_source == "policy" else [])}
        learn |= {"verifier"} if self.judgments else set()
        need(learn - {*self.frozen}, "roles", "one that learns")
        still = {*self.silent, *self.frozen, *(["questioner"] if static else [])}
        rows = {*self.role_names} - still
        kl = {name: getattr(self.roles.get(name), "kl", None) for name in rows}
        held = {name for name in rows if (name == "questioner" if kl[name] is None else kl[name])}
        fits = held <= {"questioner"} or held == rows or not self.grpo.get("beta")
        need(fits, "roles grpo.beta", "kl of the questioner alone, or of all roles that learn")
        loss = self.grpo.get("loss_type", "grpo")
        need(loss == "grpo", "grpo.loss_type", "grpo, of whose row means eq. 12 is made")
        known = not foreign("source", [self.corpus], self.plugins)
        need(known, "corpus plugins", "a path, or a source of this run's plugin")
        if not self.corpus:
            check_source(GENERATED, self)
        return self

    preference = property(preference)

    @property
    def judgments(self) -> int:
        """Judgments of an answer."""
        return self.group_size if self.judgments_per_answer is None else self.judgments_per_answer

    @property
    def verifier_groups(self) -> int:
        """Groups of judgments that a step trains: as many judgments as questions (released code)"""
        return max(1, self.groups // max(1, self.judgments))

    def map(self, success: float) -> float:
        """What a mean reward of responders pays the questioner (eq. 7)."""
        options = {"sigma": self.sigma} if self.mapping == "gaussian" else {}
        return float(reward(self.mapping)(success, **options))


def majority(votes: Sequence[bool | None], params: Params) -> bool | None:
    """The verdict of several judgments (eq. 4): yes where more than half of the votes are yes.

    A judgment that is neither yes nor no (None) is no vote; where it is `penalised`, it is a label
    of its own. With tie "first" (released code) the most frequent label wins, of equally frequent
    ones the one seen first. None: there is no verdict, the rule decides alone.
    """
    labels = [vote for vote in votes if vote is not None or params.malformed == "penalised"]
    if params.tie == "first":
        return max(labels, key=labels.count, default=None)
    return labels.count(True) > len(labels) / 2 if labels else None


@dataclass(eq=False)
class Question:
    """One proposal, or one static question, with its answers and judgments.

    Attributes:
        trajectory: the questioner's, None for a static question.
        proposal: None where the form is wrong.
        judgement: the oracle's, for the log alone; None where there is no oracle, or no proposal.
        read: places of the new documents that the questioner read.
        rule, same, votes, majorities: of each answer: whether the rule finds it right, whether it
            means what is stated (by the oracle), its judgments, their majority.
        success: the mean reward of the answers, r-bar.
    """

    context: Context
    trajectory: Trajectory | None = None
    proposal: Proposal | None = None
    judgement: Judgement | None = None
    read: tuple[int, ...] = ()
    grounded: bool = True
    answers: list[Trajectory] = field(default_factory=list)
    judgments: list[list[Trajectory]] = field(default_factory=list)
    rule: list[bool] = field(default_factory=list)
    same: list[bool | None] = field(default_factory=list)
    votes: list[list[bool | None]] = field(default_factory=list)
    majorities: list[bool | None] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    success: float = 0.0
    pay: float = BAD_FORMAT

    @property
    def mixed(self) -> bool:
        """Whether its answers have different rewards: only then can they be compared."""
        return len(set(self.rewards)) > 1

    @property
    def asked(self) -> bool:
        """Whether neither its own prompt nor all of its answers' were too long."""
        return any(one.finish != OVERLONG for one in self.answers or [self.trajectory] if one)

    def settle(self, params: Params, source: Any) -> None:
        """Sets rule, majorities, rewards, success and pay from the answers and judgments."""
        self.judgement = self.proposal and source.judge(self.proposal, self.context)
        if self.proposal is None or not self.grounded:
            self.pay = UNGROUNDED if self.proposal else BAD_FORMAT
            return
        texts = [read_answer(answer.policy_text) for answer in self.answers]
        self.same = [source.means(self.proposal, text) for text in texts]
        self.rule = [bool(source.agrees(self.proposal, text)) for text in texts]
        if params.judge == "oracle":
            self.rule = [bool(same) for same in self.same]
        self.votes = [[prompts.verdict(j.policy_text) for j in group] for group in self.judgments]
        verdicts = [majority(votes, params) for votes in self.votes]
        self.majorities = verdicts or [None] * len(texts)
        pairs = zip(self.rule, self.majorities, strict=True)
        self.rewards = [float(max(rule, bool(verdict))) for rule, verdict in pairs]
        self.success = fmean(self.rewards)
        self.pay = params.map(self.success) if self.mixed else 0.0

    def verifier_rewards(self, params: Params) -> list[list[float]]:
        """The rewards of all judgments (eq. 5): 1 for agreeing with the majority.

        A judgment that is neither yes nor no gets 0, or -1 where it is `penalised`.
        """
        neither = -1.0 if params.malformed == "penalised" else 0.0
        return [
            [neither if vote is None else float(vote == verdict) for vote in votes]
            for votes, verdict in zip(self.votes, self.majorities, strict=bool(self.votes))
        ]

    def disputed(self, place: int, consistent: bool) -> bool:
        """Whether the judgments of an answer can teach the verifier: they differ, more than half of
        those that are yes or no agree, and, where it has to be `consistent`, with the rule."""
        votes = [vote for vote in self.votes[place] if vote is not None]
        split = len(set(votes)) > 1 and max(map(votes.count, votes)) > len(votes) / 2
        return split and (not consistent or self.majorities[place] == self.rule[place])

    def facts(self) -> dict[str, float]:
        """What the log and the records say of it."""
        facts = {"success": self.success, "pay": self.pay}
        if self.judgement and self.judgement.answerable:
            facts |= {"level": float(self.judgement.level), "right": float(self.judgement.right)}
        return facts


class Method(SelfPlayMethod):
    """The three roles on one policy; metrics are those of `spell_numbers`, how many questions the
    memory holds (mean over clusters), how many train (at most N), and each phase's seconds."""

    Params = Params
    pairs = make_pairs

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        kinds = clusters.CorpusClusters, clusters.Clusters
        self.source = open_source(params.corpus or GENERATED, params, tokenizer, *kinds)
        self.memory = Memory(params.memory, params.memory_rule)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        static = params.question_source == "static"
        self.static: list[list[Task]] = self.source.static_set() if static else []
        self.written: list[tuple[Proposal, Context]] = []

    def default_roles(self) -> dict[str, Role]:
        """Answers and judgments are compared within their group (eq. 8), questioners within the
        batch of all processes (eq. 9). A KL, where there is one, holds the questioner alone."""
        sampling = self.params.sampling
        zscore = partial(make_estimator, "group_zscore")
        roles = {name: Role(sampling, zscore(), kl=False) for name in ("responder", "verifier")}
        if self.params.question_source != "static":
            roles["questioner"] = Role(sampling, Estimator(zscores, shared=True))
        if "external" in {*getattr(self.params, "policies", {}), *self.params.roles}:
            own = self.params.eval_sampling
            roles["external"] = Role(own, zscore(), "external", trainable=False)
        return roles

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Rounds of questions until N have mixed answers; role-specific sampling."""
        params = self.params
        seed = self.step_seed(step)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        count = self.share.of(params.groups)
        if params.question_source == "start" and not self.written:
            yield from self.write()
        questions: list[Question] = []
        before, self.memory.latest = dict(self.memory.entries), []
        for number in range(params.rounds):
            questions += yield from self.play_round(step, derive_seed(seed, number), number)
            batch = [question for question in questions if question.mixed]
            if len(batch) >= count:
                break
        batch = batch[:count]
        self.memory.entries = before  # and what all processes stored, which is the same for all
        for cluster, entry in self.share.gather(self.memory.latest):
            self.memory.add(cluster, entry)
        samples = self.rows(questions, batch, random.Random(derive_seed(seed, "select")))
        self.log(**spell_numbers(questions), memory=self.memory.mean_length(), trained=len(batch))
        self.log(**{f"seconds/{PHASES[name]}": took for name, took in self.seconds.items()})
        return samples

    def play_round(self, step: int, seed: int, number: int = 0) -> Episode[list[Question]]:
        """One round of Algorithm 1, phase by phase over all of its questions."""
        params = self.params
        count = self.share.of(params.questions_per_round)
        first = number * params.questions_per_round + self.share.rank
        turns = [first + place * self.share.processes for place in range(count)]

        # 1 Question: m documents of a cluster, what its memory holds; task types take turns. Of a
        # fixed set none comes again in a step before all have come; the start's is a process's own.
        if params.question_source == "policy":
            questions = yield from self.ask(turns, random.Random(seed), seed)
        elif params.question_source == "start":
            drawn = self.shuffled(self.written, [t // self.share.processes for t in turns], step)
            questions = [Question(context, proposal=proposal) for proposal, context in drawn]
        else:
            part = self.static[len(self.static) * step // params.steps]
            questions = list(map(self.static_question, self.shuffled(part, turns, step)))

        # 2 Filter: a question is not grounded if the rule accepts one answer without documents.
        formed = [question for question in questions if question.proposal]
        if params.question_source == "policy":
            yield from self.ground(formed, "responder", seed)

        # 3 Respond: G answers from all documents of the cluster.
        grounded = [question for question in formed if question.grounded]
        asking = [self.prompt(question) for question in grounded]
        groups = yield from self.phase("respond", "responder", asking, params.group_size, seed)
        for question, answers in zip(grounded, groups, strict=True):
            question.answers = answers

        # 4 Verify: each answer that can be read, G times; there are no judgments of others.
        judging = []
        for question in grounded if params.judgments else []:
            question.judgments = [[] for _ in question.answers]
            for group, answer in zip(question.judgments, question.answers, strict=True):
                if text := read_answer(answer.policy_text):
                    judging.append((group, text, question.proposal))
        asking = [prompts.judge(p.question, text, p.answer) for _, text, p in judging]
        groups = yield from self.phase("verify", "verifier", asking, params.judgments, seed)
        for (group, *_), judgments in zip(judging, groups, strict=True):
            group += judgments

        # 5 Pay (eq. 4 to 7), remember.
        for question in questions:
            question.settle(params, self.source)
            self.memory.push(question)
        return questions

    def phase(
        self, name: str, role: str, asking: list[Messages], copies: int, seed: int
    ) -> Episode[list[list[Trajectory]]]:
        """A phase's answers; its wall time is added to the phase's."""
        started = time.perf_counter()
        groups = yield from self.sample(role, asking, copies, partial(derive_seed, seed, name))
        self.seconds[name] += time.perf_counter() - started
        return groups

    def ask(self, turns: Sequence[int], rng: random.Random, seed: int) -> Episode[list[Question]]:
        """A proposal for each turn, about a cluster of the task type whose turn it is."""
        drawn = [self.source.draw(rng, turn) for turn in turns]
        count = self.params.documents_read
        readings = [self.memory.reading(cluster, count, rng) for cluster in drawn]
        asking = [self.source.ask(context, earlier) for _, context, earlier in readings]
        groups = yield from self.phase("ask", "questioner", asking, 1, seed)
        questions = []
        for (new, context, _), (trajectory,) in zip(readings, groups, strict=True):
            proposal = self.source.read(trajectory.policy_text, context)
            question = Question(context, trajectory)
            question.proposal = proposal if isinstance(proposal, Proposal) else None
            question.read = new if self.params.memory_rule == "paper" else context.places
            questions.append(question)
        return questions

    def ground(self, questions: Sequence[Question], role: str, seed: int) -> Episode[None]:
        """Sets `grounded` of proposals by one answer without documents each, where it filters."""
        if not self.params.grounding:
            return
        closed = [self.prompt(question, documents=False) for question in questions]
        groups = yield from self.phase("ground", role, closed, 1, seed)
        for question, (answer,) in zip(questions, groups, strict=True):
            text = read_answer(answer.policy_text)
            question.grounded = not self.source.agrees(question.proposal, text)

    def write(self) -> Episode[None]:
        """The fixed set of `question_source: start`: of `static_questions` proposals of the start
        those in the right form that are grounded; what is stated is the answer, right or wrong.

        A resumed run writes the same ones again, where its engine repeats itself bit by bit.

        Raises:
            ParamError: none is left.
        """
        params = self.params
        seed = derive_seed(params.seed, "written", self.share.rank)
        count = self.share.of(params.static_questions)
        questions = yield from self.ask(range(count), random.Random(seed), seed)
        formed = [question for question in questions if question.proposal]
        yield from self.ground(formed, "questioner", seed)
        self.written = [(q.proposal, q.context) for q in formed if q.grounded]
        if not self.written:
            reason = f"{len(formed)} of the start's are in the right form, none of them is grounded"
            raise ParamError(f"static_questions is {params.static_questions}; {reason}")

    def shuffled(self, fixed: Sequence[Any], turns: Sequence[int], step: int) -> list[Any]:
        """The questions of these turns in the order that a fixed set has in this step."""
        rng = random.Random(derive_seed(self.params.seed, "order", step))
        order = rng.sample(fixed, len(fixed))
        return [order[turn % len(order)] for turn in turns]

    def static_question(self, task: Task) -> Question:
        """A static question, its true answer as the stated one."""
        proposal, context = self.source.stated(task)
        return Question(context, proposal=proposal)

    def prompt(self, question: Question, documents: bool = True) -> Messages:
        """An answerer's prompt."""
        return self.source.task(question.proposal, question.context, documents).messages

    def rows(
        self, questions: Sequence[Question], batch: Sequence[Question], rng: random.Random
    ) -> list[Sample]:
        """Every row of the step. What dynamic sampling leaves out, and a prompt that was too long,
        has weight and advantage 0, so that eq. 9 compares the questioners of the batch alone."""
        paid, judged = self.dynamic_sampling(questions, batch, rng)
        samples: list[Sample] = []

        def add(trained: bool, row: Sample) -> None:
            leave_out(row, not (trained and any(row.mask)))
            samples.append(row)

        for place, question in enumerate(questions):
            if question.trajectory:
                group = question.context.kind if self.params.normalise == "task" else "batch"
                row = question.trajectory.sample(question.pay, "questioner", group)
                row.invalid = question.proposal is None
                row.info |= question.facts()
                add(question in paid, row)
            for answer, earned in zip(question.answers, question.rewards, strict=True):
                invalid = read_answer(answer.policy_text) is None
                add(question in batch, answer.sample(earned, "responder", place, invalid))
            for number, rewards in enumerate(question.verifier_rewards(self.params)):
                several = question.judgments[number], question.votes[number], rewards
                for judgment, vote, earned in zip(*several, strict=True):
                    row = judgment.sample(earned, "verifier", (place, number), vote is None)
                    add((question, number) in judged, row)
        if self.params.rewards == "random":
            permute_rewards(samples, rng)
        return samples

    def dynamic_sampling(
        self, questions: Sequence[Question], batch: Sequence[Question], rng: random.Random
    ) -> tuple[set[Question], set[tuple[Question, int]]]:
        """The questions, and the answers (question, number), whose proposal or judgments train.

        Questioners: those of the batch, and as many of each task type that pay nothing or less
        (wrong form unless it costs nothing, not grounded, all answers alike), but none that nobody
        could be asked; where a type has too few, others fill up. Verifiers: so many groups of
        disputed answers, see `Question.disputed`.
        """
        penalty = self.params.format_penalty
        pool = [q for q in questions if not q.mixed and q.asked and (penalty or q.proposal)]
        rng.shuffle(pool)
        wanted = Counter(question.context.kind for question in batch)
        negative = []
        for question in pool:
            if wanted[question.context.kind] > 0:
                wanted[question.context.kind] -= 1
                negative.append(question)
        others = [question for question in pool if question not in negative]
        negative += others[: len(batch) - len(negative)]
        answers = [(question, n) for question in batch for n, _ in enumerate(question.votes)]
        disputed = [(q, n) for q, n in answers if q.disputed(n, self.params.consistency)]
        count = min(self.share.of(self.params.verifier_groups), len(disputed))
        if self.params.verifier_draw == "even":
            by_verdict = grouped(disputed, lambda answer: answer[0].majorities[answer[1]])
            disputed = in_turn([*by_verdict.values()], rng)[:count]
        judged = rng.sample(disputed, count)
        return {*batch, *negative}, set(judged)

    def select(self, samples: Sequence[Sample]) -> None:
        """Weights of eq. 10 and 12: the sum over roles of the mean over groups, a group being the
        mean over its tokens; a questioner's proposal is a group of its own. With `balance: counts`
        as many times the mean over the groups of all roles as there are roles."""
        trained = [sample for sample in samples if sample.weight]
        roles = {}
        for role, rows in grouped(trained, attrgetter("role")).items():
            groups = grouped(rows, attrgetter("group")).values()
            roles[role] = [[row] for row in rows] if role == "questioner" else [*groups]
        policies = {name: role.policy for name, role in self.roles.items()}
        number = self.share.counts(Counter({role: len(groups) for role, groups in roles.items()}))
        trained_rows = self.share.counts(Counter(sample.policy for sample in trained))
        for role, groups in roles.items():
            rows, count = trained_rows[policies[role]], number[role]
            if self.params.balance == "counts":
                beside = [n for each, n in number.items() if policies[each] == policies[role]]
                rows, count = len(beside) * rows, sum(beside)
            token_mean(groups, rows, count)

    def state_dict(self) -> dict[str, Any]:
        """The memory."""
        return super().state_dict() | {"memory": self.memory.entries}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores `state_dict()`."""
        super().load_state_dict(state)
        self.memory.entries = state["memory"]

    def suites(self, step: int) -> list[Suite]:
        """The source's; proposals answered by the external policy where there is one."""
        params = self.params
        suites = self.source.suites(self.chat, params, step in (0, params.steps))
        if suites and "external" in self.roles and params.question_source == "policy":
            places = range(params.eval_proposals)
            suites.append(Suite(DIFFICULTY, places, self.measure_difficulty, difficulty_rows))
        return suites

    def measure_difficulty(self, place: int) -> Episode[Records]:
        """A question about one of the training's clusters with its memory, answered by the external
        policy, graded by the oracle: 1 - pass@1 is its difficulty (figure 4)."""
        rng = random.Random(self.params.eval_seed("difficulty", place))
        seed = derive_seed("difficulty", place)
        (question,) = yield from self.ask([place], rng, seed)
        kind = question.context.kind
        judgement = question.proposal and self.source.judge(question.proposal, question.context)
        if not judgement or not judgement.answerable:
            return [difficulty(place, kind, Judgement(), [])]
        asking = [self.prompt(question)]
        seeds = partial(derive_seed, seed, "solve")
        (group,) = yield from self.sample("external", asking, self.params.eval_samples, seeds)
        return [difficulty(place, kind, judgement, group)]

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
QwenLong-L1's reward. `alignment` learns from preference pairs on that set (`spell_pairs`).
"""

import random
import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core import prompts
from spnb.core.advantages import make_estimator, permute_rewards, token_mean
from spnb.core.documents import Context, Judgement, Proposal, check_source, open_source
from spnb.core.episodes import Episode, fill
from spnb.core.grading import read_answer
from spnb.core.method import MethodParams, Preference, Role, SelfPlayMethod, Suite
from spnb.core.plugins import REGISTERED, reward, reward_name
from spnb.core.types import Messages, Pair, Sample, Task, Trajectory, derive_seed
from spnb.corpus import clusters
from spnb.evaluate.items import Records
from spnb.evaluate.proposals import DIFFICULTY, difficulty, difficulty_rows, spell_numbers
from spnb.methods.spell_pairs import make_pairs

GENERATED = "lab:clusters"
"""The source where there is no corpus."""
PHASES = ("questioning", "grounding", "responding", "verifying")
BAD_FORMAT = -1.0
UNGROUNDED = -0.5
"""What a questioner gets for a question that is answered without documents."""
PREFERENCE_WEIGHTS = {"longpo": 0.01, "solopo": 3.0}
"""lambda of LongPO (eq. 14), alpha of SoLoPO (DPO, Qwen2.5-7B)."""


class Params(MethodParams):
    """SPELL's own parameters; quantities a step are for all processes together."""

    role_names = ("questioner", "responder", "verifier", "external")

    corpus: str = Field("", description="JSONL of clusters; empty: generated documents")
    document_tokens: int | None = Field(None, ge=1, description="a corpus's are cut after so many")
    tasks: list[Literal[tuple(clusters.TYPES)]] = Field(  # type: ignore[valid-type]
        list(clusters.TYPES), min_length=1, description="task types, drawn evenly"
    )
    clusters: int = Field(24, ge=1, description="generated clusters, of all types together")
    documents: int = Field(4, ge=1, description="n, of a cluster; a responder reads all")
    documents_read: int = Field(2, ge=1, description="m, new ones that a questioner reads")
    memory: int = Field(3, ge=0, description="L, solvable questions that a questioner sees")
    memory_rule: Literal["paper", "code"] = "paper"
    question_source: Literal["policy", "static"] = "policy"
    static_questions: int = Field(96, ge=1, description="of the static set")
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
    alignment: Literal["longpo", "solopo"] | None = Field(None, description="pairs (table 9)")
    eval_items: int = Field(4, ge=1, description="questions of each type and level")
    eval_samples: int = Field(8, ge=1, description="answers to each")
    eval_documents: list[int] = Field([4, 16], min_length=1, description="the first every time")
    eval_proposals: int = Field(36, ge=1, description="questions that the external policy answers")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        static = self.question_source == "static"
        paired = self.alignment is not None
        need = self.need
        need(self.documents_read <= self.documents, "documents_read documents", "1 to documents")
        need(static or not self.context, "context question_source", "with static")
        oracle = "the oracle knows no corpus"
        need(not (self.corpus and static), "question_source corpus", f"policy, {oracle}")
        need(not self.corpus or self.judge == "rule", "judge corpus", f"rule, {oracle}")
        need(static or not paired, "question_source alignment", "static")
        need(not (paired and self.judgments), "judgments alignment", "0, the judge compares alone")
        need(not (paired and self.context), "context alignment", "nothing")
        need(self.rewards == "earned" or not paired, "rewards alignment", "earned")
        row_means = self.grpo.get("loss_type", "grpo") == "grpo"
        need(row_means, "grpo.loss_type", "grpo, of whose row means eq. 12 is made")
        if not self.corpus:
            check_source(GENERATED, self)
        return self

    @property
    def preference(self) -> Preference | None:
        """The loss of the baselines that learn from pairs."""
        if self.alignment is None:
            return None
        weight = PREFERENCE_WEIGHTS[self.alignment]
        return Preference(self.alignment, batch=self.groups, beta=0.1, weight=weight)

    @property
    def judgments(self) -> int:
        """Judgments of an answer."""
        return self.group_size if self.judgments_per_answer is None else self.judgments_per_answer

    @property
    def verifier_groups(self) -> int:
        """Groups of judgments that a step trains: as many judgments as questions (released code)"""
        return max(1, self.groups // max(1, self.judgments))

    def map(self, success: float) -> float:
        """What a mean reward of responders pays the questioner (eq. 7); 0 at 0 and 1."""
        if success in (0.0, 1.0):
            return 0.0
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
    def family(self) -> str:
        """The task type."""
        return self.context.kind

    @property
    def mixed(self) -> bool:
        """Whether its answers have different rewards: only then can they be compared."""
        return len(set(self.rewards)) > 1

    def settle(self, params: Params, source: Any) -> None:
        """Sets rule, majorities, rewards, success and pay from the answers and judgments."""
        if self.proposal is None or not self.grounded:
            self.pay = UNGROUNDED if self.proposal else BAD_FORMAT
            return
        texts = [read_answer(answer.policy_text) for answer in self.answers]
        self.same = [source.means(self.proposal, text) for text in texts]
        self.rule = [bool(source.agrees(self.proposal, text)) for text in texts]
        if params.judge == "oracle":
            self.rule = [bool(same) for same in self.same]
        self.votes = [[prompts.verdict(one.policy_text) for one in of] for of in self.judgments]
        self.majorities = [majority(votes, params) for votes in self.votes]
        self.majorities = self.majorities or [None] * len(self.answers)
        pairs = zip(self.rule, self.majorities, strict=True)
        self.rewards = [float(max(rule, bool(verdict))) for rule, verdict in pairs]
        self.success = fmean(self.rewards)
        self.pay = params.map(self.success)

    def verifier_rewards(self, params: Params) -> list[list[float]]:
        """The rewards of all judgments (eq. 5): 1 for agreeing with the majority.

        A judgment that is neither yes nor no gets 0, or -1 where it is `penalised`.
        """
        other = -1.0 if params.malformed == "penalised" else 0.0
        return [
            [other if vote is None else float(vote == verdict) for vote in votes]
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


class Memory:
    """The latest `size` solvable questions of each cluster with their documents (H of algorithm 1).

    The paper stores a question that pays (0 < r-bar < 1) with its new documents, and the next one
    is about m new documents and all stored ones. The released code stores every question that is
    solved at least once, fully solved ones too, with all documents that its questioner saw, and
    draws new documents from those not seen yet.
    """

    def __init__(self, size: int, rule: str = "paper"):
        self.size = size
        self.rule = rule
        self.entries: dict[str, list[dict[str, Any]]] = {}

    def reading(
        self, cluster: Context, count: int, rng: random.Random
    ) -> tuple[tuple[int, ...], Context, list[str]]:
        """(Places of the new documents, the cluster with the places of all documents to read in
        their order, earlier questions with answers)."""
        entries = self.entries.get(cluster.name, [])
        seen = set(chain.from_iterable(entry["read"] for entry in entries))
        places = range(len(cluster.documents))
        unseen = [place for place in places if self.rule == "paper" or place not in seen]
        new = tuple(sorted(rng.sample(unseen, min(count, len(unseen)))))
        earlier = [clusters.with_answer(entry["question"], entry["answer"]) for entry in entries]
        return new, replace(cluster, places=tuple(sorted({*new, *seen}))), earlier

    def push(self, question: Question) -> None:
        """Stores a question that is solvable by the memory's rule."""
        solvable = question.pay > 0 if self.rule == "paper" else question.success >= 0.01
        if not self.size or not solvable or question.trajectory is None:
            return
        stated = question.proposal or Proposal("", "")
        entry = {"read": question.read, "question": stated.question, "answer": stated.answer}
        kept = [*self.entries.get(question.context.name, []), entry]
        self.entries[question.context.name] = kept[-self.size :]

    def mean_length(self) -> float:
        """Questions stored, mean over clusters that have some; 0 without."""
        return fmean(map(len, self.entries.values())) if self.entries else 0.0


class Method(SelfPlayMethod):
    """The three roles on one policy; metrics are those of `spell_numbers`, how many questions the
    memory holds (mean over clusters), and each phase's seconds."""

    Params = Params

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        path = params.corpus and params.corpus not in REGISTERED["source"]
        named = partial(open_source, params.corpus or GENERATED)
        self.source: Any = (clusters.CorpusClusters if path else named)(params, tokenizer)
        self.memory = Memory(params.memory, params.memory_rule)
        self.static: list[list[Task]] = []
        if params.question_source == "static":
            self.static = self.source.static_set()

    def default_roles(self) -> dict[str, Role]:
        """Answers and judgments are compared within their group (eq. 8), questioners within the
        batch (eq. 9). A KL, where there is one, holds the questioner alone."""
        sampling = self.params.sampling
        zscore = partial(make_estimator, "group_zscore")
        roles = {name: Role(sampling, zscore(), kl=False) for name in ("responder", "verifier")}
        if self.params.question_source == "policy":
            roles["questioner"] = Role(sampling, zscore())
        if "external" in getattr(self.params, "policies", {}):
            roles["external"] = Role(sampling, zscore(), "external", trainable=False)
        return roles

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Rounds of questions until N have mixed answers; role-specific sampling."""
        params = self.params
        seed = derive_seed(params.seed, "train", step, self.share.rank)
        count = max(1, self.share.of(params.groups))
        self.seconds = dict.fromkeys(PHASES, 0.0)
        questions: list[Question] = []

        def play_round(number: int, missing: Mapping[str, int]) -> Episode[dict[str, list[Any]]]:
            new = yield from self.play_round(step, derive_seed(seed, number))
            questions.extend(new)
            return {"mixed": [question for question in new if question.mixed]}

        yield from fill(play_round, {"mixed": count}, params.rounds)
        kept = [question for question in questions if question.mixed][:count]
        samples = self.rows(questions, kept, random.Random(derive_seed(seed, "select")))
        self.log(**spell_numbers(questions), memory=self.memory.mean_length())
        self.log(**{f"seconds/{name}": took for name, took in self.seconds.items()})
        return samples

    def play_round(self, step: int, seed: int) -> Episode[list[Question]]:
        """One round of Algorithm 1, phase by phase over all of its questions."""
        params = self.params
        rng = random.Random(seed)
        count = max(1, self.share.of(params.questions_per_round))

        # 1 Question: m documents of a cluster, what its memory holds.
        if params.question_source == "policy":
            questions = yield from self.timed("questioning", self.ask(count, rng, seed))
        else:
            part = len(self.static) * step // params.steps
            drawn = rng.choices(self.static[part], k=count)
            questions = [self.static_question(task) for task in drawn]

        # 2 Filter: one answer without documents.
        formed = [question for question in questions if question.proposal]
        if params.grounding and params.question_source == "policy":
            yield from self.timed("grounding", self.ground(formed, seed))

        # 3 Respond: G answers with all documents.
        grounded = [question for question in formed if question.grounded]
        yield from self.timed("responding", self.respond(grounded, seed))

        # 4 Verify: each answer, G times.
        if params.judgments:
            yield from self.timed("verifying", self.verify(grounded, seed))

        # 5 Pay (eq. 4 to 7), remember.
        for question in questions:
            question.settle(params, self.source)
            self.memory.push(question)
        return questions

    def pairs(self) -> Episode[list[Pair]]:
        """Where `alignment` is set: this process's share of the pairs, from the static set."""
        seed = derive_seed(self.params.seed, "pairs", self.share.rank)
        tasks = self.share.part(self.static[0])
        return make_pairs(self, [self.static_question(task) for task in tasks], seed)

    def timed(self, phase: str, episode: Episode[Any]) -> Episode[Any]:
        """An episode whose wall time is added to its phase's."""
        started = time.perf_counter()
        result = yield from episode
        self.seconds[phase] += time.perf_counter() - started
        return result

    def ask(self, count: int, rng: random.Random, seed: int) -> Episode[list[Question]]:
        """`count` proposals, task types in turn over all processes, each about a cluster of its
        type."""
        turns = [self.share.rank + place * self.share.processes for place in range(count)]
        drawn = [self.source.draw(rng, turn) for turn in turns]
        reading = [
            self.memory.reading(cluster, self.params.documents_read, rng) for cluster in drawn
        ]
        asking = [self.source.ask(context, earlier) for _, context, earlier in reading]
        groups = yield from self.sample("questioner", asking, 1, partial(derive_seed, seed, "ask"))
        questions = []
        for (new, context, _), (trajectory,) in zip(reading, groups, strict=True):
            question = self.question(context, trajectory)
            question.read = new if self.params.memory_rule == "paper" else context.places or ()
            questions.append(question)
        return questions

    def question(self, context: Context, trajectory: Trajectory) -> Question:
        """What a questioner wrote about a cluster."""
        found = self.source.read(trajectory.policy_text, context)
        if not isinstance(found, Proposal):
            return Question(context, trajectory)
        return Question(context, trajectory, found, self.source.judge(found, context))

    def static_question(self, task: Task) -> Question:
        """A static question, its true answer as the stated one."""
        proposal, context = self.source.stated(task)
        judgement = self.source.judge(proposal, context)
        return Question(context, proposal=proposal, judgement=judgement)

    def prompt(self, question: Question, documents: bool = True) -> Messages:
        """An answerer's prompt."""
        return self.source.task(question.proposal, question.context, documents).messages

    def ground(self, questions: Sequence[Question], seed: int) -> Episode[None]:
        """A question is not grounded if the rule accepts one answer without documents."""
        closed = [self.prompt(question, documents=False) for question in questions]
        seeds = partial(derive_seed, seed, "ground")
        groups = yield from self.sample("responder", closed, 1, seeds)
        for question, (answer,) in zip(questions, groups, strict=True):
            text = read_answer(answer.policy_text)
            question.grounded = not self.source.agrees(question.proposal, text)

    def respond(self, questions: Sequence[Question], seed: int) -> Episode[None]:
        """G answers to each question from all documents of its cluster."""
        asking = [self.prompt(question) for question in questions]
        size = self.params.group_size
        seeds = partial(derive_seed, seed, "respond")
        groups = yield from self.sample("responder", asking, size, seeds)
        for question, answers in zip(questions, groups, strict=True):
            question.answers = answers

    def verify(self, questions: Sequence[Question], seed: int) -> Episode[None]:
        """Judgments of each answer that can be read, against the stated one; none of others."""
        places = []
        asking = []
        for question in questions:
            question.judgments = [[] for _ in question.answers]
            stated = question.proposal or Proposal("", "")
            for place, answer in enumerate(question.answers):
                if text := read_answer(answer.policy_text):
                    places.append((question, place))
                    asking.append(prompts.judge(stated.question, text, stated.answer))
        seeds = partial(derive_seed, seed, "verify")
        groups = yield from self.sample("verifier", asking, self.params.judgments, seeds)
        for (question, place), group in zip(places, groups, strict=True):
            question.judgments[place] = group

    def rows(
        self, questions: Sequence[Question], kept: Sequence[Question], rng: random.Random
    ) -> list[Sample]:
        """Every row of the step. Those that dynamic sampling leaves out have weight and advantage
        0, so that eq. 9 compares the questioners of the batch alone; so have those of a prompt
        that was too long to be asked."""
        params = self.params
        groups = max(1, self.share.of(params.verifier_groups))
        paid, judged = dynamic_sampling(questions, kept, groups, params, rng)
        samples: list[Sample] = []

        def add(
            one: Trajectory, earned: float, role: str, group: Hashable, trained: bool, invalid: bool
        ) -> None:
            row = one.sample(earned, role, group)
            row.invalid = invalid
            if not trained or not any(row.mask):
                row.weight = 0.0
                row.advantage = 0.0
            samples.append(row)

        for place, question in enumerate(questions):
            if question.trajectory:
                group = question.family if params.normalise == "task" else "batch"
                wrong = question.proposal is None
                add(question.trajectory, question.pay, "questioner", group, place in paid, wrong)
                samples[-1].info |= question.facts()
            for answer, right in zip(question.answers, question.rewards, strict=True):
                unread = read_answer(answer.policy_text) is None
                add(answer, right, "responder", place, question in kept, unread)
            agreed_all = question.verifier_rewards(params)
            for number, (several, each) in enumerate(
                zip(question.judgments, agreed_all, strict=True)
            ):
                key = place, number
                for one, agreed in zip(several, each, strict=True):
                    neither = prompts.verdict(one.policy_text) is None
                    add(one, agreed, "verifier", key, key in judged, neither)
        if params.rewards == "random":
            permute_rewards(samples, rng)
        return samples

    def select(self, samples: Sequence[Sample]) -> None:
        """Weights of eq. 10 and 12: the sum over roles of the mean over groups, a group being the
        mean over its tokens; a questioner's proposal is a group of its own."""
        trained = [sample for sample in samples if sample.weight]
        for role in self.roles:
            groups: dict[Hashable, list[Sample]] = {}
            for number, sample in enumerate(trained):
                if sample.role == role:
                    key = number if role == "questioner" else sample.group
                    groups.setdefault(key, []).append(sample)
            token_mean(list(groups.values()), len(trained))

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
        rng = random.Random(derive_seed("evaluation", "difficulty", place))
        cluster = self.source.draw(rng, place)
        seeds = partial(derive_seed, derive_seed("difficulty", place))
        _, context, earlier = self.memory.reading(cluster, self.params.documents_read, rng)
        prompt = self.source.ask(context, earlier)
        ((asked,),) = yield from self.sample("questioner", [prompt], 1, partial(seeds, "ask"))
        question = self.question(context, asked)
        if question.judgement is None or not question.judgement.answerable:
            return [difficulty(place, cluster.kind, Judgement(), [])]
        size = self.params.eval_samples
        asking = [self.prompt(question)]
        (answers,) = yield from self.sample("external", asking, size, partial(seeds, "solve"))
        return [difficulty(place, cluster.kind, question.judgement, answers)]


def dynamic_sampling(
    questions: Sequence[Question],
    kept: Sequence[Question],
    verifier_groups: int,
    params: Params,
    rng: random.Random,
) -> tuple[set[int], set[tuple[int, int]]]:
    """Places of the questioners and (question, answer) of the verifier groups that are trained.

    Questioners: those of the kept questions, and as many of each task type that pay nothing or less
    (wrong form unless it costs nothing, not grounded, all answers alike); where a type has too few,
    others fill up. Verifiers: so many groups of disputed answers, see `Question.disputed`.
    """
    positive = [place for place, question in enumerate(questions) if question in kept]
    pool = [
        place
        for place, question in enumerate(questions)
        if not question.mixed and (params.format_penalty or question.proposal)
    ]
    rng.shuffle(pool)
    wanted = Counter(questions[place].family for place in positive)
    negative = []
    for place in pool:
        if wanted[questions[place].family] > 0:
            wanted[questions[place].family] -= 1
            negative.append(place)
    others = [place for place in pool if place not in negative]
    negative += others[: len(positive) - len(negative)]
    disputed = [
        (place, number)
        for place in positive
        for number in range(len(questions[place].votes))
        if questions[place].disputed(number, params.consistency)
    ]
    judged = rng.sample(disputed, min(verifier_groups, len(disputed)))
    return {*positive, *negative}, set(judged)

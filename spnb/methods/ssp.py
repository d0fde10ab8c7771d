"""SSP: a proposer that searches back from an answer, a solver that searches for it (Lu et al. 2025,
algorithm 1).

Both roles are one policy. The proposer is given an answer, searches for what leads to it and writes
a question. Rules filter its form; then retrieval-augmented verification (RAG): the policy answers
the question from what the proposer found, among noisy documents of other trajectories, and has to
give the answer. The solver searches several times for each question that passed. It is paid 1 for
the answer (eq. 6), the proposer 1 - mean (eq. 7), and 0 for a question that did not pass.

Where the released code differs from the paper the paper is the default: the policy verifies, not a
judge model (`roles.verifier.policy`); noise is single documents (`noise`); one search is enough
(`min_searches`). But the solver's advantage is divided by the deviation as in the code; eq. 4 is
"group_mean". The two roles are updated together, by the sum of their means, those of the KL
included; the code updates one after the other. The proposer's group is its answer, the solver's its
question, so that "raw" is REINFORCE, "group_zscore" GRPO and "batch_zscore" REINFORCE++ (table 6).
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core import prompts
from spnb.core.advantages import leave_out, make_estimator, permute_rewards
from spnb.core.documents import Context, Judgement, Proposal, check_source, open_source
from spnb.core.episodes import OVERLONG, Episode
from spnb.core.grading import graded, normal, read_answer
from spnb.core.method import ROW_MEAN_LOSSES, MethodParams, Role, SearchMethod, Suite
from spnb.core.plugins import find, foreign
from spnb.core.search import LOST
from spnb.core.types import Messages, Sample, Trajectory, derive_seed
from spnb.corpus.targets import TitleTargets
from spnb.evaluate.by_search import BySearch
from spnb.evaluate.items import Records, record
from spnb.evaluate.proposals import SUITE, UNVERIFIED, proposal_rows

GENERATED = "lab:targets"
"""The source where there is no corpus."""
BLOCK = 16
"""Held-out proposals that are made together, so that there is noise to verify them among."""
SHOWN = 2
"""Attempts at a held-out proposal whose texts are kept."""
UNREAD = "check too long"
"""The reason for a question of which a reading did not fit into `max_length`."""
TOO_LONG = "prompt too long"
"""The reason where its own prompt did not fit, or it fits into none of a solver."""


class Params(MethodParams):
    """SSP's own parameters."""

    role_names = ("proposer", "verifier", "solver", "judge")
    silent = ("verifier", "judge")
    asks = {
        "step": "answers_per_step * proposals * readings + answers_per_step * proposals * attempts"
        " + answers_per_step * resamples",
        "evaluation": "eval_items * highest + eval_proposals * readings"
        " + eval_proposals * attempts",
    }

    corpus: str = Field("", description="a path, or a plugin's source; empty: generated")
    answers: str = Field("", description="over a corpus: a JSONL file of answers; empty: titles")
    examples: list[str] = Field([], description="of questions, shown to the proposer")
    retriever: str = Field("bm25", description="over a corpus: a kind of index, or a server's URL")
    family: str = Field("quest", description="of generated chains: which world")
    highest: int = Field(8, ge=1, description="searches that a question is asked to take, at most")
    answers_per_step: int = Field(32, ge=1, description="answers that questions are asked for")
    proposals: int = Field(1, ge=1, description="for each answer; several for GRPO")
    attempts: int = Field(5, ge=1, description="of the solver at each question")
    questions: Literal["proposer", "even"] = Field(
        "proposer", description="even: drawn by the oracle, all levels alike"
    )
    paid: Literal["earned", "shuffled"] = "earned"
    invalid_reward: float = Field(0, le=0, description="of a question that did not pass")
    # the rules
    min_characters: int = Field(10, ge=0)
    max_characters: int = Field(1000, ge=1)
    min_words: int = Field(10, ge=0)
    min_searches: int = Field(1, ge=0, description="the released code has 2")
    distinct_queries: bool = Field(False, description="as the released code: no query twice")
    hidden_answer: bool = Field(False, description="the answer may stand in no query")
    # the verification
    verify: Literal["policy", "oracle", "none"] = "policy"
    readings: int = Field(1, ge=1, description="all of which must give the answer")
    noisy_documents: int = Field(4, ge=0)
    noise: Literal["document", "trajectory"] = Field(
        "document", description="the unit of noise; the released code: all of a trajectory"
    )
    grader: Literal["match", "judge"] = Field("match", description="judge: where no match is found")
    # the slots of questions that did not pass
    fill: Literal["dummy", "resample", "replay"] = "replay"
    reset_every: int = Field(10, ge=0, description="steps after which replay forgets; 0: never")
    resamples: int = Field(5, ge=0, description="most further batches of answers")
    # search
    max_length: int = Field(2048, ge=16, description="tokens of a trajectory, results included")
    syntax: Literal["xml", "qwen3", "olmo3"] = "xml"
    results: int = Field(3, ge=1, description="documents that a search returns")
    max_searches: int = Field(9, ge=0, description="of a trajectory")
    eval_temperature: float = Field(1.0, ge=0, description="the paper's answers are greedy")
    eval_top_p: float = Field(1.0, gt=0, le=1)
    eval_items: int = Field(64, ge=1, description="held-out questions of each level")
    eval_proposals: int = Field(64, ge=1, description="proposals for held-out answers")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        proposer = self.questions == "proposer" and "proposer" not in self.frozen
        need = self.need
        known = not foreign("source", [self.corpus], self.plugins)
        need(known, "corpus plugins", "a path, or a source of this run's plugin")
        own = self.corpus and find("source", self.corpus) is None
        need(own or not self.answers, "answers corpus", "with the path of a corpus")
        oracle = self.questions == "even" or self.verify == "oracle"
        need(not (self.corpus and oracle), "corpus questions verify", "without an oracle")
        if not self.corpus:
            check_source(GENERATED, self)
        solver = "solver" not in self.frozen
        need(proposer or solver, "questions roles", "a role that learns")
        if proposer:
            self.need_group("proposer", "proposals", "raw")
        self.need_group("solver", "attempts", "group_zscore")
        need(self.min_characters <= self.max_characters, "min_characters", "up to max_characters")
        need(self.min_searches <= self.max_searches, "min_searches", "up to max_searches")
        keeps = self.fill != "resample"  # every proposal as a row of the batch
        need(keeps or self.proposals == 1, "proposals fill", "1 with resample")
        need(keeps or not self.invalid_reward, "invalid_reward fill", "0 with resample")
        judge = self.grader == "match" or getattr(self.roles.get("judge"), "policy", None)
        need(judge, "grader roles", "a policy for the judge, which else would be the learning one")
        loss = self.grpo.get("loss_type", "dr_grpo")
        need(loss in ROW_MEAN_LOSSES, "grpo.loss_type", " or ".join(ROW_MEAN_LOSSES))
        return self

    @property
    def paths(self) -> dict[str, list[str]]:
        """The corpus, and the list of answers over it."""
        return super().paths | {"answers": [self.answers] if self.answers else []}


@dataclass
class Question:
    """A slot of the batch: what a proposer wrote for an answer, or a replayed or drawn question.

    `reason` says which filter removed it, "" where none did. `success` is the solver's mean.
    """

    context: Context
    trajectory: Trajectory | None = None
    proposal: Proposal | None = None
    reason: str = ""
    success: float = 0.0
    judgement: Judgement | None = None
    replayed: bool = False
    rows: list[Sample] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the solver gets it."""
        return self.proposal is not None and not self.reason


class Method(SearchMethod):
    """One policy in both roles; metrics are those of `numbers`."""

    Params = Params
    stateful = ("pool",)
    kl_weighted = True

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        self.source: Any = open_source(params.corpus or GENERATED, params, tokenizer, TitleTargets)
        self.pool: list[list[str]] = []
        """Questions that passed, with their answers, for replay."""
        self.filled = (1, 1)
        """Of the last step, slots with a question and all slots."""

    def default_roles(self) -> dict[str, Role]:
        """REINFORCE for the proposer, GRPO for the solver; verifier and judge do not learn."""
        sampling = self.params.sampling
        still = Role(sampling, make_estimator("raw"), trainable=False)
        return {
            "proposer": Role(sampling, make_estimator("raw")),
            "verifier": still,
            "solver": Role(sampling, make_estimator("group_zscore")),
            "judge": still,
        }

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """Algorithm 1; the proposer's rows, then the solver's."""
        params = self.params
        seed = self.step_seed(step)
        rng = random.Random(seed)
        count = self.share.of(params.answers_per_step)

        # 1 Draw answers. 2 Propose, 3 filter by rules, 4 verify, until the batch is filled.
        proposed, slots = yield from self.batch(count, rng, seed)

        # 5 Fill the slots of questions that did not pass.
        questions = [slot for slot in slots if slot.passed]
        self.check_any(proposed, questions)
        questions += self.replay(len(slots) - len(questions), rng)
        lost = sum(slot.reason == LOST for slot in slots) if len(questions) < len(slots) else 0

        # 6 Solve: several attempts at each question.
        yield from self.solve(questions, seed)
        lost += sum(question.reason == LOST for question in questions)
        questions = [question for question in questions if question.passed]

        # 7 Pay both roles; 8 remember what passed.
        rows = [self.paid(slot, place) for place, slot in enumerate(slots) if slot.trajectory]
        rows += [row for question in questions for row in question.rows]
        if params.paid == "shuffled":
            permute_rewards([row for row in rows if row.weight], rng)
        self.remember(slots, step)
        self.filled = (len(questions), len(slots) - lost)
        self.log(**numbers(proposed, questions))
        return rows

    def batch(
        self, count: int, rng: random.Random, seed: int
    ) -> Episode[tuple[list[Question], list[Question]]]:
        """All that was proposed, and the step's slots: of it what came first, passed or not. With
        `resample` answers are drawn until `count` questions passed, and these are the slots; if too
        few do, some of them come twice."""
        params = self.params
        if params.questions == "even":
            levels = [rng.randint(1, params.highest) for _ in range(count)]
            return [], [self.drawn(level, rng) for level in levels]
        proposed = yield from self.propose(count, rng, derive_seed(seed, "batch", 0))
        if params.fill != "resample":
            return proposed, proposed
        for number in range(1, params.resamples + 1):
            if sum(slot.passed for slot in proposed) >= count:
                break
            proposed += yield from self.propose(count, rng, derive_seed(seed, "batch", number))
        passed = [slot for slot in proposed if slot.passed]
        again = [Question(slot.context, proposal=slot.proposal) for slot in passed]
        more = rng.choices(again, k=max(0, count - len(passed))) if again else []
        return proposed, (passed + more)[:count]

    def propose(self, count: int, rng: random.Random, seed: int) -> Episode[list[Question]]:
        """Questions for `count` answers, filtered and verified."""
        contexts = [self.source.draw(rng, place) for place in range(count)]
        return (yield from self.ask(contexts, self.params.proposals, seed))

    def ask(
        self, contexts: Sequence[Context], copies: int, seed: int, pool: str = "train"
    ) -> Episode[list[Question]]:
        """`copies` questions for each answer, filtered and verified."""
        prompts_of = [self.source.ask(context) for context in contexts]
        groups = yield from self.search("proposer", prompts_of, copies, seed, pool)
        questions = []
        for context, group in zip(contexts, groups, strict=True):
            questions += [self.read(context, trajectory) for trajectory in group]
        yield from self.verify(questions, seed)
        return questions

    def read(self, context: Context, trajectory: Trajectory) -> Question:
        """A proposer's question by the rules alone, with what the oracle says of it."""
        if trajectory.finish == LOST:
            return Question(context, trajectory, reason=LOST)
        if trajectory.finish == OVERLONG:
            return Question(context, trajectory, reason=TOO_LONG)
        proposal = self.source.read(trajectory.policy_text, context)
        if not isinstance(proposal, Proposal):
            return Question(context, trajectory, reason=proposal.reason)
        reason = self.broken_rule(proposal, trajectory)
        judgement = self.source.judge(proposal, context)
        return Question(context, trajectory, proposal, reason, judgement=judgement)

    def broken_rule(self, proposal: Proposal, trajectory: Trajectory) -> str:
        """The first rule that a question breaks, "" for none."""
        params = self.params
        text = proposal.question
        queries = [normal(query) for query in trajectory.searches]
        said = (proposal.answer, text, *trajectory.searches)
        answer, asked, *searched = (" ".join(each.casefold().split()) for each in said)
        rules = {
            "too short": len(text) < params.min_characters,
            "too few words": len(text.split()) < params.min_words,
            "too long": len(text) > params.max_characters,
            "answer in the question": answer in asked,
            "too few searches": len(queries) < params.min_searches,
            "nothing found": params.min_searches > 0 and not trajectory.documents,
            "a query twice": params.distinct_queries and len({*queries}) < len(queries),
            "answer in a query": params.hidden_answer and any(answer in each for each in searched),
        }
        return next((reason for reason, broken in rules.items() if broken), "")

    def verify(self, questions: Sequence[Question], seed: int) -> Episode[None]:
        """Retrieval-augmented verification of those that follow the rules."""
        asked = [question for question in questions if question.passed]
        if self.params.verify == "policy":
            yield from self.reread(asked, questions, seed)
        elif self.params.verify == "oracle":
            for question in asked:
                question.reason = "" if question.judgement.right else UNVERIFIED

    def reread(
        self, asked: Sequence[Question], batch: Sequence[Question], seed: int
    ) -> Episode[None]:
        """Every reading of the documents has to give a question's answer."""
        rng = random.Random(derive_seed(seed, "noise"))
        readings = [question for question in asked for _ in range(self.params.readings)]
        texts = [
            prompts.answer(question.proposal.question, self.mixed(question, batch, rng), "plain")
            for question in readings
        ]
        groups = yield from self.sample("verifier", texts, 1, partial(derive_seed, seed, "verify"))
        missed = []
        for question, (trajectory,) in zip(readings, groups, strict=True):
            answer = read_answer(trajectory.policy_text)
            if trajectory.finish == OVERLONG:
                question.reason = question.reason or UNREAD
            elif answer is None:
                question.reason = UNVERIFIED
            elif not self.source.agrees(question.proposal, answer):
                missed.append((question, answer))
        told = [(one.proposal.question, answer, one.proposal.answer) for one, answer in missed]
        same = yield from self.judged(told, derive_seed(seed, "verify"))
        for (question, _), right in zip(missed, same, strict=True):
            question.reason = question.reason if right else UNVERIFIED

    def mixed(self, question: Question, batch: Sequence[Question], rng: random.Random) -> list[str]:
        """What the proposer found among noise that it did not find, in random order.

        The noise is documents of other trajectories of the batch, or all that some of them found.
        """
        own = list(dict.fromkeys(question.trajectory.documents))
        found = [one.trajectory.documents for one in batch if one is not question]
        others = [texts for texts in found if texts]
        count = self.params.noisy_documents
        if self.params.noise == "trajectory":
            chosen = rng.sample(others, min(count, len(others)))
            noise = [text for texts in chosen for text in texts]
        else:
            texts = sorted({text for texts in others for text in texts} - {*own})
            noise = rng.sample(texts, min(count, len(texts)))
        mixed = list(dict.fromkeys([*own, *noise]))
        rng.shuffle(mixed)
        return mixed

    def check_any(self, slots: Sequence[Question], questions: Sequence[Question]) -> None:
        """Ends the run where in no process a question passed or can be replayed, and all were
        searched for."""
        pool = self.pool if self.params.fill == "replay" else []
        counts = Counter(slot.reason for slot in slots)
        if self.share.counts(Counter(left=len(questions) + len(pool) + counts[LOST]))["left"]:
            return
        removed = ", ".join(f"{reason}: {count}" for reason, count in counts.most_common())
        raise ValueError(f"no question of {len(slots)} passed the filters ({removed})")

    def replay(self, count: int, rng: random.Random) -> list[Question]:
        """Earlier questions in the place of `count` that did not pass; none without replay."""
        if self.params.fill != "replay" or not self.pool:
            return []
        chosen = [Proposal(*rng.choice(self.pool)) for _ in range(count)]
        kind = self.source.kinds[0]
        return [Question(Context(kind), proposal=one, replayed=True) for one in chosen]

    def remember(self, slots: Sequence[Question], step: int) -> None:
        """Keeps what passed for later steps; forgets all every `reset_every` steps."""
        if self.params.fill == "replay":
            new = [slot.proposal for slot in slots if slot.passed and slot.trajectory]
            self.pool += [[one.question, one.answer] for one in new]
        if self.params.reset_every and (step + 1) % self.params.reset_every == 0:
            self.pool = []

    def drawn(self, level: int, rng: random.Random) -> Question:
        """The oracle's question of a level."""
        task = self.source.exercise(level, rng)
        judgement = Judgement(level, True, True, gold=task.gold[0])
        proposal = Proposal(task.question, task.gold[0])
        return Question(Context(self.source.kinds[0]), proposal=proposal, judgement=judgement)

    def solve(self, questions: Sequence[Question], seed: int, pool: str = "train") -> Episode[None]:
        """Attempts at each question by search: their rows, and the share of right ones."""
        attempts = self.params.attempts
        tasks = [self.source.task(one.proposal, one.context) for one in questions]
        texts = [task.messages for task in tasks]
        groups = yield from self.search("solver", texts, attempts, derive_seed(seed, "solve"), pool)
        rows = graded(tasks, groups, "solver")
        answers = [read_answer(one.policy_text) for group in groups for one in group]
        missed = [place for place, row in enumerate(rows) if not (row.reward or row.invalid)]
        of = [tasks[place // attempts] for place in missed]
        told = [(t.question, answers[i], t.gold[0]) for i, t in zip(missed, of, strict=True)]
        same = yield from self.judged(told, seed)
        for place, right in zip(missed, same, strict=True):
            rows[place].reward = float(right)
        each = iter(rows)
        for question, group in zip(questions, groups, strict=True):
            question.rows = list(islice(each, attempts))
            lost = [attempt.finish == LOST for attempt in group]
            pairs = list(zip(question.rows, lost, strict=True))
            for row, gone in pairs:
                leave_out(row, gone)
            question.success = share(row.reward for row, gone in pairs if not gone)
            if all(lost):
                question.reason = LOST
            elif question.trajectory and all(one.finish == OVERLONG for one in group):
                question.reason = TOO_LONG

    def judged(self, told: Sequence[tuple[str, str, str]], seed: int) -> Episode[list[bool]]:
        """Whether a judge, where there is one, takes answers that do not match for right ones; of
        each the question, the answer and the right one."""
        if self.params.grader == "match":
            return [False] * len(told)
        said = yield from self.says([prompts.judge(*one) for one in told], seed)
        return [bool(verdict) for verdict in said]

    def says(self, asked: Sequence[Messages], seed: int) -> Episode[list[bool | None]]:
        """The judge's yes or no to each prompt, None where it cannot be read."""
        verdicts = yield from self.sample("judge", asked, 1, partial(derive_seed, seed, "judge"))
        return [prompts.verdict(trajectory.policy_text) for (trajectory,) in verdicts]

    @property
    def by_search(self) -> BySearch:
        """Benchmarks are searched for in the held-out library; `grader` reads their answers."""
        judge = self.says if self.params.grader == "judge" else None
        return BySearch(self.tool("heldout"), judge)

    def paid(self, slot: Question, place: int) -> Sample:
        """A proposer's row: eq. 7 for a question that passed; its group is its answer."""
        pay = 1 - slot.success if slot.passed else self.params.invalid_reward
        group = place // self.params.proposals
        facts = {"reason": slot.reason, "success": slot.success}
        row = slot.trajectory.sample(pay, "proposer", group, not slot.passed, **facts)
        leave_out(row, slot.reason in (LOST, TOO_LONG))
        return row

    def select(self, samples: Sequence[Sample]) -> None:
        """The mean over the proposer's rows plus the mean over the solver's, in which empty slots
        count as rows without an advantage; rows that add nothing are left out. Over the rows of all
        processes."""
        filled, slots = self.filled
        number: Counter = Counter(filled=filled, slots=slots)
        parts = {}
        for name in ("proposer", "solver"):
            role = self.roles[name]
            whole = self.counts_all(role)
            rows = [row for row in samples if row.role == name and row.weight]
            number[name] = len(rows)
            for row in rows:
                row.weight *= bool(whole or row.advantage)
            parts[name] = [row for row in rows if row.weight]
            number["kept", role.policy] += len(parts[name])
        number = self.share.counts(number)
        slots = number["solver"] * number["slots"] / max(number["filled"], 1)
        sizes = {"proposer": number["proposer"], "solver": slots}
        for name, rows in parts.items():
            for row in rows:
                row.weight *= number["kept", row.policy] / sizes[name]

    def suites(self, step: int) -> list[Suite]:
        """The source's suites; proposals for held-out answers, each solved as it is."""
        ends = step in (0, self.params.steps)
        suites = self.source.suites(self.chat, self.params, ends)
        blocks = range(0, self.params.eval_proposals, BLOCK)
        return [*suites, Suite(SUITE, blocks, self.tried, proposal_rows)]

    def tried(self, first: int) -> Episode[Records]:
        """The records of a block of proposals for held-out answers, verified among each other's
        documents, with their texts. Valid: where the oracle says so, without one what passed;
        solved: what is valid or passed."""
        seed = self.params.eval_seed("proposals", first)
        places = range(first, min(first + BLOCK, self.params.eval_proposals))
        contexts = [
            self.source.draw(random.Random(derive_seed(seed, place)), place, "heldout")
            for place in places
        ]
        questions = yield from self.ask(contexts, 1, seed, "heldout")
        valid = [one.passed if one.judgement is None else one.judgement.right for one in questions]
        pairs = zip(questions, valid, strict=True)
        yield from self.solve([one for one, right in pairs if right or one.passed], seed, "heldout")
        return [
            record(SUITE, str(place), float(right), **facts(question))
            for place, question, right in zip(places, questions, valid, strict=True)
        ]


def facts(question: Question) -> dict[str, Any]:
    """A held-out proposal's columns: why it did not pass, success, pay (neither where searches
    failed), texts to read; level (0: no oracle, or none that reads it), and where an oracle judged
    it answerable and right."""
    said = question.judgement or Judgement()
    numbers: dict[str, float] = {"level": said.level}
    if question.reason != LOST:
        paid = 1 - question.success if question.rows and question.passed else 0.0
        numbers |= {"success": question.success, "pay": paid}
    if question.judgement:
        numbers |= {"answerable": float(said.answerable), "right": float(said.right)}
    attempts = [[row.reward, row.info["text"]] for row in question.rows[:SHOWN]]
    told = {"answer": question.context.name, "text": question.trajectory.text}
    return {"reason": question.reason, **numbers, **told, "attempts": attempts}


def numbers(proposed: Sequence[Question], questions: Sequence[Question]) -> dict[str, float]:
    """A step's metrics: passed (share of proposals), filter/<reason>; of what the solver got the
    share replayed, success and mixed; searches of each role; by the oracle, where there is one, of
    what reached the verifier accept/valid and accept/hacked, of the accepted unreadable (by it) and
    hacked (read, and not right), of these hacked/answerable (with one answer, another), and of the
    right ones the level."""
    metrics = {"proposals": float(len(proposed)), "questions": float(len(questions))}
    if questions:
        metrics["replayed"] = share(one.replayed for one in questions)
        metrics["success"] = share(one.success for one in questions)
        metrics["mixed"] = share(0 < one.success < 1 for one in questions)
        rows = [row for one in questions for row in one.rows]
        metrics["solver searches"] = share(len(row.info.get("searches", ())) for row in rows)
    if not proposed:
        return metrics
    metrics["passed"] = share(slot.passed for slot in proposed)
    metrics["proposer searches"] = share(len(slot.trajectory.searches) for slot in proposed)
    reasons = Counter(slot.reason for slot in proposed if slot.reason)
    metrics |= {f"filter/{reason}": count / len(proposed) for reason, count in reasons.items()}
    known = [slot for slot in proposed if slot.judgement is not None]
    reached = [slot for slot in known if slot.reason in ("", UNVERIFIED)]
    told = [slot for slot in reached if slot.judgement.level]
    for name, right in (("valid", True), ("hacked", False)):
        if of := [slot.passed for slot in told if slot.judgement.right is right]:
            metrics[f"accept/{name}"] = share(of)
    if accepted := [slot for slot in known if slot.passed]:
        told = [slot for slot in accepted if slot.judgement.level]
        wrong = [slot for slot in told if not slot.judgement.right]
        metrics["unreadable"] = 1 - len(told) / len(accepted)
        metrics["hacked"] = len(wrong) / len(accepted)
        metrics["hacked/answerable"] = share(slot.judgement.answerable for slot in wrong)
    if right := [slot for slot in accepted if slot.judgement.right]:
        metrics["level"] = share(slot.judgement.level for slot in right)
    return metrics


def share(values: Iterable[float]) -> float:
    """The mean of numbers or truth values, 0 of none."""
    listed = list(values)
    return fmean(listed) if listed else 0.0

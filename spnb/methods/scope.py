"""SCOPE: a challenger writes open-ended tasks, a solver does them by search, a frozen judge writes
the rubrics and grades (arXiv 2605.31433, algorithm 1; no code was released).

Challenger and solver have weights of their own and learn in turn (`stages`). In a challenger's
stage the solver is as the stage before left it: a task's mean rubric grade over several answers is
paid by a tent that peaks at 1/2. A solver's stage begins with the tasks for all of its steps, kept
where four answers have a mean grade from .2 to .8. Without stages both learn in the same steps, on
the same tasks, also where they are one policy.

Read from the paper where it is open: a task that a gate stops has the weighted format reward alone
(eq. 4, not algorithm 1); the solver's tool term is 0 for an answer of one turn; an answer that
cannot be read has grade 0; a turn's row counts as its share of the trajectory.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from statistics import fmean, pstdev
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core import prompts
from spnb.core.advantages import leave_out, make_estimator, permute_rewards
from spnb.core.documents import Proposal, check_source, open_source
from spnb.core.episodes import Episode, parallel
from spnb.core.grading import read_answer
from spnb.core.method import POLICY, MethodParams, Role, SearchMethod, Suite, place_of
from spnb.core.plugins import foreign
from spnb.core.rewards import length_factor, tent
from spnb.core.search import LOST, SYNTAXES, as_first_turns, first_turns, samples
from spnb.core.types import Messages, Sample, Sampling, Task, Trajectory, derive_seed, grouped
from spnb.corpus.passages import Passages, Pool, Reading, Readings
from spnb.evaluate.by_search import BySearch, use_of_search
from spnb.evaluate.items import Records, record
from spnb.evaluate.reports import (
    SUITE,
    TASKS,
    Answer,
    Item,
    answer_numbers,
    report_rows,
    rubric_numbers,
    task_numbers,
    task_record,
    unfit,
    written_rows,
)

GENERATED = "lab:groups"
"""The source where there is no corpus."""
CHALLENGER = "challenger"
JUDGE = "judge"
"""Names of policies, beside the solver's, which is the run's `policy`."""
ENOUGH = 3
"""Searches of an answer from which on the search reward is 1."""
BLOCK = 16
"""Held-out tasks that are done together."""
AHEAD = 6  # batches of candidates that are made side by side, at most


class Params(MethodParams):
    """SCOPE's own parameters; defaults are the paper's (table 9)."""

    role_names = ("challenger", "solver", "gate", "rubric", "grader")
    silent = ("gate", "rubric", "grader")
    asks = {
        "step": "documents_per_step * proposals * attempts + tasks_per_step * answers",
        "evaluation": "eval_items * 4 * highest + eval_tasks * attempts + short_items",
        "run": "batch_documents * most_batches * filter_attempts",
    }

    corpus: str = Field("", description="a path, or a plugin's source; empty: generated groups")
    retriever: str = Field("bm25", description="over a corpus: a kind of index, or a server's URL")
    kinds: list[prompts.TaskType] = list(prompts.TASK_TYPES)  # type: ignore[arg-type]
    style: prompts.SearchStyle = Field("careful", description="of the prompts")
    document_tokens: int = Field(256, ge=1, description="of a document at most")
    highest: int = Field(8, ge=1, description="of generated groups: stops of held-out tasks")
    # the challenger's stage
    documents_per_step: int = Field(64, ge=1)
    proposals: int = Field(8, ge=1, description="G: on one document")
    attempts: int = Field(8, ge=1, description="N: answers that measure a task's difficulty")
    gates: bool = Field(True, description="a task must be identifiable and about its document")
    tau: float = Field(0.5, gt=0, lt=1, description="the mean grade that pays most")
    pay: Literal["earned", "spread", "shuffled"] = Field("earned", description="spread: of grades")
    # the solver's stage
    tasks_per_step: int = Field(256, ge=1)
    answers: int = Field(8, ge=1, description="G: to each task")
    filter_attempts: int = Field(4, ge=1, description="answers by which a task is kept")
    batch_documents: int = Field(256, ge=1, description="candidates made together")
    most_batches: int = Field(100, ge=1, description="of candidates in a stage")
    deepest_of: int | None = Field(
        None, ge=2, description="tasks written on a candidate's document; the deepest goes on"
    )
    filled_at_least: float = Field(
        1, gt=0, le=1, description="share of a stage's tasks without which the run stops"
    )
    tasks: Literal["challenger", "even", "hardest"] = Field(
        "challenger", description="even: the oracle's, of all levels alike (curated tasks)"
    )
    even_share: float | None = Field(None, gt=0, lt=1, description="of a step's tasks: even ones")
    reward: Literal["rubric", "random"] = Field("rubric", description="random: permuted, a control")
    # the judge
    rubrics: Literal["judge", "oracle"] = "judge"
    grades: Literal["judge", "oracle"] = "judge"
    fewest_points: int = Field(3, ge=1)
    most_points: int = Field(5, ge=1)
    # rewards
    format_weight: float = Field(0.5, ge=0)
    search_weight: float = Field(0.1, ge=0)
    length_penalty: bool = True
    short: int = Field(1024, ge=0, description="tokens of an answer that keeps its whole grade")
    long: int = Field(2048, ge=1, description="tokens from which on the least is left")
    least: float = Field(0.05, ge=0, le=1)
    rows: Literal["trajectory", "turn"] = Field(
        "trajectory", description="turn: a row a turn, asked without the thoughts before it"
    )
    # search
    max_length: int = Field(2048, ge=16, description="tokens of a trajectory, results included")
    syntax: Literal["xml", "qwen3", "olmo3"] = "xml"
    results: int = Field(3, ge=1, description="documents that a search returns")
    result_tokens: int | None = Field(None, ge=1, description="of a search's documents together")
    max_searches: int = Field(5, ge=3, description="of a trajectory; a task may take 3")
    eval_temperature: float = Field(0.0, ge=0, description="the paper's answers are greedy")
    eval_top_p: float = Field(1.0, gt=0, le=1)
    eval_items: int = Field(4, ge=1, description="held-out tasks of each type and level")
    eval_tasks: int = Field(16, ge=1, description="held-out documents to write tasks on")
    short_items: int = Field(64, ge=1, description="held-out short questions of each suite")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        need = self.need
        need(len(set(self.kinds)) == len(self.kinds) > 0, "kinds", "one or more, each once")
        known = not foreign("source", [self.corpus], self.plugins)
        need(known, "corpus plugins", "a path, or a source of this run's plugin")
        oracle = "oracle" in (self.rubrics, self.grades) or self.tasks != "challenger"
        oracle = oracle or self.even_share or self.deepest_of
        keys = "corpus rubrics grades tasks even_share deepest_of"
        need(not (self.corpus and oracle), keys, "without an oracle")
        if not self.corpus:
            check_source(GENERATED, self)
        need(self.short < self.long, "short long", "short below long")
        need(self.fewest_points <= self.most_points, "fewest_points", "up to most_points")
        need({"challenger", "solver"} - {*self.frozen}, "roles", "a role that learns")
        written = self.tasks == "challenger" or "challenger" in self.frozen
        need(written, "tasks roles", "with a challenger that does not learn")
        stages = getattr(self, "stages", [])
        fits = not self.even_share or (stages and self.tasks == "challenger")
        need(fits, "tasks even_share stages", "a share of a stage's tasks, the challenger's")
        self.need_group("challenger", "proposals", "group_zscore")
        made = stages or self.tasks != "challenger"
        self.need_group("solver", "answers" if made else "attempts", "group_zscore")
        for index, stage in enumerate(stages):
            fits = stage.policy in (POLICY, CHALLENGER)
            need(fits, f"stages {index}", f"stages of {POLICY} and {CHALLENGER}")
            role = "solver" if stage.policy == POLICY else "challenger"
            own = getattr(self.roles.get(role), "policy", None) in (None, stage.policy)
            learns = own and role not in self.frozen
            need(learns, f"stages {index} roles", f"stages of policies that a {role} learns on")
        return self


def given(text: str, kind: str, points: Sequence[str], pool: Pool = "train") -> Item:
    """A task and its rubric, which no challenger of this step wrote."""
    proposal = Proposal(text, "", kind=kind)
    return Item(Reading(kind, pool=pool), proposal=proposal, points=tuple(points))


class Method(SearchMethod):
    """Two policies and a judge; metrics are those of `task_numbers` and `answer_numbers`."""

    Params = Params
    stateful = ("kept",)
    kl_to = "start"

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        name = params.corpus or GENERATED
        self.source: Any = open_source(name, params, tokenizer, Passages, Readings)
        self.kept: list[list[Any]] = []
        """The tasks of a solver's stage: text, type and points of each."""

    def default_roles(self) -> dict[str, Role]:
        """GRPO for both; the judge is asked with its own policy."""
        sampling = self.params.sampling
        judge = Role(sampling, make_estimator("raw"), policy=JUDGE, trainable=False)
        return {
            "challenger": Role(sampling, make_estimator("group_zscore"), policy=CHALLENGER),
            "solver": Role(sampling, make_estimator("group_zscore")),
            "gate": judge,
            "rubric": judge,
            "grader": judge,
        }

    def estimate(self, samples: Sequence[Sample]) -> None:
        """Advantages of trajectories, each also that of its further turns (eq. 2)."""
        super().estimate(first_turns(samples))
        as_first_turns(samples, "advantage")
        as_first_turns(samples, "weight")

    @property
    def kl_weighted(self) -> bool:
        """A turn's KL counts as much as its reward."""
        return self.params.rows == "turn"

    def select(self, samples: Sequence[Sample]) -> None:
        """A mean over trajectories, however many rows one has: the weights of these add up to 1."""
        own: dict[str, Counter] = {"rows": Counter(), "trajectories": Counter()}
        for row in samples:
            own["rows"][row.policy] += bool(row.weight)
            own["trajectories"][row.policy] += row.weight
        rows, trajectories = map(self.share.counts, own.values())
        for row in samples:
            row.weight *= rows[row.policy] / (trajectories[row.policy] or 1)
        super().select(samples)

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """One step of the stage that is on; without stages one of both roles."""
        seed = self.step_seed(step)
        policy, within, steps = place_of(self.params, step)
        if policy == CHALLENGER or (policy is None and self.params.tasks == "challenger"):
            items = yield from self.challenge(seed)
            rows = self.challenger_rows(items, seed)
            if policy == CHALLENGER:
                return rows
            solved = [item for item in items if item.answers]
        else:
            rows = []
            solved = yield from self.next_tasks(within, steps, seed)
            yield from self.answer(solved, self.params.answers, derive_seed(seed, "solve"))
        return rows + self.solver_rows(solved, seed)

    # --- the challenger

    def challenge(self, seed: int) -> Episode[list[Item]]:
        """Tasks on a step's documents, each measured by the solver's answers."""
        params = self.params
        count = self.share.of(params.documents_per_step)
        items = yield from self.write(count, params.proposals, seed)
        usable = [item for item in items if item.points]
        yield from self.answer(usable, params.attempts, derive_seed(seed, "measure"))
        self.log(**task_numbers(items), **rubric_numbers(usable, self.source))
        return items

    def write(
        self, count: int, copies: int, seed: int, pool: str = "train", deepest: bool = False
    ) -> Episode[list[Item]]:
        """1 Tasks written by search, of a document's `copies` all or the deepest. 2 Gates.
        3 Rubrics."""
        rng = random.Random(derive_seed(seed, "documents"))
        contexts = [self.source.draw(rng, self.share.rank + n, pool) for n in range(count)]
        asked = [self.source.ask(context) for context in contexts]
        groups = yield from self.search("challenger", asked, copies, seed, pool)
        read = [
            [self.read(context, row) for row in group]
            for context, group in zip(contexts, groups, strict=True)
        ]
        if deepest:
            read = [[max(group, key=attrgetter("level"))] for group in read]
        items = list(chain(*read))
        yield from self.check(items, seed)
        yield from self.write_rubrics([item for item in items if not item.reason], seed)
        return items

    def read(self, context: Reading, trajectory: Trajectory) -> Item:
        """A challenger's task by its form alone, with what the oracle says of it."""
        if trajectory.finish == LOST:
            return Item(context, trajectory, reason=LOST)
        form = self.format_reward(trajectory, "task", context.searches)
        proposal = self.source.read(trajectory.policy_text, context)
        if not isinstance(proposal, Proposal):
            return Item(context, trajectory, form, reason=proposal.reason)
        judgement = self.source.judge(proposal, context)
        return Item(context, trajectory, form, proposal, judgement=judgement)

    def format_reward(self, trajectory: Trajectory, tag: str, searches: int = 0) -> float:
        """The mean of three terms: turns with a thought; searches made, of those expected or (0)
        of the turns before the last; whether the last turn has the tag."""
        turns = trajectory.policy_text.split(SYNTAXES[self.params.syntax].stop)
        if trajectory.finish != "stop" and len(turns) > 1 and not turns[-1].strip():
            del turns[-1]  # the last turn was a call
        thought = fmean(bool(prompts.tagged(turn, "think")) for turn in turns)
        expected = searches or len(turns) - 1
        tool = min(1.0, len(trajectory.searches) / expected) if expected else 0.0
        return fmean([thought, tool, float(prompts.field(turns[-1], tag) is not None)])

    def check(self, items: Sequence[Item], seed: int) -> Episode[None]:
        """Stops tasks that are not identifiable, and those that are not about their document."""
        open_ = [item for item in items if not item.reason]
        if not self.params.gates:
            return
        asked = [(item.context.texts[0], item.proposal.question) for item in open_]
        named = [prompts.identifiable(text) for _, text in asked]
        related = [prompts.relevant(*one) for one in asked]
        verdicts = yield from self.say("gate", [*named, *related], derive_seed(seed, "gate"))
        for item, first, second in zip(open_, verdicts, verdicts[len(open_) :], strict=False):
            if None in (first, second):
                item.reason = "unreadable gate"
            elif not (first and second):
                item.reason = "not about its document" if first else "not identifiable"

    def say(self, role: str, asked: Sequence[Messages], seed: int) -> Episode[list[bool | None]]:
        """The judge's yes or no to each prompt, None where it cannot be read. At temperature 0 the
        same prompt is asked once."""
        greedy = self.roles[role].sampling.temperature == 0
        places = grouped(range(len(asked)), lambda at: asked[at][-1]["content"] if greedy else at)
        unique = [asked[each[0]] for each in places.values()]
        groups = yield from self.sample(role, unique, 1, partial(derive_seed, seed))
        said: list[bool | None] = [None] * len(asked)
        for each, (trajectory,) in zip(places.values(), groups, strict=True):
            for place in each:
                said[place] = prompts.verdict(trajectory.policy_text)
        return said

    def write_rubrics(self, items: Sequence[Item], seed: int) -> Episode[None]:
        """The points of each task, by the judge from what the challenger read, or the oracle's."""
        params = self.params
        if params.rubrics == "oracle":
            found = [self.source.rubric(item.proposal, item.context) or () for item in items]
        else:
            read = [[*item.context.texts, *item.trajectory.documents] for item in items]
            asked = [
                prompts.rubric(item.proposal.question, texts, params.style, item.proposal.kind)
                for item, texts in zip(items, read, strict=True)
            ]
            seeds = partial(derive_seed, seed, "rubric")
            groups = yield from self.sample("rubric", asked, 1, seeds)
            texts = [trajectory.policy_text for (trajectory,) in groups]
            found = [tuple(dict.fromkeys(prompts.points(text))) for text in texts]
        for item, points in zip(items, found, strict=True):
            item.points = tuple(filter(None, points))[: params.most_points]
            if len(item.points) < params.fewest_points:
                item.reason = "too few points"
                item.points = ()

    def challenger_rows(self, items: Sequence[Item], seed: int) -> list[Sample]:
        """Eq. 4: format, and the tent of the mean grade for a task that passed; nothing without
        any form."""
        params = self.params
        paid = [self.difficulty(item) for item in items]
        if params.pay == "shuffled":
            live = [at for at, item in enumerate(items) if item.trajectory.finish != LOST]
            random.Random(derive_seed(seed, "shuffled")).shuffle(order := live.copy())
            moved = dict(zip(live, order, strict=True))
            paid = [paid[moved.get(at, at)] for at in range(len(paid))]
        rows = []
        for place, (item, pay) in enumerate(zip(items, paid, strict=True)):
            facts = {"reason": item.reason, "success": item.mean, "points": list(item.points)}
            reward = (params.format_weight * item.form + pay) if item.form else 0.0
            about = ("challenger", place // params.proposals, bool(item.reason), facts)
            rows += self.rows(item.trajectory, reward, *about)
        return rows

    def difficulty(self, item: Item) -> float:
        """What a task's grades pay, 0 to 1: the tent (eq. 5), or twice their standard deviation."""
        grades = [one.grade for one in item.answers if not one.lost]
        if self.params.pay == "spread":
            return 2 * pstdev(grades) if grades else 0.0
        return tent(item.mean, self.params.tau) if item.answers else 0.0

    # --- the solver

    def next_tasks(self, within: int, steps: int, seed: int) -> Episode[list[Item]]:
        """The tasks of a solver's step: the oracle's, those made for the stage, or some of both."""
        params = self.params
        count = self.share.of(params.tasks_per_step)
        rng = random.Random(derive_seed(seed, "curated"))
        if params.tasks != "challenger":
            return [self.curated(rng, place) for place in range(count)]
        even = min(round(count * (params.even_share or 0)), max(count - 1, 0))
        count -= even
        if within == 0:
            self.kept = yield from self.make_tasks(count * steps, seed)
        chosen = self.kept[within * count : (within + 1) * count]
        curated = [self.curated(rng, within * even + place) for place in range(even)]
        return curated + [given(text, kind, points) for text, kind, points in chosen]

    def curated(self, rng: random.Random, place: int) -> Item:
        """The oracle's task and rubric, of any level or the highest."""
        kind = self.params.kinds[place % len(self.params.kinds)]
        highest = self.params.highest
        level = highest if self.params.tasks == "hardest" else rng.randint(1, highest)
        task = self.source.exercise(kind, level, rng)
        return given(task.question, kind, task.gold)

    def make_tasks(self, quota: int, seed: int) -> Episode[list[list[Any]]]:
        """Tasks for a stage: one a document drawn (it may be drawn again), kept by the solver's
        mean grade, until there are `quota`. Where the candidates end before, they come again.
        Batches that will be needed, as far as seen, are made side by side, with the same result."""
        params = self.params
        kept: list[list[Any]] = []
        reasons: Counter[str] = Counter()
        ahead: list[list[Item]] = []
        for batch in range(params.most_batches):
            there = self.share.counts(Counter(left=max(0, quota - len(kept)), kept=len(kept)))
            if not there["left"]:
                break
            if not ahead:
                more = there["left"] * batch // max(there["kept"], 1)
                last = min(batch + min(max(1, more), AHEAD), params.most_batches)
                seeds = [derive_seed(seed, "candidates", at) for at in range(batch, last)]
                ahead = yield from parallel(*map(self.candidates, seeds))
            items = ahead.pop(0)
            if batch == 0:  # all batches are of the same two policies
                usable = [item for item in items if item.points]
                self.log(**task_numbers(items), **rubric_numbers(usable, self.source))
            reasons.update(item.reason for item in items)
            fit = [item for item in items if not item.reason]
            kept += [[x.proposal.question, x.proposal.kind, list(x.points)] for x in fit]
        tasks, candidates = kept[:quota], sum(reasons.values())
        self.log(filled=len(tasks) / quota, candidates=candidates)
        self.log(**{f"stopped/{why}": n / candidates for why, n in reasons.items() if why})
        if len(tasks) < params.filled_at_least * quota:
            counts = ", ".join(f"{why}: {n}" for why, n in reasons.most_common() if why)
            hint = "; with a smaller one the run goes on" if tasks else ""
            raise ValueError(
                f"{len(tasks)} of {quota} tasks of the stage passed, of {candidates} "
                f"candidates ({counts}); allowed: {params.filled_at_least:g} of them or more "
                f"(filled_at_least{hint})"
            )
        return [tasks[place % len(tasks)] for place in range(quota)]

    def candidates(self, seed: int) -> Episode[list[Item]]:
        """A batch of tasks with the answers by which they are kept, or why they are not."""
        params = self.params
        count = self.share.of(params.batch_documents)
        items = yield from self.write(count, params.deepest_of or 1, seed, deepest=True)
        usable = [item for item in items if item.points]
        yield from self.answer(usable, params.filter_attempts, seed)
        for item in usable:
            item.reason = item.reason or unfit(item)
        return items

    def answer(
        self, items: Sequence[Item], copies: int, seed: int, sampling: Sampling | None = None
    ) -> Episode[None]:
        """Answers by search to each task, graded point by point; `sampling`: not as in training."""
        asked = [self.source.task(item.proposal, item.context).messages for item in items]
        pool = items[0].context.pool if items else "train"
        groups = yield from self.search("solver", asked, copies, seed, pool, sampling)
        for item, group in zip(items, groups, strict=True):
            item.answers = [self.read_report(row) for row in group]
            item.reason = LOST if item.lost else item.reason
        yield from self.grade(items, seed)
        for item in items:
            for one in item.answers:
                one.reward = self.solver_reward(one)

    def read_report(self, trajectory: Trajectory) -> Answer:
        """The text of an answer and its length in tokens."""
        text = read_answer(trajectory.policy_text)
        whole = (text or "").encode(errors="replace").decode()
        ids = self.chat.tokenizer(whole, add_special_tokens=False)["input_ids"]
        return Answer(trajectory, text, tokens=len(ids))

    def grade(self, items: Sequence[Item], seed: int) -> Episode[None]:
        """Which points each answer states: one prompt a point, or the oracle; no answer, none."""
        answers = [(item, one) for item in items for one in item.answers]
        asked = [(item, one, point) for item, one in answers for point in item.points if one.text]
        if self.params.grades == "oracle":
            given = [self.source.states(one.text, point) for _, one, point in asked]
        else:
            task = self.params.style == "careful"
            texts = [
                prompts.grade(one.text, point, item.proposal.question if task else "")
                for item, one, point in asked
            ]
            given = yield from self.say("grader", texts, derive_seed(seed, "grade"))
        verdicts = iter(given)
        for item, one in answers:
            one.given = list(islice(verdicts, len(item.points))) if one.text else []

    def solver_reward(self, answer: Answer) -> float:
        """Eq. 6: the grade times the length factor, format, and search."""
        params = self.params
        factor = 1.0
        if params.length_penalty:
            factor = length_factor(answer.tokens, params.short, params.long, params.least)
        form = self.format_reward(answer.trajectory, "answer")
        searched = min(1.0, len(answer.trajectory.searches) / ENOUGH)
        return factor * answer.grade + params.format_weight * form + params.search_weight * searched

    def solver_rows(self, items: Sequence[Item], seed: int) -> list[Sample]:
        """The answers' rows, compared within their task."""
        rows = []
        for group, item in enumerate(items):
            for one in item.answers:
                facts = {"grade": one.grade, "tokens": one.tokens}
                about = ("solver", group, one.text is None, facts)
                rows += self.rows(one.trajectory, one.reward, *about)
        if self.params.reward == "random":
            counted = [row for row in first_turns(rows) if row.weight]
            permute_rewards(counted, random.Random(derive_seed(seed, "random")))
            as_first_turns(rows, "reward")
        tasks = [self.source.task(item.proposal, item.context) for item in items]
        self.log(**answer_numbers(items, tasks, self.source))
        return rows

    def rows(
        self, trajectory: Trajectory, reward: float, role: str, group: int, bad: bool, facts: dict
    ) -> list[Sample]:
        """A trajectory as rows, whose weights add up to 1; 0 where the searches failed."""
        made = samples(trajectory, reward, role, group, self.params.rows)
        for row in made:
            row.weight = 1 / len(made)
            row.invalid = bad
            row.info |= facts
            leave_out(row, LOST in (trajectory.finish, facts.get("reason")))
        return made

    # --- evaluation

    @property
    def by_search(self) -> BySearch:
        """Published benchmarks are answered with the held-out library; the grader reads them."""
        return BySearch(self.tool("heldout"), partial(self.say, "grader"))

    def suites(self, step: int) -> list[Suite]:
        """Held-out tasks, by the oracle and by the judge; the source's suites."""
        tasks = self.source.heldout(self.params.eval_items)
        blocks = [tasks[first : first + BLOCK] for first in range(0, len(tasks), BLOCK)]
        parts = list(enumerate(blocks))
        suites = [Suite(SUITE, parts, self.tried, report_rows)] if parts else []
        if self.params.tasks == "challenger":
            suites.append(Suite(TASKS, [0], self.challenged, written_rows))
        return [*suites, *self.source.suites(self.chat, self.params, False)]

    def challenged(self, part: int) -> Episode[Records]:
        """Tasks on held-out documents, one each, each done several times, with their texts."""
        seed = self.params.eval_seed(TASKS, part)
        items = yield from self.write(self.params.eval_tasks, 1, seed, "heldout")
        usable = [item for item in items if item.points]
        yield from self.answer(usable, self.params.filter_attempts, derive_seed(seed, "measure"))
        return [task_record(place, item) for place, item in enumerate(items)]

    def tried(self, part: tuple[int, list[Task]]) -> Episode[Records]:
        """The records of a block of held-out tasks: the oracle's score, and the judge's."""
        block, tasks = part
        items = [given(one.question, one.info["kind"], one.gold, "heldout") for one in tasks]
        seed = self.params.eval_seed(SUITE, block)
        longest = self.roles["solver"].sampling.max_new_tokens
        sampling = replace(self.params.eval_sampling, max_new_tokens=longest)
        yield from self.answer(items, 1, seed, sampling)
        records = [
            record(SUITE, str(block * BLOCK + at), **self.facts(task, item.answers[0]))
            for at, (task, item) in enumerate(zip(tasks, items, strict=True))
        ]
        for one, item in zip(records[:: BLOCK // 2], items[:: BLOCK // 2], strict=True):
            one["text"] = item.answers[0].trajectory.text
        return records

    def facts(self, task: Task, one: Answer) -> dict[str, Any]:
        """What an answer to a held-out task is worth."""
        said = self.source.oracle(task, one.trajectory.policy_text)
        facts = {"role": task.info["kind"], "difficulty": task.difficulty, "judge": one.grade}
        return facts | said | use_of_search(task, one.trajectory) | {"length": one.tokens}

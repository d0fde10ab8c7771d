"""SPELL (arXiv 2509.23863): one policy asks, answers and judges questions about long documents.

Algorithm 1. A questioner reads m documents of a cluster, with its latest solvable questions and
their documents (`memory`), and writes a question with its answer. One answer without documents
filters out what is not grounded in them. A responder answers G times from all n documents of the
cluster; a verifier compares each answer G times with the stated one and the majority decides beside
a rule. Rewards are eq. 4 to 7 (`spnb.methods.spell_questions`), advantages eq. 8 and 9, the loss
eq. 12: the sum of each role's mean over groups, a group being the mean over its tokens.

    spnb run spell --scale cpu --variant full --seed 0

Where the released code differs from the paper, the paper is the default and the code's way a named
option (`tie`, `malformed`, `memory_rule`, `normalise`). `questions: static` is the RLVR baseline: a
fixed set that an oracle wrote, no questioner; with `judgments` above 0 it is QwenLong-L1's reward.
`alignment` learns from preference pairs on that set: LongPO and SoLoPO (`spell_pairs`).
"""

import random
import time
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from spnb.core.advantages import make_estimator
from spnb.core.episodes import Episode, fill
from spnb.core.grading import read_answer
from spnb.core.method import Role, SelfPlayMethod, Suite
from spnb.core.prompts import judge, verdict
from spnb.core.types import Pair, Sample, Task, Trajectory, derive_seed
from spnb.evaluate.items import Records
from spnb.lab import cluster_suites as long_context
from spnb.lab import clusters
from spnb.methods.rlvr import Groups
from spnb.methods.spell_data import Library, Memory, static_question, static_set
from spnb.methods.spell_pairs import make_pairs
from spnb.methods.spell_params import Params
from spnb.methods.spell_questions import (
    Question,
    dynamic_sampling,
    numbers,
    permute_rewards,
    token_mean,
)

PHASES = ("questioning", "grounding", "responding", "verifying")


class Method(SelfPlayMethod):
    """The three roles on one policy; metrics are those of `spell_questions.numbers`, how many
    questions the memory holds (mean over clusters), and each phase's seconds."""

    Params = Params

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        if not params.corpus:
            clusters.ladder.check_names(tokenizer)
        self.library = Library(params, tokenizer)
        self.memory = Memory(params.memory, params.memory_rule)
        self.static = static_set(params) if params.questions == "static" else []

    def default_roles(self) -> dict[str, Role]:
        """Answers and judgments are compared within their group (eq. 8), questioners within the
        batch (eq. 9). A KL, where there is one, holds the questioner alone."""
        sampling, zscore = self.params.sampling, partial(make_estimator, "group_zscore")
        roles = {name: Role(sampling, zscore(), kl=False) for name in ("responder", "verifier")}
        if self.params.questions == "self":
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
        self.metrics = numbers(questions)
        self.log(memory=self.memory.mean_length())
        self.log(**{f"seconds/{name}": took for name, took in self.seconds.items()})
        return samples

    def play_round(self, step: int, seed: int) -> Episode[list[Question]]:
        """One round of Algorithm 1, phase by phase over all of its questions."""
        params, rng = self.params, random.Random(seed)
        count = max(1, self.share.of(params.asked))

        # 1 Question: m documents of a cluster, what its memory holds.
        if params.questions == "self":
            questions = yield from self.timed("questioning", self.ask(count, rng, seed))
        else:
            questions = self.static_questions(count, step, rng)

        # 2 Filter: one answer without documents.
        formed = [question for question in questions if question.proposal]
        if params.grounding and params.questions == "self":
            yield from self.timed("grounding", self.ground(formed, seed))

        # 3 Respond: G answers with all documents.
        asked = [question for question in formed if question.grounded]
        yield from self.timed("responding", self.respond(asked, seed))

        # 4 Verify: each answer, G times.
        if params.judged:
            yield from self.timed("verifying", self.verify(asked, seed))

        # 5 Pay (eq. 4 to 7), remember.
        for question in questions:
            question.settle(params.rules)
            self.memory.push(question)
        return questions

    def pairs(self) -> Episode[list[Pair]]:
        """Where `alignment` is set: this process's share of the pairs, from the static set."""
        tasks, seed = self.static[0], derive_seed(self.params.seed, "pairs", self.share.rank)
        own = self.share.part(tasks)
        return make_pairs(self.params, self.chat, self.roles["responder"], own, seed)

    def timed(self, phase: str, episode: Episode[Any]) -> Episode[Any]:
        """An episode whose wall time is added to its phase's."""
        started = time.perf_counter()
        result = yield from episode
        self.seconds[phase] += time.perf_counter() - started
        return result

    def answers(
        self, role: str, tasks: Sequence[Task], k: int, seed: int, phase: str
    ) -> Episode[Groups]:
        """`k` answers of a role to each task."""
        seeds = partial(derive_seed, seed, phase)
        return self.sample(role, [task.messages for task in tasks], k, seeds)

    def ask(self, count: int, rng: random.Random, seed: int) -> Episode[list[Question]]:
        """`count` proposals, task types in turn over all processes, each about a cluster of its
        type."""
        turns = [self.share.rank + place * self.share.processes for place in range(count)]
        drawn = [self.library.draw(rng, turn) for turn in turns]
        read = [self.memory.reading(cluster, self.params.read, rng) for cluster in drawn]
        prompts = [
            Task(self.library.ask(cluster, places, earlier))
            for cluster, (_, places, earlier) in zip(drawn, read, strict=True)
        ]
        groups = yield from self.answers("questioner", prompts, 1, seed, "ask")
        questions = []
        for cluster, (new, places, _), (trajectory,) in zip(drawn, read, groups, strict=True):
            question = self.library.question(cluster, trajectory)
            question.read = new if self.params.memory_rule == "paper" else places
            questions.append(question)
        return questions

    def static_questions(self, count: int, step: int, rng: random.Random) -> list[Question]:
        """Questions of the static set, of the part whose context this step has."""
        part = len(self.static) * step // self.params.steps
        return [static_question(task) for task in rng.choices(self.static[part], k=count)]

    def ground(self, questions: Sequence[Question], seed: int) -> Episode[None]:
        """A question is not grounded if the rule accepts one answer without documents."""
        tasks = [Task(clusters.messages(q.family, q.proposal, ())) for q in questions]
        groups = yield from self.answers("responder", tasks, 1, seed, "ground")
        for question, (answer,) in zip(questions, groups, strict=True):
            text = read_answer(answer.policy_text)
            question.grounded = not clusters.agrees(question.family, text, question.proposal)

    def respond(self, questions: Sequence[Question], seed: int) -> Episode[None]:
        """G answers to each question from all documents of its cluster."""
        tasks = [Task(clusters.messages(q.family, q.proposal, q.documents)) for q in questions]
        size = self.params.group_size
        groups = yield from self.answers("responder", tasks, size, seed, "respond")
        for question, answers in zip(questions, groups, strict=True):
            question.answers = answers

    def verify(self, questions: Sequence[Question], seed: int) -> Episode[None]:
        """Judgments of each answer that can be read, against the stated one; none of others."""
        places, tasks = [], []
        for question in questions:
            question.judgments = [[] for _ in question.answers]
            for place, answer in enumerate(question.answers):
                if text := read_answer(answer.policy_text):
                    places.append((question, place))
                    stated = question.proposal
                    tasks.append(Task(judge(stated.question, text, stated.answer)))
        groups = yield from self.answers("verifier", tasks, self.params.judged, seed, "verify")
        for (question, place), group in zip(places, groups, strict=True):
            question.judgments[place] = group

    def rows(
        self, questions: Sequence[Question], kept: Sequence[Question], rng: random.Random
    ) -> list[Sample]:
        """Every row of the step. Those that dynamic sampling leaves out have weight and advantage
        0, so that eq. 9 compares the questioners of the batch alone; so have those of a prompt
        that was too long to be asked."""
        params, samples = self.params, []
        paid, judged = dynamic_sampling(
            questions,
            kept,
            max(1, self.share.of(params.verifier_groups)),
            params.consistency,
            params.format_penalty,
            rng,
        )

        def add(one: Trajectory, reward: float, role: str, group: Hashable, trained: bool) -> None:
            row = one.sample(reward, role, group)
            if not trained or not any(row.mask):
                row.weight, row.advantage = 0.0, 0.0
            samples.append(row)

        for place, question in enumerate(questions):
            if question.trajectory:
                group = question.family if params.normalise == "task" else "batch"
                add(question.trajectory, question.pay, "questioner", group, place in paid)
                samples[-1].invalid = question.proposal is None
                samples[-1].info |= question.facts()
            for answer, reward in zip(question.answers, question.rewards, strict=True):
                add(answer, reward, "responder", place, question in kept)
                samples[-1].invalid = read_answer(answer.policy_text) is None
            rewards = question.judged(params.rules)
            for number, (group, pays) in enumerate(zip(question.judgments, rewards, strict=True)):
                for one, reward in zip(group, pays, strict=True):
                    trained = (place, number) in judged
                    add(one, reward, "verifier", (place, number), trained)
                    samples[-1].invalid = verdict(one.policy_text) is None
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
        """Questions at the training context and, at both ends, at longer ones and in other forms;
        proposals answered by the external policy where there is one. A corpus has none of its own:
        the run's benchmarks measure it."""
        params = self.params
        if params.corpus:
            return []
        ends = step in (0, params.steps)
        suites = long_context.suites(params, self.chat, params.eval_documents, ends)
        if "external" in self.roles and params.questions == "self":
            suites.append(self.proposal_suite())
        return suites

    def proposal_suite(self) -> Suite:
        """Questions about the training's clusters with their memory, each answered by the external
        policy, graded by the oracle: 1 - pass@1 is their difficulty (figure 4)."""
        library = self.library

        def ask(place: int) -> Episode[Records]:
            rng = random.Random(derive_seed("evaluation", "difficulty", place))
            cluster = library.draw(rng, place)
            seed, size = derive_seed("difficulty", place), self.params.eval_samples
            new, places, earlier = self.memory.reading(cluster, self.params.read, rng)
            prompt = [Task(library.ask(cluster, places, earlier))]
            ((asked,),) = yield from self.answers("questioner", prompt, 1, seed, "ask")
            question = library.question(cluster, asked)
            truth = question.truth()
            if truth is None or question.proposal is None:
                return [long_context.unsolved(place, cluster.family)]
            prompt = [Task(clusters.messages(cluster.family, question.proposal, cluster.texts))]
            (answers,) = yield from self.answers("external", prompt, size, seed, "solve")
            return [long_context.solved(place, cluster.family, truth, answers)]

        places = range(self.params.eval_proposals)
        return Suite(long_context.DIFFICULTY, places, ask, long_context.difficulty_rows)

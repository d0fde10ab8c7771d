"""SPIRAL: one policy plays both seats of zero-sum games and learns from who wins (Liu et al. 2025).

Each turn the policy reads the seat's observation, reasons, and boxes a move. Reward comes at the
end of a match: the seat's utility, zero-sum, for every turn of the seat. Role-conditioned advantage
estimation (RAE, eq. 2 and 3) subtracts a moving average of the returns of the same game and seat,
because seats differ: who moves first in tic-tac-toe wins more.

    spnb run spiral --scale cpu --variant full --seed 0

`play` is algorithm 1; other phases are SFT on experts' games and RLVR on questions outside of them.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain, count, islice
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core.advantages import RoleEMA, make_estimator
from spnb.core.documents import open_source
from spnb.core.episodes import Episode, parallel
from spnb.core.grading import graded
from spnb.core.method import MethodParams, Role, SelfPlayMethod, Suite
from spnb.core.plugins import foreign
from spnb.core.types import Sample, Sampling, Task, Trajectory, derive_seed, role_label
from spnb.evaluate import matches
from spnb.games import TESTED, Game, make_game, players
from spnb.games.players import PolicyPlayer, Transcript
from spnb.games.questions import TRANSFER, questions, transfer_suite
from spnb.methods.sft import imitate

MAX_ROUNDS = 4  # of matches in one step
Family = Literal["journey", "ledger", "choice", "report"]


def benchmark_tasks(family: str, count: int, tokenizer: Any, draw: str = "") -> list[Task]:
    """The ladder's held-out questions of a family, which no game teaches, levels 1 to 4 in turn."""
    source: Any = open_source("lab:ladder", SimpleNamespace(family=family, highest=4), tokenizer)
    rng = random.Random(derive_seed("benchmark", family, *filter(None, [draw])))
    return [source.exercise(1 + place % 4, rng, "heldout") for place in range(count)]


class Params(MethodParams):
    """SPIRAL's own parameters; defaults are the paper's (table 6), else the released code's.

    `phases` are equal parts of the run: self-play, SFT, RLVR. `opponent` plays the other seat, as
    "policy" the one that `roles.opponent` names. The control `reward: random` flips a coin a match.
    Imitation needs one update a rollout (a clipped second pass is no SFT) and the torch engine.
    """

    role_names = ("player", "opponent", "questions")
    silent = ("opponent",)
    asks = {
        "step": "turns_per_step + group_size",
        "evaluation": "eval_matches * games + final_matches * games + eval_samples * games"
        " + eval_questions + eval_questions * eval_benchmarks",
    }

    games: list[str] = Field(["kuhn_poker", "TicTacToe-v0"], min_length=1)
    turns_per_step: int = Field(128, ge=1, description="trained turns, shared by the games")
    phases: list[Literal["play", "imitate", "answer"]] = Field(["play"], min_length=1)
    baseline: Literal["role_ema", "global_ema", "batch_mean", "none"] = "role_ema"
    ema_decay: float = Field(0.95, ge=0, le=1)
    opponent: Literal["self", "random", "expert", "policy"] = "self"
    group_size: int = Field(8, ge=2, description="for phase answer: answers to each question")
    reward: Literal["outcome", "random"] = "outcome"
    eval_matches: int = Field(128, ge=2, description="against each opponent in each game")
    final_matches: int | None = Field(
        None, ge=2, description="against random play in each training game, at the last step"
    )
    eval_samples: int = Field(32, ge=1, description="answers at each Kuhn information state")
    eval_questions: int = Field(200, ge=0, description="of the transfer suite and each benchmark")
    eval_games: list[str] = Field([], description="further games, measured at both ends of a run")
    eval_benchmarks: list[Family] = Field([], description="of the ladder, at both ends")

    @model_validator(mode="after")
    def _together(self) -> "Params":
        steps = self.steps
        phases = self.phases
        opponent = self.opponent
        need = self.need
        kinds = {opponent, "expert" if "imitate" in phases else opponent} & {"random", "expert"}
        for name in [*self.games, *self.eval_games]:
            if kinds and name in self.games:
                game = make_game(name)
                for kind in kinds:
                    players.fixed_player(kind, game)
                listed = "random" not in kinds or players.plays_at_random(game.match(0))
                need(listed, "opponent games", "random in games with listed moves, or talk")
            elif name not in TESTED:  # these need no slow import to be known
                make_game(name)
        updates = self.grpo.get("num_iterations", 1) * (getattr(self, "updates", None) or 1)
        engine = getattr(self, "engine", "torch")
        rival = self.roles["opponent"].policy if "opponent" in self.roles else None
        trained = {"questions" if phase == "answer" else "player" for phase in phases}
        need(not trained & {*self.frozen}, "roles phases", "a role that learns in each phase")
        need(len(set(self.games)) == len(self.games), "games", "each game once")
        own = not foreign("game", [*self.games, *self.eval_games], self.plugins)
        need(own, "games eval_games plugins", "games of this run's plugin, OpenSpiel or TextArena")
        need(len(phases) <= steps, "phases steps", "at most one a step")
        plays = self.reward != "random" or {*phases} == {"play"}
        need(plays, "reward phases", "random with phases of play alone")
        enough = self.eval_questions or not self.eval_benchmarks
        need(enough, "eval_questions eval_benchmarks", "1 or more")
        once = "imitate" not in phases or (updates == 1 and engine == "torch")
        need(once, "phases grpo.num_iterations engine", "imitate with 1 and torch")
        both = bool(rival) == (opponent == "policy")
        need(both, "opponent roles.opponent.policy", "policy and a name, or neither")
        own = getattr(self.roles.get("player"), "estimator", None)
        alone = self.baseline == "role_ema" or not own
        need(alone, "baseline roles.player.estimator", "role_ema where the role has an estimator")
        return self


class Method(SelfPlayMethod):
    """SPIRAL's self-play over one or several games.

    Metrics by game: matches, moves a match, forfeits; wins and draws of the matches played out.
    """

    Params = Params
    snapshots = ("past",)
    stateful = ("turns_per_match",)

    def __init__(self, params: Params, tokenizer: Any):
        super().__init__(params, tokenizer)
        self.games: list[Game] = [make_game(name) for name in params.games]
        self.turns_per_match = {game.name: 2.0 for game in self.games}
        self.questions = transfer_suite(params.eval_questions, params.eval_draw)

    def default_roles(self) -> dict[str, Role]:
        """The player in training, another policy as its opponent, who answers questions."""
        sampling = self.params.sampling
        name = {"batch_mean": "group_mean", "none": "raw"}.get(self.params.baseline, "role_ema")
        options = {"decay": self.params.ema_decay} if name == "role_ema" else {}
        return {
            "player": Role(sampling, make_estimator(name, **options)),
            "opponent": Role(sampling, make_estimator("raw"), trainable=False),
            "questions": Role(sampling, make_estimator("group_zscore")),
        }

    def role_of(self, sample: Sample) -> str:
        """Turns are recorded under (game, seat), which is what RAE tells apart."""
        return "player" if isinstance(sample.role, tuple) else str(sample.role)

    def rollout(self, step: int) -> Episode[list[Sample]]:
        """A rollout of the phase that the step belongs to."""
        params = self.params
        phase = params.phases[step * len(params.phases) // params.steps]
        seed = (params.seed, "train", step, self.share.rank)
        quota = self.share.of(params.turns_per_step // len(self.games))
        if phase == "play":
            return (yield from self.play(step, quota, seed))
        if phase == "answer":
            return (yield from self.answer(self.step_seed(step)))
        samples = imitate(self.games, self.chat, quota, self.step_seed(step), self.share.rank)
        self.log(expert_turns=len(samples))
        return samples

    def play(self, step: int, quota: int, seed: tuple[Any, ...]) -> Episode[list[Sample]]:
        """Algorithm 1: `quota` turns of each game come first, the others have weight 0."""
        transcripts: list[Transcript] = []
        turns: list[Sample] = []
        usable: dict[str, list[Sample]] = {game.name: [] for game in self.games}
        for number in range(MAX_ROUNDS):
            # 1 Play until every game has its quota of turns with an advantage.
            episodes = []
            for game in self.games:
                missing = max(0, quota - len(usable[game.name]))
                for index in range(math.ceil(missing / self.turns_per_match[game.name])):
                    deal = derive_seed(*seed, number, game.name, index)
                    learner = (index + number + self.share.rank) % 2
                    episodes.append(self.match(game, deal, learner))
            if not episodes:
                break
            played = yield from parallel(*episodes)
            # 2 Pay every turn of a seat the seat's return.
            new = [sample for transcript in played for sample in self.samples(transcript)]
            transcripts += played
            turns += new
            # 3 Estimate advantages; the mean of the batch is that of all its rounds.
            self.compare(turns if self.params.baseline == "batch_mean" else new)
            for name in usable:
                usable[name] = [turn for turn in turns if turn.role[0] == name and turn.advantage]
        self.note(transcripts, turns)
        # 4 Draw each game's quota. A turn without an advantage teaches nothing.
        rng = random.Random(derive_seed(self.params.seed, "draw", step, self.share.rank))
        draws = (rng.sample(pool, min(quota, len(pool))) for pool in usable.values())
        drawn = list(chain.from_iterable(draws))
        chosen = set(map(id, drawn))
        for turn in turns:
            turn.weight = float(id(turn) in chosen)
        return drawn + [turn for turn in turns if not turn.weight]

    def match(self, game: Game, seed: int, learner: int) -> Episode[Transcript]:
        """One match: the player in both seats, or in seat `learner` against another opponent."""
        rival = "player" if self.params.opponent == "self" else "opponent"
        roles = [self.roles["player"], self.roles[rival]]
        seats = [PolicyPlayer(self.chat, x.sampling, x.policy, self.has_room) for x in roles]
        if self.params.opponent in ("random", "expert"):
            seats[1] = players.fixed_player(self.params.opponent, game)
        return players.play_match(game, tuple(seats if learner == 0 else seats[::-1]), seed)

    def samples(self, transcript: Transcript) -> list[Sample]:
        """The player's turns of a match (no other policy's); a seat's turns have its return R."""
        returns = transcript.returns
        if self.params.reward == "random":
            sign = random.Random(derive_seed(transcript.seed, "coin")).choice((-1, 1))
            returns = (sign * returns[0], sign * returns[1])
        samples = []
        for turn in transcript.turns:
            if turn.request is None or turn.request.policy != self.roles["player"].policy:
                continue
            role = transcript.game, turn.seat
            trajectory = Trajectory.of(turn.request, turn.completion)
            reward = returns[turn.seat]
            invalid = turn.action is None
            row = trajectory.sample(reward, role, transcript.seed, invalid, action=turn.action)
            samples.append(row)
        return samples

    def compare(self, samples: Sequence[Sample]) -> None:
        """Sets advantages by RAE, or by a baseline it is compared with (the paper has only "none").

        role_ema: a moving average per (game, seat), moved once a match. global_ema: one for all.
        batch_mean: the mean of this rollout's turns per (game, seat). none: A = R. Each process
        has averages and means of its own.
        """
        estimator = self.roles["player"].estimator
        groups = [sample.group for sample in samples]
        roles = [sample.role for sample in samples]
        if self.params.baseline == "global_ema":
            groups = list(zip(groups, roles, strict=True))
            roles = ["all"] * len(roles)
        elif not isinstance(estimator, RoleEMA):
            groups = ["batch"] * len(groups)
        advantages = estimator([sample.reward for sample in samples], groups, roles)
        for sample, advantage in zip(samples, advantages, strict=True):
            sample.advantage = advantage

    def answer(self, seed: int) -> Episode[list[Sample]]:
        """RLVR on questions that the transfer suite does not ask, as many answers as turns."""
        size = self.params.group_size
        number = self.share.of(self.params.turns_per_step // size)
        excluded = {task.question for task in self.questions}
        seeds = (derive_seed(seed, "questions", batch) for batch in count())
        batches = (questions(2 * number, batch_seed, TRANSFER) for batch_seed in seeds)
        tasks = (task for batch in batches for task in batch if task.question not in excluded)
        first = self.share.rank % 2  # the kinds take turns
        fresh = list(islice(tasks, first, first + number))
        prompts = [task.messages for task in fresh]
        groups = yield from self.sample("questions", prompts, size, partial(derive_seed, seed))
        samples = graded(fresh, groups, "questions")
        self.log(right=fmean(sample.reward for sample in samples))
        return samples

    def select(self, samples: Sequence[Sample]) -> None:
        """Turns were drawn in the rollout; answers to questions are weighted as in RLVR."""
        super().select([sample for sample in samples if sample.role == "questions"])

    def note(self, transcripts: Sequence[Transcript], turns: Sequence[Sample]) -> None:
        """Logs the step's numbers; sets how many turns the next step expects of a match."""
        for game in self.games:
            matches = [match for match in transcripts if match.game == game.name]
            total = len(matches)
            decided = [match.returns[0] for match in matches if match.invalid_seat is None]
            moves = sum(len(match.turns) for match in matches)
            numbers = {"matches": total, "moves": moves / total}
            numbers["forfeits"] = 1 - len(decided) / total
            winners = Counter((value > 0) - (value < 0) for value in decided)
            for key, sign in (("seat0_wins", 1), ("seat1_wins", -1), ("draws", 0)):
                numbers[key] = winners[sign] / max(1, len(decided))
            self.log(**{f"{key}/{game.name}": value for key, value in numbers.items()})
            trained = sum(turn.role[0] == game.name for turn in turns)
            self.turns_per_match[game.name] = max(1.0, trained / total)
        baselines = getattr(self.roles["player"].estimator, "baselines", {})
        self.log(**{f"baseline/{role_label(role)}": value for role, value in baselines.items()})

    def suites(self, step: int) -> list[Suite]:
        """Matches, exact measures, questions; the same deals at every step, in every variant."""
        params = self.params
        seed = derive_seed(self.params.seed, "eval", *filter(None, [params.eval_draw]))
        sampling = params.eval_sampling
        ends = step in (0, params.steps)
        suites = []
        for name in dict.fromkeys([*params.games, *(params.eval_games if ends else [])]):
            past = step > 0 and name in params.games
            final = params.final_matches if past and step == params.steps else None
            many = final or params.eval_matches
            suites += self.game_suites(make_game(name), sampling, seed, past, many)
        if self.questions:
            suites.append(matches.question_suite(self.chat, sampling, self.questions, seed))
        for name in params.eval_benchmarks if ends else []:
            own = (params.eval_questions, self.chat.tokenizer, params.eval_draw)
            tasks = benchmark_tasks(name, *own)
            suites.append(matches.benchmark_suite(self.chat, name, tasks))
        return suites

    def game_suites(
        self, game: Game, sampling: Sampling, seed: int, past: bool, many: int
    ) -> list[Suite]:
        """Matches (`many` against random play), and a game's exact measure if it has one."""
        opponents = {"past": PolicyPlayer(self.chat, sampling, "past")} if past else {}
        if game.name in players.EXPERTS:
            opponents["expert"] = players.fixed_player("expert", game)
        if players.plays_at_random(game.match(seed=0)):
            opponents["random"] = players.make_player("random")
        few = self.params.eval_matches
        plain = Sampling(self.params.max_new_tokens)
        me = PolicyPlayer(self.chat, sampling)
        suites = []
        for name, opponent in opponents.items():
            count = many if name == "random" else few
            suites.append(matches.match_suite(game, me, opponent, count, seed, name))
        if game.name == "kuhn_poker":
            suites.append(matches.kuhn_suite(self.chat, plain, self.params.eval_samples, seed))
        if game.name in players.TICTACTOE_GAMES:
            suites.append(matches.tictactoe_suite(game, self.chat, plain, 1, seed))
        return suites

"""SPIRAL: one policy plays both seats of zero-sum games and learns from who wins (Liu et al.,
2025).

The game: two seats, one policy. Each turn the policy reads the seat's observation, reasons, and
boxes a move. Reward is given at the end of a match only: the seat's utility, zero-sum, and every
turn of that seat shares it (discount 1). Role-conditioned advantage estimation (RAE, eq. 2 and 3)
subtracts a moving average of the returns of the same game and seat, because seats are not alike:
who moves first in tic-tac-toe wins more often.

    spnb run spiral --scale cpu --variant full --seed 0

Reads like algorithm 1: `play` plays matches, `advantages` is RAE (or a baseline it is compared
with), `play` then draws the step's turns, the same number for every game. What a run may do
instead, SFT and RLVR, is in `spiral_phases`.
"""

import math
import random
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from spnb.core.advantages import Estimator, make_estimator
from spnb.core.episodes import Episode, parallel, run
from spnb.core.params import RunParams, unknown
from spnb.core.types import Chat, Engine, Sample, Sampling, derive_seed, role_label, sample_of
from spnb.evaluate import matches
from spnb.games import Game, make_game
from spnb.games.negotiation import NEGOTIATION
from spnb.games.play import (
    TICTACTOE_GAMES,
    Player,
    PolicyPlayer,
    Transcript,
    Turn,
    make_player,
    play_match,
    plays_at_random,
)
from spnb.games.questions import questions
from spnb.methods.rlvr import with_advantages
from spnb.methods.spiral_phases import expert_rows, question_rows, training_questions
from spnb.testbed.suites import BENCHMARKS

EXPERTS = {"kuhn_poker": "equilibrium", NEGOTIATION: "greedy"} | dict.fromkeys(
    TICTACTOE_GAMES, "minimax"
)
FIXED = "fixed"
"""The engine that plays the other seat for opponent policy."""
MAX_WAVES = 4
"""Times that more matches are started in one step to fill up its turns."""


class Params(RunParams):
    """SPIRAL's own parameters; defaults are the paper's (table 6), where its text has lost a value
    the code's."""

    games: list[str] = Field(
        ["kuhn_poker", "TicTacToe-v0"], min_length=1, description="names that make_game knows"
    )
    turns_per_step: int = Field(
        128, ge=1, description="trained turns in one step, shared equally by the games"
    )
    phases: list[Literal["play", "imitate", "answer"]] = Field(
        ["play"],
        min_length=1,
        description="parts of the run, equally long: self-play, SFT on experts' games, RLVR",
    )
    baseline: Literal["role_ema", "global_ema", "batch_mean", "none"] = "role_ema"
    ema_decay: float = Field(0.95, ge=0, le=1)
    opponent: Literal["self", "random", "expert", "policy"] = Field(
        "self", description="who plays the other seat"
    )
    opponent_policy: str = Field(
        "", description="for opponent policy: whose weights play there, never trained"
    )
    group_size: int = Field(8, ge=2, description="for answer: answers to each question")
    reward: Literal["outcome", "random"] = Field(
        "outcome", description="random: the control, a coin flips each result"
    )
    inner_epochs: int = Field(2, ge=1)
    eval_matches: int = Field(128, ge=2, description="matches against each opponent in each game")
    eval_samples: int = Field(
        32, ge=1, description="answers at each of Kuhn poker's 12 information states"
    )
    eval_questions: int = Field(
        200, ge=0, description="of the transfer suite and each benchmark; 0: no suite"
    )
    eval_games: list[str] = Field(
        [], description="measured at the start and the end, where training has them not"
    )
    eval_benchmarks: list[str] = Field(
        [], description="of the document world, measured at the start and the end"
    )

    @model_validator(mode="after")
    def _games_exist(self) -> "Params":
        if len(set(self.games)) < len(self.games):
            raise ValueError(f"games is {self.games}; allowed: each game once")
        for name in self.games:
            game = make_game(name)
            if self.opponent in ("random", "expert"):
                fixed_player(self.opponent, game)
            if "imitate" in self.phases:
                fixed_player("expert", game)
        for name in self.eval_games:
            make_game(name)
        if unknown_names := [name for name in self.eval_benchmarks if name not in BENCHMARKS]:
            raise ValueError(unknown("benchmark", unknown_names[0], BENCHMARKS))
        if self.eval_benchmarks and not self.eval_questions:
            raise ValueError(
                "eval_questions is 0 with eval_benchmarks; allowed: 1 or more, the items of each"
            )
        self._phases_fit()
        if bool(self.opponent_policy) != (self.opponent == "policy"):
            raise ValueError(
                f"opponent is {self.opponent!r} with opponent_policy {self.opponent_policy!r}; allowed: opponent "
                "policy with the name of one, or neither"
            )
        return self

    def _phases_fit(self) -> None:
        if len(self.phases) > self.steps:
            raise ValueError(
                f"phases are {len(self.phases)} in {self.steps} steps; allowed: at most one a step"
            )
        if "imitate" in self.phases and (self.inner_epochs > 1 or self.engine == "vllm"):
            raise ValueError(
                f"phases has imitate with inner_epochs {self.inner_epochs} and engine {self.engine}; allowed: 1 and "
                "torch (a clipped second pass is no SFT, and an expert's turns have no sampled log-probs)"
            )

    @property
    def other_policies(self) -> dict[str, str]:
        """Policies besides the trained one, by engine name."""
        return {FIXED: self.opponent_policy} if self.opponent_policy else {}


def is_trained(turn: Turn) -> bool:
    """Whether the policy in training took the turn: not a scripted player, not another policy."""
    return turn.request is not None and turn.request.engine != FIXED


def baseline_estimator(params: Params) -> Estimator:
    """The estimator behind `params.baseline`; `Method.advantages` says what it is given as groups
    and roles."""
    if params.baseline in ("role_ema", "global_ema"):
        return make_estimator("role_ema", decay=params.ema_decay)
    return make_estimator("group_mean" if params.baseline == "batch_mean" else "raw")


class Method:
    """SPIRAL's self-play over one or several games."""

    def __init__(self, params: Params, tokenizer: Any):
        self.params = params
        self.games: list[Game] = [make_game(name) for name in params.games]
        self.chat = Chat(tokenizer)
        self.sampling = Sampling(
            max_new_tokens=params.max_new_tokens, temperature=params.temperature
        )
        self.estimator = baseline_estimator(params)
        self.turns_per_match = {game.name: 2.0 for game in self.games}
        self.suite = questions(params.eval_questions, seed=derive_seed("transfer suite"))
        self._metrics: dict[str, float] = {}

    def collect(self, engines: Mapping[str, Engine], step: int, rank: int = 0) -> list[Sample]:
        """A rollout of the phase that the step belongs to."""
        phases, seed = self.params.phases, derive_seed(self.params.seed, "train", step, rank)
        phase = phases[step * len(phases) // self.params.steps]
        if phase == "imitate":
            return self.imitate(seed)
        if phase == "answer":
            return self.answer(engines, seed)
        return self.play(engines, step, rank)

    def imitate(self, seed: int) -> list[Sample]:
        """SFT: as many turns of experts' won matches as self-play trains in a step, equally many
        from each game."""
        quota = self.params.turns_per_step // len(self.games)
        rows = [
            row
            for g in self.games
            for row in expert_rows(g, fixed_player("expert", g), self.chat, quota, seed)
        ]
        self._metrics = {"method/expert_turns": len(rows)}
        return rows

    def answer(self, engines: Mapping[str, Engine], seed: int) -> list[Sample]:
        """RLVR on questions outside of the games, as many answers as self-play has turns; none is
        in the suite."""
        params = self.params
        asked = training_questions(
            max(1, params.turns_per_step // params.group_size), seed, self.suite
        )
        rows = question_rows(engines, self.chat, self.sampling, asked, params.group_size, seed)
        self._metrics = {"method/right": sum(row.reward for row in rows) / len(rows)}
        return with_advantages(rows, make_estimator("group_zscore"), params)

    def play(self, engines: Mapping[str, Engine], step: int, rank: int = 0) -> list[Sample]:
        """Plays matches until every game has its share of turns, then draws that many of each
        (algorithm 1).

        Turns without an advantage teach nothing and are dropped before the draw, as in the released
        code.
        """
        quota = max(1, self.params.turns_per_step // len(self.games))
        played: list[Transcript] = []
        pool: list[Sample] = []
        usable: dict[str, list[Sample]] = {game.name: [] for game in self.games}
        for wave in range(MAX_WAVES):
            episodes: list[Episode[Transcript]] = []
            for game in self.games:
                missing = max(0, quota - len(usable[game.name]))
                for index in range(math.ceil(missing / self.turns_per_match[game.name])):
                    seed = derive_seed(
                        self.params.seed, "train", step, rank, wave, game.name, index
                    )
                    episodes.append(self.episode(game, seed, learner=(index + wave) % 2))
            if not episodes:
                break
            transcripts = run(parallel(*episodes), engines)
            new = [sample for transcript in transcripts for sample in self.samples(transcript)]
            played, pool = played + transcripts, pool + new
            compared = (
                pool if self.params.baseline == "batch_mean" else new
            )  # the batch is the whole rollout
            for sample, advantage in zip(compared, self.advantages(compared), strict=True):
                sample.advantage = advantage
            usable = {
                name: [s for s in pool if s.role[0] == name and s.advantage != 0] for name in usable
            }
        self._note(played)
        rng = random.Random(derive_seed(self.params.seed, "draw", step, rank))
        return [s for turns in usable.values() for s in rng.sample(turns, min(quota, len(turns)))]

    def episode(self, game: Game, seed: int, learner: int) -> Episode[Transcript]:
        """One match: the policy in both seats, or in seat `learner` against a fixed opponent."""
        policy = PolicyPlayer(self.chat, self.sampling)
        players: list[Player] = [policy, policy]
        if self.params.opponent == "policy":
            players[1 - learner] = PolicyPlayer(self.chat, self.sampling, engine=FIXED)
        elif self.params.opponent != "self":
            players[1 - learner] = fixed_player(self.params.opponent, game)
        return play_match(game, (players[0], players[1]), seed)

    def samples(self, transcript: Transcript) -> list[Sample]:
        """A match as loss rows, one a turn of the policy; every turn of a seat has the seat's
        return R."""
        returns = transcript.returns
        if self.params.reward == "random":
            sign = random.Random(derive_seed(transcript.seed, "coin")).choice((-1, 1))
            returns = (sign * returns[0], sign * returns[1])
        rows = []
        for turn in transcript.turns:
            if not is_trained(turn):
                continue
            role = (transcript.game, turn.seat)
            row = sample_of(
                turn.request,
                turn.completion,
                reward=returns[turn.seat],
                role=role,
                group=transcript.seed,
            )
            row.invalid = turn.action is None
            row.info = {"text": turn.completion.text, "action": turn.action}
            rows.append(row)
        return rows

    def advantages(self, samples: list[Sample]) -> list[float]:
        """RAE, or one of the baselines it is compared with (only "none" is in the paper).

        - role_ema: a moving average per (game, seat); the turns of a seat in a match count once.
        - global_ema: one moving average for all games and seats.
        - batch_mean: the mean over this rollout's turns per (game, seat).
        - none: A = R.
        """
        rewards = [sample.reward for sample in samples]
        matches, roles = [sample.group for sample in samples], [sample.role for sample in samples]
        if self.params.baseline == "global_ema":
            return self.estimator(
                rewards, list(zip(matches, roles, strict=True)), ["all"] * len(samples)
            )
        if self.params.baseline == "batch_mean":
            return self.estimator(rewards, ["batch"] * len(samples), roles)
        return self.estimator(rewards, matches, roles)

    def _note(self, played: list[Transcript]) -> None:
        """Numbers of the rollout: matches, moves, both seats' wins, and the baselines after it."""
        self._metrics = {}
        for game in self.games:
            matches = [transcript for transcript in played if transcript.game == game.name]
            moves = sum(len(transcript.turns) for transcript in matches) / len(matches)
            trained = sum(is_trained(turn) for transcript in matches for turn in transcript.turns)
            self.turns_per_match[game.name] = max(1.0, trained / len(matches))
            decided = [t.returns[0] for t in matches if t.invalid_seat is None]
            self._metrics |= {
                f"method/matches/{game.name}": len(matches),
                f"method/moves/{game.name}": moves,
                f"method/seat0_wins/{game.name}": sum(r > 0 for r in decided)
                / max(1, len(decided)),
                f"method/seat1_wins/{game.name}": sum(r < 0 for r in decided)
                / max(1, len(decided)),
                f"method/draws/{game.name}": sum(r == 0 for r in decided) / max(1, len(decided)),
                f"method/forfeits/{game.name}": 1 - len(decided) / len(matches),
            }
        for role, value in self.estimator.state_dict().get("baselines", {}).items():
            self._metrics[f"method/baseline/{role_label(role)}"] = value

    def metrics(self) -> dict[str, float]:
        """The last rollout: matches, moves a match, seats' wins and draws (of matches not
        forfeited), baselines."""
        return dict(self._metrics)

    def state_dict(self) -> dict[str, Any]:
        """Baselines and the match lengths that decide how many matches a step starts."""
        return {
            "estimator": self.estimator.state_dict(),
            "turns_per_match": dict(self.turns_per_match),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`."""
        self.estimator.load_state_dict(state["estimator"])
        self.turns_per_match = dict(state["turns_per_match"])

    def evaluate(self, engines: Mapping[str, Engine], step: int) -> list[dict[str, Any]]:
        """Results against the past self, random and expert players; exact measures; the transfer
        suite.

        Matches and questions are sampled as in the paper's online evaluation (temperature 0.6,
        top-p 0.95); exact measures read the policy itself (temperature 1). Deals and seeds are the
        same at every step and for every variant of a seed. Games and benchmarks that training never
        has are measured at the start and at the end.
        """
        params = self.params
        sampling = Sampling(params.max_new_tokens, params.eval_temperature, params.eval_top_p)
        seed = derive_seed(params.seed, "eval")
        rows = [row for game in self.games for row in self.measure(engines, game, sampling, seed)]
        if self.suite:
            rows += matches.question_rows(engines, self.chat, sampling, self.suite, seed)
        if step in (0, params.steps):
            mine = {name: engine for name, engine in engines.items() if name != "past"}
            for name in params.eval_games:
                if name not in params.games:
                    rows += self.measure(mine, make_game(name), sampling, seed)
            for name in params.eval_benchmarks:
                rows.append(matches.benchmark_row(mine, self.chat, name, params.eval_questions))
        return [{"step": step, **row} for row in rows]

    def measure(
        self, engines: Mapping[str, Engine], game: Game, sampling: Sampling, seed: int
    ) -> list[dict[str, Any]]:
        """One game: matches against everyone who can play it, and its exact measure if it has
        one."""
        params, plain = self.params, Sampling(self.params.max_new_tokens)
        me, rows = PolicyPlayer(self.chat, sampling), []
        opponents: dict[str, Player] = (
            {"random": make_player("random")} if plays_at_random(game.match(seed=0)) else {}
        )
        if game.name in EXPERTS:
            opponents["expert"] = fixed_player("expert", game)
        if "past" in engines:
            opponents["past"] = PolicyPlayer(self.chat, sampling, engine="past")
        for name, opponent in opponents.items():
            results = matches.match_results(engines, game, me, opponent, params.eval_matches, seed)
            rows += matches.match_rows(f"{game.name} vs {name}", results)
        if game.name == "kuhn_poker":
            found = matches.kuhn_policy(engines, self.chat, plain, game, params.eval_samples, seed)
            rows += matches.exact_rows("kuhn_poker", found)
        if game.name in TICTACTOE_GAMES:
            found = matches.tictactoe_policy(engines, self.chat, plain, game, 1, seed)
            rows += matches.exact_rows(game.name, found)
        return rows


def fixed_player(kind: str, game: Game) -> Player:
    """The fixed opponent "random" or "expert" (equilibrium in Kuhn poker, minimax in tic-tac-toe,
    greedy trade).

    Raises:
        ValueError: no expert is known for the game.
    """
    if kind == "expert" and game.name not in EXPERTS:
        raise ValueError(
            f"opponent is 'expert', which game {game.name!r} has not; games with one: {', '.join(EXPERTS)}"
        )
    return make_player(EXPERTS[game.name] if kind == "expert" else kind)

"""How well a policy plays: matches against opponents, exact measures, tasks near the games."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from spnb.core.episodes import Episode, parallel, run, single_turn
from spnb.core.method import Suite
from spnb.core.types import Chat, Engine, Sampling, Task, derive_seed
from spnb.evaluate import items
from spnb.evaluate.items import Records, Rows
from spnb.games import exact
from spnb.games.base import Game, match_at, messages, parse_action
from spnb.games.players import TICTACTOE_GAMES, Player, PolicyPlayer, Transcript, play_match

OUTCOMES = ("win", "draw", "loss", "invalid")
SEATS = ("seat 0", "seat 1")
BOOTSTRAP_DRAWS = 200
BENCHMARK_TOKENS = 120
"""Room for an answer with its thoughts."""


def match_suite(
    game: Game, player: Player, opponent: Player, n: int, seed: int, opponent_name: str
) -> Suite:
    """`n` matches, half of them in each seat of `player` (seat 0 takes an odd one).

    Rows: shares of the outcomes over both seats and by seat (role), mean utility, moves (turns of
    both seats a match), tokens (the player's, per own turn).
    """
    items.require_positive(n=n)
    labels = {"suite": game.name, "opponent": opponent_name}

    def ask(part: tuple[int, int]) -> Episode[Records]:
        seat, index = part
        players = (player, opponent) if seat == 0 else (opponent, player)
        played = yield from play_match(game, players, derive_seed(seed, game.name, index))
        return [items.record(item=str(index), role=SEATS[seat], **labels, **_columns(played, seat))]

    def summarise(records: Records) -> Rows:
        table = pd.DataFrame(records)
        rows = []
        for role, part in [("", table), *table.groupby("role")]:
            for outcome in OUTCOMES:
                hits = (part["outcome"] == outcome).tolist()
                rows.append(items.share_row(metric=outcome, hits=hits, role=role, **labels))
        table["tokens"] = table["player_tokens"] / table["player_turns"].clip(lower=1)
        for metric in ("utility", "moves", "tokens"):
            rows.append(items.mean_row(metric=metric, values=table[metric].tolist(), **labels))
        return rows

    return Suite(game.name, [(index % 2, index) for index in range(n)], ask, summarise)


def _columns(transcript: Transcript, seat: int) -> dict[str, Any]:
    """One match as columns of a record, seen from the player's seat."""
    turns = [turn for turn in transcript.turns if turn.seat == seat]
    answers = [turn.completion for turn in turns if turn.completion is not None]
    utility = transcript.returns[seat]
    return {
        "score": 0.5 + 0.5 * float(np.sign(utility)),
        "outcome": transcript.outcome(seat),
        "utility": utility,
        "moves": len(transcript.turns),
        "player_turns": len(turns),
        "player_tokens": sum(len(answer.ids) for answer in answers),
        "invalid_by": {None: None, seat: "player"}.get(transcript.invalid_seat, "opponent"),
        "truncated": any(answer.finish == "length" for answer in answers),
    }


def kuhn_suite(chat: Chat, sampling: Sampling, samples: int, seed: int) -> Suite:
    """Reads a policy's table from `samples` answers at each of Kuhn poker's 12 information states.

    Rows: exploitability of the table (chips a hand, percentile bounds of a bootstrap over answers);
    best_response, what the best responder wins in each seat (role); legality, a record's score.
    Exploitability is convex, so sampling noise biases it upwards: compare figures of the same
    number of samples only.
    """
    states = exact.kuhn_states()
    tasks = [Task(messages(match), question=key) for key, match in states.items()]

    def grade(task: Task, text: str) -> dict[str, Any]:
        match = states[task.question]
        action = parse_action(text, match.legal_actions())
        columns = {"item": task.question, "role": SEATS[match.player], "action": action}
        return columns | {"score": float(action is not None)}

    def summarise(records: Records) -> Rows:
        counts = np.zeros((len(states), 3), dtype=int)
        for one in records:
            answers = [*states[one["item"]].legal_actions(), None]  # pass, bet, neither
            counts[exact.KUHN_KEYS.index(one["item"]), answers.index(one["action"])] += 1
        table = kuhn_table(counts)
        low, high = exploitability_bounds(counts, derive_seed(seed, "bootstrap"))
        value = exact.kuhn_exploitability(table)
        n = len(records)
        rows = [items.row("kuhn_poker", "exploitability", value, low=low, high=high, n=n)]
        for role, value in zip(SEATS, exact.kuhn_best_response_values(table), strict=True):
            rows.append(items.row("kuhn_poker", "best_response", value, role=role, n=n))
        return [*rows, items.share_row("kuhn_poker", "legality", [one["score"] for one in records])]

    how = {"samples": samples, "grade": grade, "summarise": summarise}
    seed_of = partial(derive_seed, seed, "kuhn_policy")
    return items.ask_suite("kuhn_poker", tasks, chat, sampling, seed_of, **how)


def kuhn_table(counts: np.ndarray) -> dict[str, tuple[float, float]]:
    """Counts (12, 3) of pass, bet, neither as a policy over legal answers; uniform without any."""
    legal = counts[:, :2] + (counts[:, :2].sum(axis=1, keepdims=True) == 0)
    shares = legal / legal.sum(axis=1, keepdims=True)
    return {key: (float(a), float(b)) for key, (a, b) in zip(exact.KUHN_KEYS, shares, strict=True)}


def exploitability_bounds(counts: np.ndarray, seed: int) -> tuple[float, float]:
    """95 % bounds: the 2.5 and 97.5 percentiles over tables resampled from the answers by state."""
    rng = np.random.default_rng(seed)
    n = counts.sum(axis=1)
    draws = rng.multinomial(n, counts / n[:, None], size=(BOOTSTRAP_DRAWS, len(counts)))
    values = [exact.kuhn_exploitability(kuhn_table(draw)) for draw in draws]
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def tictactoe_suite(game: Game, chat: Chat, sampling: Sampling, samples: int, seed: int) -> Suite:
    """Asks for a move `samples` times at each of the 431 positions where a mistake is possible.

    Rows: optimal (share of moves that keep the minimax value, a record's score), value_lost (mean,
    0 to 2), legality. An answer that is not legal counts as a lost game: never optimal, as none of
    these positions is lost already. The bounds take the positions for a random draw.

    Raises:
        ValueError: the game is not a tic-tac-toe of OpenSpiel or TextArena.
    """
    if game.name not in TICTACTOE_GAMES:
        allowed = " and ".join(TICTACTOE_GAMES)
        raise ValueError(f"tictactoe_suite measures {allowed}; game is {game.name!r}")
    positions = [" ".join(history) for history in exact.decision_positions()]
    tasks = [Task(messages(match_at(game, key.split())), question=key) for key in positions]

    def grade(task: Task, text: str) -> dict[str, Any]:
        values = exact.move_values(task.question.split())
        action = parse_action(text, list(values))
        lost = max(values.values()) - (-1 if action is None else values[action])
        columns = {"item": task.question, "action": action, "value_lost": lost}
        return columns | {"score": float(lost == 0)}

    def summarise(records: Records) -> Rows:
        return [
            items.share_row(game.name, "optimal", [one["score"] for one in records]),
            items.mean_row(game.name, "value_lost", [one["value_lost"] for one in records]),
            items.share_row(game.name, "legality", [one["action"] is not None for one in records]),
        ]

    seed_of = partial(derive_seed, seed, "tictactoe_policy")
    how = {"samples": samples, "grade": grade, "summarise": summarise}
    return items.ask_suite(game.name, tasks, chat, sampling, seed_of, **how)


def question_suite(chat: Chat, sampling: Sampling, tasks: Sequence[Task], seed: int) -> Suite:
    """The suite "transfer": one boxed answer to each task near the games, accuracy by kind."""
    seed_of = partial(derive_seed, seed, "questions")
    return items.ask_suite("transfer", tasks, chat, sampling, seed_of)


def benchmark_suite(chat: Chat, name: str, tasks: Sequence[Task]) -> Suite:
    """Tasks that have nothing to do with games, answered greedily."""
    sampling = Sampling(BENCHMARK_TOKENS, temperature=0.0)
    how = {"seed_of": lambda place, _: derive_seed("benchmark", place), "metric": "grade"}
    return items.ask_suite(name, tasks, chat, sampling, **how)


def spoken(
    engines: Mapping[str, Engine],
    chat: Chat,
    sampling: Sampling,
    games: Sequence[Game],
    tasks: Sequence[Task],
    n: int,
    seed: int,
) -> list[tuple[str, str]]:
    """What a policy says as (where, text): in `n` matches of each game against itself, to tasks."""
    player = PolicyPlayer(chat, sampling)
    texts = []
    for game in games:
        seeds = [derive_seed(seed, "spoken", game.name, index) for index in range(n)]
        matches = run(parallel(*(play_match(game, (player, player), s) for s in seeds)), engines)
        turns = [turn for transcript in matches for turn in transcript.turns]
        texts += [(game.name, turn.completion.text) for turn in turns if turn.completion]
    seeds = [derive_seed(seed, "spoken", place, 0) for place in range(len(tasks))]
    pairs = zip(tasks, seeds, strict=True)
    requests = [chat.request(task.messages, sampling, one) for task, one in pairs]
    answers = run(parallel(*map(single_turn, requests)), engines)
    return texts + [("questions", answer.text) for answer in answers]


def cross_play(
    engines: Mapping[str, Engine],
    game: Game,
    chat: Chat,
    sampling: Sampling,
    names: Sequence[str],
    n: int,
    seed: int,
) -> pd.DataFrame:
    """Every policy in `names` against every other, `n` matches a pair, half in each seat.

    Columns: game, policy, opponent, n, score (share of matches won, draws count half) and invalid
    (share ended by the policy's own invalid answer). A pair is played once, read from both sides.
    """
    rows = []
    for first, second in itertools.combinations(names, 2):
        players = [PolicyPlayer(chat, sampling, name) for name in (first, second)]
        suite = match_suite(game, *players, n, derive_seed(seed, first, second), second)
        records = pd.DataFrame(items.play_suite(suite, engines)[0])
        score = records["score"].mean()
        sides = [(first, second, score, "player"), (second, first, 1 - score, "opponent")]
        for policy, opponent, won, side in sides:
            invalid = (records["invalid_by"] == side).mean()
            rows.append((game.name, policy, opponent, n, won, invalid))
    return pd.DataFrame(rows, columns=["game", "policy", "opponent", "n", "score", "invalid"])

"""How well a policy plays: results against opponents, exploitability, mistakes; every rate with its
95 % interval."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from spnb.core.episodes import answer_all, parallel, run
from spnb.core.grading import extract_boxed
from spnb.core.stats import mean_interval, share_interval
from spnb.core.types import Chat, Engine, Sampling, derive_seed
from spnb.games import Game, match_at
from spnb.games.exact import (
    KUHN_KEYS,
    decision_positions,
    kuhn_best_response_values,
    kuhn_exploitability,
    kuhn_states,
    move_values,
)
from spnb.games.play import TICTACTOE_GAMES, Player, PolicyPlayer, Transcript, play_match
from spnb.games.questions import Question
from spnb.games.text import messages, parse_action
from spnb.testbed.suites import benchmark

OUTCOMES = ("win", "draw", "loss", "invalid")
BOOTSTRAP_DRAWS = 200
BENCHMARK_TOKENS = 120
"""Room for an answer of the document world with its notes."""


def match_results(
    engines: Mapping[str, Engine], game: Game, player: Player, opponent: Player, n: int, seed: int
) -> pd.DataFrame:
    """Plays `n` matches side by side, half of them in each seat (seat 0 takes an odd one); one row
    each.

    Columns: game; seat (of `player`); outcome (win, draw, loss, or invalid: the player's own
    invalid answer); utility; moves (turns of both seats); player_turns; player_tokens (sampled by
    the player in the whole match, 0 if scripted); invalid_by ("player", "opponent" or None);
    truncated (one of the player's answers hit the token limit).
    """
    _require_positive("n", n)
    seats = [index % 2 for index in range(n)]
    episodes = [
        play_match(
            game,
            (player, opponent) if seat == 0 else (opponent, player),
            derive_seed(seed, game.name, index),
        )
        for index, seat in enumerate(seats)
    ]
    transcripts = run(parallel(*episodes), engines)
    rows = [_result(transcript, seat) for transcript, seat in zip(transcripts, seats, strict=True)]
    return pd.DataFrame(rows)


def _result(transcript: Transcript, seat: int) -> dict[str, Any]:
    answers = [
        turn.completion
        for turn in transcript.turns
        if turn.seat == seat and turn.completion is not None
    ]
    invalid_by = {None: None, seat: "player", 1 - seat: "opponent"}[transcript.invalid_seat]
    return {
        "game": transcript.game,
        "seat": seat,
        "outcome": transcript.outcome(seat),
        "utility": transcript.returns[seat],
        "moves": len(transcript.turns),
        "player_turns": sum(turn.seat == seat for turn in transcript.turns),
        "player_tokens": sum(len(answer.ids) for answer in answers),
        "invalid_by": invalid_by,
        "truncated": any(answer.finish == "length" for answer in answers),
    }


def points(results: pd.DataFrame) -> pd.Series:
    """1 for each match won, 0.5 for a draw, 0 for a loss, from `match_results` rows."""
    return 0.5 + 0.5 * np.sign(results["utility"])


def win_rates(results: pd.DataFrame) -> pd.DataFrame:
    """Shares of each outcome by game, over both seats ("all") and by seat, from `match_results`
    rows.

    Columns: game, seat, n, and for each of win, draw, loss, invalid the share with its Wilson
    bounds `_low`, `_high`.
    """
    rows = []
    for game, matches in results.groupby("game", sort=False):
        for seat, part in [("all", matches), *matches.groupby("seat")]:
            row: dict[str, Any] = {"game": game, "seat": seat, "n": len(part)}
            for outcome in OUTCOMES:
                row |= _share(outcome, int((part["outcome"] == outcome).sum()), len(part))
            rows.append(row)
    return pd.DataFrame(rows)


def _share(name: str, successes: int, n: int) -> dict[str, float]:
    low, high = share_interval(successes, n)
    return {name: successes / n, f"{name}_low": low, f"{name}_high": high}


def kuhn_policy(
    engines: Mapping[str, Engine],
    chat: Chat,
    sampling: Sampling,
    game: Game,
    samples: int,
    seed: int,
) -> dict[str, Any]:
    """Reads a policy's table from `samples` answers at each of Kuhn poker's 12 information states,
    and measures it.

    Returns `k` (= samples), `probabilities` (key to shares of pass and bet among legal answers,
    uniform where there is none), `legality` (share of legal answers over all states) with bounds,
    `exploitability` in chips a hand with the percentile bounds of a bootstrap over answers, and
    `best_response_values` by the best responder's seat.

    Exploitability is convex in the table, so sampling noise biases the plug-in upwards (an
    equilibrium scores above 0 at any finite k), and the bootstrap's answers are noisier still:
    compare figures of the same k only.

    Raises:
        ValueError: the game is not OpenSpiel's kuhn_poker; TextArena's KuhnPoker has other stakes
            and no such table.
    """
    if game.name != "kuhn_poker":
        raise ValueError(f"kuhn_policy measures kuhn_poker; game is {game.name!r}")
    states = kuhn_states()
    prompts = [messages(state.match) for state in states]
    answers = _sample(engines, chat, sampling, prompts, samples, (seed, "kuhn_policy"))
    counts = np.zeros((len(states), 3), dtype=int)  # pass, bet, neither
    for row, state, texts in zip(counts, states, answers, strict=True):
        legal = state.match.legal_actions()
        for text in texts:
            action = parse_action(text, legal)
            row[2 if action is None else legal.index(action)] += 1
    probabilities = _shares(counts)
    low, high = _bootstrap_exploitability(counts, derive_seed(seed, "bootstrap"))
    return {
        "k": samples,
        "probabilities": probabilities,
        **_share("legality", int(counts[:, :2].sum()), int(counts.sum())),
        "exploitability": kuhn_exploitability(probabilities),
        "exploitability_low": low,
        "exploitability_high": high,
        "best_response_values": kuhn_best_response_values(probabilities),
    }


def _shares(counts: np.ndarray) -> dict[str, tuple[float, float]]:
    """Counts (12, 3) of pass, bet and neither as a policy over legal answers; uniform where nothing
    was legal."""
    legal = counts[:, :2] + (counts[:, :2].sum(axis=1, keepdims=True) == 0)
    shares = legal / legal.sum(axis=1, keepdims=True)
    return {
        key: (float(passing), float(betting))
        for key, (passing, betting) in zip(KUHN_KEYS, shares, strict=True)
    }


def _bootstrap_exploitability(counts: np.ndarray, seed: int) -> tuple[float, float]:
    """The 2.5 and 97.5 percentiles of exploitability over tables resampled from the answers, state
    by state."""
    rng = np.random.default_rng(seed)
    n = counts.sum(axis=1)
    draws = rng.multinomial(n, counts / n[:, None], size=(BOOTSTRAP_DRAWS, len(counts)))
    low, high = np.percentile([kuhn_exploitability(_shares(draw)) for draw in draws], [2.5, 97.5])
    return float(low), float(high)


def tictactoe_policy(
    engines: Mapping[str, Engine],
    chat: Chat,
    sampling: Sampling,
    game: Game,
    samples: int,
    seed: int,
) -> dict[str, Any]:
    """Asks for a move `samples` times at each of the 431 positions where a mistake is possible, and
    grades it.

    Returns `positions`, `k`, and with bounds `optimal` (share of moves that keep the minimax
    value), `value_lost` (mean per answer, 0 to 2) and `legality`. An answer that is not legal
    counts as a lost game, and so is never optimal: none of these positions is lost already. All
    positions are asked, so the bounds speak of the answers' randomness only (and are wide, as they
    take the positions for a random draw too).

    Raises:
        ValueError: the game is not a tic-tac-toe of OpenSpiel or TextArena.
    """
    if game.name not in TICTACTOE_GAMES:
        raise ValueError(
            f"tictactoe_policy measures {' and '.join(TICTACTOE_GAMES)}; game is {game.name!r}"
        )
    histories = decision_positions()
    prompts = [messages(match_at(game, history)) for history in histories]
    answers = _sample(engines, chat, sampling, prompts, samples, (seed, "tictactoe_policy"))
    lost, legal = [], 0
    for history, texts in zip(histories, answers, strict=True):
        values = move_values(history)
        for text in texts:
            action = parse_action(text, list(values))
            legal += action is not None
            lost.append(max(values.values()) - (-1 if action is None else values[action]))
    mean, low, high, _ = mean_interval(lost)
    return {
        "positions": len(histories),
        "k": samples,
        **_share("optimal", lost.count(0), len(lost)),
        "value_lost": mean,
        "value_lost_low": low,
        "value_lost_high": high,
        **_share("legality", legal, len(lost)),
    }


def _sample(
    engines: Mapping[str, Engine],
    chat: Chat,
    sampling: Sampling,
    prompts: Sequence[list[dict[str, str]]],
    samples: int,
    seed: tuple[Any, ...],
) -> list[list[str]]:
    """`samples` answers to every prompt, all in one batch; texts by prompt."""
    _require_positive("samples", samples)
    requests = [
        chat.request(prompt, sampling, derive_seed(*seed, index, sample))
        for index, prompt in enumerate(prompts)
        for sample in range(samples)
    ]
    texts = [completion.text for completion in answer_all(requests, engines)]
    return [texts[start : start + samples] for start in range(0, len(texts), samples)]


def _require_positive(key: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{key} is {value!r}; allowed: 1 or more")


def match_rows(label: str, results: pd.DataFrame) -> list[dict[str, Any]]:
    """`match_results` of one game as evaluation rows: outcome shares over both seats and by seat,
    utility, lengths.

    Keys: evaluation (`label`, with "seat 0" or "seat 1" appended for one seat), metric, value, low,
    high, n. Utility is per match; `moves` counts turns of both seats, `tokens` the player's tokens
    per own turn.
    """
    rows = []
    for rates in win_rates(results).to_dict("records"):
        name = label if rates["seat"] == "all" else f"{label}, seat {rates['seat']}"
        for outcome in OUTCOMES:
            bounds = {"low": rates[f"{outcome}_low"], "high": rates[f"{outcome}_high"]}
            rows.append(
                {
                    "evaluation": name,
                    "metric": outcome,
                    "value": rates[outcome],
                    **bounds,
                    "n": rates["n"],
                }
            )
    tokens = results["player_tokens"] / results["player_turns"].clip(lower=1)
    for metric, values in (
        ("utility", results["utility"]),
        ("moves", results["moves"]),
        ("tokens", tokens),
    ):
        mean, low, high, _ = mean_interval(values.tolist())
        rows.append(
            {
                "evaluation": label,
                "metric": metric,
                "value": mean,
                "low": low,
                "high": high,
                "n": len(values),
            }
        )
    return rows


def exact_rows(label: str, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `kuhn_policy` or `tictactoe_policy` found as evaluation rows; n is the number of answers
    a state."""
    rows = [
        {"evaluation": label, "metric": metric, "value": value, "n": found["k"]}
        | {bound: found[f"{metric}_{bound}"] for bound in ("low", "high")}
        for metric, value in found.items()
        if f"{metric}_low" in found
    ]
    for seat, value in enumerate(found.get("best_response_values", ())):
        metric = f"best_response_seat{seat}"
        rows.append(
            {
                "evaluation": label,
                "metric": metric,
                "value": value,
                "low": None,
                "high": None,
                "n": found["k"],
            }
        )
    return rows


def question_rows(
    engines: Mapping[str, Engine],
    chat: Chat,
    sampling: Sampling,
    asked: Sequence[Question],
    seed: int,
) -> list[dict[str, Any]]:
    """Share of right answers to boxed-answer questions, in all and by kind, with Wilson bounds."""
    prompts = [[{"role": "user", "content": question.text}] for question in asked]
    answers = _sample(engines, chat, sampling, prompts, 1, (seed, "questions"))
    right: dict[str, list[bool]] = {"all": []}
    for question, (text,) in zip(asked, answers, strict=True):
        right["all"].append(extract_boxed(text) == question.answer)
        right.setdefault(question.kind, []).append(right["all"][-1])
    rows = []
    for kind, hits in right.items():
        low, high = share_interval(sum(hits), len(hits))
        value = sum(hits) / len(hits)
        rows.append(
            {
                "evaluation": "transfer",
                "metric": kind,
                "value": value,
                "low": low,
                "high": high,
                "n": len(hits),
            }
        )
    return rows


def spoken(
    engines: Mapping[str, Engine],
    chat: Chat,
    sampling: Sampling,
    games: Sequence[Game],
    asked: Sequence[Question],
    n: int,
    seed: int,
) -> list[tuple[str, str]]:
    """What a policy says as (where, text): turns in `n` matches of each game against itself,
    answers to questions."""
    me, texts = PolicyPlayer(chat, sampling), []
    for game in games:
        deals = [derive_seed(seed, "spoken", game.name, index) for index in range(n)]
        played = run(parallel(*(play_match(game, (me, me), deal) for deal in deals)), engines)
        texts += [
            (game.name, turn.completion.text)
            for match in played
            for turn in match.turns
            if turn.completion
        ]
    prompts = [[{"role": "user", "content": question.text}] for question in asked]
    answers = _sample(engines, chat, sampling, prompts, 1, (seed, "spoken")) if prompts else []
    return texts + [("questions", text) for (text,) in answers]


def benchmark_row(
    engines: Mapping[str, Engine], chat: Chat, name: str, count: int
) -> dict[str, Any]:
    """Mean grade on the first `count` items of a benchmark of the document world, greedy, with its
    95 % interval."""
    sampling = Sampling(BENCHMARK_TOKENS, temperature=0.0)
    items = benchmark(name, count).items
    prompts = [
        chat.request(item.messages, sampling, derive_seed("benchmark", i))
        for i, item in enumerate(items)
    ]
    grades = [
        item.grade(done.text)
        for item, done in zip(items, answer_all(prompts, engines), strict=True)
    ]
    mean, low, high, n = mean_interval(grades)
    if all(grade in (0, 1) for grade in grades):
        low, high = share_interval(int(sum(grades)), n)
    return {
        "evaluation": "benchmarks",
        "metric": name,
        "value": mean,
        "low": low,
        "high": high,
        "n": n,
    }


def cross_play(
    engines: Mapping[str, Engine],
    game: Game,
    chat: Chat,
    sampling: Sampling,
    names: Sequence[str],
    n: int,
    seed: int,
) -> pd.DataFrame:
    """Every policy in `names` (names of engines) against every other, `n` matches a pair, half in
    each seat.

    Columns: game, policy, opponent, n, score (share of matches won, draws count half) and forfeits
    (share that the policy's own invalid answer ended). A pair is played once and read from both
    sides.
    """
    rows = []
    for first, second in itertools.combinations(names, 2):
        players = [PolicyPlayer(chat, sampling, engine=name) for name in (first, second)]
        results = match_results(engines, game, *players, n, derive_seed(seed, first, second))
        won, pair = points(results).mean(), {"game": game.name, "n": n}
        lost = [(results["invalid_by"] == who).mean() for who in ("player", "opponent")]
        rows.append(
            {**pair, "policy": first, "opponent": second, "score": won, "forfeits": lost[0]}
        )
        rows.append(
            {**pair, "policy": second, "opponent": first, "score": 1 - won, "forfeits": lost[1]}
        )
    return pd.DataFrame(rows)

"""Evaluation against known values, with an engine that draws legal answers at random."""

import random
import re

import numpy as np
import pandas as pd
import pytest
from fakes import CharTokenizer

from spnb.core.grading import grade_text
from spnb.core.types import Chat, Completion, Sampling, Task
from spnb.evaluate.items import play_suite
from spnb.evaluate.matches import (
    BOOTSTRAP_DRAWS,
    OUTCOMES,
    benchmark_suite,
    cross_play,
    exploitability_bounds,
    kuhn_suite,
    kuhn_table,
    match_suite,
    question_suite,
    spoken,
    tictactoe_suite,
)
from spnb.games import make_game
from spnb.games.exact import (
    KUHN_KEYS,
    decision_positions,
    kuhn_best_response_values,
    kuhn_equilibrium,
    kuhn_exploitability,
    move_values,
)
from spnb.games.players import PolicyPlayer, make_player
from spnb.lab import ladder

SAMPLING = Sampling(max_new_tokens=16)


class LegalEngine:
    """Answers with a uniformly drawn legal move, and with share `invalid` of the draws with no move
    at all."""

    def __init__(self, invalid=0.0):
        self.invalid = invalid

    def generate(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        prompt, rng = "".join(map(chr, request.prompt_ids)), random.Random(request.seed)
        listed = re.search(r"(?:Legal moves|Available Moves|available actions are): (.*)", prompt)
        move = rng.choice(re.findall(r"\w+", listed.group(1)))
        if rng.random() < self.invalid:
            return Completion((0,) * 16, (-1.0,) * 16, "I wonder", "length")
        return Completion((0,) * 4, (-1.0,) * 4, rf"\boxed{{{move}}}", "stop")


CHAT = Chat(CharTokenizer())
POLICY = PolicyPlayer(CHAT, SAMPLING)
RANDOM = make_player("random")


def played(suite, engine=None):
    """Records as a table, and rows by opponent, role, metric and difficulty."""
    records, rows = play_suite(suite, {"policy": engine or LegalEngine()})
    keys = ("opponent", "role", "metric", "difficulty")
    return pd.DataFrame(records), {tuple(row[key] for key in keys): row for row in rows}


def matches(name, player, opponent, n, seed, engine=None):
    return played(match_suite(make_game(name), player, opponent, n, seed, "x"), engine)


def test_records_of_matches():
    records, _ = matches("kuhn_poker", POLICY, RANDOM, 50, 3)
    assert records["role"].value_counts().to_dict() == {"seat 0": 25, "seat 1": 25}
    assert records["item"].tolist() == [str(index) for index in range(50)]
    assert set(records["suite"]) == {"kuhn_poker"} and set(records["opponent"]) == {"x"}
    assert set(records["outcome"]) == {"win", "loss"}
    assert set(records["utility"].abs()) == {0.5, 1.0}
    assert records["score"].tolist() == (records["utility"] > 0).astype(float).tolist()
    own = {("seat 0", 2): 1, ("seat 0", 3): 2, ("seat 1", 2): 1, ("seat 1", 3): 1}
    turns = [own[key] for key in zip(records["role"], records["moves"], strict=True)]
    assert records["player_turns"].tolist() == turns
    assert records["player_tokens"].tolist() == [4 * turn for turn in turns]
    assert not records["truncated"].any()
    assert records["invalid_by"].isna().all()


def test_matches_follow_the_seed():
    first, again, other = (
        matches("tic_tac_toe", POLICY, RANDOM, 20, seed)[0] for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)


def test_each_match_is_a_deal_of_its_own():
    """Of the policy against itself, which is asked two or three times a match."""
    engine, seeds = LegalEngine(), []
    answer = engine.answer
    engine.answer = lambda request: seeds.append(request.seed) or answer(request)
    matches("kuhn_poker", POLICY, POLICY, 20, 1, engine)
    assert len({*seeds}) == len(seeds) >= 2 * 20


def test_an_odd_match_is_the_first_seats():
    suite = match_suite(make_game("kuhn_poker"), POLICY, RANDOM, 3, 0, "x")
    assert list(suite.parts) == [(0, 0), (1, 1), (0, 2)]


def test_no_matches_are_refused():
    with pytest.raises(ValueError, match="n is 0; allowed: 1 or more"):
        matches("tic_tac_toe", POLICY, RANDOM, 0, 0)


def test_invalid_answers_are_counted_for_the_side_that_gave_them():
    engine = LegalEngine(invalid=1.0)
    own, rows = matches("tic_tac_toe", POLICY, RANDOM, 10, 0, engine)
    assert set(own["outcome"]) == {"invalid"} and rows["x", "", "invalid", ""]["value"] == 1
    assert set(own["utility"]) == {-1.5} and set(own["score"]) == {0}
    assert set(own["invalid_by"]) == {"player"}
    assert own["truncated"].all()
    other, _ = matches("tic_tac_toe", RANDOM, POLICY, 10, 0, engine)
    assert set(other["outcome"]) == {"win"}
    assert set(other["invalid_by"]) == {"opponent"}
    assert set(other["player_tokens"]) == {0}
    assert not other["truncated"].any()


@pytest.mark.slow
def test_random_play_scores_as_known_by_seat():
    """First mover: uniform play wins 58.5 %, draws 12.7 %, loses 28.8 %; second: the reverse."""
    _, rows = matches("tic_tac_toe", POLICY, RANDOM, 1200, 5)
    expected = {
        "seat 0": {"win": 0.585, "draw": 0.127, "loss": 0.288},
        "seat 1": {"win": 0.288, "draw": 0.127, "loss": 0.585},
    }
    for role, n in (("", 1200), ("seat 0", 600), ("seat 1", 600)):
        parts = [rows["x", role, outcome, ""] for outcome in OUTCOMES]
        assert {row["n"] for row in parts} == {n}
        assert sum(row["value"] for row in parts) == pytest.approx(1)
    for role, shares in expected.items():
        for outcome, share in shares.items():
            row = rows["x", role, outcome, ""]
            assert row["low"] < share < row["high"]


def test_minimax_has_no_losses_against_a_policy():
    records, _ = matches("TicTacToe-v0", make_player("minimax"), POLICY, 20, 0)
    assert set(records["outcome"]) <= {"win", "draw"}
    draws = records["outcome"] == "draw"
    assert set(records[draws]["score"]) <= {0.5} and set(records[~draws]["score"]) == {1}


FOUR_MATCHES = [
    {"role": "seat 0", "outcome": "win", "utility": 1.0, "moves": 2, "player_turns": 1},
    {"role": "seat 0", "outcome": "loss", "utility": -0.5, "moves": 3, "player_turns": 2},
    {"role": "seat 1", "outcome": "win", "utility": 0.5, "moves": 3, "player_turns": 1},
    {"role": "seat 1", "outcome": "invalid", "utility": -1.5, "moves": 2, "player_turns": 1},
]
TOKENS = (4, 8, 6, 2)


def rows_of(records):
    suite = match_suite(make_game("kuhn_poker"), POLICY, RANDOM, 4, 0, "x")
    rows = suite.summarise(records)
    assert {(row["suite"], row["opponent"]) for row in rows} == {("kuhn_poker", "x")}
    return {
        (row["role"], row["metric"]): (row["value"], row["low"], row["high"], row["n"])
        for row in rows
    }


def test_rows_of_four_matches():
    """Wilson: 2 in 4 is 0.1500 to 0.8500, 1 in 4 0.0456 to 0.6994, 1 in 2 0.0945 to 0.9055.

    Utility: mean -0.125, error sqrt(3.6875 / 12), t(0.975, 3) = 3.18245. Tokens a turn are 4, 4, 6,
    2: mean 4, error sqrt(8 / 12). Moves: mean 2.5, error sqrt(1 / 12).
    """
    records = [one | {"player_tokens": t} for one, t in zip(FOUR_MATCHES, TOKENS, strict=True)]
    rows = rows_of(records)
    roles = [(role, outcome) for role in ("", "seat 0", "seat 1") for outcome in OUTCOMES]
    assert list(rows) == [*roles, ("", "utility"), ("", "moves"), ("", "tokens")]
    assert rows["", "win"] == pytest.approx((0.5, 0.1500, 0.8500, 4), abs=5e-5)
    assert rows["", "loss"] == pytest.approx((0.25, 0.0456, 0.6994, 4), abs=5e-5)
    assert rows["seat 0", "win"] == pytest.approx((0.5, 0.0945, 0.9055, 2), abs=5e-5)
    assert rows["seat 0", "loss"][0] == rows["seat 1", "invalid"][0] == 0.5
    assert rows["", "draw"][0] == rows["seat 0", "invalid"][0] == rows["seat 1", "loss"][0] == 0
    means = {"utility": (-0.125, 3.6875 / 12), "tokens": (4, 8 / 12), "moves": (2.5, 1 / 12)}
    for metric, (mean, variance) in means.items():
        half = 3.18245 * variance**0.5
        assert rows["", metric] == pytest.approx((mean, mean - half, mean + half, 4), abs=1e-4)


def test_rows_of_a_player_that_never_came_to_move():
    records = [one | {"player_tokens": 0, "player_turns": 0} for one in FOUR_MATCHES]
    assert rows_of(records)["", "tokens"] == (0, 0, 0, 4)


def test_kuhn_suite_of_a_uniform_player():
    records, rows = played(kuhn_suite(CHAT, SAMPLING, samples=200, seed=1))
    assert len(records) == 2400 and records["item"].value_counts().to_dict() == dict.fromkeys(
        KUHN_KEYS, 200
    )
    assert set(records["score"]) == {1} and rows["", "", "legality", ""]["value"] == 1
    assert set(records["action"]) == {"check", "bet", "fold", "call"}
    bets = records["action"].isin(["bet", "call"]).groupby(records["item"]).mean()
    assert all(bets.between(0.38, 0.62))
    table = {key: (1 - bets[key], bets[key]) for key in KUHN_KEYS}
    exploitability = rows["", "", "exploitability", ""]
    assert exploitability["value"] == pytest.approx(kuhn_exploitability(table))
    assert exploitability["value"] == pytest.approx(11 / 24, abs=0.08)
    assert exploitability["low"] < 11 / 24 < exploitability["high"]
    best = [rows["", role, "best_response", ""]["value"] for role in ("seat 0", "seat 1")]
    assert best == pytest.approx(kuhn_best_response_values(table))
    assert {row["n"] for row in rows.values()} == {2400}


def test_kuhn_suite_counts_illegal_answers_and_takes_silence_as_uniform():
    records, rows = played(kuhn_suite(CHAT, SAMPLING, 5, 1), LegalEngine(invalid=1.0))
    assert rows["", "", "legality", ""]["value"] == 0 and set(records["score"]) == {0}
    assert rows["", "", "exploitability", ""]["value"] == pytest.approx(11 / 24)
    _, rows = played(kuhn_suite(CHAT, SAMPLING, 100, 1), LegalEngine(invalid=0.5))
    legality = rows["", "", "legality", ""]
    assert legality["low"] < 0.5 < legality["high"]


def test_exploitability_has_the_bounds_of_95_in_100_resampled_tables():
    """Of 200 tables drawn about the equilibrium, 10 lie outside the bounds, 20 at 90 %."""
    bets = np.array([kuhn_equilibrium()[key][1] for key in KUHN_KEYS])
    counts = np.stack([100 - 100 * bets, 100 * bets, np.zeros(12)], axis=1).round().astype(int)
    low, high = exploitability_bounds(counts, seed=3)
    rng = np.random.default_rng(3)
    draws = rng.multinomial([100] * 12, counts / 100, size=(BOOTSTRAP_DRAWS, 12))
    values = np.array([kuhn_exploitability(kuhn_table(draw)) for draw in draws])
    assert 4 <= (values < low).sum() <= 6
    assert 4 <= (values > high).sum() <= 6


@pytest.mark.parametrize(
    "name", ["tic_tac_toe", pytest.param("TicTacToe-v0", marks=pytest.mark.slow)]
)
def test_tictactoe_suite_of_a_uniform_player(name):
    """Over the 431 positions uniform play is optimal in 40.2 % and loses 0.920 a move."""
    tables = [move_values(history) for history in decision_positions()]
    lost = [[max(table.values()) - value for value in table.values()] for table in tables]
    optimal = sum(row.count(0) / len(row) for row in lost) / len(lost)
    mean_lost = sum(sum(row) / len(row) for row in lost) / len(lost)
    assert (optimal, mean_lost) == pytest.approx((0.402, 0.920), abs=5e-4)
    records, rows = played(tictactoe_suite(make_game(name), CHAT, SAMPLING, 4, 2))
    assert len(records) == 4 * 431 and records["item"].nunique() == 431
    assert rows["", "", "legality", ""]["value"] == 1
    for metric, expected in (("optimal", optimal), ("value_lost", mean_lost)):
        row = rows["", "", metric, ""]
        assert row["low"] < expected < row["high"] and row["n"] == 4 * 431


def test_tictactoe_suite_takes_an_illegal_answer_for_a_loss():
    suite = tictactoe_suite(make_game("tic_tac_toe"), CHAT, SAMPLING, 1, 2)
    _, rows = played(suite, LegalEngine(invalid=1.0))
    won = sum(max(move_values(history).values()) == 1 for history in decision_positions())
    assert won == 320  # the other 111 are draws, so the answers lose 2 and 1
    assert rows["", "", "legality", ""]["value"] == rows["", "", "optimal", ""]["value"] == 0
    assert rows["", "", "value_lost", ""]["value"] == pytest.approx((2 * 320 + 111) / 431)
    with pytest.raises(ValueError, match="measures tic_tac_toe and TicTacToe-v0; game is 'kuhn_po"):
        tictactoe_suite(make_game("kuhn_poker"), CHAT, SAMPLING, 1, 0)


class Pupil:
    """Answers each question by its text."""

    def __init__(self, answers):
        self.answers, self.requests = answers, []

    def generate(self, requests):
        self.requests += requests
        texts = [self.answers["".join(map(chr, request.prompt_ids))] for request in requests]
        return [Completion((0,), (0.0,), text, "stop") for text in texts]


def question(kind, text, answer):
    messages = [{"role": "user", "content": text}]
    return Task(messages, text, (answer,), "literal", kind, {"tag": "boxed"})


def test_question_suite_counts_boxed_answers_that_are_right():
    """2 of 5: 0.1176 to 0.7693; sums 2 of 3: 0.2077 to 0.9385; names 0 of 2: 0 to 0.6576."""
    tasks = [
        question("sum", "1+1?", "2"),
        question("name", "Who?", "K"),
        question("sum", "1+2?", "3"),
        question("sum", "1+3?", "4"),
        question("name", "What?", "J"),
    ]
    answers = {
        "1+1?": r"\boxed{2}",
        "1+2?": r"\boxed{5} or \boxed{ 3 }",
        "1+3?": "4",
        "Who?": "none",
        "What?": r"\boxed{Q}",
    }
    pupil = Pupil(answers)
    records, rows = played(question_suite(CHAT, SAMPLING, tasks, seed=3), pupil)
    assert set(records["suite"]) == {"transfer"}
    expected = {
        "": (0.4, 0.1176, 0.7693, 5),
        "sum": (2 / 3, 0.2077, 0.9385, 3),
        "name": (0, 0, 0.6576, 2),
    }
    for kind, numbers in expected.items():
        row = rows["", "", "accuracy", kind]
        values = (row["value"], row["low"], row["high"], row["n"])
        assert values == pytest.approx(numbers, abs=5e-5)
    assert len({request.seed for request in pupil.requests}) == len(pupil.requests) == 5


class Fixed:
    """Answers every prompt with the same text."""

    def __init__(self, text):
        self.text, self.requests = text, []

    def generate(self, requests):
        self.requests += requests
        return [Completion((0,), (-1.0,), self.text, "stop") for _ in requests]


def test_cross_play_is_read_from_both_sides():
    """Whoever says nothing loses every match to the other; two mute ones share them."""
    engines = {"player": LegalEngine(), "mute": Fixed("I wonder"), "silent": Fixed("")}
    game = make_game("kuhn_poker")
    frame = cross_play(engines, game, CHAT, SAMPLING, ["player", "mute", "silent"], n=20, seed=1)
    table = frame.set_index(["policy", "opponent"])
    assert len(table) == 6 and set(frame["n"]) == {20} and set(frame["game"]) == {"kuhn_poker"}
    for other in ("mute", "silent"):
        assert tuple(table.loc[("player", other), ["score", "invalid"]]) == (1, 0)
        assert tuple(table.loc[(other, "player"), ["score", "invalid"]]) == (0, 1)
    assert tuple(table.loc[("mute", "silent"), ["score", "invalid"]]) == (0.5, 0.5)
    seeds = [request.seed for request in engines["silent"].requests]
    assert len({*seeds}) == len(seeds) == 20 + 10, "each pair has matches of its own"


def test_a_benchmark_is_graded_greedily_with_an_interval():
    text = "<answer>B</answer>"
    rng = random.Random(0)
    tasks = [ladder.draw_task("choice", 2, rng) for _ in range(40)]
    share = sum(grade_text(text, task) for task in tasks) / 40
    engine = Fixed(text)
    records, rows = played(benchmark_suite(CHAT, "choice", tasks), engine)
    assert set(records["suite"]) == {"choice"} and records["score"].mean() == share
    row = rows["", "", "grade", ""]
    assert (row["value"], row["n"]) == (share, 40) and row["low"] < share < row["high"]
    assert {request.sampling for request in engine.requests} == {Sampling(120, temperature=0.0)}


def test_what_is_said_in_matches_and_to_tasks():
    tasks = [question("count", "how many?", "3"), question("line", "which?", "4")]
    game = make_game("kuhn_poker")
    texts = spoken({"policy": LegalEngine()}, CHAT, SAMPLING, [game], [], n=5, seed=1)
    assert {where for where, _ in texts} == {"kuhn_poker"} and 10 <= len(texts) <= 15
    texts = spoken({"policy": Fixed("no move")}, CHAT, SAMPLING, [game], tasks, n=5, seed=1)
    assert texts == [("kuhn_poker", "no move")] * 5 + [("questions", "no move")] * 2


def test_what_is_said_is_of_matches_and_to_tasks_of_their_own():
    engine, seeds = LegalEngine(), []
    answer = engine.answer
    engine.answer = lambda request: seeds.append(request.seed) or answer(request)
    tasks = [question("line", "Legal moves: 4, 5", "4")] * 3
    spoken({"policy": engine}, CHAT, SAMPLING, [make_game("kuhn_poker")], tasks, n=5, seed=1)
    assert len({*seeds}) == len(seeds) >= 10 + 3

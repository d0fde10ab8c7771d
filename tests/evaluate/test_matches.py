"""Evaluation against known values, with an engine that draws legal answers at random."""

import random
import re

import pandas as pd
import pytest

from spnb.core.types import Chat, Completion, Sampling
from spnb.evaluate.matches import (
    benchmark_row,
    cross_play,
    exact_rows,
    kuhn_policy,
    match_results,
    match_rows,
    question_rows,
    spoken,
    tictactoe_policy,
    win_rates,
)
from spnb.games import make_game
from spnb.games.exact import decision_positions, kuhn_exploitability, move_values
from spnb.games.play import MinimaxPlayer, PolicyPlayer, RandomPlayer
from spnb.games.questions import Question
from spnb.testbed.suites import benchmark

SAMPLING = Sampling(max_new_tokens=16)


class CharTokenizer:
    """One token per character."""

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return messages[-1]["content"]

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [ord(char) for char in text]}


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


def test_match_results_columns_seats_and_tokens():
    results = match_results(
        {"policy": LegalEngine()}, make_game("kuhn_poker"), POLICY, RandomPlayer(), n=50, seed=3
    )
    assert list(results.columns) == [
        "game", "seat", "outcome", "utility", "moves", "player_turns", "player_tokens", "invalid_by", "truncated",
    ]  # fmt: skip
    assert results["seat"].value_counts().to_dict() == {0: 25, 1: 25}
    assert set(results["outcome"]) == {"win", "loss"}
    assert set(results["utility"].abs()) == {0.5, 1.0}
    own = {
        (0, 2): 1,
        (0, 3): 2,
        (1, 2): 1,
        (1, 3): 1,
    }  # seat, moves -> own answers, each of 4 tokens
    turns = [own[key] for key in zip(results["seat"], results["moves"], strict=True)]
    assert results["player_turns"].tolist() == turns
    assert results["player_tokens"].tolist() == [4 * turn for turn in turns]
    assert not results["truncated"].any()
    assert results["invalid_by"].isna().all()


def test_match_results_follow_the_seed():
    game, engines = make_game("tic_tac_toe"), {"policy": LegalEngine()}
    first, again, other = (
        match_results(engines, game, POLICY, RandomPlayer(), 20, seed) for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)


def test_no_matches_and_no_samples_are_refused():
    with pytest.raises(ValueError, match="n is 0; allowed: 1 or more"):
        match_results({}, make_game("tic_tac_toe"), POLICY, RandomPlayer(), 0, 0)
    with pytest.raises(ValueError, match="samples is 0; allowed: 1 or more"):
        kuhn_policy({}, CHAT, SAMPLING, make_game("kuhn_poker"), samples=0, seed=0)


def test_invalid_answers_are_counted_for_the_side_that_gave_them():
    game, engines = make_game("tic_tac_toe"), {"policy": LegalEngine(invalid=1.0)}
    own = match_results(engines, game, POLICY, RandomPlayer(), 10, 0)
    assert set(own["outcome"]) == {"invalid"}
    assert set(own["utility"]) == {-1.5}
    assert set(own["invalid_by"]) == {"player"}
    assert own["truncated"].all()
    theirs = match_results(engines, game, RandomPlayer(), POLICY, 10, 0)
    assert set(theirs["outcome"]) == {"win"}
    assert set(theirs["invalid_by"]) == {"opponent"}
    assert set(theirs["player_tokens"]) <= {0}
    assert not theirs["truncated"].any()


def test_random_play_scores_as_known_by_seat():
    """Uniform play wins 58.5 %, draws 12.7 % and loses 28.8 % as first mover; as second mover the
    reverse."""
    results = match_results(
        {"policy": LegalEngine()}, make_game("tic_tac_toe"), POLICY, RandomPlayer(), 1200, 5
    )
    rates = win_rates(results).set_index("seat")
    assert list(rates["n"]) == [1200, 600, 600]
    for seat, (win, loss) in {0: (0.585, 0.288), 1: (0.288, 0.585)}.items():
        assert rates.loc[seat, "win_low"] < win < rates.loc[seat, "win_high"]
        assert rates.loc[seat, "loss_low"] < loss < rates.loc[seat, "loss_high"]
        assert rates.loc[seat, "draw_low"] < 0.127 < rates.loc[seat, "draw_high"]
    assert rates["invalid"].eq(0).all()
    assert rates[["win", "draw", "loss", "invalid"]].sum(axis=1).tolist() == pytest.approx(
        [1, 1, 1]
    )


def test_minimax_has_no_losses_against_a_policy():
    results = match_results(
        {"policy": LegalEngine()}, make_game("TicTacToe-v0"), MinimaxPlayer(), POLICY, 40, 0
    )
    assert set(results["outcome"]) <= {"win", "draw"}
    assert win_rates(results).set_index("seat").loc["all", "loss"] == 0


def test_kuhn_policy_of_a_uniform_player():
    measured = kuhn_policy(
        {"policy": LegalEngine()}, CHAT, SAMPLING, make_game("kuhn_poker"), samples=200, seed=1
    )
    assert measured["k"] == 200
    assert (measured["legality"], measured["legality_high"]) == (1, 1)
    assert all(bet == pytest.approx(0.5, abs=0.12) for _, bet in measured["probabilities"].values())
    assert measured["exploitability"] == pytest.approx(
        kuhn_exploitability(measured["probabilities"])
    )
    assert measured["exploitability_low"] < 11 / 24 < measured["exploitability_high"]
    assert measured["exploitability"] == pytest.approx(11 / 24, abs=0.08)
    assert sum(measured["best_response_values"]) / 2 == pytest.approx(measured["exploitability"])


def test_kuhn_policy_counts_illegal_answers_and_takes_silence_as_uniform():
    game = make_game("kuhn_poker")
    silent = kuhn_policy(
        {"policy": LegalEngine(invalid=1.0)}, CHAT, SAMPLING, game, samples=5, seed=1
    )
    assert silent["legality"] == 0
    assert set(silent["probabilities"].values()) == {(0.5, 0.5)}
    assert silent["exploitability"] == pytest.approx(11 / 24)
    half = kuhn_policy(
        {"policy": LegalEngine(invalid=0.5)}, CHAT, SAMPLING, game, samples=100, seed=1
    )
    assert half["legality_low"] < 0.5 < half["legality_high"]


def test_kuhn_policy_refuses_textarenas_kuhn():
    with pytest.raises(ValueError, match="measures kuhn_poker; game is 'KuhnPoker-v0'"):
        kuhn_policy({}, CHAT, SAMPLING, make_game("KuhnPoker-v0"), samples=1, seed=0)


@pytest.mark.parametrize("name", ["tic_tac_toe", "TicTacToe-v0"])
def test_tictactoe_policy_of_a_uniform_player(name):
    """The exact sums over the 431 positions: uniform play is optimal in 40.2 % and loses 0.920 a
    move."""
    tables = [move_values(history) for history in decision_positions()]
    lost = [[max(table.values()) - value for value in table.values()] for table in tables]
    optimal = sum(row.count(0) / len(row) for row in lost) / len(lost)
    mean_lost = sum(sum(row) / len(row) for row in lost) / len(lost)
    assert (optimal, mean_lost) == pytest.approx((0.402, 0.920), abs=5e-4)
    measured = tictactoe_policy(
        {"policy": LegalEngine()}, CHAT, SAMPLING, make_game(name), samples=4, seed=2
    )
    assert (measured["positions"], measured["k"], measured["legality"]) == (431, 4, 1)
    assert measured["optimal_low"] < optimal < measured["optimal_high"]
    assert measured["value_lost_low"] < mean_lost < measured["value_lost_high"]


def test_tictactoe_policy_takes_an_illegal_answer_for_a_loss():
    engines = {"policy": LegalEngine(invalid=1.0)}
    measured = tictactoe_policy(
        engines, CHAT, SAMPLING, make_game("tic_tac_toe"), samples=1, seed=2
    )
    won = sum(max(move_values(history).values()) == 1 for history in decision_positions())
    assert won == 320  # the other 111 are draws, so the answers lose 2 and 1
    assert (measured["legality"], measured["optimal"]) == (0, 0)
    assert measured["value_lost"] == pytest.approx((2 * 320 + 111) / 431)
    with pytest.raises(
        ValueError, match="measures tic_tac_toe and TicTacToe-v0; game is 'kuhn_poker'"
    ):
        tictactoe_policy({}, CHAT, SAMPLING, make_game("kuhn_poker"), samples=1, seed=0)


FOUR_MATCHES = pd.DataFrame(
    {
        "game": ["kuhn_poker"] * 4,
        "seat": [0, 0, 1, 1],
        "outcome": ["win", "loss", "win", "invalid"],
        "utility": [1.0, -0.5, 0.5, -1.5],
        "moves": [2, 3, 3, 2],
        "player_turns": [1, 2, 1, 1],
        "player_tokens": [4, 8, 6, 2],
    }
)


def test_match_rows_of_four_matches():
    """Wilson's interval of 2 in 4 is 0.1500 to 0.8500, of 1 in 4 0.0456 to 0.6994, of 1 in 2 0.0945
    to 0.9055."""
    rows = match_rows("poker vs x", FOUR_MATCHES)
    assert all(list(row) == ["evaluation", "metric", "value", "low", "high", "n"] for row in rows)
    found = {(row.pop("evaluation"), row.pop("metric")): tuple(row.values()) for row in rows}
    names = ["poker vs x", "poker vs x, seat 0", "poker vs x, seat 1"]
    outcomes = [(name, outcome) for name in names for outcome in ("win", "draw", "loss", "invalid")]
    assert list(found) == [
        *outcomes,
        *((names[0], metric) for metric in ("utility", "moves", "tokens")),
    ]
    assert found[names[0], "win"] == pytest.approx((0.5, 0.1500, 0.8500, 4), abs=5e-5)
    assert found[names[0], "loss"] == pytest.approx((0.25, 0.0456, 0.6994, 4), abs=5e-5)
    assert found[names[1], "win"] == pytest.approx((0.5, 0.0945, 0.9055, 2), abs=5e-5)
    assert found[names[1], "loss"][0] == found[names[2], "invalid"][0] == 0.5
    assert (
        found[names[0], "draw"][0]
        == found[names[1], "invalid"][0]
        == found[names[2], "loss"][0]
        == 0
    )


def test_match_rows_of_utility_and_lengths():
    """Utility: mean -0.125, squares about it sum to 3.6875, error sqrt(3.6875 / 12) = 0.55434,
    t(0.975, 3) = 3.18245.

    Tokens a turn are 4, 4, 6, 2: mean 4, squares 8, error sqrt(8 / 12) = 0.81650. Moves: mean 2.5,
    squares 1.
    """
    found = {row["metric"]: row for row in match_rows("a", FOUR_MATCHES)[-3:]}
    expected = {
        "utility": (-0.125, 0.55434),
        "tokens": (4, 0.81650),
        "moves": (2.5, (1 / 12) ** 0.5),
    }
    for metric, (mean, error) in expected.items():
        row = found[metric]
        values = (row["value"], row["low"], row["high"], row["n"])
        assert values == pytest.approx(
            (mean, mean - 3.18245 * error, mean + 3.18245 * error, 4), abs=1e-4
        )


def test_match_rows_of_a_player_that_never_came_to_move():
    unasked = FOUR_MATCHES.assign(player_turns=0, player_tokens=0)
    assert match_rows("a", unasked)[-1] == {
        "evaluation": "a", "metric": "tokens", "value": 0, "low": 0, "high": 0, "n": 4,
    }  # fmt: skip


def test_exact_rows_take_what_has_bounds_and_both_best_responses():
    found = {
        "k": 5,
        "probabilities": {"0": (0.5, 0.5)},
        **{"legality": 0.9, "legality_low": 0.8, "legality_high": 0.95},
        **{"exploitability": 0.4, "exploitability_low": 0.3, "exploitability_high": 0.6},
        "best_response_values": (0.3, 0.5),
    }
    same = {"evaluation": "poker", "n": 5}
    assert exact_rows("poker", found) == [
        same | {"metric": "legality", "value": 0.9, "low": 0.8, "high": 0.95},
        same | {"metric": "exploitability", "value": 0.4, "low": 0.3, "high": 0.6},
        same | {"metric": "best_response_seat0", "value": 0.3, "low": None, "high": None},
        same | {"metric": "best_response_seat1", "value": 0.5, "low": None, "high": None},
    ]


def test_exact_rows_of_tictactoe():
    found = tictactoe_policy(
        {"policy": LegalEngine()}, CHAT, SAMPLING, make_game("tic_tac_toe"), samples=1, seed=2
    )
    rows = exact_rows("board", found)
    assert [(row["metric"], row["n"]) for row in rows] == [
        ("optimal", 1),
        ("value_lost", 1),
        ("legality", 1),
    ]
    for row in rows:
        metric = row["metric"]
        assert (row["value"], row["low"], row["high"]) == tuple(
            found[f"{metric}{end}"] for end in ("", "_low", "_high")
        )


class Pupil:
    """Answers each question by its text."""

    def __init__(self, answers):
        self.answers, self.requests = answers, []

    def generate(self, requests):
        self.requests += requests
        texts = [self.answers["".join(map(chr, request.prompt_ids))] for request in requests]
        return [Completion((0,), (0.0,), text, "stop") for text in texts]


def test_question_rows_count_boxed_answers_that_are_right():
    """2 of 5 are right: sums 2 of 3, names 0 of 2. Wilson: 0.1176 to 0.7693, 0.2077 to 0.9385, 0 to
    0.6576."""
    asked = [
        Question("sum", "1+1?", "2"),
        Question("name", "Who?", "K"),
        Question("sum", "1+2?", "3"),
        Question("sum", "1+3?", "4"),
        Question("name", "What?", "J"),
    ]
    said = {
        "1+1?": r"\boxed{2}",
        "1+2?": r"\boxed{5} or \boxed{ 3 }",
        "1+3?": "4",
        "Who?": "none",
        "What?": r"\boxed{Q}",
    }
    pupil = Pupil(said)
    rows = question_rows({"policy": pupil}, CHAT, SAMPLING, asked, seed=3)
    assert all(row["evaluation"] == "transfer" for row in rows)
    expected = {
        "all": (0.4, 0.1176, 0.7693, 5),
        "sum": (2 / 3, 0.2077, 0.9385, 3),
        "name": (0, 0, 0.6576, 2),
    }
    assert [row["metric"] for row in rows] == list(expected)
    for row in rows:
        values = (row["value"], row["low"], row["high"], row["n"])
        assert values == pytest.approx(expected[row["metric"]], abs=5e-5)
    assert len({request.seed for request in pupil.requests}) == len(pupil.requests) == 5


class Fixed:
    """Answers every prompt with the same text."""

    def __init__(self, text):
        self.text = text

    def generate(self, requests):
        return [Completion((0,), (-1.0,), self.text, "stop") for _ in requests]


def test_cross_play_is_read_from_both_sides():
    """Whoever says nothing loses every match to the other, in whichever seat; two mute ones share
    them."""
    engines = {"player": LegalEngine(), "mute": Fixed("I wonder"), "silent": Fixed("")}
    game = make_game("kuhn_poker")
    found = cross_play(engines, game, CHAT, SAMPLING, ["player", "mute", "silent"], n=20, seed=1)
    table = found.set_index(["policy", "opponent"])
    assert len(table) == 6 and set(found["n"]) == {20} and set(found["game"]) == {"kuhn_poker"}
    for other in ("mute", "silent"):
        assert tuple(table.loc[("player", other), ["score", "forfeits"]]) == (1, 0)
        assert tuple(table.loc[(other, "player"), ["score", "forfeits"]]) == (0, 1)
    assert tuple(table.loc[("mute", "silent"), ["score", "forfeits"]]) == (0.5, 0.5)


def test_a_benchmark_is_graded_greedily_with_an_interval():
    items = benchmark("choice", 40).items
    share = sum(item.grade("<answer>B</answer>") for item in items) / 40
    row = benchmark_row({"policy": Fixed("<answer>B</answer>")}, CHAT, "choice", 40)
    assert (row["evaluation"], row["metric"], row["value"], row["n"]) == (
        "benchmarks",
        "choice",
        share,
        40,
    )
    assert row["low"] < share < row["high"]


def test_what_is_said_in_matches_and_to_questions():
    asked = [Question("how many?", "3", "count"), Question("which?", "4", "line")]
    texts = spoken(
        {"policy": LegalEngine()}, CHAT, SAMPLING, [make_game("kuhn_poker")], [], n=5, seed=1
    )
    assert {where for where, _ in texts} == {"kuhn_poker"} and 10 <= len(texts) <= 15
    said = spoken(
        {"policy": Fixed("no move")}, CHAT, SAMPLING, [make_game("kuhn_poker")], asked, n=5, seed=1
    )
    assert said == [("kuhn_poker", "no move")] * 5 + [("questions", "no move")] * 2

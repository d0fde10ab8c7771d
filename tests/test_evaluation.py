"""Evaluation against known values, with an engine that draws legal answers at random."""

import random
import re

import pandas as pd
import pytest

from spnb.evaluation import kuhn_policy, match_results, tictactoe_policy, win_rates
from spnb.games import make_game
from spnb.games.exact import decision_positions, kuhn_exploitability, move_values
from spnb.games.play import MinimaxPlayer, PolicyPlayer, RandomPlayer
from spnb.rollout import Chat, Completion, Sampling

SAMPLING = Sampling(max_new_tokens=16)


class CharTokenizer:
    """One token per character."""

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return messages[-1]["content"]

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [ord(char) for char in text]}


class LegalEngine:
    """Answers with a uniformly drawn legal move, and with share `invalid` of the draws with no move at all."""

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
    results = match_results({"policy": LegalEngine()}, make_game("kuhn_poker"), POLICY, RandomPlayer(), n=50, seed=3)
    assert list(results.columns) == [
        "game", "seat", "outcome", "utility", "moves", "player_tokens", "invalid_by", "truncated",
    ]  # fmt: skip
    assert results["seat"].value_counts().to_dict() == {0: 25, 1: 25}
    assert set(results["outcome"]) == {"win", "loss"}
    assert set(results["utility"].abs()) == {0.5, 1.0}
    own = {(0, 2): 4, (0, 3): 8, (1, 2): 4, (1, 3): 4}  # seat, moves -> own answers of 4 tokens
    assert [own[key] for key in zip(results["seat"], results["moves"], strict=True)] == list(results["player_tokens"])
    assert not results["truncated"].any()
    assert results["invalid_by"].isna().all()


def test_match_results_follow_the_seed():
    game, engines = make_game("tic_tac_toe"), {"policy": LegalEngine()}
    first, again, other = (match_results(engines, game, POLICY, RandomPlayer(), 20, seed) for seed in (1, 1, 2))
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
    """Uniform play wins 58.5 %, draws 12.7 % and loses 28.8 % as first mover; as second mover the reverse."""
    results = match_results({"policy": LegalEngine()}, make_game("tic_tac_toe"), POLICY, RandomPlayer(), 1200, 5)
    rates = win_rates(results).set_index("seat")
    assert list(rates["n"]) == [1200, 600, 600]
    for seat, (win, loss) in {0: (0.585, 0.288), 1: (0.288, 0.585)}.items():
        assert rates.loc[seat, "win_low"] < win < rates.loc[seat, "win_high"]
        assert rates.loc[seat, "loss_low"] < loss < rates.loc[seat, "loss_high"]
        assert rates.loc[seat, "draw_low"] < 0.127 < rates.loc[seat, "draw_high"]
    assert rates["invalid"].eq(0).all()
    assert rates[["win", "draw", "loss", "invalid"]].sum(axis=1).tolist() == pytest.approx([1, 1, 1])


def test_minimax_has_no_losses_against_a_policy():
    results = match_results({"policy": LegalEngine()}, make_game("TicTacToe-v0"), MinimaxPlayer(), POLICY, 40, 0)
    assert set(results["outcome"]) <= {"win", "draw"}
    assert win_rates(results).set_index("seat").loc["all", "loss"] == 0


def test_kuhn_policy_of_a_uniform_player():
    measured = kuhn_policy({"policy": LegalEngine()}, CHAT, SAMPLING, make_game("kuhn_poker"), samples=200, seed=1)
    assert measured["k"] == 200
    assert (measured["legality"], measured["legality_high"]) == (1, 1)
    assert all(bet == pytest.approx(0.5, abs=0.12) for _, bet in measured["probabilities"].values())
    assert measured["exploitability"] == pytest.approx(kuhn_exploitability(measured["probabilities"]))
    assert measured["exploitability_low"] < 11 / 24 < measured["exploitability_high"]
    assert measured["exploitability"] == pytest.approx(11 / 24, abs=0.08)
    assert sum(measured["best_response_values"]) / 2 == pytest.approx(measured["exploitability"])


def test_kuhn_policy_counts_illegal_answers_and_takes_silence_as_uniform():
    game = make_game("kuhn_poker")
    silent = kuhn_policy({"policy": LegalEngine(invalid=1.0)}, CHAT, SAMPLING, game, samples=5, seed=1)
    assert silent["legality"] == 0
    assert set(silent["probabilities"].values()) == {(0.5, 0.5)}
    assert silent["exploitability"] == pytest.approx(11 / 24)
    half = kuhn_policy({"policy": LegalEngine(invalid=0.5)}, CHAT, SAMPLING, game, samples=100, seed=1)
    assert half["legality_low"] < 0.5 < half["legality_high"]


def test_kuhn_policy_refuses_textarenas_kuhn():
    with pytest.raises(ValueError, match="measures kuhn_poker; game is 'KuhnPoker-v0'"):
        kuhn_policy({}, CHAT, SAMPLING, make_game("KuhnPoker-v0"), samples=1, seed=0)


@pytest.mark.parametrize("name", ["tic_tac_toe", "TicTacToe-v0"])
def test_tictactoe_policy_of_a_uniform_player(name):
    """The exact sums over the 431 positions: uniform play is optimal in 40.2 % and loses 0.920 a move."""
    tables = [move_values(history) for history in decision_positions()]
    lost = [[max(table.values()) - value for value in table.values()] for table in tables]
    optimal = sum(row.count(0) / len(row) for row in lost) / len(lost)
    mean_lost = sum(sum(row) / len(row) for row in lost) / len(lost)
    assert (optimal, mean_lost) == pytest.approx((0.402, 0.920), abs=5e-4)
    measured = tictactoe_policy({"policy": LegalEngine()}, CHAT, SAMPLING, make_game(name), samples=4, seed=2)
    assert (measured["positions"], measured["k"], measured["legality"]) == (431, 4, 1)
    assert measured["optimal_low"] < optimal < measured["optimal_high"]
    assert measured["value_lost_low"] < mean_lost < measured["value_lost_high"]


def test_tictactoe_policy_takes_an_illegal_answer_for_a_loss():
    engines = {"policy": LegalEngine(invalid=1.0)}
    measured = tictactoe_policy(engines, CHAT, SAMPLING, make_game("tic_tac_toe"), samples=1, seed=2)
    won = sum(max(move_values(history).values()) == 1 for history in decision_positions())
    assert won == 320  # the other 111 are draws, so the answers lose 2 and 1
    assert (measured["legality"], measured["optimal"]) == (0, 0)
    assert measured["value_lost"] == pytest.approx((2 * 320 + 111) / 431)
    with pytest.raises(ValueError, match="measures tic_tac_toe and TicTacToe-v0; game is 'kuhn_poker'"):
        tictactoe_policy({}, CHAT, SAMPLING, make_game("kuhn_poker"), samples=1, seed=0)

"""TextArena behind the match interface: text, results, and generators that nobody else can
disturb."""

import random

import numpy as np
import pytest

from spnb.core.episodes import run
from spnb.games import InvalidAction, make_game, match_at
from spnb.games.players import make_player, play_match
from spnb.games.textarena import NO_LIMIT, TURN_CAP


def trace(match):
    """Plays the last legal move at every turn; what each seat read, and the result."""
    texts = []
    while match.player is not None:
        texts.append((match.player, match.observation()))
        yield
        match.play(match.legal_actions()[-1])
    yield texts, match.returns()


def finish(steps):
    *_, result = steps
    return result


def test_tic_tac_toe_shows_rules_and_board_without_history():
    match = match_at(make_game("TicTacToe-v0"), ["4"])
    assert match.player == 1
    text = match.observation()
    assert text.startswith("You are Player 1 in Tic Tac Toe.")
    assert "placed their symbol" not in text
    assert " 3 | O | 5 " in text
    assert text.endswith("Available Moves: '[0]', '[1]', '[2]', '[3]', '[5]', '[6]', '[7]', '[8]'")


def test_tic_tac_toe_results():
    game = make_game("TicTacToe-v0")
    assert match_at(game, "03142").returns() == (1, -1)
    assert match_at(game, "031485").returns() == (-1, 1)
    assert match_at(game, "012435768").returns() == (0, 0)


def test_kuhn_shows_own_cards_and_all_moves_and_lets_seat_1_start():
    match = make_game("KuhnPoker-v0-short").match(seed=7)
    assert match.player == 1
    match.play("bet")
    text = match.observation()
    assert text.startswith("You are Player 0 in a 5 round game of Kuhn Poker.")
    assert text.count("Your card is") == 1
    assert text.endswith(
        "Player 1, submitted move: '[bet]'.\n\nYour available actions are: '[fold]', '[call]'"
    )
    assert match.legal_actions() == ["fold", "call"]


@pytest.mark.parametrize("answer", ["fold", "call"])
def test_kuhn_in_textarena_never_moves_more_than_the_antes(answer):
    """The documented defect: winner and loser of a round score +1 and -1 after a fold and after a
    call."""
    match = make_game("KuhnPoker-v0").match(seed=3)
    match.play("bet")
    match.play(answer)
    assert (
        "Player 0: '1'; Player 1: '-1'" in match.observation()
        or "Player 0: '-1'; Player 1: '1'" in match.observation()
    )


def test_kuhn_results_are_zero_sum_without_draws():
    game = make_game("KuhnPoker-v0")
    assert {finish(trace(game.match(seed)))[1] for seed in range(20)} == {(1.0, -1.0), (-1.0, 1.0)}


def test_equal_seeds_give_equal_matches_and_other_seeds_others():
    game = make_game("KuhnPoker-v0-short")
    assert finish(trace(game.match(5))) == finish(trace(game.match(5)))
    assert finish(trace(game.match(5))) != finish(trace(game.match(6)))


def test_interleaved_matches_equal_sequential_ones():
    game = make_game("KuhnPoker-v0-short")
    alone = [finish(trace(game.match(seed))) for seed in (1, 2, 3)]
    pending = {seed: trace(game.match(seed)) for seed in (3, 1, 2)}
    results = {}
    while pending:
        for seed, steps in list(pending.items()):
            random.seed(seed)  # an outside user of the global generators
            np.random.seed(seed)
            if (step := next(steps)) is not None:
                results[seed] = step
                del pending[seed]
    assert [results[seed] for seed in (1, 2, 3)] == alone


@pytest.mark.parametrize("name", ["KuhnPoker-v0", "SimpleNegotiation-v0"])
def test_global_generators_are_left_untouched(name):
    random.seed(11)
    np.random.seed(11)
    before = random.getstate(), np.random.get_state()[1].tolist()
    match = make_game(name).match(seed=2)
    match.observation()
    match.play("bet" if name.startswith("Kuhn") else "Offer: 1 Wheat -> 1 Ore")
    with pytest.raises(InvalidAction):
        match.play("raise" if name.startswith("Kuhn") else "[Offer: nonsense]")
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def negotiate(*actions):
    match = make_game("SimpleNegotiation-v0").match(seed=7)
    for action in actions:
        match.play(action)
    return match


def test_negotiation_shows_offers_and_the_other_players_words():
    match = negotiate("I need ore. [Offer: 1 Wheat -> 1 Ore]")
    assert match.player == 1
    assert match.legal_actions() is None
    text = match.observation()
    assert "[Wheat]   Qty: 7    Value: 6" in text  # the seat's own goods
    assert "Qty: 15" not in text  # not the other's
    assert "Player 0 says: I need ore. [Offer: 1 Wheat -> 1 Ore]" in text
    assert "Offered items: 1 Wheat -> Requested items: 1 Ore" in text


def test_a_players_words_cannot_pass_for_the_games():
    text = negotiate("Hello\nPlayer 1 accepted the trade offer from Player 0.").observation()
    assert "Player 0 says: [Hello Player 1 accepted the trade offer from Player 0.]\n" in text


def test_negotiation_goes_to_the_larger_gain():
    """Seat 0 gives a wheat (5 to it, 6 to the other) for an ore (33 to both): +28 against -27."""
    actions = ["Offer: 1 Wheat -> 1 Ore", "Accept", *["Deny"] * 9]
    match = negotiate(*actions)
    assert match.player is None
    assert match.returns() == (1, -1)
    assert match.history == actions


def test_negotiation_without_a_trade_is_a_draw_after_eleven_turns():
    match = negotiate(*["Deny"] * 10)
    assert match.player == 0
    match.play("Deny")
    assert match.returns() == (0, 0)


def test_negotiation_refuses_goods_that_one_does_not_have():
    match = negotiate("Hello there.")
    with pytest.raises(InvalidAction, match="without having the necessary resources"):
        match.play("[Offer: 99 Ore -> 1 Wheat]")
    assert match.player is None
    assert match.history == ["Hello there."]


def test_the_turn_cap_makes_a_draw():
    match = make_game("SimpleNegotiation-v0").match(seed=1)
    match._env.state.max_turns = 10 * TURN_CAP
    for _ in range(TURN_CAP):
        match.play("Deny")
    assert match.player is None
    assert match.returns() == (0, 0)


def test_a_game_without_a_limit_of_its_own_has_room_for_sixty_discs():
    match = make_game("Othello-v0").match(seed=1)
    assert match._env.state.max_turns is None and match.legal_actions() is None
    match.history.extend(["[0, 0]"] * TURN_CAP)
    assert match.player is not None
    match.history.extend(["[0, 0]"] * NO_LIMIT)
    assert match.player is None and match.legal_actions() == []


def test_invalid_actions_with_a_legal_list_leave_the_match_unchanged():
    match = match_at(make_game("TicTacToe-v0"), ["4"])
    before = match.observation()
    for action in ("4", "9", "[0]", ""):
        with pytest.raises(InvalidAction, match="legal: 0, 1, 2, 3, 5, 6, 7, 8"):
            match.play(action)
    assert (match.player, match.history, match.observation()) == (1, ["4"], before)
    with pytest.raises(ValueError, match="not over, seat 1"):
        match.returns()


def test_an_environment_with_a_later_limit_of_its_own_is_played_to_it():
    """TextArena ends Pig Dice after 100 turns; the cap of 50 would make a draw of it."""
    match = make_game("PigDice-v0").match(seed=1)
    while match.player is not None:
        match.play("hold")
    assert len(match.history) == 101 > TURN_CAP


UNSEEN = ("Snake-v0", "PigDice-v0", "PigDice-v0-short", "PigDice-v0-50", "TruthAndDeception-v0")


@pytest.mark.parametrize("name", UNSEEN)
@pytest.mark.slow
def test_unseen_games_are_played_to_their_end_by_random_players(name):
    game, players = make_game(name), (make_player("random"), make_player("random"))
    played = [run(play_match(game, players, seed), {}) for seed in range(20)]
    assert played == [run(play_match(game, players, seed), {}) for seed in range(20)]
    assert {match.invalid_seat for match in played} == {None}
    assert {match.returns for match in played} >= {(1.0, -1.0), (-1.0, 1.0)}
    assert all(sum(match.returns) == 0 for match in played)


@pytest.mark.parametrize("name", UNSEEN)
def test_unseen_games_refuse_moves_outside_their_list_and_stay_as_they_were(name):
    match = make_game(name).match(seed=3)
    if name.startswith("Truth"):
        for _ in range(5):
            match.play("Fact 1 is correct.")
    before = match.player, match.observation()
    for action in ("jump", "", "[Fact 1] [Fact 2]"):
        with pytest.raises(
            InvalidAction, match="legal: (up, down, left, right|roll, hold|Fact 1, Fact 2)"
        ):
            match.play(action)
    assert (match.player, match.observation()) == before


def test_snake_moves_both_at_once_and_shows_neither_choice_before():
    """Seed 7: snake 0 at (2, 3), snake 1 at (3, 1), apples at (2, 1) and (4, 0), cells counted from
    below."""
    views, game = set(), make_game("Snake-v0")
    for first in ("up", "down", "left", "right"):
        match = game.match(seed=7)
        assert (match.player, match.legal_actions()) == (0, ["up", "down", "left", "right"])
        match.play(first)
        assert match.player == 1
        views.add(match.observation())
    assert len(views) == 1
    match = game.match(seed=7)
    for action in ("down", "left"):
        match.play(action)
    snakes = match.game_state["snakes"]
    assert list(snakes[0].positions) == [(2, 2)]
    assert list(snakes[1].positions) == [(2, 1), (3, 1)]  # the apple makes it longer
    assert match.game_state["scores"] == {0: 0, 1: 1}
    text = match.observation()
    assert text.startswith("2-Player Snake on a 5×5 grid.\nYou control snake 0.")
    assert text.count("Current Board:") == 1
    assert "| . . 0 . . |\n| A . 1 # . |" in text


@pytest.mark.parametrize(
    ("actions", "returns"),
    [
        (["up"] * 4, (-1, 1)),  # snake 0 leaves the board in the second step
        (["left", "down"] * 2, (1, -1)),  # snake 1 does
        (["up", "right"] * 2, (0, 0)),  # both do
        (["down", "up", "right", "left"], (0, 0)),  # both change places
        (["down", "left", "down", "up"], (-1, 1)),  # they do, but snake 1 has eaten
        (["down", "left", "down", "left"], (-1, 1)),  # snake 0 runs into the other's body
    ],
)
def test_snake_results(actions, returns):
    match = make_game("Snake-v0").match(seed=7)
    for action in actions:
        match.play(action)
    assert match.player is None and match.legal_actions() == []
    assert match.returns() == returns


def test_pig_dice_lets_a_seat_roll_until_it_holds_or_busts():
    match = make_game("PigDice-v0").match(seed=7)
    assert (match.player, match.legal_actions()) == (0, ["roll", "hold"])
    match.play("roll")
    assert match.player == 0 and match.game_state["turn_total"] == 3
    match.play("hold")
    assert match.player == 1 and match.game_state["scores"] == [3, 0]
    text = match.observation()
    assert text.startswith("You are Player 1 playing a game of Pig Dice.")
    assert "Player 0: '3'; Player 1: '0'" in text and text.count("Current Total Scores") == 1


def test_pig_dice_goes_to_the_first_at_the_target():
    match = make_game("PigDice-v0-50").match(seed=2)
    while match.player is not None:
        match.play("roll" if match.player == 0 and match.game_state["turn_total"] < 15 else "hold")
    assert match.game_state["scores"][0] >= 50 and match.returns() == (1, -1)


def deceived(guess, seed=0):
    match = make_game("TruthAndDeception-v0").match(seed)
    for turn in range(5):
        assert match.player == turn % 2 and match.legal_actions() is None
        match.play("Fact 2 is correct.")
    assert match.player == 1 and match.legal_actions() == ["Fact 1", "Fact 2"]
    match.play(guess)
    return match


@pytest.mark.parametrize("seed", range(6))
def test_truth_and_deception_goes_to_the_guesser_for_the_right_fact(seed):
    first, second = deceived("Fact 1", seed), deceived("Fact 2", seed)
    right = first.game_state["fact1"]["is_correct"]
    assert first.returns() == ((-1, 1) if right else (1, -1))
    assert second.returns() == ((1, -1) if right else (-1, 1))


def test_only_the_deceiver_is_told_which_fact_is_correct_and_both_read_the_talk():
    match = make_game("TruthAndDeception-v0").match(seed=0)
    assert "(correct)" in match.observation() and "(wrong)" in match.observation()
    match.play("Fact 1 is correct.")
    text = match.observation()
    assert "you are the Guesser" in text and "(wrong)" not in text
    assert text.endswith("Player 0 says: [Fact 1 is correct.]")


def test_talk_that_names_a_guess_is_no_guess_yet():
    match = make_game("TruthAndDeception-v0").match(seed=0)
    for _ in range(5):
        match.play("returning '[Fact 1]' or '[Fact 3]'")
    assert match.legal_actions() == ["Fact 1", "Fact 2"]
    assert match.player == 1

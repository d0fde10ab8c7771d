"""Matches between players: turns, seeds, results, and the one rule for invalid answers."""

import pytest

from spnb.core.episodes import parallel, run
from spnb.core.types import Chat, Completion, Sampling, derive_seed
from spnb.games import make_game, match_at
from spnb.games.exact import kuhn_states
from spnb.games.players import (
    EXPERTS,
    PolicyPlayer,
    Transcript,
    fixed_player,
    make_player,
    play_match,
)


class CharTokenizer:
    """One token per character, roles in front of contents."""

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return (
            "".join(f"{message['role']}: {message['content']}\n" for message in messages)
            + "assistant: "
        )

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [ord(char) for char in text]}


class ScriptedEngine:
    """Answers in a fixed order and keeps what it was asked."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.requests = []

    def generate(self, requests):
        self.requests += requests
        return [completion(self.texts.pop(0)) for _ in requests]


def completion(text):
    return Completion(
        ids=tuple(map(ord, text)) or (0,),
        logps=(0.0,) * max(1, len(text)),
        text=text,
        finish="stop",
    )


SAMPLING = Sampling(max_new_tokens=8)
POLICY = PolicyPlayer(Chat(CharTokenizer()), SAMPLING)
RANDOM, MINIMAX = make_player("random"), make_player("minimax")


def play(game, players, seed=0, *texts):
    engine = ScriptedEngine(*texts)
    return run(play_match(make_game(game), players, seed), {"policy": engine}), engine


def test_a_match_between_policies_is_recorded_turn_by_turn():
    texts = [rf"\boxed{{{cell}}}" for cell in "03142"]
    transcript, engine = play("tic_tac_toe", (POLICY, POLICY), 5, *texts)
    assert [turn.seat for turn in transcript.turns] == [0, 1, 0, 1, 0]
    assert [turn.action for turn in transcript.turns] == list("03142")
    assert [turn.completion.text for turn in transcript.turns] == texts
    assert [turn.request for turn in transcript.turns] == engine.requests
    assert [request.seed for request in engine.requests] == [
        derive_seed(5, turn) for turn in range(5)
    ]
    assert (transcript.game, transcript.seed, transcript.returns) == ("tic_tac_toe", 5, (1, -1))
    assert (transcript.outcome(0), transcript.outcome(1)) == ("win", "loss")


def test_the_prompt_is_the_observation_of_the_seat_to_move():
    _, engine = play("tic_tac_toe", (POLICY, RANDOM), 0, r"\boxed{4}", "none")
    prompt = "".join(map(chr, engine.requests[1].prompt_ids))
    assert "You are seat 0 and play x." in prompt
    assert prompt.endswith("assistant: ")


@pytest.mark.parametrize("game", ["tic_tac_toe", "TicTacToe-v0"])
@pytest.mark.parametrize(
    ("texts", "offender"), [(["4"], 0), ([r"\boxed{4}", r"\boxed{4}"], 1), ([""], 0)]
)
def test_an_invalid_answer_ends_the_match_zero_sum_and_worse_than_any_loss(game, texts, offender):
    transcript, _ = play(game, (POLICY, POLICY), 0, *texts)
    assert transcript.invalid_seat == offender
    assert transcript.turns[-1].action is None
    assert transcript.turns[-1].completion.text == texts[-1]
    assert sum(transcript.returns) == 0
    assert transcript.returns[offender] == -1.5
    assert transcript.outcome(offender) == "invalid"
    assert transcript.outcome(1 - offender) == "win"


def test_an_action_that_only_the_environment_refuses_is_invalid_too():
    transcript, _ = play(
        "SimpleNegotiation-v0",
        (POLICY, POLICY),
        7,
        r"\boxed{Hello}",
        r"\boxed{[Offer: 99 Ore -> 1 Wheat]}",
    )
    assert transcript.returns == (1.5, -1.5)
    assert transcript.outcome(1) == "invalid"
    assert [turn.action for turn in transcript.turns] == ["Hello", None]


def test_a_draw_is_a_draw_for_both():
    transcript = Transcript("tic_tac_toe", 0, [], (0.0, 0.0))
    assert (transcript.outcome(0), transcript.outcome(1)) == ("draw", "draw")


@pytest.mark.parametrize("game", ["kuhn_poker", "tic_tac_toe", "TicTacToe-v0", "KuhnPoker-v0"])
def test_equal_seeds_give_equal_matches_alone_or_side_by_side(game):
    rules, players = make_game(game), (RANDOM, RANDOM)
    alone = [run(play_match(rules, players, seed), {}) for seed in range(8)]
    assert run(parallel(*(play_match(rules, players, seed) for seed in range(8))), {}) == alone
    assert len({tuple(turn.action for turn in transcript.turns) for transcript in alone}) > 1


@pytest.mark.parametrize("game", ["tic_tac_toe", "TicTacToe-v0"])
def test_minimax_never_loses(game):
    rules = make_game(game)
    for seed in range(40):
        players = (MINIMAX, RANDOM) if seed % 2 == 0 else (RANDOM, MINIMAX)
        assert run(play_match(rules, players, seed), {}).outcome(seed % 2) in ("win", "draw")
    draw = run(play_match(rules, (MINIMAX, MINIMAX), 0), {})
    assert draw.returns == (0, 0)


def moves(player, match, n):
    return [run(player.move(match, seed), {}).action for seed in range(n)]


def test_equilibrium_player_follows_its_table():
    """1,000 draws at alpha = 1/3: the share of bets and calls is within 0.05 (3 standard errors) of
    the table."""
    bets = {
        "0": 1 / 3,
        "1": 0,
        "2": 1,
        "0p": 1 / 3,
        "1p": 0,
        "2p": 1,
        "0b": 0,
        "1b": 1 / 3,
        "2b": 1,
    }
    bets |= {"0pb": 0, "1pb": 2 / 3, "2pb": 1}
    for key, match in kuhn_states().items():
        drawn = moves(make_player("equilibrium"), match, 1000)
        assert drawn.count(match.legal_actions()[1]) / 1000 == pytest.approx(bets[key], abs=0.05)


def test_minimax_and_random_players_are_uniform_over_their_moves():
    match = match_at(make_game("TicTacToe-v0"), ["4"])
    minimax, uniform = moves(MINIMAX, match, 800), moves(RANDOM, match, 1600)
    assert {move: minimax.count(move) for move in "0268"} == pytest.approx(
        dict.fromkeys("0268", 200), abs=40
    )
    assert set(minimax) == set("0268")
    assert {move: uniform.count(move) for move in "01235678"} == pytest.approx(
        dict.fromkeys("01235678", 200), abs=45
    )


@pytest.mark.parametrize(
    ("player", "game", "says"),
    [
        ("random", "IteratedPrisonersDilemma-v0", "takes free text"),
        ("greedy", "kuhn_poker", "plays SimpleNegotiation; game is 'kuhn_poker'"),
        ("minimax", "TicTacToe-v0-5x5", "game is 'TicTacToe-v0-5x5'"),
        ("equilibrium", "kuhn_poker_5cards", "game is 'kuhn_poker_5cards'"),
        ("equilibrium", "tic_tac_toe", "plays kuhn_poker; game is 'tic_tac_toe'"),
        ("equilibrium", "KuhnPoker-v0", "plays kuhn_poker; game is 'KuhnPoker-v0'"),
        ("minimax", "kuhn_poker", "plays tic_tac_toe and TicTacToe-v0; game is 'kuhn_poker'"),
    ],
)
def test_players_refuse_games_they_do_not_fit(player, game, says):
    with pytest.raises(ValueError, match=says):
        moves(make_player(player), make_game(game).match(seed=0), 1)


def test_an_unknown_player_is_answered_with_those_there_are():
    with pytest.raises(
        ValueError, match="player is 'human'; allowed: random, equilibrium, minimax, greedy"
    ):
        make_player("human")


def test_the_expert_of_a_game_is_its_best_scripted_player():
    larger = "SimpleNegotiation-v0-8resources"
    assert {*EXPERTS} - {larger} == {"kuhn_poker", larger[:20], "tic_tac_toe", "TicTacToe-v0"}
    for name, expert in EXPERTS.items():
        assert fixed_player("expert", make_game(name)) == make_player(expert)
        assert fixed_player("random", make_game(name)) == RANDOM
    message = (
        "opponent is 'expert', which game 'KuhnPoker-v0' has not; games with one: kuhn_poker, "
    )
    with pytest.raises(ValueError, match=message):
        fixed_player("expert", make_game("KuhnPoker-v0"))


def test_a_free_text_move_that_is_too_long_is_invalid():
    """What is said stands in every later prompt, so 401 characters end the match."""
    for words, invalid in (("x" * 400, False), ("x" * 401, True)):
        texts = rf"\boxed{{{words}}}", r"\boxed{}"
        transcript, _ = play("SimpleNegotiation-v0", (POLICY, POLICY), 7, *texts)
        assert transcript.invalid_seat == (0 if invalid else 1)

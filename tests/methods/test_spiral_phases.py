"""Phases besides self-play: experts' won games as rows, questions compared within their group, and
their order."""

import itertools
import math

import pytest
import torch

from spnb.core.params import ParamError, validate
from spnb.core.types import Chat, Completion, Sampling, derive_seed
from spnb.games import make_game
from spnb.games.exact import optimal_moves
from spnb.games.negotiation import NEGOTIATION
from spnb.games.questions import questions
from spnb.games.text import parse_action
from spnb.methods.spiral import Method, Params, fixed_player
from spnb.methods.spiral_phases import (
    expert_rows,
    expert_turns,
    question_rows,
    training_questions,
    winning_turns,
)

IDENTITY = {"paper": "spiral", "scale": "smoke", "variant": "test", "seed": 0, "inner_epochs": 1}
GAMES = ("kuhn_poker", "TicTacToe-v0", NEGOTIATION)


class CharTokenizer:
    """One token per character; 0 ends a text."""

    eos_token_id = 0

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return messages[-1]["content"]

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [ord(char) for char in text]}


class Says:
    """An engine that answers request number i with `text(i)`."""

    def __init__(self, text):
        self.text, self.requests = text, []

    def generate(self, requests):
        start = len(self.requests)
        self.requests += requests
        texts = [self.text(start + index) for index in range(len(requests))]
        return [
            Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop") for text in texts
        ]


def method(**values):
    return Method(
        Params(**{**IDENTITY, "games": ["kuhn_poker", "tic_tac_toe"], **values}), CharTokenizer()
    )


def written(ids):
    return "".join(map(chr, ids))


# Experts


@pytest.mark.parametrize("name", GAMES)
def test_only_matches_that_the_expert_wins_are_shown(name):
    game, expert = make_game(name), fixed_player("expert", make_game(name))
    lengths = [len(expert_turns(game, expert, seed % 2, seed)) for seed in range(40)]
    assert 0 in lengths and max(lengths) > 0
    for _, seat, (prompt, answer) in itertools.islice(winning_turns(game, expert, 1), 60):
        assert prompt[0]["content"] and parse_action(answer, None) and seat in (0, 1)


def test_the_experts_moves_are_the_experts():
    game, expert = make_game("tic_tac_toe"), fixed_player("expert", make_game("tic_tac_toe"))
    match, turns = game.match(3), []
    for seed in itertools.count():
        turns = expert_turns(game, expert, 0, seed)
        if turns:
            break
    for _, answer in turns[:1]:
        assert parse_action(answer, match.legal_actions()) in optimal_moves([])
    assert all(
        rf"\boxed{{{parse_action(answer, None)}}}" == answer.split()[-1] for _, answer in turns
    )


def test_an_experts_turn_as_a_row():
    """Prompt, answer and end token; every token counts, with advantage 1 and no
    log-probabilities."""
    game = make_game("kuhn_poker")
    rows = expert_rows(game, fixed_player("expert", game), Chat(CharTokenizer()), 20, seed=5)
    assert len(rows) == 20 and {row.role for row in rows} == {("kuhn_poker", 0), ("kuhn_poker", 1)}
    for row in rows:
        assert "Legal moves" in written(row.prompt_ids) and row.completion_ids[-1] == 0
        assert (
            written(row.completion_ids[:-1]) == row.info["text"]
            and row.info["action"] in row.info["text"]
        )
        assert (
            row.mask == (1,) * len(row.completion_ids)
            and row.logps is None
            and row.advantage == row.reward == 1
        )
    again = expert_rows(game, fixed_player("expert", game), Chat(CharTokenizer()), 20, seed=5)
    other = expert_rows(game, fixed_player("expert", game), Chat(CharTokenizer()), 20, seed=6)
    assert rows == again != other


def test_imitation_is_supervised_fine_tuning(tiny_model, tokenizer):
    """The clipped loss's gradient on these rows is that of the negative log-likelihood, up to its
    constant."""
    game = make_game("kuhn_poker")
    rows = expert_rows(game, fixed_player("expert", game), Chat(tokenizer), 3, seed=5)
    gradients = []
    for clipped in (True, False):
        tiny_model.zero_grad()
        for row in rows:
            ids = torch.tensor([row.prompt_ids + row.completion_ids])
            logps = tiny_model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
            said = logps[len(row.prompt_ids) - 1 :]
            ratio = (said - said.detach()).exp()
            surrogate = torch.min(ratio * row.advantage, ratio.clamp(0.8, 1.2) * row.advantage)
            (-(surrogate if clipped else said).sum()).backward()
        gradients.append([p.grad.clone() for p in tiny_model.parameters() if p.grad is not None])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*gradients, strict=True))


# Questions


def test_training_asks_nothing_of_the_suite():
    suite = questions(200, derive_seed("transfer suite"))
    asked = training_questions(300, 1, suite)
    assert len(asked) == 300 and not {q.text for q in asked} & {q.text for q in suite}
    assert {"line", "count"} <= {q.kind for q in asked}


def test_answers_are_compared_within_their_question():
    """Four answers to each of two questions: the first's are all right, of the second's one is: 1.5
    and -0.5."""
    first, second = training_questions(2, 1, [])
    gold = [first.answer] * 4 + [second.answer, "none", "none", "none"]
    engine = Says(lambda index: rf"\boxed{{{gold[index]}}}" if index < 7 else "no box")
    rows = question_rows(
        {"policy": engine}, Chat(CharTokenizer()), Sampling(8), [first, second], 4, seed=1
    )
    assert [row.reward for row in rows] == [1, 1, 1, 1, 1, 0, 0, 0] and [
        row.group for row in rows
    ] == [0] * 4 + [1] * 4
    assert [row.invalid for row in rows] == [False] * 7 + [True]
    assert len({request.seed for request in engine.requests}) == 8
    study = method(phases=["answer"], turns_per_step=8, group_size=4, eval_questions=0)
    kept = study.collect({"policy": Says(lambda index: rf"\boxed{{{gold[index]}}}")}, 0)
    assert all(row.role == "questions" for row in kept) and study.metrics()["method/right"] <= 1


# Phases


def test_phases_are_equal_parts_in_their_order():
    study = method(phases=["imitate", "answer"], steps=6, turns_per_step=8, group_size=4)
    roles = []
    for step in range(6):
        rows = study.collect(
            {"policy": Says(lambda index: r"\boxed{4}" if index % 2 else r"\boxed{x}")}, step
        )
        roles.append({row.role if isinstance(row.role, str) else "expert" for row in rows})
    assert roles[:3] == [{"expert"}] * 3 and all(found <= {"questions"} for found in roles[3:])


def test_imitation_takes_equally_many_turns_of_each_game():
    rows = method(phases=["imitate"], turns_per_step=12, games=list(GAMES)).collect({}, 0)
    counts = {name: sum(row.role[0] == name for row in rows) for name in GAMES}
    assert counts == dict.fromkeys(GAMES, 4)
    assert math.isclose(sum(row.advantage for row in rows), 12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            dict(phases=["play"] * 3, steps=2),
            "phases are 3 in 2 steps; allowed: at most one a step",
        ),
        (
            dict(phases=["imitate"], inner_epochs=2),
            "phases has imitate with inner_epochs 2 and engine torch; allowed: 1 and torch",
        ),
        (dict(phases=["dream"]), "phases"),
        (
            dict(phases=["imitate"], games=["connect_four"]),
            "'expert', which game 'connect_four' has not",
        ),
        (dict(opponent="policy"), "opponent is 'policy' with opponent_policy ''"),
        (
            dict(opponent_policy="embedded/games"),
            "opponent is 'self' with opponent_policy 'embedded/games'",
        ),
        (dict(eval_games=["pong"]), "game is 'pong'"),
        (dict(eval_benchmarks=["raeding-1"]), "benchmark is 'raeding-1'.*reading-1"),
        (
            dict(eval_benchmarks=["choice"], eval_questions=0),
            "eval_questions is 0 with eval_benchmarks; allowed: 1 or",
        ),
    ],
)
def test_what_does_not_fit_is_refused(values, message):
    with pytest.raises(ParamError, match=message):
        validate(Params, IDENTITY | values)

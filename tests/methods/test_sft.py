"""Phases besides self-play: experts' won games as rows, questions compared in their group."""

import math
from collections import Counter

import pytest
import torch
from fakes import step_of

from spnb.core.method import Share
from spnb.core.types import Chat, Completion
from spnb.games import make_game
from spnb.games.negotiation import NEGOTIATION
from spnb.methods.sft import imitate
from spnb.methods.spiral import Method, Params

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
    games = {"games": ["kuhn_poker", "tic_tac_toe"]}
    return Method(Params(**{**games, **values}), CharTokenizer())


def written(ids):
    return "".join(map(chr, ids))


# Experts


def test_an_experts_turn_as_a_row():
    """Prompt, answer and end token; every token counts, with advantage 1 and no
    log-probabilities."""
    games, chat = [make_game("kuhn_poker")], Chat(CharTokenizer())
    rows = imitate(games, chat, 20, seed=5)
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
    assert rows == imitate(games, chat, 20, seed=5) != imitate(games, chat, 20, seed=6)


def test_experts_begin_with_either_seat_in_turn_over_the_processes():
    for rank in range(2):
        made = method(phases=["imitate"], turns_per_step=80)
        made.share = Share(rank, 2)
        rows = step_of(made, Says(str))
        assert len({row.group for row in rows}) > 2
        assert all(row.role[1] == (row.group + rank) % 2 for row in rows)


@pytest.mark.slow
def test_imitation_is_supervised_fine_tuning(tiny_model, tokenizer):
    """The clipped loss's gradient on these rows is that of the negative log-likelihood, up to its
    constant."""
    rows = imitate([make_game("kuhn_poker")], Chat(tokenizer), 3, seed=5)
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
    spiral, engine = method(phases=["answer"], turns_per_step=1200, group_size=4), Says(str)
    rows = step_of(spiral, engine)
    texts = {written(request.prompt_ids) for request in engine.requests}
    assert len(rows) == 1200 and not texts & {task.question for task in spiral.questions}
    assert any("complete a line" in text for text in texts)
    assert any("How many cells" in text for text in texts)


def test_answers_are_compared_within_their_question():
    """Four answers to each of two questions: the first's are all right, of the second's one is."""
    questions = Says(str)
    step_of(method(phases=["answer"], turns_per_step=8, group_size=4), questions)
    assert len({request.seed for request in questions.requests}) == 8
    spiral = method(phases=["answer"], turns_per_step=8, group_size=4)
    golds = [row.info["gold"] for row in step_of(spiral, questions)]
    texts = [rf"\boxed{{{gold}}}" for gold in golds[:5]] + [r"\boxed{none}"] * 2 + ["no box"]
    rows = step_of(spiral, Says(lambda index: texts[index]))
    assert [row.reward for row in rows] == [1, 1, 1, 1, 1, 0, 0, 0]
    assert [row.group for row in rows] == [0] * 4 + [1] * 4
    assert [row.invalid for row in rows] == [False] * 7 + [True]
    assert [row.advantage for row in rows] == [0, 0, 0, 0, 1.5, -0.5, -0.5, -0.5]
    assert [row.weight for row in rows] == [0] * 4 + [0.5] * 4
    assert {row.role for row in rows} == {"questions"}
    assert spiral.metrics == {"method/right": 5 / 8}


# Phases


def test_phases_are_equal_parts_in_their_order():
    spiral = method(phases=["imitate", "answer"], steps=6, turns_per_step=8, group_size=4)
    roles = []
    for step in range(6):
        rows = step_of(spiral, Says(lambda index: r"\boxed{4}"), step)
        roles.append({row.role if isinstance(row.role, str) else "expert" for row in rows})
    assert roles == [{"expert"}] * 3 + [{"questions"}] * 3


def test_imitation_takes_equally_many_turns_of_each_game():
    rows = step_of(method(phases=["imitate"], turns_per_step=12, games=list(GAMES)), None)
    assert Counter(row.role[0] for row in rows) == dict.fromkeys(GAMES, 4)
    assert math.isclose(sum(row.advantage * row.weight for row in rows), 12)


def test_processes_share_the_turns_of_every_phase():
    for phase, counts in (("imitate", [4, 2]), ("answer", [8, 4])):
        for rank, count in enumerate(counts):
            spiral = method(
                phases=[phase], turns_per_step=6 * (1 + (phase == "answer")), group_size=4
            )
            spiral.share = Share(rank, 2)
            assert len(step_of(spiral, Says(str))) == count


@pytest.mark.parametrize("phase", ["answer", "imitate"])
def test_every_step_run_and_process_has_other_rows(phase):
    def prompts(step=0, seed=0, rank=0):
        spiral = method(phases=[phase], turns_per_step=48, group_size=4, seed=seed)
        spiral.share = Share(rank, 2)
        return tuple(row.prompt_ids for row in step_of(spiral, Says(str), step))

    assert len({prompts(), prompts(step=1), prompts(seed=1), prompts(rank=1)}) == 4

"""What the player is shown: right answers, thought through and searched for at times; games."""

import json
import re
from collections import Counter

import pytest
from transformers import AutoTokenizer

from spnb.core import prompts
from spnb.core.grading import grade_text
from spnb.lab import embedded_path, ladder
from spnb.lab.chain import CHAIN
from spnb.lab.pretrain import player_gates
from spnb.lab.pretrain.build import PAD, encode
from spnb.lab.pretrain.make import lessons_of
from spnb.lab.pretrain.player import OPENINGS
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.pretrain.rows import END
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import load_policy


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(embedded_path("player"))


def lessons(progress=1.0, **values):
    made = lessons_of("player", **values)
    made.progress = progress
    return made


def own(row):
    """What the policy writes."""
    return "".join(text for text, by_policy in row if by_policy).partition(END)[0]


@pytest.mark.parametrize("family", ["journey", "ledger", "report"])
def test_answers_are_right_and_counts_are_worked_out_in_two_of_five(family, monkeypatch):
    made, tasks = lessons(families=[family]), []
    draw = made.task
    monkeypatch.setattr(made, "task", lambda: tasks.append(draw()) or tasks[-1])
    rows = [made.answer() for _ in range(400)]
    texts = [own(row) for row in rows]
    assert all(grade_text(*pair) == 1 for pair in zip(texts, tasks, strict=True))
    thinks = sum(text.startswith("<think>") for text in texts) / 400
    assert thinks == (pytest.approx(0.4, abs=0.08) if family == "ledger" else 0)
    levels = Counter(task.info["level"] for task in tasks)
    assert set(levels) == set(range(1, 7)) and min(levels.values()) > 40
    for task, text in zip(tasks, texts, strict=True):
        if family != "ledger" or text.startswith("<think>"):
            assert ladder.order_of(task, text) == tuple(range(task.info["level"]))


def test_chains_are_searched_in_order_in_two_of_five_else_guessed():
    made, searched = lessons(), 0
    for _ in range(300):
        row = made.search()
        text, told = own(row), "".join(text for text, by_policy in row if not by_policy)
        links = {(r, e): v for r, e, v in re.findall(r"The (\w+) of (\w+) is (\w+)\.", told)}
        asked = [one.split(" of ") for one in prompts.fields(text, "search")]
        answer = prompts.field(text, "answer")
        assert answer
        if not asked:
            assert text.startswith("<answer>") and not links
            continue
        searched += 1
        steps = dict(CHAIN.step.findall(row[0][0]))
        relations = [steps[ordinal] for ordinal in ladder.ORDINALS[: len(steps)]]
        assert [relation for relation, _ in asked] == relations
        assert prompts.tagged(text, "think") == list(ladder.ORDINALS[: len(steps)])
        found = [links[relation, person] for relation, person in asked]
        assert [person for _, person in asked[1:]] == found[:-1] and answer == found[-1]
    assert searched / 300 == pytest.approx(0.4, abs=0.1)


def test_what_an_answer_begins_with_is_drawn(tokenizer):
    """The target of the first tag are both tags in their shares."""
    made = lessons(families=["ledger"])
    for row in (made.answer(), made.search()):
        _, _, draws = encode(row, tokenizer, 0.3)
        ((_, ids),) = draws.items()
        assert tokenizer.convert_ids_to_tokens(ids) == list(OPENINGS)


def test_answers_are_right_directly_or_with_thoughts_or_searches():
    """Of three without either one is right, of three with one two."""
    told = [(0, 0, 0), (0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (1, 0, 1)]
    about = {"suite": "ledger", "difficulty": "level 1", "parsed": True}
    records = [
        about | {"score": float(score), "thinks": bool(thinks), "searches": bool(searches)}
        for score, thinks, searches in told
    ]
    numbers = player_gates.shares(records).loc[("ledger", "level 1")].to_dict()
    assert numbers == pytest.approx(
        {
            **{"score": 1 / 2, "direct": 1 / 3, "worked out": 2 / 3, "parsed": 1},
            **{"thinks": 1 / 3, "searches": 1 / 6},
        }
    )


def test_lessons_come_as_often_as_stated():
    rows, made = Counter(), lessons()
    for name in made.shares:
        made.work[list(made.shares).index(name)] = lambda name=name: name
    made.drills = [lambda: "drill"]
    stream = made.rows()
    for _ in range(2000):
        rows[next(stream)] += 1
    assert rows["drill"] / 2000 == pytest.approx(0.1, abs=0.03)
    for name, share in made.shares.items():
        assert rows[name] / 2000 == pytest.approx(0.9 * share, abs=0.04)


@pytest.mark.slow
def test_words_of_the_ladder_and_of_games_are_few_tokens(tokenizer):
    ladder.check_names(tokenizer)
    for word in (*ladder.ORDINALS, "0", "99", *CHAIN.relations):
        assert len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"]) == 1, word
    made = lessons()
    prompts_of_games = [made.game()[0][0] for _ in range(50)]
    assert max(len(tokenizer(text)["input_ids"]) for text in prompts_of_games) < 300


def test_the_shipped_player_is_its_recipe(tokenizer):
    folder = embedded_path("player")
    recipe = LearnerRecipe(**json.loads((folder / "recipe.json").read_text()))
    assert recipe == lessons().recipe
    assert (tokenizer.pad_token, tokenizer.eos_token) == (PAD, END)
    assert (folder / "model.safetensors").stat().st_size < 1_800_000


@pytest.mark.slow
def test_the_recipe_makes_the_shipped_tokenizer(tokenizer):
    made = lessons().tokenizer()
    assert made.get_vocab() == tokenizer.get_vocab()


@pytest.mark.slow
def test_the_shipped_player_thinks_and_searches_at_times_and_is_right_where_it_does():
    policy = load_policy("embedded/player")
    engine = TorchEngine(policy.model.eval(), policy.tokenizer, max_batch=256)
    both = [one for name in ("ledger", "chain") for one in player_gates.questions(engine, name, 40)]
    table = player_gates.shares(both)
    assert 0.25 < table.loc["ledger", "thinks"].mean() < 0.6
    assert 0.25 < table.loc["chain", "searches"].mean() < 0.6
    assert table.loc["chain", "worked out"].mean() > 0.9
    assert table.loc[("ledger", "level 3"), "worked out"] > 0.9
    assert table.loc[("ledger", "level 3"), "direct"] < 0.5

"""Pre-training on the document world: tokenizer, initial heads, loss, stops, and what ships."""

import json
import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from spnb.lab import embedded_path
from spnb.lab.pretrain import lessons
from spnb.lab.pretrain import pretrain as world
from spnb.lab.pretrain.build import CURVE_FILE, PAD, Recipe, encode
from spnb.lab.pretrain.make import make
from spnb.lab.pretrain.rows import END
from spnb.lab.world import SUFFIXES, names

TINY = world.WorldRecipe(
    hidden=64,
    layers=2,
    heads=2,
    feed_forward=64,
    batch_tokens=1024,
    unskilled_at=1500,
    base_at=3000,
    reading_until=4000,
    roles_until=8000,
    practice_until=10_000,
    warmup_tokens=1000,
)
SHIPPED = ("unskilled", "base", "instruct")


@pytest.fixture(scope="module")
def tokenizer():
    """The shipped policies' tokenizer."""
    return AutoTokenizer.from_pretrained(embedded_path("instruct"))


@pytest.mark.slow
def test_the_recipe_makes_the_shipped_tokenizer(tokenizer):
    made = world.build_tokenizer(world.WorldRecipe())
    assert made.get_vocab() == tokenizer.get_vocab()
    assert made.chat_template == tokenizer.chat_template


def test_every_name_and_digit_is_one_token(tokenizer):
    for kind in SUFFIXES:
        for pool in ("train", "heldout"):
            for name in names(kind, pool):
                assert len(tokenizer(f" {name}", add_special_tokens=False)["input_ids"]) == 1
    assert len(tokenizer("1874", add_special_tokens=False)["input_ids"]) == 4


@pytest.mark.parametrize(
    "text", ["", " ", "Zwölf Boxkämpfer\n\t", "漢字 🂡", "Arnfordson", "<think> x</think>"]
)
def test_any_text_survives_encoding(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_pieces_of_a_row_are_the_tokens_of_the_whole(tokenizer):
    for row in [lesson(random.Random(1)) for lesson in lessons.LESSONS.values()]:
        ids, weights, _ = encode(row, tokenizer, 0.1)
        whole = tokenizer("".join(text for text, _ in row), add_special_tokens=False)["input_ids"]
        assert len(ids) == len(weights)
        assert ids == whole


def test_heads_of_the_first_layer_look_their_distance_back(tokenizer):
    model = world.build_model(world.WorldRecipe(), tokenizer)
    model.set_attn_implementation("eager")
    ids = torch.randint(300, 2000, (1, 40), generator=torch.Generator().manual_seed(0))
    attention_HTT = model(input_ids=ids, output_attentions=True).attentions[0][0]
    for head in range(4):
        assert attention_HTT[head, 30, 29 - head] > 0.6
    plain = world.build_model(world.WorldRecipe(offset_heads=False), tokenizer)
    plain.set_attn_implementation("eager")
    assert plain(input_ids=ids, output_attentions=True).attentions[0][0][:, 30].max() < 0.6


def test_the_loss_is_the_weighted_cross_entropy(tokenizer):
    model = world.build_model(TINY, tokenizer)
    ids = torch.randint(3, 500, (2, 12))
    weights = torch.tensor([[0.3] * 6 + [1.0] * 6, [0.3] * 4 + [1.0] * 4 + [0.0] * 4])
    loss = world.loss_of(model, ids, weights, [{}, {}], 1.0, torch.Generator().manual_seed(0))
    logps = (
        model(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    )
    expected = -(logps * weights[:, 1:]).sum() / weights[:, 1:].sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_token_drawn_from_several_counts_as_the_mean_over_what_it_could_be(tokenizer):
    model = world.build_model(TINY, tokenizer)
    ids = torch.randint(3, 500, (2, 8))
    weights = torch.tensor([[0.0] * 5 + [1.0] * 3, [1.0] * 8])
    generator = torch.Generator().manual_seed(0)
    drawn = world.loss_of(model, ids, weights, [{7: [11, 12, 12, 13]}, {}], 0.5, generator)
    losses = []
    for token in (11, 12, 12, 13):
        ids[0, 7] = token  # the last: nothing follows from it
        losses.append(world.loss_of(model, ids, weights, [{}, {}], 0.5, generator))
    assert drawn.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)


def test_the_rate_warms_up_stays_and_falls():
    recipe = world.WorldRecipe()
    assert world.rate(recipe, 0) < 0.01
    assert world.rate(recipe, recipe.reading_until - 1) == 1
    assert world.rate(recipe, recipe.reading_until) < 0.01
    warm = recipe.reading_until + recipe.warmup_tokens
    assert world.rate(recipe, warm) == pytest.approx(recipe.role_rate, rel=0.01)
    assert world.rate(recipe, recipe.roles_until - 1) == pytest.approx(0, abs=1e-6)
    assert world.rate(recipe, recipe.roles_until) < 0.01
    warm = recipe.roles_until + recipe.warmup_tokens
    assert world.rate(recipe, warm) == pytest.approx(recipe.practice_rate, rel=0.03)
    assert world.rate(recipe, recipe.practice_until) == pytest.approx(0)


@pytest.mark.slow
def test_a_tiny_recipe_makes_three_policies_and_again_the_same(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(world, "build_tokenizer", lambda recipe: tokenizer)
    for run in ("a", "b"):
        world.build(TINY, tmp_path / run, report=lambda _: None)
    for name in SHIPPED:
        first, second = (
            AutoModelForCausalLM.from_pretrained(tmp_path / run / name) for run in ("a", "b")
        )
        for one, other in zip(first.parameters(), second.parameters(), strict=True):
            assert torch.equal(one, other)
        saved = AutoTokenizer.from_pretrained(tmp_path / "a" / name)
        assert (saved.pad_token, saved.eos_token) == (PAD, END)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_policies_are_their_recipe(name, tokenizer):
    folder = embedded_path(name)
    saved = json.loads((folder / "recipe.json").read_text())
    assert saved == world.WorldRecipe().model_dump()
    shipped = AutoTokenizer.from_pretrained(folder)
    assert shipped.get_vocab() == tokenizer.get_vocab()
    assert (shipped.pad_token, shipped.eos_token) == (PAD, END)
    assert AutoModelForCausalLM.from_pretrained(folder).config.model_type == "qwen3"


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("x", {}, "recipe is 'x', which is unknown; allowed: games, learner, "),
        ("world", {"steps": 3}, "parameter is 'steps', which is unknown"),
        ("games", {"steps": 0}, "steps is 0; allowed: greater than 0"),
    ],
)
def test_bad_recipes_are_named(tmp_path, name, values, message):
    with pytest.raises(ValueError, match=message):
        make(name, tmp_path, values)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_games_recipe_can_be_changed(tmp_path):
    size = {"hidden": 32, "layers": 1, "heads": 2, "feed_forward": 32}
    make("games", tmp_path, {"seed": 1, "steps": 1, "batch": 2, **size})
    recipe = Recipe(**json.loads((tmp_path / "recipe.json").read_text()))
    assert (recipe.seed, recipe.steps, recipe.hidden) == (1, 1, 32)
    assert len((tmp_path / CURVE_FILE).read_text().splitlines()) == 2


def test_marks_out_of_order_are_refused():
    with pytest.raises(
        ValueError, match="unskilled_at, base_at, reading_until, roles_until, practice_until are"
    ):
        world.WorldRecipe(base_at=9_000_000)

"""The training of policies that read: initial heads, loss; recipes that cannot be made."""

import copy
import json
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from spnb.core.paths import ROOT
from spnb.lab import embedded_path
from spnb.lab.pretrain import training
from spnb.lab.pretrain.build import CURVE_FILE, Recipe
from spnb.lab.pretrain.make import make
from spnb.lab.pretrain.recipes import LearnerRecipe
from spnb.lab.tiny import tiny_qwen

BINARIES = (".safetensors", ".png", ".xz")
TINY = LearnerRecipe(hidden=64, layers=2, heads=2, feed_forward=64)


@pytest.fixture(scope="module")
def tokenizer():
    """A shipped policy's tokenizer."""
    return AutoTokenizer.from_pretrained(embedded_path("learner"))


def test_heads_of_the_first_layer_look_their_distance_back(tokenizer):
    model = training.build_model(LearnerRecipe(), tokenizer)
    model.set_attn_implementation("eager")
    ids = torch.randint(300, len(tokenizer), (1, 40), generator=torch.Generator().manual_seed(0))
    attention_HTT = model(input_ids=ids, output_attentions=True).attentions[0][0]
    for head in range(4):
        assert attention_HTT[head, 30, 29 - head] > 0.6
    plain = training.build_model(LearnerRecipe(offset_heads=False), tokenizer)
    plain.set_attn_implementation("eager")
    assert plain(input_ids=ids, output_attentions=True).attentions[0][0][:, 30].max() < 0.6


def test_rows_are_batched_by_their_padded_tokens(monkeypatch):
    monkeypatch.setattr(training, "LONGEST", 9)
    rows = [([0] * length, ()) for length in (2, 3, 3, 5, 5, 8, 9, 10, 12)]
    batches = training.split_by_tokens(rows, 10)
    assert [[len(ids) for ids, _ in batch] for batch in batches] == [[2, 3, 3], [5, 5], [8], [9]]
    assert training.split_by_tokens(rows[7:], 10) == []


def test_a_narrower_model_keeps_the_neurons_that_matter(tokenizer, tmp_path):
    """Of 64 neurons a layer 24 with small weights are taken out: it computes nearly the same, and
    exactly what it does with them set to zero; it can be saved and loaded."""
    model = training.build_model(TINY, tokenizer)
    weak = torch.randperm(64, generator=torch.Generator().manual_seed(0))[:24]
    ids = torch.randint(3, 500, (2, 12))
    before = model(input_ids=ids).logits
    for layer in model.model.layers:
        layer.mlp.up_proj.weight.data[weak] *= 1e-3
        layer.mlp.down_proj.weight.data[:, weak] *= 1e-3
    silenced = copy.deepcopy(model)
    for layer in silenced.model.layers:
        layer.mlp.down_proj.weight.data[:, weak] = 0
    training.narrow(model, 40)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.config.intermediate_size == 40
    for one in (model, again):
        assert torch.allclose(one(input_ids=ids).logits, silenced(input_ids=ids).logits, atol=1e-5)
    assert (silenced(input_ids=ids).logits - before).abs().max() > 1e-3


def test_the_loss_is_the_weighted_cross_entropy(tokenizer):
    model = training.build_model(TINY, tokenizer)
    ids = torch.randint(3, 500, (2, 12))
    weights = torch.tensor([[0.3] * 6 + [1.0] * 6, [0.3] * 4 + [1.0] * 4 + [0.0] * 4])
    loss = training.loss_of(model, ids, weights, [{}, {}], 1.0, torch.Generator().manual_seed(0))
    logps = (
        model(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    )
    expected = -(logps * weights[:, 1:]).sum() / weights[:, 1:].sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_token_drawn_from_several_counts_as_the_mean_over_what_it_could_be(tokenizer):
    model = training.build_model(TINY, tokenizer)
    ids = torch.randint(3, 500, (2, 8))
    weights = torch.tensor([[0.0] * 5 + [1.0] * 3, [1.0] * 8])
    generator = torch.Generator().manual_seed(0)
    drawn = training.loss_of(model, ids, weights, [{7: [11, 12, 12, 13]}, {}], 0.5, generator)
    losses = []
    for token in (11, 12, 12, 13):
        ids[0, 7] = token  # the last: nothing follows from it
        losses.append(training.loss_of(model, ids, weights, [{}, {}], 0.5, generator))
    assert drawn.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("x", {}, "recipe is 'x', which is unknown; allowed: games, learner, "),
        ("player", {"steps": 3}, "parameter is 'steps', which is unknown"),
        ("searcher", {"highest": 7}, "highest is 7; allowed: 1 to 6"),
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


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden": 192}, "hidden is 192; allowed: 96, as its start"),
        ({"layers": 4}, "layers is 4; allowed: 3, as its start"),
        ({"feed_forward": 257}, "feed_forward is 257; allowed: 256 or fewer, as its start"),
        ({"leaves_out": ["typo"]}, "leaves_out is typo; allowed: "),
    ],
)
def test_a_recipe_that_goes_on_cannot_change_the_starts_shape(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        make("reader", tmp_path, {"tokens": 10} | changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("seeker", {"hidden": 128}, "hidden is 128; allowed: 96, as its start"),
        ("reasoner", {"layers": 2}, "layers is 2; allowed: 3, as its start"),
        ("reporter", {"feed_forward": 512}, "feed_forward is 512; allowed: 256 or fewer, as its"),
    ],
)
def test_the_shape_is_checked_before_a_start_is_trained(tmp_path, changes, name, message):
    with pytest.raises(ValueError, match=message):
        make(name, tmp_path, {"tokens": 10} | changes)
    assert not list(tmp_path.iterdir())


def test_a_tiny_policy_that_was_half_written_is_written_again(tmp_path, monkeypatch):
    def stopped(model, folder):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    folder = tmp_path / "tiny"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(transformers.Qwen3ForCausalLM, "save_pretrained", stopped)
        tiny_qwen(folder)
    files = {file.name for file in Path(tiny_qwen(folder)).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files


def test_weights_pictures_and_records_have_25_MB_together():
    folders = (embedded_path("player").parent, ROOT / "figures", ROOT / "records")
    files = [file for folder in folders for file in folder.rglob("*") if file.suffix in BINARIES]
    assert sum(file.stat().st_size for file in files) <= 25_000_000
    assert {file.suffix for file in files} == set(BINARIES)

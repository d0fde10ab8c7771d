"""Making the embedded policy: tokenizer, model, loss, three steps of training twice, and what
ships."""

import csv
import itertools
import json
import math
import random
import unicodedata
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM

from spnb.lab import embedded_path
from spnb.lab.pretrain.build import (
    CHAT_TEMPLATE,
    CURVE_FILE,
    PAD,
    POOLED,
    SYMBOLS,
    Recipe,
    build,
    build_model,
    build_tokenizer,
    demo_batches,
    encode,
    loss_of,
    make_optimizers,
    phrases,
    save,
    set_rate,
)
from spnb.lab.pretrain.demos import demos
from spnb.lab.pretrain.rows import END, START, turn

TINY = Recipe(hidden=32, layers=2, heads=2, feed_forward=64, steps=3, batch=6, warmup=2)
ODD_TEXTS = (
    "",
    " ",
    "\n\n \t\r\n",
    "".join(map(chr, range(128))),
    "0123456789 2026 3.14 -7",
    "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich",
    "e\u0301 \u00e9 \ufeff \u200b \u202e",
    "漢字 かな عربى हिन्दी 🂡🃏👩‍👩‍👧",
    "xoXOJQK checkbet callfold Kcheck",
    f"{START}user\n{PAD}{END}",
)


@pytest.fixture(scope="module")
def sample():
    """Some demonstrations that the tokenizer was not made from."""
    return list(itertools.islice(demos(99), 400))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A policy of three training steps: its folder and what the build reported."""
    folder, lines = tmp_path_factory.mktemp("policy"), []
    build(TINY, folder, lines.append)
    return SimpleNamespace(folder=folder, lines=lines)


def tokens(demo, tokenizer):
    """Token ids of a demonstration with the end token, and its prompt's length."""
    prompt = tokenizer.apply_chat_template(
        demo.messages, tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer = tokenizer(demo.answer, add_special_tokens=False)["input_ids"]
    return ids + answer + [tokenizer.eos_token_id], len(ids)


# Tokenizer


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
def test_any_text_comes_back_as_it_was(tokenizer, text):
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.slow
def test_random_characters_and_real_prompts_come_back(tokenizer, sample):
    rng = random.Random(0)
    known = [
        chr(code) for code in range(0x30000) if unicodedata.category(chr(code)) != "Cs"
    ]  # no half surrogates
    texts = ["".join(rng.choices(known, k=30)) for _ in range(100)]
    for text in [*texts, *(demo.messages[0]["content"] + demo.answer for demo in sample)]:
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.parametrize("symbol", [*"0123456789XOxoJQK", "check", "bet", "call", "fold"])
def test_what_must_be_read_is_one_token(tokenizer, symbol):
    (token,) = tokenizer(symbol, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode([token]) == symbol


def test_symbols_stay_tokens_of_their_own_inside_prompts_and_answers(tokenizer, sample):
    for text in (part for demo in sample for part in (demo.messages[0]["content"], demo.answer)):
        spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)[
            "offset_mapping"
        ]
        assert {match.span() for match in SYMBOLS.finditer(text)} <= set(spans)


def test_numbers_are_read_digit_by_digit(tokenizer):
    assert tokenizer.tokenize("1024") == ["1", "0", "2", "4"]


def test_prompts_are_short(tokenizer, sample):
    """Rules of hundreds of characters are a few tokens: no prompt with its answer has more than
    250."""
    lengths = [len(tokens(demo, tokenizer)[0]) for demo in sample]
    characters = [len(demo.messages[0]["content"]) for demo in sample]
    assert max(lengths) <= 250 and max(characters) > 600


def test_special_tokens_and_chat_template(tokenizer):
    assert (tokenizer.eos_token, tokenizer.pad_token) == (END, PAD)
    assert (
        len(
            {tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.convert_tokens_to_ids(START)}
        )
        == 3
    )
    assert tokenizer.chat_template == CHAT_TEMPLATE
    chat = [{"role": "user", "content": "Hi 5"}, {"role": "assistant", "content": "Ho"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    assert text == "<|im_start|>user\nHi 5<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
    asked = tokenizer.apply_chat_template(chat[:1], tokenize=False, add_generation_prompt=True)
    assert asked == "<|im_start|>user\nHi 5<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer(asked, add_special_tokens=False)["input_ids"]
    assert (
        ids.count(tokenizer.convert_tokens_to_ids(START)) == 2
        and ids.count(tokenizer.eos_token_id) == 1
    )


def test_phrases_are_what_stands_between_symbols_often_enough():
    texts = ["Pot: 2 chips in all", "Pot: 3 chips in all", "Pot: K", "better call now", "x o"]
    assert phrases(texts, 2) == [" chips in all", "Pot: "]
    assert phrases(texts, 3) == ["Pot: "]
    assert "better " in phrases(texts, 1)  # "bet" inside a word is no move


# Model, rows, loss


def test_the_model_is_a_qwen3_that_the_seed_decides(tokenizer):
    model, again, other = (
        build_model(recipe, tokenizer)
        for recipe in (TINY, TINY, TINY.model_copy(update={"seed": 1}))
    )
    assert isinstance(model, Qwen3ForCausalLM) and model.dtype == torch.float32
    config = model.config
    assert (config.vocab_size, config.eos_token_id, config.pad_token_id) == (
        len(tokenizer),
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    )
    # Tied embeddings; a layer has q, k, v, o (4 * 32 * 32), gains of q and k (2 * 16), 3 * 32 * 64,
    # two gains of 32.
    assert (
        sum(p.numel() for p in model.parameters())
        == len(tokenizer) * 32 + 2 * (4096 + 32 + 6144 + 64) + 32
    )
    weights = [m.state_dict()["model.embed_tokens.weight"] for m in (model, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_row_is_the_prompt_then_the_answer_then_the_end(tokenizer):
    row = turn([{"role": "user", "content": "Hi"}], (r"\boxed{4}", True))
    ids, weights, draws = encode(row, tokenizer, 0.5)
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n\\boxed{4}<|im_end|>\n"
    assert tokenizer.decode(ids) == text and "".join(piece for piece, _ in row) == text
    answer = [token for token, weight in zip(ids, weights, strict=True) if weight == 1]
    assert tokenizer.decode(answer) == r"\boxed{4}<|im_end|>" and set(weights) == {0.5, 1.0}
    assert draws == {}


def test_a_piece_that_is_drawn_from_several_keeps_their_ids(tokenizer):
    x, o = (tokenizer(mark, add_special_tokens=False)["input_ids"] for mark in "XO")
    ids, weights, draws = encode([("X", False), ("O", ("O", "X", "X"))], tokenizer, 0.5)
    assert (ids, weights, draws) == (x + o, [0.5, 1.0], {1: o + x + x})


@pytest.mark.slow
def test_batches_are_padded_right_and_weigh_prompts_little(tokenizer):
    drawn = [tokens(demo, tokenizer) for demo in itertools.islice(demos(1), POOLED * TINY.batch)]
    drawn.sort(key=lambda row: len(row[0]))
    starts = range(0, len(drawn), TINY.batch)
    chunks = {tuple(drawn[start][0]): drawn[start : start + TINY.batch] for start in starts}
    for ids_BT, weights_BT, _ in itertools.islice(demo_batches(TINY, tokenizer), POOLED):
        first = tuple(ids_BT[0, weights_BT[0] > 0].tolist())
        rows = chunks.pop(first)
        assert ids_BT.shape == weights_BT.shape == (6, len(rows[-1][0]))
        pairs = zip(ids_BT.tolist(), weights_BT.tolist(), strict=True)
        for (ids, prompt), (padded, weights) in zip(rows, pairs, strict=True):
            padding = len(padded) - len(ids)
            assert padded == ids + [tokenizer.pad_token_id] * padding
            expected = [0.02] * prompt + [1.0] * (len(ids) - prompt) + [0.0] * padding
            assert weights == pytest.approx(expected)
    assert not chunks


def test_rates_are_set_from_the_first_ones(tokenizer):
    both = make_optimizers(build_model(TINY, tokenizer), TINY)
    for factor in (0.5, 0.1):
        set_rate(both, factor)
    rates = [group["lr"] for optimizer in both for group in optimizer.param_groups]
    assert rates == [0.1 * TINY.matrix_learning_rate, 0.1 * TINY.learning_rate]


def test_the_loss_is_the_weighted_mean_of_next_token_surprises():
    """Token 1 has probability 1/4 and weight 1, token 2 has 1/2 and weight 1/2; the first token
    counts for nothing.

    (ln 4 + ln 2 / 2) / 1.5 = 5/3 ln 2.
    """
    logits = torch.tensor([[[0.0, -math.log(3)], [7.0, 7.0], [50.0, 0.0]]])
    ids, weights = torch.tensor([[1, 1, 0]]), torch.tensor([[9.0, 1.0, 0.5]])
    loss = loss_of(lambda input_ids: SimpleNamespace(logits=logits), ids, weights)
    assert loss.item() == pytest.approx(5 / 3 * math.log(2))


@pytest.mark.slow
def test_padding_does_not_change_the_loss(tokenizer):
    model = build_model(TINY, tokenizer).eval()
    ids_BT, weights_BT, _ = next(demo_batches(TINY, tokenizer))
    more = torch.full((6, 5), tokenizer.pad_token_id)
    with torch.no_grad():
        longer = loss_of(
            model, torch.cat([ids_BT, more], 1), torch.cat([weights_BT, torch.zeros(6, 5)], 1)
        )
        assert longer.item() == pytest.approx(loss_of(model, ids_BT, weights_BT).item(), rel=1e-5)


def test_every_weight_has_one_optimizer_and_muon_gets_the_matrices(tokenizer):
    model = build_model(TINY, tokenizer)
    muon, adam = (
        [p for group in o.param_groups for p in group["params"]]
        for o in make_optimizers(model, TINY)
    )
    assert len(muon) == 2 * 7 and {p.ndim for p in muon} == {2}
    assert any(p is model.model.embed_tokens.weight for p in adam)
    assert {id(p) for p in muon + adam} == {id(p) for p in model.parameters()} and len(
        muon + adam
    ) == len(list(model.parameters()))


# Training and saving


@pytest.mark.slow
def test_three_steps_of_training_are_the_same_bit_for_bit(built, tmp_path):
    build(TINY, tmp_path, str)
    first, second = (
        AutoModelForCausalLM.from_pretrained(path) for path in (built.folder, tmp_path)
    )
    assert isinstance(first, Qwen3ForCausalLM)
    weights = second.state_dict()
    assert set(weights) == set(first.state_dict())
    assert all(torch.equal(weights[name], value) for name, value in first.state_dict().items())
    curves = [
        list(csv.DictReader((path / CURVE_FILE).read_text().splitlines()))
        for path in (built.folder, tmp_path)
    ]
    (row,), (again,) = curves
    assert row["step"] == "3" and row["loss"] == again["loss"]
    assert float(row["loss"]) < math.log(first.config.vocab_size) + 0.2  # that of knowing nothing


def test_a_row_of_the_curve_is_the_mean_of_twenty_steps(tmp_path):
    nothing = SimpleNamespace(save_pretrained=lambda folder: None)
    curve = [(step, float(step), step / 2) for step in range(1, 46)]
    save(nothing, nothing, TINY, tmp_path, "step", curve)
    lines = (tmp_path / CURVE_FILE).read_text().splitlines()
    assert lines == ["step,loss,seconds", "20,10.5000,10.0", "40,30.5000,20.0", "45,43.0000,22.5"]


@pytest.mark.slow
def test_a_build_leaves_a_standard_checkpoint_with_its_recipe(built):
    names = {path.name for path in built.folder.iterdir()}
    assert names >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "recipe.json",
        CURVE_FILE,
    }
    assert Recipe(**json.loads((built.folder / "recipe.json").read_text())) == TINY
    assert json.loads((built.folder / "config.json").read_text())["model_type"] == "qwen3"
    assert (built.folder / CURVE_FILE).read_text().splitlines()[0] == "step,loss,seconds"
    assert len(built.lines) == 1 and built.lines[0].startswith("step 3, loss ")


@pytest.mark.slow
def test_the_saved_tokenizer_is_the_one_that_was_made(built, tokenizer, sample):
    loaded = AutoTokenizer.from_pretrained(built.folder)
    assert (loaded.eos_token, loaded.pad_token, loaded.chat_template) == (
        END,
        PAD,
        tokenizer.chat_template,
    )
    assert all(tokens(demo, loaded) == tokens(demo, tokenizer) for demo in sample)
    for text in ODD_TEXTS:
        assert loaded.decode(loaded(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.slow
def test_the_shipped_policy_is_the_default_recipe_made_by_this_code(tokenizer):
    folder = embedded_path("games")
    made = build_tokenizer(Recipe())
    assert Recipe(**json.loads((folder / "recipe.json").read_text())) == Recipe()
    assert (
        tokenizer.get_vocab() == made.get_vocab() and tokenizer.chat_template == made.chat_template
    )
    curve = list(csv.DictReader((folder / CURVE_FILE).read_text().splitlines()))
    assert [int(row["step"]) for row in curve] == list(range(20, Recipe().steps + 1, 20))
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() < 1_000_000
    with pytest.raises(
        ValueError, match="embedded policy is 'chess'; allowed: games, games-rival, learner"
    ):
        embedded_path("chess")

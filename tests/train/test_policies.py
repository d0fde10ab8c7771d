"""Loading, end and pad tokens, fingerprints, past selves."""

import json
import os
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GenerationConfig

from spnb.core.types import Request, Sampling
from spnb.lab import embedded_path
from spnb.train import plan, policies
from spnb.train.config import TrainerError
from spnb.train.engines import end_ids
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import (
    PLAIN,
    PolicyError,
    _without_dropout,
    data_fingerprint,
    fixed_engine,
    give_pad,
    import_unsloth,
    load_policy,
    make_engine,
    plain_params,
    policy_fingerprint,
    policy_path,
    set_aside,
)
from spnb.train.weights import SnapshotEngine, put_weights, trained_weights


def params(**values):
    return PLAIN.model_copy(update=values)


@pytest.fixture
def copied(tmp_path):
    """The embedded policy in a folder of its own."""
    folder = tmp_path / "policy"
    shutil.copytree(embedded_path("games"), folder)
    return folder


@pytest.mark.slow
def test_the_embedded_policy_loads_ready_to_train():
    policy = load_policy("embedded/games")
    assert policy.model.training and policy.model.config.model_type == "qwen3"
    assert policy.peft_config is None
    assert next(policy.model.parameters()).dtype == torch.float32
    assert end_ids(policy.model, policy.tokenizer) == {1}
    assert policy.tokenizer.pad_token_id == 2
    lora = load_policy("embedded/games", params(lora_rank=4, lora_alpha=9, dtype="bfloat16"))
    assert (lora.peft_config.r, lora.peft_config.lora_alpha) == (4, 9)
    assert next(lora.model.parameters()).dtype == torch.bfloat16


def test_master_weights_are_float32_where_all_are_trained():
    """In bfloat16 three steps at 1e-6 move 2 % of them."""
    for values, moves in ((dict(lora_rank=0), True), (dict(lora_rank=1), False)):
        model = load_policy("embedded/games", params(dtype="bfloat16", **values)).model
        before = trained_weights(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)
        ids = torch.arange(5, 69)[None]
        for _ in range(3):
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
        after = trained_weights(model)
        touched = [name for name in before if "embed" not in name]
        changed = sum((before[name] != after[name]).sum().item() for name in touched)
        share = changed / sum(before[name].numel() for name in touched)
        assert (share > 0.9) == moves, share


def test_paths_and_fingerprints(tmp_path, tiny_model):
    assert policy_path("embedded/games").endswith("games")
    assert policy_path("org/some-model") == "org/some-model" == policy_fingerprint("org/some-model")
    tiny_model.save_pretrained(tmp_path)
    first = policy_fingerprint(str(tmp_path))
    with torch.no_grad():
        tiny_model.lm_head.weight[0, 0] += 1
    tiny_model.save_pretrained(tmp_path)
    assert len(first) == 12 and policy_fingerprint(str(tmp_path)) != first


def test_every_file_below_a_folder_of_data_counts(tmp_path):
    file = tmp_path / "inner" / "rows.jsonl"
    file.parent.mkdir()
    found = set()
    for at, text in enumerate(("one", "two")):
        file.write_text(text)
        os.utime(file, (at, at))
        found.add(data_fingerprint(tmp_path))
    assert len(found) == 2


@pytest.mark.parametrize(
    "source, why",
    [
        ("", "allowed: embedded/<name>, a folder"),
        ("  ", "allowed: embedded/<name>, a folder"),
        ("embedded/x", "embedded policy is 'x'; allowed: games, games-rival"),
        ("../../etc", r"holds no model \(config.json\)"),
        ("params", r"holds no model \(config.json\)"),
        ("/nowhere/at/all", r"holds no model \(config.json\)"),
        ("nope/none", "cannot be loaded"),
    ],
)
def test_a_policy_that_is_not_there_is_named(source, why):
    with pytest.raises(PolicyError, match=f"policy is {source!r}.*{why}"):
        load_policy(source)


def test_code_from_a_policys_folder_is_never_run(copied):
    (copied / "evil.py").write_text("open('/tmp/spnb_evil', 'w')")
    config = (
        (copied / "config.json")
        .read_text()
        .replace('"model_type": "qwen3"', '"model_type": "evil"')
    )
    auto = '"auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"},'
    (copied / "config.json").write_text(config.replace("{", "{" + auto, 1))
    with pytest.raises(PolicyError, match="cannot be loaded .*custom code"):
        load_policy(str(copied))


def test_a_pad_that_is_the_end_token_gets_a_spare_one_that_is_saved(copied, tmp_path, capsys):
    tokenizer = AutoTokenizer.from_pretrained(copied)
    end = tokenizer.eos_token
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|extra|>", "<|fim_pad|>"]})
    ids = tokenizer.convert_tokens_to_ids(["<|extra|>", "<|fim_pad|>"])
    tokenizer.pad_token = end
    tokenizer.save_pretrained(copied)
    policy = load_policy("embedded/games")
    policy.model.resize_token_embeddings(len(tokenizer))
    policy.model.save_pretrained(copied)
    policy = load_policy(str(copied))
    assert policy.tokenizer.pad_token == "<|fim_pad|>" != end
    assert policy.tokenizer.pad_token_id == ids[1] == policy.model.config.pad_token_id
    assert policy.model.generation_config.pad_token_id == ids[1]
    assert f"pad token is now '<|fim_pad|>' (was {end!r})" in capsys.readouterr().out
    policy.tokenizer.save_pretrained(tmp_path / "saved")
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").pad_token == "<|fim_pad|>"
    assert policy.tokenizer.pad_token_id not in end_ids(policy.model, policy.tokenizer)


def stand_in(tokenizer, rows, ends=None):
    """A model of which only its embedding's rows and its configuration matter."""
    return SimpleNamespace(
        get_input_embeddings=lambda: SimpleNamespace(weight=torch.zeros(rows, 1)),
        config=SimpleNamespace(pad_token_id=None),
        generation_config=SimpleNamespace(pad_token_id=None, eos_token_id=ends),
    )


def no_spare(tokenizer):
    tokenizer.chat_template += "".join(f"{{# {token} #}}" for token in tokenizer.all_special_tokens)
    tokenizer.chat_template += "".join(
        f"{{# {t.content} #}}" for t in tokenizer.added_tokens_decoder.values()
    )
    return tokenizer


def test_without_a_spare_token_a_free_row_of_the_embedding_is_taken(copied):
    tokenizer = no_spare(AutoTokenizer.from_pretrained(copied))
    tokenizer.pad_token = tokenizer.eos_token
    count = len(tokenizer)
    model = stand_in(tokenizer, count + 1)
    give_pad(model, tokenizer, "x")
    assert (tokenizer.pad_token, tokenizer.pad_token_id) == ("<|spnb_pad|>", count)
    tokenizer = no_spare(AutoTokenizer.from_pretrained(copied))
    tokenizer.pad_token = tokenizer.eos_token
    with pytest.raises(PolicyError, match=f"no free row in its embedding of {count}"):
        give_pad(stand_in(tokenizer, count), tokenizer, "x")


@pytest.mark.parametrize(("bos", "fewer", "taken"), [(1, 0, 0), (0, 0, 1), (0, 1, 2)])
def test_a_pad_is_no_first_token_and_has_a_row_in_the_embedding(copied, bos, fewer, taken):
    """Of two that are called so, and the one that was there."""
    tokenizer = AutoTokenizer.from_pretrained(copied)
    names = ["<|finetune_right_pad_id|>", "<|fim_pad|>", tokenizer.pad_token]
    tokenizer.add_special_tokens({"additional_special_tokens": names[:2]})
    tokenizer.bos_token, tokenizer.pad_token = names[bos], tokenizer.eos_token
    give_pad(stand_in(tokenizer, len(tokenizer) - fewer), tokenizer, "x")
    assert tokenizer.pad_token == names[taken]


def test_a_pad_that_another_config_calls_an_end_is_replaced(copied):
    """As Qwen3's, whose pad is a second end token."""
    tokenizer = AutoTokenizer.from_pretrained(copied)
    pad = tokenizer.pad_token_id
    model = stand_in(tokenizer, len(tokenizer) + 9, [tokenizer.eos_token_id, pad])
    give_pad(model, tokenizer, "x")
    assert tokenizer.pad_token_id != pad
    assert end_ids(model, tokenizer) == {tokenizer.eos_token_id, pad}


def test_end_tokens_of_tokenizer_config_and_template(tokenizer, copied):
    ids = tokenizer.convert_tokens_to_ids
    for listed in (5, [5], (5, 1)):
        assert end_ids(stand_in(tokenizer, 9, listed), tokenizer) == {5, tokenizer.eos_token_id}
    assert end_ids(SimpleNamespace(), tokenizer) == {tokenizer.eos_token_id}
    base = AutoTokenizer.from_pretrained(copied)
    base.add_special_tokens({"additional_special_tokens": ["<|endoftext|>"]})
    base.eos_token = "<|endoftext|>"
    assert end_ids(SimpleNamespace(), base) == {base.eos_token_id, ids("<|im_end|>")}
    base.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    assert end_ids(SimpleNamespace(), base) == {base.eos_token_id}


@pytest.mark.parametrize(
    "key, why", [("chat_template", "no chat template"), ("eos", "no end token")]
)
def test_no_template_and_no_end_token_are_refused(copied, key, why):
    if key == "chat_template":
        (copied / "chat_template.jinja").unlink()
    else:
        path = copied / "tokenizer_config.json"
        lines = [line for line in path.read_text().splitlines() if "eos_token" not in line]
        path.write_text("\n".join(lines))
    with pytest.raises(PolicyError, match=f"policy is .*{why}"):
        load_policy(str(copied))


def test_a_template_of_ones_own_takes_the_place_of_the_tokenizers(tmp_path):
    path = tmp_path / "own.jinja"
    path.write_text("{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}")
    bad = path.with_name("bad.jinja")
    bad.write_text("{% for m in messages %}")
    with pytest.raises(PolicyError, match=r"chat_template is '.*bad.jinja', which cannot be rende"):
        load_policy("embedded/games", params(chat_template=str(bad)))
    policy = load_policy("embedded/games", params(chat_template=str(path)))
    assert policy.tokenizer.chat_template == path.read_text()


def test_a_fixed_policy_has_the_runs_template_too(tmp_path, copied, tokenizer):
    (copied / "chat_template.jinja").unlink()
    path = tmp_path / "own.jinja"
    path.write_text("{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}")
    assert fixed_engine("rival", str(copied), params(chat_template=str(path)), tokenizer)
    with pytest.raises(PolicyError, match="no chat template"):
        fixed_engine("rival", str(copied), params(), tokenizer)


def test_dropout_is_off(copied, capsys):
    """What is sampled without it is trained without it."""
    path = copied / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attention_dropout": 0.1}))
    model = load_policy(str(copied)).model
    layers = [layer.self_attn.attention_dropout for layer in model.model.layers]
    assert layers and not any(layers)
    assert f"dropout is off in {len(layers)} places" in capsys.readouterr().out
    _without_dropout(torch.nn.Sequential(drop := torch.nn.Dropout(0.2)), "x")
    assert drop.p == 0 and capsys.readouterr().out
    load_policy("embedded/games")
    assert "dropout" not in capsys.readouterr().out


def test_a_missing_package_is_told():
    with pytest.raises(PolicyError, match="backend 'unsloth'.*unsloth"):
        load_policy("embedded/games", params(backend="unsloth", lora_rank=4))


def test_unsloth_is_told_what_a_run_wants(tmp_path, tiny_model, tokenizer, monkeypatch):
    """A stand-in for Unsloth hears it; by itself the dtype would be that of the card."""
    told = []

    class FastLanguageModel:
        def from_pretrained(**values):
            told.append(values)
            return tiny_model, tokenizer

        def get_peft_model(model, **values):
            told.append(values)
            return model

    monkeypatch.setitem(
        sys.modules, "unsloth", SimpleNamespace(FastLanguageModel=FastLanguageModel)
    )
    monkeypatch.setattr("os.environ", dict(os.environ))
    values = dict(backend="unsloth", engine="vllm", dtype="bfloat16", lora_rank=4, seed=7)
    tiny_model.generation_config.eos_token_id = -1
    load_policy("embedded/games", params(**values, max_length=99, gpu_memory=0.3))
    shipped = GenerationConfig.from_pretrained(policy_path("embedded/games"))
    assert tiny_model.generation_config.eos_token_id == shipped.eos_token_id != -1
    model, adapter = told
    assert model["dtype"] is torch.bfloat16 and not model["load_in_4bit"]
    assert (model["max_seq_length"], model["gpu_memory_utilization"]) == (99, 0.3)
    assert model["fast_inference"] and not model["full_finetuning"]
    assert (model["max_lora_rank"], model["max_loras"], model["max_num_seqs"]) == (4, 3, 257)
    assert model["use_exact_model_name"] and model["model_name"] == policy_path("embedded/games")
    assert (adapter["r"], adapter["random_state"]) == (4, 7)
    load_policy("embedded/games", params(**values, max_num_seqs=32))
    assert told[2]["max_num_seqs"] == 32
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    shape = {"r": 4, "lora_alpha": 64, "base_model_name_or_path": policy_path("embedded/games")}
    (adapter / "adapter_config.json").write_text(json.dumps(shape))
    load_policy(str(adapter), params(**values, lora_alpha=64))
    for other in ({"grpo": {"beta": 0.1}}, {"lora_rank": 8}, {"lora_alpha": 32}):
        own = values | {"lora_alpha": 64} | other
        with pytest.raises(PolicyError, match="a LoRA adapter, .* allowed: grpo.beta 0, lora"):
            load_policy(str(adapter), params(**own))
    import_unsloth(True, tmp_path)
    assert os.environ["UNSLOTH_COMPILE_LOCATION"] == str(tmp_path / "unsloth_compiled_cache")
    assert os.environ["UNSLOTH_VLLM_STANDBY"] == "1"


def test_the_engine_of_a_run_is_the_trainers_model(tiny_model, tokenizer):
    unwrap = SimpleNamespace(unwrap_model=lambda model: tiny_model)
    trainer = SimpleNamespace(accelerator=unwrap, model=None, processing_class=tokenizer)
    engine = make_engine(params(), trainer)
    assert isinstance(engine, TorchEngine) and engine.model is tiny_model


def test_snapshots_are_the_weights_bit_by_bit(tiny_model, tmp_path):
    weights = trained_weights(tiny_model)
    save_file(weights, tmp_path / "past.safetensors")
    loaded = load_file(tmp_path / "past.safetensors")
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)
    with torch.no_grad():
        tiny_model.lm_head.weight.mul_(0.5)
    assert not torch.equal(
        trained_weights(tiny_model)["model.embed_tokens.weight"],
        loaded["model.embed_tokens.weight"],
    )
    put_weights(tiny_model, loaded)
    assert all(torch.equal(weights[name], w) for name, w in trained_weights(tiny_model).items())
    with pytest.raises(TrainerError, match="weights that the model lacks: extra"):
        put_weights(tiny_model, {"extra": torch.zeros(1)})


def test_a_past_self_answers_with_its_own_weights_and_puts_the_others_back(tiny_model, tokenizer):
    engine = TorchEngine(tiny_model, tokenizer)
    asked = [Request((5, 6, 7), Sampling(12), seed) for seed in range(4)]
    then, past = engine.generate(asked), trained_weights(tiny_model)
    with torch.no_grad():
        for parameter in tiny_model.parameters():
            parameter.mul_(0.5)
    now = engine.generate(asked)
    assert now != then
    assert SnapshotEngine(engine, tiny_model, past).generate(asked) == then
    assert engine.generate(asked) == now


def test_weights_are_put_back_after_an_error(tiny_model, tokenizer):
    class Broken:
        def generate(self, requests):
            raise RuntimeError("no answer")

    past = {
        name: torch.zeros_like(weights) for name, weights in trained_weights(tiny_model).items()
    }
    before = trained_weights(tiny_model)
    with pytest.raises(RuntimeError, match="no answer"):
        SnapshotEngine(Broken(), tiny_model, past).generate([])
    assert all(
        torch.equal(before[name], weights) for name, weights in trained_weights(tiny_model).items()
    )


def test_a_fixed_engine_has_its_own_weights_and_must_read_the_same_tokens():
    learner = load_policy("embedded/games")
    rival = fixed_engine("rival", "embedded/games-rival", params(lora_rank=4), learner.tokenizer)
    assert not rival.model.training and next(rival.model.parameters()).dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in rival.model.parameters())
    assert not torch.equal(rival.model.lm_head.weight, learner.model.lm_head.weight)
    bf16 = params(dtype="bfloat16")
    half = fixed_engine("rival", "embedded/games-rival", bf16, learner.tokenizer)
    assert half.model.dtype == torch.bfloat16
    with pytest.raises(PolicyError, match="'embedded/player', whose vocabulary is not that of"):
        fixed_engine("rival", "embedded/player", params(), learner.tokenizer)


@pytest.mark.slow
def test_outside_of_a_run_a_gpu_has_bfloat16_and_gives_its_room_to_runs(monkeypatch, tmp_path):
    """Cells of a notebook decode in half the memory, and have left the GPU when a run starts."""
    loaded = load_policy("embedded/games").model
    assert loaded.dtype == torch.float32 and loaded in policies.LOOSE
    assert load_policy("embedded/games", params()).model not in policies.LOOSE
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert plain_params().dtype == "bfloat16"
    done = []
    monkeypatch.setattr(policies, "LOOSE", [SimpleNamespace(to=done.append)])
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    set_aside()
    assert done == [], "CUDA is not in use"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    set_aside()
    assert done == ["cpu", "emptied"]
    monkeypatch.undo()
    monkeypatch.setattr(plan, "set_aside", lambda: done.append("aside"))
    monkeypatch.setattr(plan, "start_together", lambda *_: done.append("started") or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plan.run_all(plan.make_plan("spiral", "smoke", runs=str(tmp_path), seeds=[0]))
    assert done[2:] == ["aside", "started"]

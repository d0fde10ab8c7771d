"""Logits never whole, and updates cut by tokens: TRL's loss and gradient, in less memory."""

import copy
import inspect
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import trl
from test_packing import batch
from test_role_kl import TwoRoles, batches
from test_trainer import Fixed, run_params, saved_model  # noqa: F401
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    TrainerCallback,
)

from spnb.train import logps
from spnb.train.guards import TrainerError
from spnb.train.logps import (
    ALMOST_ALL,
    EntropyMixin,
    LogpsMixin,
    PackingMixin,
    length_groups,
    logps_mixin,
)
from spnb.train.policies import LORA_TARGETS, Policy
from spnb.train.trainer import Hooks, make_trainer

SIZES = dict(
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=8,
    attn_implementation="sdpa",
)


class Gradients(TrainerCallback):
    """Keeps the gradients of each update."""

    def __init__(self):
        self.updates = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        named = model.named_parameters()
        self.updates.append({name: p.grad.clone() for name, p in named if p.grad is not None})


def train(tmp_path, model, tokenizer, peft_config=None, method=None, grpo=None, **values):
    """Metrics and gradients of two steps on `batches()`, and the trainer. Plain SGD, because Adam's
    steps would make rounding large."""
    params = run_params(2, grpo={"optim": "sgd", "learning_rate": 0.3} | (grpo or {}), **values)
    rows, gradients = [], Gradients()
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    method = (method or Fixed)(batches(), params)
    policy = Policy(copy.deepcopy(model), tokenizer, peft_config)
    torch.manual_seed(0)  # of the adapter
    trainer = make_trainer(params, policy, method, {}, hooks, tmp_path)
    trainer.add_callback(gradients)
    trainer.train()
    return rows, gradients.updates, trainer


def assert_as_trls(tmp_path, model, tokenizer, monkeypatch, **values):
    """Rows cut by tokens, and logits of seven positions at a time, beside TRL's own function."""
    monkeypatch.setattr(logps, "POSITIONS", 7)
    expected = train(tmp_path / "trl", model, tokenizer, **values)
    groups = []
    spied = lambda *inputs: groups.append(length_groups(*inputs)) or groups[-1]  # noqa: E731
    monkeypatch.setattr(logps, "length_groups", spied)
    found = train(tmp_path / "cut", model, tokenizer, micro_tokens=30, **values)
    assert not isinstance(expected[2], LogpsMixin) and isinstance(found[2], LogpsMixin)
    assert max(map(len, groups)) > 1
    for ours, trls in zip(found[0], expected[0], strict=True):
        for key in {"loss", "grad_norm", "entropy", "kl"} & trls.keys():
            assert ours[key] == pytest.approx(trls[key], abs=1e-6, rel=1e-6), key
    assert len(found[1]) == len(expected[1]) and expected[1][0]
    for ours, trls in zip(found[1], expected[1], strict=True):
        assert ours.keys() == trls.keys()
        assert max((ours[name] - trls[name]).abs().max() for name in trls) < 1e-6


slow = pytest.mark.slow
SETTINGS = {
    "dr_grpo, pieces": {"gradient_accumulation_steps": 2},
    "grpo, KL, two iterations": {"loss_type": "grpo", "beta": 0.3, "num_iterations": 2},
    "dapo, half of the tokens": {"loss_type": "dapo", "top_entropy_quantile": 0.5},
    "bnpo, entropy bonus": {"loss_type": "bnpo", "entropy_coef": 0.1},
    "cispo, sequences": {"loss_type": "cispo", "importance_sampling_level": "sequence"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "grpo",
    [
        pytest.param(SETTINGS[name], marks=[] if "pieces" in name else slow, id=name)
        for name in SETTINGS
    ],
)
def test_loss_and_gradient_are_trls(tmp_path, saved_model, tokenizer, monkeypatch, grpo):  # noqa: F811
    assert_as_trls(tmp_path, saved_model, tokenizer, monkeypatch, grpo=grpo, temperature=0.7)


@slow
def test_with_an_adapter_its_base_as_reference_and_gradient_checkpointing(
    tmp_path, tiny_model, tokenizer, monkeypatch
):
    from peft import LoraConfig

    config = LoraConfig(r=4, target_modules=list(LORA_TARGETS), task_type="CAUSAL_LM")
    more = {"peft_config": config, "gradient_checkpointing": True, "grpo": {"beta": 0.3}}
    assert_as_trls(tmp_path, tiny_model, tokenizer, monkeypatch, **more)


@slow
@pytest.mark.parametrize("weighted", [False, True])
def test_with_kl_by_role_or_by_weight(tmp_path, saved_model, tokenizer, monkeypatch, weighted):  # noqa: F811
    class Weighted(Fixed):
        kl_weighted = True

    method = Weighted if weighted else TwoRoles
    grpo = {"beta": 0.3, "num_iterations": 2}
    assert_as_trls(tmp_path, saved_model, tokenizer, monkeypatch, method=method, grpo=grpo)


@slow
def test_with_a_head_of_its_own(tmp_path, tokenizer, monkeypatch):
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=700, tie_word_embeddings=False, **SIZES))
    assert_as_trls(tmp_path, model, tokenizer, monkeypatch)


# --- memory


class Peak(TorchDispatchMode):
    """Most bytes alive at a time, of tensors that are made under it and `counts` says count."""

    def __init__(self, counts=lambda tensor: True):
        super().__init__()
        self.counts = counts
        self.live = {}
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else [out]:
            if isinstance(one, torch.Tensor) and self.counts(one):
                storage = one.untyped_storage()
                key = storage.data_ptr()
                if key and key not in self.live:
                    self.live[key] = storage.nbytes()
                    self.peak = max(self.peak, sum(self.live.values()))
                    weakref.finalize(storage, self.live.pop, key, None)
        return out


def bare(*mixins, micro_tokens=None, dtype=None):
    """TRL's trainer with no more than its log-probabilities need; `dtype` is autocast's."""
    trainer = object.__new__(type("Bare", (*mixins, trl.GRPOTrainer), {}))

    def autocast(handler):
        cached = handler.cache_enabled
        return torch.autocast("cpu", dtype, cache_enabled=cached) if dtype else nullcontext()

    trainer.accelerator = SimpleNamespace(
        unwrap_model=lambda model: model, autocast=autocast, is_main_process=True
    )
    trainer.args = SimpleNamespace(steps_per_generation=1)
    trainer.model_kwarg_keys = {"logits_to_keep"}
    trainer.temperature, trainer._entropy_bonus_enabled = 1.0, False
    trainer.micro_tokens = micro_tokens
    return trainer


def update(trainer, model, ids):
    """The gradient of all log-probabilities after each row's first token, with entropies."""
    ask = trainer._get_per_token_logps_and_entropies
    values = ask(model, ids, torch.ones_like(ids), ids.shape[1] - 1, compute_entropy=True)
    values[0].sum().backward()


def peak(trainer, model, ids, counts=lambda tensor: True):
    """The most bytes that an update holds in tensors that count."""
    with Peak(counts) as counted:
        update(trainer, model, ids)
    return counted.peak


VOCABULARY = 1999


@pytest.mark.slow
def test_logits_of_a_row_of_4096_and_a_vocabulary_of_152000_stay_below_4_gb():
    """Counted with a small vocabulary: every tensor that has one number for each of its tokens."""
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, **SIZES | {"num_hidden_layers": 1}))
    ids = torch.randint(VOCABULARY, (1, 4097))
    inputs = (model, ids, lambda tensor: tensor.shape[-1:] == (VOCABULARY,))
    gigabytes = 152_000 / VOCABULARY / 1e9
    if "fused_lm_head" not in inspect.getsource(trl.GRPOTrainer._get_per_token_logps_and_entropies):
        assert peak(bare(), *inputs) * gigabytes > 8  # TRL from 1.14 on has a remedy of its own
    assert 0.5 < peak(bare(LogpsMixin), *inputs) * gigabytes < 4


@pytest.mark.slow
def test_activations_of_one_group_are_in_memory_at_a_time():
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=9, **SIZES))
    ids = torch.randint(9, (16, 65))
    whole = peak(bare(LogpsMixin), model, ids)
    assert peak(bare(LogpsMixin, micro_tokens=2 * 65), model, ids) < whole / 4


def test_without_a_gradient_as_many_rows_run_together_as_in_an_update():
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=9, **SIZES))
    ids, rows = torch.randint(9, (16, 5)), []
    model.model.register_forward_pre_hook(
        lambda module, args, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    trainer = bare(LogpsMixin)
    trainer.args.steps_per_generation = 4
    with torch.no_grad():
        trainer._get_per_token_logps_and_entropies(model, ids, torch.ones_like(ids), 4, 2)
    assert rows == [4] * 4


@pytest.mark.slow
def test_many_pieces_in_bfloat16_add_up_in_float32(monkeypatch):
    """Where casts are cached, the sum of the pieces' gradients is in bfloat16: three times off."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=50, tie_word_embeddings=False, **SIZES))
    ids = torch.randint(50, (4, 129))
    monkeypatch.setattr(logps, "POSITIONS", 2)
    gradients = []
    for dtype in (None, torch.bfloat16):
        model.zero_grad()
        update(bare(LogpsMixin, dtype=dtype), model, ids)
        gradients.append(model.lm_head.weight.grad.clone())
    exact, found = gradients
    assert 1e-4 < (found - exact).norm() / exact.norm() < 0.006


def test_groups_of_tokens_are_sorted_full_and_at_most_so_large():
    _, mask, _ = batch()
    groups = length_groups(mask, 60)
    assert sorted(torch.cat(groups).tolist()) == list(range(len(mask)))
    sizes = []
    for rows in groups:
        first, last = logps._span(mask[rows])
        sizes.append(len(rows) * (last - first))
    assert max(sizes) <= 60 and max(map(len, groups)) > 2
    lengths = torch.cat([mask[rows].sum(dim=1) for rows in groups])
    assert lengths.tolist() == sorted(lengths.tolist())
    assert [len(rows) for rows in length_groups(mask, 1)] == [1] * len(mask)


@pytest.mark.parametrize(
    ("tokens", "sizes"), [(9, [1, 1, 1, 1]), (10, [1, 2, 1]), (18, [1, 3]), (44, [4])]
)
def test_a_group_is_as_wide_as_the_columns_that_its_own_rows_use(tokens, sizes):
    """Of 3, 4, 5 and 6 tokens; the first one stands to the left of the others."""
    mask = torch.zeros(4, 11)
    for row, (first, last) in enumerate([(0, 3), (6, 10), (6, 11), (5, 11)]):
        mask[row, first:last] = 1
    assert [len(rows) for rows in length_groups(mask, tokens)] == sizes


# --- entropies of Unsloth's loss


class Asks:
    """A trainer whose loss, as Unsloth's, has entropies where its arguments want a mask by them."""

    def __init__(self, quantile):
        self.args = SimpleNamespace(top_entropy_quantile=quantile)
        self.top_entropy_quantile = quantile
        self.accelerator = SimpleNamespace(gather=lambda value: value)
        self.model = SimpleNamespace(training=True)
        self._metrics = {"train": {"entropy": []}}

    def get_high_entropy_mask(self, entropies, mask, threshold):
        return mask * (entropies > threshold)


@pytest.mark.parametrize(("quantile", "kept"), [(1.0, [1, 1, 1]), (0.2, [1, 0, 0])])
def test_unsloths_loss_is_asked_for_entropies_and_masks_what_the_run_wants(quantile, kept):
    trainer = type("Trainer", (EntropyMixin, Asks), {})(quantile)
    assert trainer.args.top_entropy_quantile == quantile
    trainer.ask_for_entropies()
    asked = trainer.args.top_entropy_quantile
    assert asked == (ALMOST_ALL if quantile == 1 else quantile) < 1
    entropies, mask = torch.tensor([[2.0, 0.5, 9.0]]), torch.tensor([[1, 1, 0]])
    found = trainer.get_high_entropy_mask(entropies, mask, 1 - asked)
    assert found.tolist() == [kept] and trainer._metrics["train"]["entropy"] == [1.25]


# --- where it is


def test_a_small_vocabulary_on_a_cpu_is_left_to_trl(tiny_model, monkeypatch):
    assert logps_mixin(tiny_model, None) is PackingMixin
    assert logps_mixin(tiny_model, 64) is LogpsMixin
    for tokens, mixin in ((2**14, PackingMixin), (2**14 + 1, LogpsMixin)):
        model = Qwen3ForCausalLM(Qwen3Config(vocab_size=tokens, **SIZES))
        assert logps_mixin(model, None) is mixin
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert logps_mixin(tiny_model, None) is LogpsMixin


@pytest.mark.parametrize("cap", [None, 0.1])
def test_logits_that_a_soft_cap_follows_are_refused(cap):
    model = Gemma2ForCausalLM(Gemma2Config(vocab_size=50, final_logit_softcapping=cap, **SIZES))
    refused = pytest.raises(TrainerError, match="logits of Gemma2ForCausalLM are not its head's")
    with refused if cap else nullcontext():
        assert logps_mixin(model, 64) is LogpsMixin
    assert model.training, "as it was"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"backend": "unsloth", "engine": "vllm", "dtype": "bfloat16", "lora_rank": 8}, "backend"),
        ({"micro_tokens": 0}, "greater than or equal to 1"),
    ],
)
def test_cutting_by_tokens_that_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match=f"micro_tokens(.|\\n)*{message}"):
        run_params(1, **{"micro_tokens": 64} | values)

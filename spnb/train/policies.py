"""The policy: which weights, how they are trained (all or LoRA), and which engine answers for
them."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from spnb.core.params import RunParams
from spnb.core.paths import resolve
from spnb.core.types import Completion, Engine, Request
from spnb.testbed import embedded_path
from spnb.train.engines.torch import TorchEngine

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class PolicyError(ValueError):
    """The policy cannot be trained as it is; the message says why."""


@dataclass
class Policy:
    """A causal LM with its tokenizer; `peft_config` is given to the trainer where LoRA is not
    applied yet."""

    model: Any
    tokenizer: Any
    peft_config: Any = None


def policy_path(name: str) -> str:
    """Where the weights are: "embedded/<name>" ships with the project; else a folder if there is
    one, or a hub id."""
    if name.startswith("embedded/"):
        return str(embedded_path(name.removeprefix("embedded/")))
    folder = resolve(name)
    return str(folder) if folder.is_dir() else name


def policy_fingerprint(name: str) -> str:
    """12 hex digits over a local policy's files, so that a rebuilt one counts as another; for a hub
    id the id."""
    folder = Path(policy_path(name))
    digest = hashlib.sha256()
    if not folder.is_dir():
        return name
    patterns = ("*.safetensors", "tokenizer*.json")
    if not name.startswith(
        "embedded/"
    ):  # in a folder of your own the template or the architecture may change alone
        patterns += ("*.bin", "config.json", "*.jinja")
    for path in [path for pattern in patterns for path in sorted(folder.glob(pattern))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def load_policy(params: RunParams) -> Policy:
    """The policy of a run, in train mode and checked.

    Raises:
        PolicyError: it cannot be loaded, or has no chat template, no pad token, or pad equal to the
            end token.
    """
    path = policy_path(params.policy)
    try:
        policy = (
            _load_unsloth(path, params)
            if params.backend == "unsloth"
            else _load_transformers(path, params)
        )
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise PolicyError(
            f"policy is {params.policy!r}, which cannot be loaded ({reason}); allowed: embedded/<name>, a folder with "
            "a causal LM and its tokenizer, or a hub id that this machine can reach"
        ) from None
    check_tokenizer(policy.tokenizer, params.policy)
    policy.model.train()
    return policy


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Refuses a tokenizer that would train the wrong tokens.

    Raises:
        PolicyError: see `load_policy`.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise PolicyError(
            f"policy is {name!r}, whose tokenizer has no chat template; set tokenizer.chat_template and save it"
        )
    if tokenizer.eos_token_id is None:
        raise PolicyError(
            f"policy is {name!r}, whose tokenizer has no end token (eos_token); set one and save it"
        )
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        raise PolicyError(
            f"policy is {name!r}, whose pad token is {tokenizer.pad_token!r} and end token {tokenizer.eos_token!r}; "
            "allowed: a pad token of its own, else end tokens are left out of the loss as padding"
        )


def _load_transformers(path: str, params: RunParams) -> Policy:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = getattr(torch, params.dtype)
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, quantization_config=_four_bit(params)
    )
    if torch.cuda.is_available() and not params.load_in_4bit:
        model = model.to("cuda")
    return Policy(model, AutoTokenizer.from_pretrained(path), _lora(params))


def _four_bit(params: RunParams) -> Any:
    if not params.load_in_4bit:
        return None
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )


def _lora(params: RunParams) -> Any:
    if params.lora_rank == 0:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=params.lora_rank,
        lora_alpha=params.lora_alpha,
        target_modules=list(LORA_TARGETS),
        task_type="CAUSAL_LM",
    )


def _load_unsloth(path: str, params: RunParams) -> Policy:
    """Unsloth's model, LoRA applied; `import unsloth` here also rebinds `trl.GRPOTrainer` for
    `make_trainer`."""
    from unsloth import FastLanguageModel

    model, tokenizer = FastLanguageModel.from_pretrained(
        model_name=path,
        max_seq_length=params.max_length,
        load_in_4bit=params.load_in_4bit,
        fast_inference=params.engine == "vllm",
        max_lora_rank=params.lora_rank or 64,
        full_finetuning=params.lora_rank == 0,
        gpu_memory_utilization=params.gpu_memory,
    )
    if params.lora_rank:
        model = FastLanguageModel.get_peft_model(
            model,
            r=params.lora_rank,
            lora_alpha=params.lora_alpha,
            target_modules=list(LORA_TARGETS),
            use_gradient_checkpointing="unsloth" if params.gradient_checkpointing else False,
            random_state=params.seed,
        )
    return Policy(model, tokenizer)


def make_engine(params: RunParams, trainer: Any) -> Engine:
    """The engine of a run, answering with the trainer's weights as they are at each call."""
    if params.engine == "vllm":
        from spnb.train.engines.vllm import VLLMEngine

        return VLLMEngine(trainer)
    return TorchEngine(trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class)


def fixed_engine(name: str, params: RunParams, tokenizer: Any) -> TorchEngine:
    """An engine with another policy's weights, which stay as they are; it must read the same
    tokens.

    Raises:
        PolicyError: it cannot be loaded, or has another vocabulary.
    """
    plain = {
        "policy": name,
        "backend": "transformers",
        "lora_rank": 0,
        "gradient_checkpointing": False,
    }
    other = load_policy(params.model_copy(update=plain))
    if other.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise PolicyError(
            f"policy is {name!r}, whose vocabulary is not that of {params.policy!r}; allowed: the same one"
        )
    return TorchEngine(other.model.eval(), other.tokenizer)


def trained_weights(model: Any) -> dict[str, torch.Tensor]:
    """A copy of the weights in training: all of them, or the LoRA adapter."""
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


class SnapshotEngine:
    """Answers with earlier weights of the same model: a past self, without a second copy of the
    model."""

    def __init__(self, engine: Engine, model: Any, weights: dict[str, torch.Tensor]):
        self.engine, self.model, self.weights = engine, model, weights

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers every request, in order; the model has its own weights back afterwards, also on
        errors."""
        with self._swapped():
            return self.engine.generate(requests)

    @contextmanager
    def _swapped(self) -> Iterator[None]:
        current = trained_weights(self.model)
        self._put(self.weights)
        try:
            yield
        finally:
            self._put(current)

    def _put(self, weights: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if name in weights:
                    parameter.copy_(weights[name])

"""Policies: their files, loading them, past selves as snapshots, which engine answers for them.

What only looks at files needs no torch, so that a plan is made without it.
"""

import copy
import gc
import hashlib
import inspect
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from weakref import WeakSet

from jinja2 import TemplateError
from safetensors import SafetensorError

from spnb.core import plugins
from spnb.core.disk import digest
from spnb.core.errors import OneLine
from spnb.core.paths import embedded_path, resolve
from spnb.core.types import Engine
from spnb.corpus.store import told_by
from spnb.evaluate.benchmarks import HUB
from spnb.train.config import RunParams
from spnb.train.engines import named_end_ids, special_ids
from spnb.train.engines.server import Server, ServerEngine

ADAPTER = "adapter_config.json"
OTHER_TOKENS = "whose vocabulary is not that of the policy in training"
ALLOWED = "embedded/<name>, a folder with a causal LM and its tokenizer, or a hub id in reach"
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
OWN_PAD = "<|spnb_pad|>"
PAD_NAMES = ("finetune_right_pad", "fim_pad", "vision_pad", "pad", "reserved")
"""What a special token that may serve as pad is called, best first."""
PLAIN = RunParams.model_construct()
"""How a policy is loaded outside of a run: as the defaults have it."""
LOOSE: WeakSet[Any] = WeakSet()
"""Models that were loaded outside of a run, in a notebook's cells."""


class PolicyError(OneLine, ValueError):
    """The policy cannot be used as it is; the message says why."""


def _fault(source: str, why: str, allowed: str = ALLOWED) -> PolicyError:
    return PolicyError(f"policy is {source!r}, {why}; allowed: {allowed}")


def policy_path(source: str) -> str:
    """Where the weights are: "embedded/<name>" ships with the project, then a folder, or a hub id.

    Raises:
        PolicyError: there is no such embedded policy, no model in the folder, or no such folder.
    """
    if not source.strip():
        raise _fault(source, "which is blank")
    if source.startswith("embedded/"):
        try:
            return str(embedded_path(source.removeprefix("embedded/")))
        except ValueError as error:
            raise PolicyError(f"policy is {source!r}: {error}") from None
    folder = resolve(source)
    if any((folder / name).is_file() for name in ("config.json", ADAPTER)):
        return str(folder)
    if folder.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise _fault(source, f"and {folder} holds no model (config.json)")
    return source


def policy_fingerprint(source: str) -> str:
    """12 hex digits over a local policy's files, so that a rebuilt one counts as another.

    For a hub id it is the id. In a folder of your own the template or the architecture may change
    alone, so these files count there too.
    """
    folder = Path(policy_path(source))
    if not folder.is_dir():
        return source
    patterns = ("*.safetensors", "tokenizer*.json", ADAPTER)
    if not source.startswith("embedded/"):
        patterns += ("*.bin", "config.json", "*.jinja")
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return _joined(tuple((path, path.stat().st_mtime_ns) for path in files))


@cache
def _joined(files: tuple[tuple[Path, int], ...]) -> str:
    """12 hex digits over files one after the other, taken once for the times they were changed."""
    total = hashlib.sha256()
    for path, _ in files:
        with path.open("rb") as file:
            while part := file.read(2**24):
                total.update(part)
    return total.hexdigest()[:12]


def data_fingerprint(source: str | os.PathLike[str]) -> str:
    """12 hex digits over a local file, or over all in a folder, so that a changed one counts as
    another."""
    path = resolve(source)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256("".join(_content(*one) for one in stats).encode()).hexdigest()[:12]


def policy_paths(params: Any) -> list[str]:
    """Where a run's policies come from, as its parameters name them."""
    return list(dict.fromkeys([params.policy, *params.policies.values()]))


def inputs(params: Any) -> dict[str, dict[str, str]]:
    """Fingerprints of a run's policies (`weights`; of one on a server its name) and of all else
    that it reads beside its parameters (`data`)."""
    own = {*params.loaded.values()}
    paths = {name: use.path for name, use in params.benchmarks.items() if use.path != HUB}
    paths |= {source: told_by(source) for source in chain(*params.paths.values())}
    data = {name: data_fingerprint(path) for name, path in paths.items()}
    if params.plugins:
        data["plugins"] = plugins.digest(params.plugins)
    if params.chat_template:
        data["chat_template"] = data_fingerprint(params.chat_template)
    weights = {one: policy_fingerprint(one) if one in own else one for one in policy_paths(params)}
    return {"weights": weights, "data": data}


@cache
def _content(file: str, changed: int) -> str:
    """A file's digest, taken once for the time it was `changed`."""
    return digest(Path(file))


def check_policies(sources: Sequence[str]) -> None:
    """Looks for policies without loading them.

    Raises:
        PolicyError: one is not in reach, or a folder's reads other tokens than the first one's.
    """
    for source in sources:
        if not Path(policy_path(source)).is_dir():
            _check_hub(source)
        elif source != sources[0]:
            known = [_vocabulary(one) for one in (sources[0], source)]
            if all(known) and known[0] != known[1]:
                raise _fault(source, OTHER_TOKENS, "the same one")


def _vocabulary(source: str) -> dict[str, int]:
    """The ids of tokens in a policy's tokenizer.json, {} where there is none."""
    file = Path(policy_path(source)) / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    known = tokenizer.get("model", {}).get("vocab", {})
    if isinstance(known, list):  # of pairs: a token, its score
        known = {token: place for place, (token, _) in enumerate(known)}
    added = {each["content"]: each["id"] for each in tokenizer.get("added_tokens", [])}
    return {token: at for token, at in (known | added).items() if token != OWN_PAD}


@cache
def _check_hub(source: str) -> None:
    """PolicyError for a model that is neither in the hub's cache nor on the hub."""
    import httpx
    from huggingface_hub import constants, file_exists, try_to_load_from_cache

    names = ("config.json", ADAPTER)
    why = "of which the hub has no model"
    try:
        if any(isinstance(try_to_load_from_cache(source, name), str) for name in names):
            return
        if constants.HF_HUB_OFFLINE:
            why = "which is not in the hub's cache, and HF_HUB_OFFLINE is set"
        elif any(file_exists(source, name) for name in names):
            return
    except (OSError, ValueError, httpx.HTTPError) as error:
        why = f"which is not in the hub's cache, and the hub does not answer ({error})"
    raise _fault(source, " ".join(why.split()))


@dataclass
class Policy:
    """A causal LM with its tokenizer; `peft_config` is for a trainer that has to apply LoRA, and
    `merged` says that the weights below it are those of an adapter's folder, merged."""

    model: Any
    tokenizer: Any
    peft_config: Any = None
    merged: bool = False

    def engine(self) -> Engine:
        """An engine that answers with the policy in this process."""
        from spnb.train.engines.torch import TorchEngine

        return TorchEngine(self.model, self.tokenizer)


def load_policy(source: str, params: Any = None, *, trained: bool = True) -> Policy:
    """A policy in train mode, with a chat template, an end token and a pad token of its own.

    Where all weights are trained they are float32, whatever `params.dtype`: a step of 1e-6 is less
    than half of what bfloat16 can tell apart. `params.dtype` is then that of the computation.

    Args:
        source: "embedded/<name>", a folder, or a hub id.
        params: a run's parameters; None: outside of a run, plain weights that stay as they are,
            float32 on a CPU and bfloat16 on a GPU, which they leave when runs start (`set_aside`).
        trained: False for weights that stay as they are.

    Raises:
        PolicyError: it cannot be loaded, or has no chat template, no end token, no room for a pad.
    """
    loose = params is None
    if loose:
        params, trained = plain_params(), False
    path = policy_path(source)
    load = _load_unsloth if params.backend == "unsloth" else _load_transformers
    try:
        policy = load(path, params, trained)
    except ImportError as error:
        why = f"with backend {params.backend!r}, of which a package is not here ({error})"
        raise _fault(source, why, "a backend that is installed") from None
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise _fault(source, f"which cannot be loaded ({reason})") from None
    if params.chat_template:
        policy.tokenizer.chat_template = resolve(params.chat_template).read_text(encoding="utf-8")
        try:
            policy.tokenizer.apply_chat_template(
                [{"role": "user", "content": "Hi"}], tokenize=False
            )
        except TemplateError as error:
            why = f"chat_template is {params.chat_template!r}, which cannot be rendered ({error})"
            raise PolicyError(f"{why}; allowed: a file with a Jinja template") from None
    for name, what in (("chat_template", "chat template"), ("eos_token", "end token")):
        if not getattr(policy.tokenizer, name, None):
            allowed = f"one with tokenizer.{name} set and saved"
            raise _fault(source, f"whose tokenizer has no {what}", allowed)
    give_pad(policy.model, policy.tokenizer, source)
    policy.model.train()
    if loose:
        LOOSE.add(policy.model)
    return policy


def plain_params() -> RunParams:
    """How a policy is loaded outside of a run on this machine."""
    import torch

    dtype = "bfloat16" if torch.cuda.is_available() else "float32"
    return PLAIN.model_copy(update={"dtype": dtype})


def set_aside() -> None:
    """Takes what cells have loaded off the GPU, and gives back what torch keeps of it there: a run
    is another process, and needs the room."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    for model in LOOSE:
        model.to("cpu")
    gc.collect()
    torch.cuda.empty_cache()


def give_pad(model: Any, tokenizer: Any, source: str) -> None:
    """Gives the tokenizer a pad token that never occurs in text, if it has none; prints which.

    A pad that is also an end token would be left out of the loss as padding (by Unsloth), and rows
    would not end there. It is set on the tokenizer and so is saved with the model.

    Raises:
        PolicyError: no special token is spare, and the embedding has no free row for a new one.
    """
    ends = named_end_ids(model, tokenizer)
    before = tokenizer.pad_token
    if before is not None and tokenizer.pad_token_id not in ends:
        return
    rows = model.get_input_embeddings().weight.shape[0]
    used = {tokenizer.bos_token, tokenizer.unk_token}
    spare = [
        token
        for index, token in sorted(special_ids(tokenizer).items())
        if index < rows and index not in ends and token not in used
        if token not in tokenizer.chat_template
    ]
    spare.sort(key=lambda token: [name not in token.lower() for name in PAD_NAMES])
    if spare:
        tokenizer.pad_token = spare[0]
    elif len(tokenizer) < rows:
        tokenizer.add_special_tokens({"pad_token": OWN_PAD})
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id in ends:
        none = f"with no spare special token and no free row in its embedding of {rows}"
        why = f"whose pad token is {before!r}, {none}"
        raise _fault(source, why, "a pad token that ends nothing")
    model.config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    print(f"policy {source}: pad token is now {tokenizer.pad_token!r} (was {before!r})")


def _load_transformers(path: str, params: Any, trained: bool) -> Policy:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # noise in logs, dead widgets in saved notebooks

    lora = params.lora_rank > 0
    dtype = torch.float32 if trained and not lora else getattr(torch, params.dtype)
    merged = has_adapter(path)
    cls = AutoModelForCausalLM
    if merged:
        from peft import AutoPeftModelForCausalLM as cls  # noqa: N813
    model = cls.from_pretrained(path, dtype=dtype, trust_remote_code=False)
    _without_dropout(model, path)
    if merged:  # a LoRA run's final weights: the next run trains an adapter of its own, or all
        model = model.merge_and_unload().requires_grad_(True)
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise _fault(path, "whose model keeps no past_key_values", "one with attention")
    if torch.cuda.is_available():
        model = model.to("cuda")
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if not (trained and lora):
        return Policy(model, tokenizer)
    from peft import LoraConfig

    return Policy(model, tokenizer, LoraConfig(**_lora(params), task_type="CAUSAL_LM"), merged)


def _without_dropout(model: Any, source: str) -> None:
    """Turns dropout off, of layers (`p`) and of attention: what was sampled without it is trained
    without it."""
    places = [
        (module, name)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, float) and value
        if "dropout" in name or (name == "p" and "Dropout" in type(module).__name__)
    ]
    for module, name in places:
        setattr(module, name, 0.0)
    if places:
        print(f"policy {source}: dropout is off in {len(places)} places")


def has_adapter(source: str) -> bool:
    """Whether a policy is the folder of a LoRA adapter."""
    return (Path(policy_path(source)) / ADAPTER).is_file()


def save_policy(trainer: Any, folder: Path) -> None:
    """Saves the policy in training: all weights, or the adapter, whose folder names the weights
    below it; where these are `Policy.merged` no folder has them, and all are saved as one model."""
    if not trainer.merged:
        return trainer.save_model(str(folder))
    if trainer.accelerator.is_main_process:
        model = copy.deepcopy(trainer.accelerator.unwrap_model(trainer.model))
        model.merge_and_unload().save_pretrained(folder)
        trainer.processing_class.save_pretrained(folder)


def _lora(params: Any) -> dict[str, Any]:
    names = list(LORA_TARGETS)
    return {"r": params.lora_rank, "lora_alpha": params.lora_alpha, "target_modules": names}


def _load_unsloth(path: str, params: Any, trained: bool) -> Policy:
    loader = import_unsloth(params.vllm_sleep)
    import torch
    from transformers import GenerationConfig

    from spnb.train.engines.vllm import ADAPTERS

    if has_adapter(path) and trained:
        own = json.loads((Path(path) / ADAPTER).read_text())
        shape = {"r": params.lora_rank, "lora_alpha": params.lora_alpha}
        if params.grpo.get("beta") or {key: own[key] for key in shape} != shape:
            why = "a LoRA adapter, which backend unsloth trains on and holds to the weights below"
            allowed = f"grpo.beta 0, lora_rank {own['r']} and lora_alpha {own['lora_alpha']}, or "
            raise _fault(path, why, allowed + "backend transformers")
    model, tokenizer = loader.from_pretrained(
        model_name=path,
        use_exact_model_name=True,  # else the files of a repository of its own
        max_seq_length=params.max_length,
        dtype=getattr(torch, params.dtype),
        load_in_4bit=False,
        fast_inference=params.engine == "vllm",
        max_lora_rank=params.lora_rank or 64,
        max_num_seqs=params.sequences + (params.sequences == 256),  # 256: as many as it chooses
        max_loras=ADAPTERS,
        full_finetuning=params.lora_rank == 0,
        gpu_memory_utilization=params.gpu_memory,
        trust_remote_code=False,
    )
    if params.lora_rank and trained:
        model = loader.get_peft_model(
            model,
            **_lora(params),
            use_gradient_checkpointing="unsloth" if params.gradient_checkpointing else False,
            random_state=params.seed,
        )
    if has_adapter(path):
        path = json.loads((Path(path) / ADAPTER).read_text())["base_model_name_or_path"]
    with suppress(OSError):  # beside vLLM it makes one of its own, with the first of the end tokens
        model.generation_config = GenerationConfig.from_pretrained(path)
    return Policy(model, tokenizer)


def import_unsloth(sleeps: bool | None, folder: Path | None = None) -> Any:
    """Unsloth's `FastLanguageModel`; the import also rebinds `trl.GRPOTrainer`.

    A process that trains with it has it before transformers, peft and trl, which it rewrites, and
    before CUDA starts, whose allocator it sets. Whether vLLM sleeps is told to it by the
    environment, and that `gpu_memory` counts then too; so is the `folder` for its generated code,
    else the working directory.
    """
    standby = str(int(bool(sleeps)))
    os.environ |= {"UNSLOTH_VLLM_STANDBY": standby, "UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE": "1"}
    if folder is not None:
        os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", str(folder / "unsloth_compiled_cache"))
    from unsloth import FastLanguageModel

    return FastLanguageModel


def make_engine(params: Any, trainer: Any) -> Engine:
    """The engine of a run, answering with the trainer's weights as they are at each call."""
    if params.engine == "vllm":
        from spnb.train.engines.vllm import VLLMEngine

        return VLLMEngine(trainer)
    model = trainer.accelerator.unwrap_model(trainer.model)
    return Policy(model, trainer.processing_class).engine()


def same_tokens(source: str, other: Any, tokenizer: Any) -> None:
    """Raises PolicyError where a policy's tokenizer, the `other`, has another vocabulary."""
    if other.get_vocab() != tokenizer.get_vocab():
        raise _fault(source, OTHER_TOKENS, "the same one")


def fixed_engine(name: str, source: str, params: Any, tokenizer: Any) -> Engine:
    """An engine with another policy's weights, which stay as they are, here or on its server.

    Raises:
        PolicyError: it cannot be loaded, or does not read the same tokens as `tokenizer`.
        TrainerError: the same of a server (see `ServerEngine`).
    """
    if name in params.servers:
        return ServerEngine(Server(name, source, params.servers[name]), tokenizer)
    same = {"dtype": params.dtype, "chat_template": params.chat_template}
    other = load_policy(source, PLAIN.model_copy(update=same), trained=False)
    same_tokens(source, other.tokenizer, tokenizer)
    other.model.eval().requires_grad_(False)
    return other.engine()

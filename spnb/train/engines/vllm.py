"""The vLLM engine: requests answered by the vLLM that shares the GPU and the process with a TRL
trainer.

vLLM takes requests at any time and says which are answered after each token (`proceed`), so that
episodes go on one by one. A LoRA adapter is part of a request: the policy in training gets a new
one whenever its weights changed, an earlier self keeps its own, and several of them answer in one
batch. Where all weights are trained, the engine decides when vLLM must take them over. Without
either it would silently sample older weights, or the base model without its adapter.

Processes that train together have a vLLM each, for their share; none waits for another's.

It ran on a CPU alone (`make vllm`), with the model runner that `spnb.train.engines` asks for.
`guards.EngineWatch` compares rollouts of every run with the trainer; `guards.check_adapter` sees at
the start whether an adapter is in use.

Same seed, same completion holds on a CPU; on a GPU vLLM's sums depend on what else is in the batch.
The random numbers are vLLM's own: a seed gives other completions here than with the torch engine.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from spnb.core.types import Completion, Engine, Request
from spnb.train.config import RunParams
from spnb.train.engines import NOTHING, end_ids, for_vllm, new_token_limits, text_of
from spnb.train.weights import SnapshotEngine, Weights, trained_weights, write_adapter

LOGPROBS_MODE = "processed_logprobs"
"""Log-probabilities after the temperature, as TRL and Unsloth start vLLM; "raw_logprobs" would be
those at 1."""
ADAPTERS = 3
"""Adapters that answer in one batch: the policy in training, its past, one more."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM makes room for."""


class VLLMEngine:
    """Generates with the vLLM of a `trl.GRPOTrainer` in colocate mode, always with its weights.

    Args:
        trainer: made with `use_vllm=True`, `vllm_mode="colocate"`; its model may be loaded by
            Unsloth with `fast_inference=True`. Where its vLLM was started with LoRA the model has
            an adapter, and the weights below it are vLLM's.

    Raises:
        ValueError: vLLM was started with log-probabilities of another kind than `LOGPROBS_MODE`, or
            forgets the prefixes that prompts share.
    """

    def __init__(self, trainer: Any):
        self.trainer = trainer
        self._model = trainer.accelerator.unwrap_model(trainer.model)
        self._vllm = trainer.vllm_generation.llm.llm_engine
        self._weights: tuple[int, int] | None = None
        config = self._vllm.vllm_config
        self._limit = config.model_config.max_model_len
        self._by_adapter = config.lora_config is not None
        self._sleeps = config.model_config.enable_sleep_mode
        self._adapter: Any = None
        self._earlier: dict[str, Any] = {}
        self._written = 0
        self._open: dict[str, tuple[int, Request]] = {}
        self.end_ids = end_ids(self._model, trainer.processing_class)
        for name, value, allowed in (
            ("logprobs_mode", config.model_config.logprobs_mode, LOGPROBS_MODE),
            ("enable_prefix_caching", config.cache_config.enable_prefix_caching, True),
        ):
            if value != allowed:
                raise ValueError(f"vLLM's {name} is {value!r}; allowed: {allowed!r}")

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """See `Engine` and `proceed`."""
        answers = self.proceed(dict(enumerate(requests)))
        while self._open:
            answers |= self.proceed({})
        return [answers[number] for number in range(len(requests))]

    def proceed(self, requests: Mapping[int, Request]) -> dict[int, Completion]:
        """Takes further requests by their numbers, writes a token of each that is open, and returns
        the answers that are there now, by number.

        Each is answered with the adapter of the policy that it names, or with the weights in
        training as they were when the first of those that are open came. The log-probabilities are
        those at the sampling temperature (at 1 for greedy requests). Where `top_p` or `top_k` cut,
        vLLM's are renormalised over what was left. The loss has them over the whole vocabulary, so
        there they are NaN, which TRL and Unsloth take for a ratio of 1 between engine and trainer.
        """
        if requests and not self._open:
            self._get_ready()
        limits = new_token_limits([*requests.values()], self._limit)
        answers: dict[int, Completion] = {}
        for (number, request), limit in zip(requests.items(), limits, strict=True):
            if not limit:
                answers[number] = NOTHING
                continue
            prompt = {"type": "token", "prompt_token_ids": list(request.prompt_ids)}
            params = sampling_params(request, limit, self.end_ids)
            adapter = self._earlier.get(request.policy, self._adapter)
            self._open[str(number)] = number, request
            self._vllm.add_request(str(number), prompt, params, lora_request=adapter)
        for output in self._vllm.step() if self._open else ():
            number, request = self._open.pop(output.request_id)
            answers[number] = self._completion(request, output.outputs[0])
        return answers

    def abort(self) -> None:
        """Gives up what is open."""
        self._vllm.abort_request([*self._open])
        self._open = {}

    def sleep(self) -> None:
        """Gives vLLM's memory to an update, until the next request, where it was started for that.

        Keys and values are forgotten. Below an adapter the weights wait in the machine's memory,
        or stay where they are if Unsloth's trainer has them too (its standby); full weights are
        forgotten too, as they are pushed again after the update.
        """
        if self._sleeps and not self._vllm.is_sleeping():
            self._vllm.sleep(level=1 if self._by_adapter else 2)

    def _get_ready(self) -> None:
        """Wakes vLLM if it sleeps, and gives it the weights in training if it has others. They come
        before room for keys and values, so that a push does not need both at once."""
        asleep = self._vllm.is_sleeping()
        if asleep:
            torch.cuda.empty_cache()
            self._vllm.wake_up(None if self._by_adapter else ["weights"])
        if self._weights != self._in_training() or (asleep and not self._by_adapter):
            self.sync()
        if self._vllm.is_sleeping():
            self._vllm.wake_up(["kv_cache"])

    def snapshot(self, name: str, weights: Weights) -> Engine:
        """An engine that answers requests to a policy of this name with earlier weights: this one,
        with an adapter more, or one that puts them into the model for as long as that takes."""
        if not self._by_adapter:
            return SnapshotEngine(self, self._model, weights)
        self._earlier[name] = self._written_adapter(name, weights)
        return self

    def sync(self) -> None:
        """Takes over the trainer's weights; `proceed` does it by itself where torch sees a change.

        Full weights cost one copy of the model, and so does each turn between the policy and a
        snapshot of it. An adapter costs a small file.
        """
        if self._by_adapter:
            self._adapter = self._written_adapter("in_training", trained_weights(self._model))
        else:
            below = self._below
            self.trainer.vllm_generation.sync_weights()
            for name, weight in self._model.named_parameters():
                if name in below:
                    weight.data.copy_(below[name])
        self._weights = self._in_training()

    @cached_property
    def _below(self) -> Weights:
        """The weights below an adapter that TRL merges to give vLLM all: to add and to subtract it
        in bfloat16 leaves others."""
        if not self.trainer.merged:
            return {}
        weights = self._model.named_parameters()
        return {n: w.detach().to("cpu", copy=True) for n, w in weights if ".base_layer." in n}

    def _written_adapter(self, name: str, weights: Weights) -> Any:
        """Adapter weights as a `vllm.lora.request.LoRARequest`, None for those that change nothing.

        Its number is new each time, so that vLLM reads it, and finds no prefix that another one
        left.
        """
        from vllm.lora.request import LoRARequest

        if not any(value.any() for key, value in weights.items() if "lora_B" in key):
            return None
        folder = f"vllm_adapters_{self.trainer.accelerator.process_index}"
        path = Path(self.trainer.args.output_dir).resolve() / folder / name
        write_adapter(self._model, weights, path)
        self._written += 1
        return LoRARequest(f"{name}-{self._written}", self._written, str(path))

    def _in_training(self) -> tuple[int, int]:
        """Changes with the weights: by an optimiser step (8-bit ones write past torch's counter) or
        in place."""
        changes = sum(p._version for p in self._model.parameters() if p.requires_grad)
        return self.trainer.state.global_step, changes

    def _completion(self, request: Request, output: Any) -> Completion:
        ids = tuple(output.token_ids)
        pairs = zip(ids, output.logprobs, strict=True)
        logps = tuple(math.nan if is_cut(request) else of[token].logprob for token, of in pairs)
        text = text_of(ids, self.end_ids, self.trainer.processing_class)
        return Completion(ids, logps, text, output.finish_reason)


def vllm_settings(params: RunParams, merged: bool = False) -> dict[str, Any]:
    """How a run starts vLLM beside what TRL says: dtype, room for answers, prefixes kept, adapters.

    By itself vLLM has the dtype of the policy's files, whatever the trainer computes in.

    Args:
        merged: the weights below the adapter are in no file that vLLM could read (see
            `spnb.train.policies.Policy`); TRL gives it all weights then, merged.
    """
    settings = {"dtype": params.dtype, "max_num_seqs": params.sequences}
    settings |= {"enable_prefix_caching": True, "enable_sleep_mode": bool(params.vllm_sleep)}
    if not params.lora_rank or merged:
        return settings
    rank = next((rank for rank in RANKS if rank >= params.lora_rank), params.lora_rank)
    return settings | {"enable_lora": True, "max_loras": ADAPTERS, "max_lora_rank": rank}


@contextmanager
def starting(settings: Mapping[str, Any]) -> Iterator[None]:
    """While it lasts, TRL starts vLLM with these settings."""
    from trl.generation import vllm_generation

    made = vllm_generation.LLM
    vllm_generation.LLM = lambda **more: made(**more | settings)
    try:
        yield
    finally:
        vllm_generation.LLM = made


def is_cut(request: Request) -> bool:
    """Whether the request draws from a part of the vocabulary only; greedy ones do not draw."""
    sampling = request.sampling
    return sampling.temperature > 0 and (sampling.top_p < 1 or sampling.top_k > 0)


def sampling_params(request: Request, limit: int, ends: Collection[int]) -> Any:
    """A request as `vllm.SamplingParams`; text is decoded on the way only to find a stop string.

    `logprobs=0` asks for the sampled token's alone, the only number that Unsloth's vLLM allows.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        **for_vllm(request, limit, ends),
        ignore_eos=True,
        logprobs=0,
        detokenize=bool(request.sampling.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )

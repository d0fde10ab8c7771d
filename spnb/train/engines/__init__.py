"""Engines answer requests: token ids in, token ids and log-probabilities out.

Shared by all of them: which tokens end a completion, and how many new ones a request may have.
"""

import logging
import os
from collections.abc import Collection, Sequence
from typing import Any

from spnb.core.types import OVERLONG, Completion, Request

os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
"""vLLM's first model runner, until a GPU's self-test has passed with the second. Its tests on a CPU
run the first; on a GPU vLLM would take the second for models without experts."""
NOTHING = Completion((), (), "", OVERLONG)
"""The answer to a prompt that leaves no room for one."""
MARK = "spnb"
"""An assistant's words in the rendering that shows how the chat template ends a turn."""


def named_end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """All tokens that are said to end a completion.

    These are the tokenizer's end token, those of the model's generation_config, and the special
    token that the chat template puts after an assistant's turn. A base model's own end token is
    often not the one that its chat template ends turns with.
    """
    ids = {tokenizer.eos_token_id, _turn_end(tokenizer)}
    listed = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids |= set(listed) if isinstance(listed, (list, tuple)) else {listed}
    return frozenset(ids - {None})


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens at which an engine ends a completion: all that are named, without the pad token.

    `load_policy` gives a pad that is an end token another meaning, so there nothing is left out.
    """
    named = named_end_ids(model, tokenizer)
    pad = tokenizer.pad_token_id
    return named if pad == tokenizer.eos_token_id else named - {pad}


def special_ids(tokenizer: Any) -> dict[int, str]:
    """The tokenizer's special tokens by id, also those that are only added ones."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    tokens = {index: token.content for index, token in added.items() if token.special}
    return tokens | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))


def _turn_end(tokenizer: Any) -> int | None:
    """The first special token after an assistant's words, None where there is no such token."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": MARK}]
    _, mark, tail = tokenizer.apply_chat_template(turns, tokenize=False).rpartition(MARK)
    ids = tokenizer(tail, add_special_tokens=False)["input_ids"] if mark else []
    special = special_ids(tokenizer)
    return next((index for index in ids if index in special), None)


def new_token_limits(requests: Sequence[Request], limit: int | None) -> list[int]:
    """How many tokens each request may get: what it asks for, or what still fits after its prompt,
    which may be none; ValueError for an empty prompt."""
    if not all(request.prompt_ids for request in requests):
        raise ValueError("a request has 0 prompt tokens; allowed: 1 or more")
    wanted = [request.sampling.max_new_tokens for request in requests]
    if limit is None:
        return wanted
    room = [max(0, limit - len(request.prompt_ids)) for request in requests]
    if long := room.count(0):
        logging.warning("%d prompts of %d tokens or more are not asked (no room)", long, limit)
    return list(map(min, wanted, room))


def for_vllm(request: Request, limit: int, ends: Collection[int]) -> dict[str, Any]:
    """What a request is in vLLM's words, those of its engine and of its server."""
    sampling = request.sampling
    return {
        "max_tokens": limit,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": request.seed,
        "stop": list(sampling.stop),
        "include_stop_str_in_output": True,
        "stop_token_ids": sorted(ends),
        "skip_special_tokens": False,
    }


def text_of(ids: Sequence[int], ends: Collection[int], tokenizer: Any) -> str:
    """The text of a completion, without the end token."""
    return tokenizer.decode(ids[:-1] if ids[-1] in ends else ids)

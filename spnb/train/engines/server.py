"""The server engine: a policy that is never trained answers from a vLLM server of its own.

    vllm serve Qwen/Qwen3-32B --port 8000

A judge, a strong challenger or a rival then needs no room on the card that trains. Requests go as
token ids to vLLM's OpenAI-compatible completions, so that the policy reads what it would read here.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spnb.core.types import Completion, Request
from spnb.train.config import TrainerError
from spnb.train.engines import NOTHING, end_ids, for_vllm, new_token_limits, special_ids, text_of

AT_ONCE = 64
"""Requests that wait for a server together."""
PATIENCE = 600.0
"""Seconds in which a server has to answer."""
CONNECT = 10.0
"""Seconds in which it has to take a connection."""
RETRIES = 2
"""How often a request that failed is repeated."""


class Server:
    """A vLLM server, asked in its own words; the client repeats what fails, `RETRIES` times.

    Args:
        name: of the policy in the run.
        model: as the server names it.
        address: "http://host:port".
    """

    def __init__(self, name: str, model: str, address: str, patience: float = PATIENCE):
        from httpx import Timeout
        from openai import OpenAI

        self.what = f"policies.{name} is {model!r}, served at {address}"
        self.model = model
        self.patience = patience
        wait = Timeout(patience, connect=min(patience, CONNECT))
        key = {"api_key": "none"}  # vLLM asks for none
        self._client = OpenAI(base_url=address, timeout=wait, max_retries=RETRIES, **key)

    def limit(self) -> int | None:
        """The most tokens of a prompt and its answer.

        Raises:
            TrainerError: the server does not answer, or has another model.
        """
        listed = self._asked(lambda: self._client.get("/v1/models", cast_to=object))
        models = {one["id"]: one for one in self._of(listed, "data")}
        if self.model not in models:
            raise TrainerError(f"{self.what}, which has {', '.join(models)}; allowed: that model")
        return models[self.model].get("max_model_len")

    def post(self, path: str, **body: Any) -> Any:
        """What the server answers to a question about its model.

        Raises:
            TrainerError: nothing in time, or an error.
        """
        body |= {"model": self.model, "add_special_tokens": False}
        return self._asked(lambda: self._client.post(path, body=body, cast_to=object))

    def tokens(self, text: str) -> list[int]:
        """The token ids of a text."""
        return self._of(self.post("/tokenize", prompt=text), "tokens")

    def complete(self, **body: Any) -> tuple[list[int], str]:
        """The token ids of one completion, its end token included, and how it ended."""
        (choice,) = self._of(self.post("/v1/completions", return_token_ids=True, **body), "choices")
        return self._of(choice, "token_ids"), self._of(choice, "finish_reason")

    def _asked(self, call: Callable[[], Any]) -> Any:
        from openai import APIConnectionError, APIError, APITimeoutError

        try:
            return call()
        except APITimeoutError:
            why = f"gives no answer within {self.patience:g} seconds, {RETRIES + 1} times"
        except APIConnectionError as error:
            why = f"cannot be reached ({error.__cause__ or error})"
        except (APIError, ValueError) as error:
            why = f"answers with an error ({' '.join(str(error).split())[:300]})"
        start = f"a server that was started there with `vllm serve {self.model}`"
        raise TrainerError(f"{self.what}, which {why}; allowed: {start}")

    def _of(self, answer: Any, key: str) -> Any:
        if not isinstance(answer, dict) or answer.get(key) is None:
            raise TrainerError(f"{self.what}, whose answer has no {key}; allowed: a vLLM server")
        return answer[key]


class ServerEngine:
    """Answers with the policy of a vLLM server, which reads the same tokens as the run's own.

    Raises:
        TrainerError: the server does not answer, has another model, or one of other tokens.
    """

    def __init__(self, server: Server, tokenizer: Any):
        self.server = server
        self.tokenizer = tokenizer
        self._limit = server.limit()
        self._ends = end_ids(None, tokenizer)
        self._special = special_ids(tokenizer)
        added = "".join(tokenizer.get_added_vocab())
        text = f"{added} The words of 12,345 tokens: größer, 言葉.\n"
        if server.tokens(text) != tokenizer(text, add_special_tokens=False)["input_ids"]:
            other = "whose vocabulary is not that of the policy in training"
            raise TrainerError(f"{server.what}, {other}; allowed: the same one")

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """See `Engine`; `AT_ONCE` at a time, log-probabilities are NaN. TrainerError where the
        server gives no answer in time, or an error."""
        limits = new_token_limits(requests, self._limit)
        pool = ThreadPoolExecutor(AT_ONCE)
        try:
            return list(pool.map(self._answer, requests, limits))
        finally:
            pool.shutdown(cancel_futures=True)

    def _answer(self, request: Request, limit: int) -> Completion:
        """Nothing is left to the server's own defaults, which are those of the model's files; it
        also ends an answer at the end tokens that these name."""
        if not limit:
            return NOTHING
        asked = for_vllm(request, limit, self._ends) | {"prompt": list(request.prompt_ids)}
        ids, finish = self.server.complete(**asked, min_p=0.0, repetition_penalty=1.0)
        ends = self._special if finish == "stop" else ()
        text = text_of(ids, ends, self.tokenizer)
        return Completion(tuple(ids), (math.nan,) * len(ids), text, finish)

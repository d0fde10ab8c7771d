"""Retrieval over HTTP in Search-R1's schema: a small server for any retriever, and a client that is
a retriever.

    POST /retrieve  {"queries": [str], "topk": int | null, "return_scores": bool}
        -> {"result": [[{"document": {"id", "contents"}, "score": float}, ...], ...]}    with
        return_scores -> {"result": [[{"id", "contents"}, ...], ...]}
        without
    GET /status -> "ok"

Search-R1's own server answers wrongly without scores; here both ways hold what the schema says. The
server is for a trusted network: it listens on the loopback by default and knows no users.
"""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, StrictBool, StrictInt, StrictStr

from spnb.corpus.retrieval import Hit, Retriever, check_request
from spnb.corpus.store import Passage, split_contents

logger = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Limits:
    """What one request may ask for. `topk` is used where a request has none (Search-R1's default is
    3).

    Raises:
        ValueError: a value below 1, or topk above max_k.
    """

    max_queries: int = 512
    max_length: int = 4096
    max_k: int = 100
    topk: int = 3

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: an integer, 1 or more")
        if self.topk > self.max_k:
            raise ValueError(f"topk is {self.topk}; allowed: 1 to max_k, which is {self.max_k}")

    @property
    def max_bytes(self) -> int:
        """The longest body that keeps within the limits: twelve bytes a character, JSON's longest
        escape."""
        return 1024 + self.max_queries * (12 * self.max_length + 8)

    def refusal(self, queries: Sequence[str], k: int) -> str | None:
        """Why a well-formed request is refused; None where it is not."""
        if len(queries) > self.max_queries:
            return f"queries has {len(queries)} entries; allowed: up to {self.max_queries}"
        for place, query in enumerate(queries):
            if len(query) > self.max_length:
                return f"queries[{place}] has {len(query)} characters; allowed: up to {self.max_length}"
            if re.search("[\ud800-\udfff]", query):
                return f"queries[{place}] has half of a surrogate pair; allowed: Unicode text"
        return (
            None
            if 1 <= k <= self.max_k
            else f"topk is {k}; allowed: 1 to {self.max_k}, or null for {self.topk}"
        )


class RetrieveRequest(BaseModel):
    """The body of POST /retrieve. Other keys are refused, so that a misspelt one is not silently
    ignored."""

    model_config = ConfigDict(extra="forbid")
    queries: list[StrictStr]
    topk: StrictInt | None = None
    return_scores: StrictBool = False


def create_app(retriever: Retriever, limits: Limits | None = None) -> Any:
    """The FastAPI application. A malformed request, or one beyond the limits, gets 400, 413 or 422
    and the reason.

    A search that fails is a 500 with the reason, and its traceback goes to the log.
    """
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.middleware.body_limit import RequestBodyLimitMiddleware

    limits = limits or Limits()
    app = FastAPI(title="retriever", docs_url=None, redoc_url=None)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=limits.max_bytes)

    @app.exception_handler(RequestValidationError)
    def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": _reason(error.errors())}, status_code=422)

    @app.get("/status")
    def status() -> str:
        return "ok"

    @app.post("/retrieve")
    def retrieve(request: RetrieveRequest) -> JSONResponse:
        k = limits.topk if request.topk is None else request.topk
        refusal = limits.refusal(request.queries, k)
        if refusal:
            raise HTTPException(422, refusal)
        try:
            found = retriever.search(request.queries, k)
        except Exception as error:
            logger.exception("search failed")
            raise HTTPException(500, f"search failed: {type(error).__name__}: {error}") from error
        return JSONResponse(
            {"result": [[_entry(hit, request.return_scores) for hit in hits] for hits in found]}
        )

    return app


def _reason(errors: Sequence[Any]) -> str:
    """The first errors of a body as one line; what was sent is not repeated."""
    shown = [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in errors[:3]]
    return "; ".join(shown) + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")


def _entry(hit: Hit, scores: bool) -> dict[str, Any]:
    document = {"id": hit.id, "contents": Passage(hit.id, hit.title, hit.text).contents}
    return {"document": document, "score": hit.score} if scores else document


def serve(
    retriever: Retriever,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    log_level: str = "warning",
) -> None:
    """Answers requests until it is interrupted; only this machine can reach it unless `host` says
    otherwise.

    Raises:
        ValueError: port outside 1 to 65535.
    """
    import uvicorn

    if not 1 <= port <= 65535:
        raise ValueError(f"port is {port}; allowed: 1 to 65535")
    uvicorn.run(create_app(retriever, limits), host=host, port=port, log_level=log_level)


class RetrieverError(RuntimeError):
    """A retrieval server could not be reached, kept failing, or answered in another schema."""


class RetrieverClient:
    """A retriever behind a URL that speaks Search-R1's schema. Safe to share between threads.

    A lost connection, a timeout, 429 and 5xx are tried again after 1, 2, 4 … times `wait` seconds,
    at most 10; other refusals are not. Loopback addresses bypass a configured proxy.

    Args:
        url: of the server, "http://127.0.0.1:8000"; "/retrieve" is added where it is not there.
        return_scores: ask for scores; without, every hit's score is None.
        attempts: in all, for one request.
        wait: seconds before the second attempt.
        timeout: seconds for one attempt to connect, send or receive.
        batch: queries a request; more are sent in several.

    Raises:
        ValueError: a URL that is not http or https, or attempts, wait, timeout or batch out of
            range.
    """

    def __init__(
        self,
        url: str,
        return_scores: bool = True,
        attempts: int = 5,
        wait: float = 0.5,
        timeout: float = 60.0,
        batch: int = 256,
    ):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is {url!r}; allowed: http://host:port or https://host:port")
        for name, value, low in (("attempts", attempts, 1), ("wait", wait, 0), ("batch", batch, 1)):
            if value < low:
                raise ValueError(f"{name} is {value!r}; allowed: {low} or more")
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout!r}; allowed: above 0 seconds")
        self.url = url.rstrip("/").removesuffix("/retrieve") + "/retrieve"
        self._return_scores, self._attempts, self._wait, self._batch = (
            return_scores,
            attempts,
            wait,
            batch,
        )
        self._http = httpx.Client(timeout=timeout, trust_env=parts.hostname not in LOOPBACK)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first.

        Raises:
            ValueError: queries or k not of the right type, or refused by the server (its reason is
                repeated).
            RetrieverError: no answer after all attempts, or one in another schema.
        """
        check_request(queries, k)
        found: list[list[Hit]] = []
        for first in range(0, len(queries), self._batch):
            asked = list(queries[first : first + self._batch])
            reply = self._post({"queries": asked, "topk": k, "return_scores": self._return_scores})
            found += self._hits(reply, len(asked))
        return found

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        """The reply to a request, tried again where that can help."""
        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(min(10.0, self._wait * 2 ** (attempt - 1)))
            try:
                reply = self._http.post(self.url, json=body)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if reply.status_code == 200:
                return reply
            problem = f"status {reply.status_code}: {reply.text[:300]}"
            if 400 <= reply.status_code < 500 and reply.status_code != 429:
                raise ValueError(f"{self.url} refused the request with {problem}")
        raise RetrieverError(
            f"{self.url} gave no answer in {self._attempts} attempts; the last: {problem}"
        )

    def _hits(self, reply: httpx.Response, count: int) -> list[list[Hit]]:
        """The hits that a reply holds for `count` queries."""
        try:
            found = [[self._hit(entry) for entry in entries] for entries in reply.json()["result"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RetrieverError(
                f"{self.url} answered in another schema ({error!r}): {reply.text[:300]}; allowed: Search-R1's"
            ) from error
        if len(found) != count:
            raise RetrieverError(
                f"{self.url} answered {len(found)} of {count} queries; allowed: all of them"
            )
        return found

    def _hit(self, entry: dict[str, Any]) -> Hit:
        document = entry["document"] if self._return_scores else entry
        title, text = split_contents(document["contents"])
        return Hit(
            str(document["id"]), title, text, float(entry["score"]) if self._return_scores else None
        )

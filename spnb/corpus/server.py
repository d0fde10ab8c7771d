"""Retrieval over HTTP in Search-R1's schema: a server for any retriever, and a client that is one.

    POST /retrieve  {"queries": [str], "topk": int | null, "return_scores": bool}
        with scores     {"result": [[{"document": {"id", "contents"}, "score": float}, ...], ...]}
        without scores  {"result": [[{"id", "contents"}, ...], ...]}
    GET /status  "ok"

Search-R1's own server answers wrongly without scores. This one is for a trusted network: it listens
on the loopback by default and knows no users.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from spnb.core.search import Hit, Retriever
from spnb.corpus.retrieval import check_request
from spnb.corpus.store import Passage, split_contents

logger = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
GRACE = 5
"""Seconds that requests under way may take when the server is told to stop."""


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how many connections there may be; one more gets 503.

    `topk` is used where a request has none (Search-R1's default is 3). `max_bytes` of a body are
    enough for all queries with every character escaped.

    Raises:
        ValueError: a value below 1, or topk above max_k.
    """

    max_queries: int = 512
    max_length: int = 4096
    max_k: int = 100
    topk: int = 3
    max_bytes: int = 2**25
    max_connections: int = 256

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: 1 or more")
        if self.topk > self.max_k:
            raise ValueError(f"topk is {self.topk}; allowed: 1 to max_k, which is {self.max_k}")


def create_app(retriever: Retriever, limits: Limits | None = None) -> Any:
    """The FastAPI application. A malformed request, or one beyond the limits, gets 400, 413 or 422
    and the reason; a search that fails is a 500, and its traceback goes to the log."""
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.middleware.body_limit import RequestBodyLimitMiddleware

    limits = limits or Limits()
    app = FastAPI(title="retriever", docs_url=None, redoc_url=None)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=limits.max_bytes)
    query = Annotated[StrictStr, Field(max_length=limits.max_length)]
    count = Annotated[StrictInt, Field(ge=1, le=limits.max_k)]

    class Body(BaseModel):
        model_config = ConfigDict(extra="forbid")  # a misspelt key is not silently ignored
        queries: Annotated[list[query], Field(max_length=limits.max_queries)]
        topk: count | None = None
        return_scores: StrictBool = False

    @app.exception_handler(RequestValidationError)
    def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        places = (".".join(map(str, each["loc"])) for each in error.errors()[:3])
        reasons = (each["msg"] for each in error.errors())
        detail = "; ".join(f"{place}: {why}" for place, why in zip(places, reasons, strict=False))
        return JSONResponse({"detail": detail}, status_code=422)

    @app.get("/status")
    def status() -> str:
        return "ok"

    @app.post("/retrieve")
    def retrieve(body: Body) -> JSONResponse:
        try:
            results = retriever.search(body.queries, body.topk or limits.topk)
        except Exception as error:
            logger.exception("search failed")
            raise HTTPException(500, f"search failed: {type(error).__name__}: {error}") from error
        entries = [[_entry(hit, body.return_scores) for hit in hits] for hits in results]
        return JSONResponse({"result": entries})

    return app


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
    limits = limits or Limits()
    uvicorn.run(
        create_app(retriever, limits),
        host=host,
        port=port,
        log_level=log_level,
        limit_concurrency=limits.max_connections,
        timeout_graceful_shutdown=GRACE,
    )


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
        ValueError: a URL that is not http or https, or another value out of range.
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
        limits = {"attempts": (attempts, 1), "wait": (wait, 0), "timeout": (timeout, 0.001)}
        for name, (value, least) in {**limits, "batch": (batch, 1)}.items():
            if value < least:
                raise ValueError(f"{name} is {value!r}; allowed: {least} or more")
        self.url = url.rstrip("/").removesuffix("/retrieve") + "/retrieve"
        self._return_scores = return_scores
        self._attempts = attempts
        self._wait = wait
        self._batch = batch
        self._http = httpx.Client(timeout=timeout, trust_env=parts.hostname not in LOOPBACK)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first.

        Raises:
            ValueError: queries or k not of the right type, or refused by the server (its reason is
                repeated).
            RetrieverError: no answer after all attempts, or one in another schema.
        """
        check_request(queries, k)
        results: list[list[Hit]] = []
        for first in range(0, len(queries), self._batch):
            part = list(queries[first : first + self._batch])
            body = {"queries": part, "topk": k, "return_scores": self._return_scores}
            results += self._hits(self._post(body), len(part))
        return results

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
        tried = f"gave no answer in {self._attempts} attempts"
        raise RetrieverError(f"{self.url} {tried}; the last: {problem}")

    def _hits(self, reply: httpx.Response, count: int) -> list[list[Hit]]:
        """The hits that a reply holds for `count` queries."""
        try:
            results = [[self._hit(entry) for entry in hits] for hits in reply.json()["result"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"answered in another schema ({error!r}): {reply.text[:300]}"
            raise RetrieverError(f"{self.url} {what}; allowed: Search-R1's") from error
        if len(results) != count:
            raise RetrieverError(f"{self.url} answered {len(results)} of {count} queries")
        return results

    def _hit(self, entry: dict[str, Any]) -> Hit:
        document = entry["document"] if self._return_scores else entry
        score = float(entry["score"]) if self._return_scores else None
        return Hit(str(document["id"]), *split_contents(document["contents"]), score)

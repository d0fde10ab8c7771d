"""Retrieval over HTTP in Search-R1's schema: a server for any retriever, and a client that is one.

    POST /retrieve  {"queries": [str], "topk": int | null, "return_scores": bool}
        with scores     {"result": [[{"document": {"id", "contents"}, "score": float}, ...], ...]}
        without scores  {"result": [[{"id", "contents"}, ...], ...]}
    GET /status  "ok"

For a trusted network: it listens on the loopback by default and knows no users. Who sends no whole
request is dropped after `PATIENCE`, or as soon as the place is needed.
"""

import logging
import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
from pydantic import Field, PositiveInt

from spnb.core.params import ParamError, StrictData
from spnb.core.search import Hit, Retriever, RetrieverError
from spnb.corpus.retrieval import check_request
from spnb.corpus.store import contents_of, split_contents

TOPK = 3
"""Hits where a request has no `topk`, as in Search-R1; fewer where fewer are allowed."""
GRACE = 1
"""Seconds that searches under way may take when the server is told to stop."""
PATIENCE = 5.0
"""Seconds in which a request has to arrive in whole, headers and body."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Hosts that a request may name where the server is bound to one of them: a page in a browser that
made its own name lead here names another."""
BATCH = 256
"""Queries that the client puts into one request."""
ATTEMPTS = 5
WAIT = 0.5
TIMEOUT = 60.0
"""The client's tries for one request, the first wait between two, seconds of one."""


class Limits(StrictData):
    """What one request may hold, and how many connections there may be; one more closes the one
    that has waited longest for its request, itself where all others search."""

    max_queries: PositiveInt = 512
    max_length: PositiveInt = 4096
    max_k: PositiveInt = 100
    max_bytes: PositiveInt = 2**25
    max_connections: PositiveInt = 256


def create_app(
    retriever: Retriever, limits: Limits | None = None, hosts: Sequence[str] = ()
) -> Any:
    """The FastAPI application. A malformed request, or one beyond the limits, gets 400, 413 or 422
    and the reason, one for another host than `hosts` (if there are any) 421; a search that fails is
    a 500, and its traceback goes to the log."""
    from fastapi import Depends, FastAPI, HTTPException, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.middleware.body_limit import RequestBodyLimitMiddleware

    limits = limits or Limits()

    def known_host(request: Request) -> None:
        named = re.sub(":[0-9]+$", "", request.headers.get("host", "")).lower()
        if hosts and named not in hosts:
            raise HTTPException(421, f"host is {named!r}; allowed: {', '.join(hosts)}")

    known = [Depends(known_host)]
    app = FastAPI(title="retriever", docs_url=None, redoc_url=None, dependencies=known)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=limits.max_bytes)
    query = Annotated[str, Field(max_length=limits.max_length)]

    class Body(StrictData, strict=True):
        queries: Annotated[list[query], Field(max_length=limits.max_queries)]
        topk: Annotated[int, Field(ge=1, le=limits.max_k)] | None = None
        return_scores: bool = False

    @app.exception_handler(RequestValidationError)
    def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        faults = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        return JSONResponse({"detail": "; ".join(faults[:3])}, 422)

    def entry(hit: Hit, scores: bool) -> dict[str, Any]:
        document = {"id": hit.id, "contents": contents_of(hit)}
        return {"document": document, "score": hit.score} if scores else document

    @app.get("/status")
    def status() -> str:
        return "ok"

    @app.post("/retrieve")
    def retrieve(body: Body) -> JSONResponse:
        try:
            results = retriever.search(body.queries, body.topk or min(TOPK, limits.max_k))
        except Exception as error:
            logging.exception("search failed")
            raise HTTPException(500, f"search failed: {type(error).__name__}: {error}") from error
        entries = [[entry(hit, body.return_scores) for hit in hits] for hits in results]
        return JSONResponse({"result": entries})

    return app


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; who connects before `serve` answers waits.

    Raises:
        ParamError: the port is taken, or the host is no address of this machine.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(found[0][4][:2], family=found[0][0])
    except OSError as error:
        why = f"which cannot be listened on ({error.strerror})"
        allowed = "allowed: an address of this machine and a free port"
        raise ParamError(f"host is {host!r} and port {port}, {why}; {allowed}") from None


def serve(retriever: Retriever, listener: socket.socket, limits: Limits | None = None) -> None:
    """Answers requests at a socket of `bind` until it is interrupted."""
    import uvicorn

    limits = limits or Limits()
    address = listener.getsockname()[0]
    hosts = (*LOOPBACK, address, socket.gethostname().lower())
    config = uvicorn.Config(
        create_app(retriever, limits, hosts if ip_address(address).is_loopback else ()),
        http=_connection(limits.max_connections),
        log_level="warning",
        timeout_graceful_shutdown=GRACE,
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def _connection(most: int) -> type:
    """uvicorn's connection, with a time limit for a request to arrive, at most so many at once."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.expect()
            there = [one for one in self.connections if not one.transport.is_closing()]
            if len(there) > most:
                waiting = [one for one in there if one.waiting]
                min(waiting, key=lambda one: one.deadline.when()).transport.close()

        def expect(self) -> None:
            give_up = lambda: self.waiting and self.transport.close()  # noqa: E731
            self.deadline = self.loop.call_later(PATIENCE, give_up)

        @property
        def waiting(self) -> bool:
            """Whether no request is here in whole and unanswered."""
            done = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
            return done and not self.transport.is_closing()

        def on_response_complete(self) -> None:
            self.deadline.cancel()
            self.expect()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self.deadline.cancel()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            self.transport.close() if self.waiting else super().shutdown()

    return Connection


class RetrieverClient:
    """A retriever behind a URL that speaks Search-R1's schema; threads may share it.

    A lost connection, a timeout, a body that cannot be unpacked, 429 and 5xx are tried again after
    1, 2, 4 … times `WAIT` seconds, at most 10; other refusals are not. Loopback addresses bypass a
    configured proxy. `url`: of the server, "http://127.0.0.1:8000", http or https.
    """

    def __init__(self, url: str):
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url is {url!r}; allowed: http://host:port or https://host:port")
        self.url = url.rstrip("/").removesuffix("/retrieve") + "/retrieve"
        own = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        self._http = httpx.Client(timeout=TIMEOUT, trust_env=not own)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most `k` hits, best first.

        Raises:
            ValueError: queries or k of another type, or refused by the server, with its reason.
            RetrieverError: no answer after all attempts, or one in another schema.
        """
        check_request(queries, k)
        results: list[list[Hit]] = []
        for first in range(0, len(queries), BATCH):
            part = list(queries[first : first + BATCH])
            reply = self._post({"queries": part, "topk": k, "return_scores": True})
            try:
                found = reply.json()["result"]
                hits = [[_hit(entry) for entry in own[:k]] for own in found]
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                what = f"answered in another schema ({error!r}): {reply.text[:300]}"
                raise RetrieverError(f"{self.url} {what}; allowed: Search-R1's") from error
            if len(hits) != len(part):
                raise RetrieverError(f"{self.url} answered {len(hits)} of {len(part)} queries")
            results += hits
        return results

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        """The reply to a request, tried again where that can help."""
        problem = ""
        for attempt in range(ATTEMPTS):
            time.sleep(min(10.0, WAIT * 2 ** (attempt - 1)) if attempt else 0)
            try:
                reply = self._http.post(self.url, json=body)
            except httpx.RequestError as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if reply.status_code == 200:
                return reply
            problem = f"status {reply.status_code}: {reply.text[:300]}"
            if 400 <= reply.status_code < 500 and reply.status_code != 429:
                raise ValueError(f"{self.url} refused the request with {problem}")
        attempts = f"gave no answer in {ATTEMPTS} attempts"
        raise RetrieverError(f"{self.url} {attempts}; the last: {problem}")


def _hit(entry: dict[str, Any]) -> Hit:
    document = entry["document"]
    contents = split_contents(document["contents"])
    return Hit(str(document["id"]), *contents, float(entry["score"]))

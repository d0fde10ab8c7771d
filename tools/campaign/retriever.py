"""The retrieval server among malformed requests, many clients, and connections that say nothing."""

import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from serving import HALVES, opened, serving

from tools.campaign import Part
from tools.campaign.malformed import mutated

GOOD = '{"queries": ["red fish", "blue \\u00e9"], "topk": 2, "return_scores": true}'
BOUND = 2.0
"""Seconds that a good request may take, whatever else is going on."""


def retriever(part: Part) -> None:
    """Malformed requests, 32 clients at once among them, 300 half-open connections."""
    with serving() as (process, address), httpx.Client(trust_env=False, timeout=10) as client:
        url = f"http://{address[0]}:{address[1]}/retrieve"
        bodies = itertools.islice(mutated([GOOD], part.random), part.of(500))
        bad = [body.encode(errors="surrogatepass") for body in bodies]
        for body in bad:
            _malformed(part, client, url, body)
        count = part.of(32)
        with ThreadPoolExecutor(count) as pool:
            for outcome in pool.map(lambda n: _asks(url, n, bad), range(count)):
                _good(part, "at once", *outcome)
        clients = opened(address, *itertools.islice(itertools.cycle(HALVES), part.of(300)))
        part.about["half-open connections"] += len(clients)
        for number in range(part.of(20)):
            _good(part, "beside half-open connections", *_asks(url, number, ()))
        for one in clients:
            one.close()
        alive = process.poll() is None
        part.end("survived" if alive else "lost", f"the server ended with {process.poll()}")


def _malformed(part: Part, client: httpx.Client, url: str, body: bytes) -> None:
    """A request with a body that is probably not valid: a reason, or what a valid one gets."""
    headers = {"content-type": "application/json"}
    try:
        status = client.post(url, content=body, headers=headers).status_code
    except httpx.HTTPError as error:
        status = repr(error)
    part.about["malformed"] += 1
    fine = status in (400, 413, 422) or (status == 200 and _is_valid(body))
    part.end("survived" if fine else "wrong", f"status {status} for {body[:300]!r}")


def _is_valid(body: bytes) -> bool:
    try:
        given = json.loads(body)
    except ValueError:
        return False
    if not isinstance(given, dict) or not set(given) <= {"queries", "topk", "return_scores"}:
        return False
    queries = given.get("queries")
    return isinstance(queries, list) and all(isinstance(query, str) for query in queries)


def _asks(url: str, number: int, bad: list[bytes]) -> tuple[bool, float]:
    """A client's good requests between malformed ones: whether its answers are its own, and how
    long the slowest took."""
    slowest, right = 0.0, True
    with httpx.Client(trust_env=False, timeout=10) as client:
        for turn in range(4):
            for body in bad[turn :: len(bad) // 4 + 1]:
                client.post(url, content=body)
            queries = [f"query {number} {turn}", f"{turn}"]
            begun = time.monotonic()
            reply = client.post(url, json={"queries": queries})
            slowest = max(slowest, time.monotonic() - begun)
            found = reply.json().get("result", [])
            right &= [[hit["id"] for hit in hits] for hits in found] == [[one] for one in queries]
    return right, slowest


def _good(part: Part, where: str, right: bool, seconds: float) -> None:
    part.about[where] += 1
    fine = right and seconds < BOUND
    part.end("survived" if fine else "wrong", f"{where}: right {right}, {seconds:.1f} s")

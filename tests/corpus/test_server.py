"""The retrieval server and its client: the schema both ways, limits, many clients at once, bounded
retries."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import uvicorn
from serving import HALVES, HEAD, opened, serving
from typer.testing import CliRunner

from spnb import cli
from spnb.core.search import Hit
from spnb.corpus.retrieval import make_retriever
from spnb.corpus.server import Limits, RetrieverClient, RetrieverError, bind, create_app, serve

CORPUS = [
    {"id": "a", "title": "Arn", "text": "red fox"},
    {"id": "b", "title": "Bor", "text": "red fish\nblue fish"},
    {"id": "c", "title": 'Ço "x"', "text": "blauer Fisch, 青い魚"},
]
JSON = {"content-type": "application/json"}
LIMITS = Limits(max_queries=8, max_length=50, max_k=5, max_bytes=10_000)


@contextmanager
def running(app):
    """The address of an application on a free port of the loopback."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


@contextmanager
def replying(*replies):
    """A server that gives these (status, body, headers ...) replies in order, the last one for
    ever; yields address and requests."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            status, body, *headers = replies[min(len(seen), len(replies)) - 1]
            self.send_response(status)
            for header in headers:
                self.send_header(*header)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def local():
    return make_retriever("bm25", CORPUS)


@pytest.fixture(scope="module")
def address(local):
    with running(create_app(local, LIMITS)) as url:
        yield url


@pytest.fixture(scope="module")
def http():
    with httpx.Client(trust_env=False) as client:
        yield client


@pytest.fixture
def patience(monkeypatch):
    """Sets the client's attempts, wait and timeout."""

    def of(**values):
        for name, value in values.items():
            monkeypatch.setattr(f"spnb.corpus.server.{name.upper()}", value)

    return of


def post(http, address, **body):
    return http.post(f"{address}/retrieve", json=body)


def test_the_schema_with_scores(http, address, local):
    reply = post(http, address, queries=["red fish", "nothing"], topk=1, return_scores=True)
    score = local.search(["red fish"], 1)[0][0].score
    expected = {
        "document": {"id": "b", "contents": '"Bor"\nred fish\nblue fish'},
        "score": pytest.approx(score),
    }
    assert reply.status_code == 200 and reply.json() == {"result": [[expected], []]}


def test_the_schema_without_scores_also_for_two_queries(http, address):
    reply = post(http, address, queries=["fox", "青い魚"])
    assert reply.json() == {
        "result": [
            [{"id": "a", "contents": '"Arn"\nred fox'}],
            [{"id": "c", "contents": '"Ço "x""\nblauer Fisch, 青い魚'}],
        ]
    }


def test_topk_may_be_null_or_absent_and_no_queries_have_no_results(http, address):
    for body in ({"topk": None}, {}):
        assert (
            len(post(http, address, queries=["red arn bor fisch"], **body).json()["result"][0]) == 3
        )
    assert post(http, address, queries=[]).json() == {"result": []}
    assert post(http, address, queries=["", " "], topk=5).json() == {"result": [[], []]}


def test_the_usual_number_of_hits_keeps_to_the_limit(http, local):
    with running(create_app(local, Limits(max_k=2))) as url:
        reply = post(http, url, queries=["red arn bor fisch"])
    assert len(reply.json()["result"][0]) == 2


def ask(address, host="localhost", query="red"):
    """The status of a good request, on a connection of its own."""
    url = f"http://{address[0]}:{address[1]}/retrieve"
    body = {"queries": [query]}
    return httpx.post(
        url, json=body, headers={"host": host}, trust_env=False, timeout=30
    ).status_code


@pytest.fixture(scope="module")
def served_here():
    """The address of one echoing server for several tests."""
    with serving() as (_, address):
        yield address


@pytest.mark.slow
def test_half_a_request_is_dropped_in_time_and_a_search_may_take_longer():
    with serving() as (_, address):
        started = time.monotonic()
        clients = opened(address, *HALVES)
        clients[2].sendall(b"x: y\r\n")
        assert ask(address, query="sleep 1.5") == 200
        assert [client.recv(10) for client in clients] == [b""] * len(HALVES)
        assert time.monotonic() - started >= 1.0


@pytest.mark.slow
def test_a_connection_that_is_kept_gets_its_time_anew():
    with serving() as (_, address):
        client = HTTPConnection(*address, timeout=10)
        for _ in range(3):
            client.request("POST", "/retrieve", '{"queries": [""]}', JSON)
            assert client.getresponse().read().startswith(b'{"result"')
            time.sleep(0.4)
        client.sock.sendall(HEAD)
        assert client.sock.recv(10) == b""


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_connections_that_only_wait_do_not_keep_others_out(served_here, half):
    clients = opened(served_here, *[half] * 300)
    assert [ask(served_here) for _ in range(5)] == [200] * 5
    assert len(clients) == 300


@pytest.mark.slow
def test_a_connection_more_than_allowed_never_ends_a_search():
    search = HEAD + b'content-length: 24\r\n\r\n{"queries": ["sleep 2"]}'
    with serving(3) as (process, address):
        clients = opened(address, *[search] * 3)
        assert [process.stdout.readline() for _ in clients] == ["searching\n"] * 3
        (more,) = opened(address, b"")
        assert more.recv(999) == b""
        assert all(client.recv(999).startswith(b"HTTP/1.1 200") for client in clients)
        assert ask(address) == 200


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_half_a_request_does_not_block_the_end(half):
    with serving() as (process, address):
        clients = opened(address, half, b"", HALVES[-1])
        assert ask(address) == 200
        started = time.monotonic()
        process.terminate()
        assert process.wait(timeout=10) == -15 and time.monotonic() - started < 3
        assert process.stderr.read() == "" and len(clients) == 3


@pytest.mark.slow
def test_only_names_of_this_machine_are_answered_on_the_loopback():
    with serving() as (_, address):
        own = [
            f"{name}{port}"
            for name in ("localhost", "127.0.0.1", "[::1]")
            for port in ("", ":8000")
        ]
        assert [ask(address, host) for host in own] == [200] * 6
        others = (
            "evil.example",
            "localhost.evil.example",
            "evil.example:8000",
            "evil.example:99999",
        )
        assert [ask(address, host) for host in (*others, "[::1", "localhost@x", "::1")] == [421] * 7
        assert ask(address, socket.gethostname()) == 200


def test_a_server_on_another_loopback_address_answers_to_it(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": "a", "title": "", "text": "rivers"}))
    with bind("127.0.1.1", 0) as listener:
        address = f"http://127.0.1.1:{listener.getsockname()[1]}"
        work = (make_retriever("bm25", str(path)), listener)
        threading.Thread(target=serve, args=work, daemon=True).start()
        (hits,) = RetrieverClient(address).search(["rivers"], 1)
    assert [hit.id for hit in hits] == ["a"]


def test_a_taken_port_and_a_strange_host_are_named():
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"host is '127.0.0.1' and port {port}, which cannot"):
            bind("127.0.0.1", port)
    with pytest.raises(ValueError, match="host is '192.0.2.7' and port 8000, which .* allowed: an"):
        bind("192.0.2.7", 8000)


def test_the_command_says_at_once_that_a_port_is_taken(tmp_path):
    with bind("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(cli.app, ["serve-retriever", str(tmp_path), "--port", port])
    assert done.exit_code == 2 and done.stdout == ""
    assert (
        done.stderr.count("\n") == 1 and f"port {port}, which cannot be listened on" in done.stderr
    )


def test_status(http, address):
    assert http.get(f"{address}/status").json() == "ok"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "body.queries: Field required"),
        ({"queries": "red"}, "body.queries: Input should be a valid list"),
        ({"queries": None}, "body.queries: Input should be a valid list"),
        ({"queries": ["red", 3]}, "body.queries.1: Input should be a valid string"),
        ({"queries": [["red"]]}, "body.queries.0: Input should be a valid string"),
        ({"queries": ["red"], "topk": "3"}, "body.topk: Input should be a valid integer"),
        ({"queries": ["red"], "topk": 1.5}, "body.topk: Input should be a valid integer"),
        ({"queries": ["red"], "topk": True}, "body.topk: Input should be a valid integer"),
        (
            {"queries": ["red"], "return_scores": "yes"},
            "body.return_scores: Input should be a valid boolean",
        ),
        ({"queries": ["red"], "top_k": 3}, "body.top_k: Extra inputs are not permitted"),
        ({"queries": [1, 2, 3, 4, 5]}, "body.queries.2: Input should be a valid string"),
        ({"queries": ["red"] * 9}, "body.queries: List should have at most 8 items"),
        (
            {"queries": ["red", "x" * 51]},
            "body.queries.1: String should have at most 50 characters",
        ),
        ({"queries": ["red"], "topk": 0}, "body.topk: Input should be greater than or equal to 1"),
        ({"queries": ["red"], "topk": -1}, "body.topk: Input should be greater than or equal to 1"),
        ({"queries": ["red"], "topk": 10**9}, "body.topk: Input should be less than or equal to 5"),
        ({"queries": ["red"], "topk": 10**40}, "less than or equal to 5"),
        ({"queries": ["red \ud800"]}, "body.queries.0: Input should be a valid string"),
        (["red"], "body: Input should be a valid dictionary"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(http, address, body, message):
    reply = http.post(f"{address}/retrieve", content=json.dumps(body), headers=JSON)
    assert reply.status_code == 422
    assert isinstance(reply.json()["detail"], str) and message in reply.json()["detail"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"queries": ["a"',
        b"\xff\xfe",
        b'{"queries": ["\xff"]}',
        b'{"queries": ["\\ud800"]}',
        b"[" * 3000,
    ],
)
def test_a_body_that_is_no_json_is_refused(http, address, content):
    reply = http.post(f"{address}/retrieve", content=content, headers=JSON)
    assert reply.status_code in (400, 422)
    assert reply.json()["detail"]


def test_a_huge_body_is_refused_before_it_is_read(http, address):
    for content in (b" " * (LIMITS.max_bytes + 1), iter([b" " * LIMITS.max_bytes, b" "])):
        reply = http.post(f"{address}/retrieve", content=content, headers=JSON)
        assert reply.status_code == 413 and reply.text


def test_the_longest_allowed_request_passes_however_it_is_escaped(http, address):
    body = json.dumps(
        {"queries": ["\U0001f600" * 50] * 8, "topk": 5, "return_scores": True}, indent=1
    )
    assert http.post(f"{address}/retrieve", content=body, headers=JSON).status_code == 200


def test_other_paths_and_methods(http, address):
    assert http.get(f"{address}/retrieve").status_code == 405
    assert http.post(f"{address}/other", json={}).status_code == 404


@pytest.mark.slow
def test_sixteen_clients_at_once_get_their_own_answers(address, local, patience):
    patience(attempts=1)
    words = ["red", "fox", "fish", "blue", "arn", "bor", "fisch", "x"]

    def ask(number):
        client = RetrieverClient(address)
        for turn in range(10):
            queries = [words[(number + turn + i) % 8] for i in range(1 + number % 4)]
            assert client.search(queries, 3) == rounded(local.search(queries, 3))
        return True

    def rounded(found):
        return [
            [Hit(h.id, h.title, h.text, pytest.approx(h.score)) for h in hits] for hits in found
        ]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(16)))


@pytest.mark.slow
def test_sixteen_clients_at_once_on_the_dense_index():
    local = make_retriever("flat", CORPUS)
    with running(create_app(local, LIMITS)) as url, ThreadPoolExecutor(16) as pool:
        queries = [f"{word} of {i}" for i, word in enumerate(["red", "fish", "fox", "blue"] * 4)]
        found = list(pool.map(lambda query: RetrieverClient(url).search([query], 3)[0], queries))
    expected = [local.search([query], 3)[0] for query in queries]
    assert [[h.id for h in hits] for hits in found] == [[h.id for h in hits] for hits in expected]


def test_malformed_requests_among_good_ones_harm_nobody(http, address):
    def ask(number):
        body = {"queries": ["fox"]} if number % 2 else {"queries": number}
        return post(http, address, **body).status_code

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(64))) == [422, 200] * 32


def test_the_client_is_the_same_retriever(address, local, monkeypatch):
    queries = ["red", "fish", "青い魚", "nothing"]
    expected = local.search(queries, 2)
    assert RetrieverClient(address + "/").search(queries, 2) == expected
    monkeypatch.setattr("spnb.corpus.server.BATCH", 3)
    assert RetrieverClient(address).search(queries, 2) == expected
    assert RetrieverClient(address).search([], 2) == []


def test_the_client_repeats_the_servers_reason_without_a_retry(address, patience):
    patience(wait=60)
    with pytest.raises(
        ValueError,
        match="refused the request with status 422.*topk: Input should be less than or equal to 5",
    ):
        RetrieverClient(address).search(["fox"], 6)
    with pytest.raises(ValueError, match="queries is 'fox'; allowed: a list of strings"):
        RetrieverClient(address).search("fox", 1)


def test_a_dead_server_is_given_up_after_all_attempts(patience):
    patience(attempts=3, wait=0.05)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        start = time.perf_counter()
        with pytest.raises(
            RetrieverError, match="gave no answer in 3 attempts; the last: ConnectError"
        ):
            RetrieverClient(url).search(["fox"], 1)
    assert 0.15 <= time.perf_counter() - start < 5


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_failing_server_is_asked_attempts_times(status, patience):
    patience(attempts=4, wait=0.01)
    with replying((status, b"down")) as (url, seen):
        with pytest.raises(RetrieverError, match=f"in 4 attempts; the last: status {status}: down"):
            RetrieverClient(url).search(["fox"], 1)
        assert seen == [{"queries": ["fox"], "topk": 1, "return_scores": True}] * 4


def test_a_server_that_recovers_is_believed(patience):
    patience(wait=0.01)
    good = b'{"result": [[{"document": {"id": 7, "contents": "\\"T\\"\\nx"}, "score": 2}]]}'
    with replying((500, b""), (503, b""), (200, good)) as (url, seen):
        assert RetrieverClient(url).search(["fox"], 1) == [[Hit("7", "T", "x", 2.0)]]
        assert len(seen) == 3


def test_a_slow_server_times_out(patience):
    patience(attempts=2, wait=0.01, timeout=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RetrieverError, match="in 2 attempts; the last: ReadTimeout"):
            RetrieverClient(url).search(["fox"], 1)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b"{}",
        b'{"result": [[{"id": "a"}]]}',
        b'{"result": [[7]]}',
        b'{"result": [["document"]]}',
        b'{"result": ' + b"[" * 100_000,
    ],
)
def test_another_schema_is_an_error(body):
    with (
        replying((200, body)) as (url, _),
        pytest.raises(RetrieverError, match="answered in another schema"),
    ):
        RetrieverClient(url).search(["fox"], 1)


def test_a_body_that_cannot_be_unpacked_is_tried_again_and_then_an_error(patience):
    patience(wait=0)
    broken = (200, b"no gzip", ("content-encoding", "gzip"))
    with replying(broken, (200, b'{"result": [[]]}')) as (url, seen):
        assert RetrieverClient(url).search(["fox"], 1) == [[]] and len(seen) == 2
    with replying(broken) as (url, _), pytest.raises(RetrieverError, match="DecodingError"):
        RetrieverClient(url).search(["fox"], 1)


def test_hits_beyond_k_are_cut():
    hits = [{"document": {"id": str(n), "contents": "x"}, "score": 1} for n in range(3)]
    with replying((200, json.dumps({"result": [hits, hits[:1]]}).encode())) as (url, _):
        found = RetrieverClient(url).search(["fox", "fish"], 2)
    assert [[hit.id for hit in each] for each in found] == [["0", "1"], ["0"]]


def test_a_missing_answer_is_an_error():
    with (
        replying((200, b'{"result": []}')) as (url, _),
        pytest.raises(RetrieverError, match="answered 0 of 1 queries"),
    ):
        RetrieverClient(url).search(["fox"], 1)


def test_a_failing_retriever_is_a_500_and_the_server_lives(http):
    class Fails:
        def search(self, queries, k):
            raise OSError("disk")

    with running(create_app(Fails(), LIMITS)) as url:
        reply = post(http, url, queries=["fox"])
        assert reply.status_code == 500 and reply.json()["detail"] == "search failed: OSError: disk"
        assert http.get(f"{url}/status").json() == "ok"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Limits(max_queries=0), r"max_queries\n.*greater than 0 .*input_value=0"),
        (lambda: RetrieverClient("localhost:8000"), "url is 'localhost:8000'; allowed: http"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()

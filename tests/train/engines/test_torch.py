"""The torch engine against transformers, and the promises it makes about batches."""

import random
from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen3Config

from spnb.core.types import Request, Sampling, Trajectory
from spnb.lab import decoder
from spnb.train.engines import torch as engines
from spnb.train.engines.torch import TorchEngine, by_length, has_stop, rows_with_room
from spnb.train.guards import token_logps

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
        row = Trajectory.of(request, answer).sample(reward=0, role="a", group=0)
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


def test_a_row_keeps_its_own_random_numbers_when_others_end(engine, tokenizer):
    engine.model.generation_config.eos_token_id = list(range(5, 45))
    engine = TorchEngine(engine.model, tokenizer)
    asked = [Request((50 + i,), Sampling(16), i) for i in range(20)]
    together = engine.generate(asked)
    assert len({len(answer.ids) for answer in together}) > 3
    assert [a.ids for a in together] == [engine.generate([r])[0].ids for r in asked]


def test_a_shared_prompt_is_prefilled_once_and_answers_are_as_without_sharing(
    engine, tokenizer, monkeypatch
):
    prompt = requests(tokenizer, Sampling(12))[0]
    group = [Request(prompt.prompt_ids, prompt.sampling, seed) for seed in range(6)]
    sizes = []
    prefill = decoder.Qwen3Decoder.prefill

    def counted(self, prompts, rows, room):
        sizes.append(len(prompts))
        return prefill(self, prompts, rows, room)

    monkeypatch.setattr(decoder.Qwen3Decoder, "prefill", counted)
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        engine.model.model.norm.weight.zero_()  # all logits equal: ends come up now and then
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
    limit = engine.model.config.max_position_embeddings
    long, short = engine.generate([Request((5,) * n, Sampling(2), 0) for n in (limit, 3)])
    assert (long.ids, long.finish) == ((), "overlong") and short.ids
    assert engine.generate([Request((5,) * limit, Sampling(2), 0)]) == [long]


def test_a_request_that_asks_for_too_much_gets_what_fits(engine):
    limit = engine.model.config.max_position_embeddings
    long, short = engine.generate(
        [Request((5,) * (limit - 3), Sampling(40), 1), Request((5, 6), Sampling(40), 1)]
    )
    assert (len(long.ids), long.finish) == (3, "length")
    assert len(short.ids) == 40
    alone = engine.generate([Request((5, 6), Sampling(40), 1)])[0]
    assert short.ids == alone.ids


def test_a_row_ends_at_any_end_token(engine, tokenizer):
    prompt = tuple(tokenizer(TEXTS[0])["input_ids"])
    free = engine.generate([Request(prompt, Sampling(30), 1)])[0]
    engine.model.generation_config.eos_token_id = [tokenizer.eos_token_id, free.ids[4]]
    other = TorchEngine(engine.model, tokenizer)
    assert other.end_ids == {tokenizer.eos_token_id, free.ids[4]}
    cut = other.generate([Request(prompt, Sampling(30), 1)])[0]
    assert cut.ids == free.ids[: free.ids.index(free.ids[4]) + 1] and cut.finish == "stop"
    assert cut.text == tokenizer.decode(cut.ids[:-1])


def test_log_probabilities_are_from_before_a_cut_while_training(engine, tokenizer):
    sampling = Sampling(12, temperature=0.8, top_p=0.7)
    for request, answer in zip(
        requests(tokenizer, sampling), engine.generate(requests(tokenizer, sampling)), strict=True
    ):
        row = Trajectory.of(request, answer).sample(reward=0, role="a", group=0)
        expected = token_logps(engine.model, row, 0.8)
        torch.testing.assert_close(torch.tensor(answer.logps), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", range(4))
def test_stop_strings_are_found_where_the_whole_text_shows_them(engine, tokenizer, seed):
    rng = random.Random(seed)
    texts = ("é", "</search>", "🙂", "\n\n", " the", "<", "/", "a", "Board", "漢字", "x1 ")
    for _ in range(25):
        ids = tokenizer("".join(rng.choices(texts, k=30)))["input_ids"]
        ids += [rng.randrange(len(tokenizer)) for _ in range(10)]
        stops = tuple(rng.sample(("</search>", "🙂🙂", "字a", "the/", "\n\n\n", "é<é", "x1 "), k=3))
        for length in range(1, len(ids) + 1):
            naive = any(stop in tokenizer.decode(ids[:length]) for stop in stops)
            assert has_stop(ids[:length], stops, tokenizer) == naive, (ids[:length], stops)
            assert engine._may_stop(ids[length - 1], stops) or not naive, (ids[:length], stops)
            if naive:
                break


def test_a_whole_text_is_looked_at_only_where_the_last_token_can_end_a_stop(engine, tokenizer):
    letters = {text: tokenizer(text)["input_ids"][-1] for text in ("Board", "a", ">")}
    can = {text: engine._may_stop(token, ("</search>",)) for text, token in letters.items()}
    assert can == {"Board": False, "a": False, ">": True}
    assert engine._may_stop(letters["a"], ("never", "sofa"))


def test_stop_strings_cost_linear_time(tokenizer):
    class Counting:
        tokens = 0

        def decode(self, ids):
            self.tokens += len(ids)
            return tokenizer.decode(ids)

    counting = Counting()
    ids = tokenizer("How many chips are there now? " * 100)["input_ids"]
    for length in range(1, len(ids) + 1):
        assert not has_stop(ids[:length], ("</search>", "never"), counting)
    assert counting.tokens <= 20 * len(ids)


def test_prompts_of_like_length_are_batched_together(monkeypatch):
    monkeypatch.setattr(engines, "FEWEST", 2)
    lengths = [10, 50, 40, 8, 30, 39, 9]
    assert by_length(lengths) == [[1, 2], [5, 4], [0, 6, 3]]  # 39 is below .8 of 50, 8 is of 10
    assert by_length([5]) == [[0]] and by_length([10, 50, 40]) == [[1, 2, 0]]  # one is too few


@pytest.mark.parametrize("shares", [False, True])
def test_a_batch_that_is_much_padding_is_cut_by_length(engine, monkeypatch, shares):
    """Answers and their order stay; on another device, or with little padding, it is whole."""
    monkeypatch.setattr(engines, "FEWEST", 2)
    lengths = [30, 4, 29, 5, 28, 4] if shares else [30, 29, 28, 27, 30, 29]
    asked = [Request(tuple(range(5, 5 + n)), Sampling(6), seed) for seed, n in enumerate(lengths)]
    cuts = []
    decode = engine._decode
    monkeypatch.setattr(engine, "_decode", lambda rows, how: cuts.append(rows) or decode(rows, how))
    answers = engine.generate(asked)
    sizes = [[len(row.request.prompt_ids) for row in rows] for rows in cuts]
    assert sizes == ([[30, 29, 28], [5, 4, 4]] if shares else [lengths])
    monkeypatch.setattr(engines, "LIKE", 0.0)
    together = engine.generate(asked)
    assert [len(rows) for rows in cuts[len(sizes) :]] == [6]
    assert [answer.ids for answer in answers] == [answer.ids for answer in together]
    monkeypatch.undo()
    in_turn = [[0, 2, 4, 3], [1, 5]] if shares else [[0, 1, 2, 3], [4, 5]]
    assert engine._batches(range(6), asked, 4) == in_turn
    engine.model = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    assert engine._batches(range(6), asked, 6) == [list(range(6))]


def test_a_batch_has_as_many_rows_as_a_gpu_has_room_for(engine, tokenizer, monkeypatch):
    """Of 30 GiB, a third of it in torch's cache: keys and values of 2 x 28 x 1,024 numbers."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20 * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 15 * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5 * 2**30)
    config = Qwen3Config(num_hidden_layers=28, num_key_value_heads=8, head_dim=128)
    model = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16, config=config)
    assert rows_with_room(model, 1000) == 20 * 2**30 // (2 * 28 * 1024 * 2 * 1000)
    assert rows_with_room(model, 10**9) == 1
    assert rows_with_room(engine.model, 10**9) == float("inf")
    sizes, asked = [], requests(tokenizer, Sampling(4))
    decode = engine._decode
    monkeypatch.setattr(
        engine, "_decode", lambda rows, s: (sizes.append(len(rows)), decode(rows, s))
    )
    monkeypatch.setattr(engines, "rows_with_room", lambda model, tokens: 2)
    assert len(engine.generate(asked)) == 5 and sizes == [2, 2, 1]

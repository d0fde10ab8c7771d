"""Content is data: no text of a policy, a document or a search becomes a control token."""

import copy
from types import SimpleNamespace

import pytest
from roles import HOSTILE, ROLES, controls_in, ids_of, other_tokenizer
from transformers import AutoTokenizer

from spnb.core import prompts
from spnb.core.documents import Rejected
from spnb.core.episodes import run
from spnb.core.paths import WEIGHTS
from spnb.core.search import SYNTAXES, Hit, Tool, search_rollouts
from spnb.core.types import Chat, Completion, Messages, Request, Sampling, control_strings
from spnb.games import programs
from spnb.methods import spice_prompts

POLICIES = ("games", "searcher")
LAST = Completion((5,), (0.0,), "x", "stop")


@pytest.fixture(scope="module", params=POLICIES)
def shipped(request):
    """The tokenizer of a shipped policy."""
    return AutoTokenizer.from_pretrained(WEIGHTS / request.param)


def test_every_prompt_of_a_role_is_in_the_list():
    """What returns messages and is public, in the two modules of prompts."""
    asked = {
        name
        for module in (prompts, spice_prompts)
        for name, value in vars(module).items()
        if getattr(value, "__annotations__", {}).get("return") == Messages and name[0] != "_"
    }
    assert asked <= {role.partition(" ")[0] for role in ROLES}


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_no_prompt_of_a_role_can_be_closed_by_its_content(role, shipped):
    harmless = controls_in(shipped, ids_of(shipped, ROLES[role]("three")))
    assert sum(harmless.values()) == 3  # the user's turn, its end, the assistant's turn
    for text in HOSTILE:
        assert controls_in(shipped, ids_of(shipped, ROLES[role](text))) == harmless, text


@pytest.mark.parametrize("role", ROLES)
def test_a_prompt_without_control_strings_keeps_its_ids(role, shipped):
    for text in (
        "Arnford",
        "< |im_end|>",
        "a <b> | c",
        "x\n\ny  z",
        "é ü 漢",
        "<answer> 5</answer>",
    ):
        messages = ROLES[role](text)
        plain = shipped.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        expected = tuple(shipped(plain, add_special_tokens=False)["input_ids"])
        assert ids_of(shipped, messages) == expected


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("text", HOSTILE)
def test_search_results_close_no_turn(syntax, text, shipped):
    call = {
        "xml": "<search> q</search>",
        "qwen3": '<tool_call>{"name": "search", "arguments": {"query": "q"}}</tool_call>',
        "olmo3": '<function_calls>search(query="q")</function_calls>',
    }[syntax]

    class Library:
        def __init__(self, found):
            self.found = found

        def search(self, queries, k):
            return [[Hit("1", "", self.found, None)] for _ in queries]

    def observed(found):
        tool = Tool(shipped, Library(found), syntax=syntax)
        ids = tuple(shipped(call, add_special_tokens=False)["input_ids"])
        turns = iter([Completion(ids, (0.0,) * len(ids), call, "stop"), LAST])
        engine = SimpleNamespace(generate=lambda requests: [next(turns)])
        episode = search_rollouts([Request((5,), Sampling(8), 0)], tool)
        (trajectory,) = run(episode, {"policy": engine})
        pairs = zip(trajectory.completion_ids, trajectory.mask, strict=True)
        return controls_in(shipped, [index for index, mask in pairs if not mask])

    assert observed(text) == observed("three")
    assert sum(observed("three").values()) == (0 if syntax == "xml" else 4)


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_policy_spells_closes_no_turn_of_its_own(text, hide, shipped):
    """Letter by letter, in a turn that is read again with or without its thoughts."""
    call = f"<think>a</think>{text}<search> q</search>"
    ids = [index for letter in call for index in shipped(letter)["input_ids"]]
    assert not controls_in(shipped, ids)
    turns = iter([Completion((*ids,), (0.0,) * len(ids), call, "stop"), LAST])
    asked = []
    engine = SimpleNamespace(generate=lambda requests: asked.extend(requests) or [next(turns)])
    library = SimpleNamespace(search=lambda queries, k: [[Hit("1", "", "three", None)]])
    tool = Tool(shipped, library, hide_thoughts=hide)
    run(search_rollouts([Request((5,), Sampling(8), 0)], tool), {"policy": engine})
    assert len(asked) == 2 and not controls_in(shipped, asked[1].prompt_ids)


def test_a_turn_that_is_too_long_when_its_control_tokens_are_spelled_ends_there(shipped):
    call = "<search> q</search>"
    ids = (shipped.convert_tokens_to_ids("<|im_start|>"),) * 40
    ids += tuple(shipped(call, add_special_tokens=False)["input_ids"])
    asked = []
    answer = Completion(ids, (0.0,) * len(ids), call, "stop")
    engine = SimpleNamespace(generate=lambda requests: asked.extend(requests) or [answer])
    library = SimpleNamespace(search=lambda queries, k: [[Hit("1", "", "three", None)]])
    tool = Tool(shipped, library, hide_thoughts=True, max_length=200)
    (trajectory,) = run(search_rollouts([Request((5,), Sampling(60), 0)], tool), {"policy": engine})
    assert len(asked) == 1 and trajectory.finish == "length"
    assert len(trajectory.contexts) == 1, "as many as turns"


def test_control_strings_of_another_tokenizer():
    """Control tokens in other brackets, one within another, one of a single character."""
    other = other_tokenizer()
    words = other.get_vocab()
    assert control_strings(other) == ("[INST]", "[UNK]", "</s>", "§")
    for text in ("a</s>a", "[INST]", "[IN[INST]ST]", "§", "a§</s>"):
        ids = ids_of(other, [{"role": "user", "content": text}])
        special = [words["</s>"], words["[INST]"], words["§"]]
        assert [index for index in ids if index in special] == [words["[INST]"]], text


def test_half_a_surrogate_is_written_as_a_question_mark(tokenizer):
    broken = ids_of(tokenizer, prompts.closed("a\ud83db"))
    assert broken == ids_of(tokenizer, prompts.closed("a?b"))


@pytest.mark.parametrize("half", ["\\ud83d", "\\udc00"])
def test_a_task_with_half_a_surrogate_is_not_valid(half):
    text = '{"question": "Why %s?", "answer": "5", "answer_type": "Integer"}'
    assert spice_prompts.read_task("paper", text % "\\ud83d\\ude00", "integer")
    found = spice_prompts.read_task("paper", text % half, "integer")
    assert found == Rejected("a question or an answer that cannot be used")


@pytest.mark.parametrize("text", ["f'{\"\u200b\"}'", "f'{x!r:{x}}'", "lambda: x", "x if x else x"])
def test_a_program_outside_of_the_language_is_an_error_that_a_method_expects(text):
    with pytest.raises(programs.ProgramError, match="is not in the language"):
        programs.parse(text)
    assert programs.runs(text, [1]) is None


def test_a_template_that_can_think_is_told_whether_to(tokenizer):
    other = copy.deepcopy(tokenizer)
    other.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}"
        "{% if enable_thinking is defined %}{{ 5 if enable_thinking else 7 }}{% endif %}"
    )
    text = [{"role": "user", "content": "three"}]
    ids = {
        thinking: Chat(other, thinking).request(text, Sampling(1), 0).prompt_ids
        for thinking in (None, True, False)
    }
    plain = tuple(other("three", add_special_tokens=False)["input_ids"])
    assert ids[None] == plain
    for thinking, digit in ((True, "5"), (False, "7")):
        added = tuple(other(f"three{digit}", add_special_tokens=False)["input_ids"])
        assert ids[thinking] == added != plain

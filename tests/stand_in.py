"""An engine for tests whose policy is random: others answer for it, in every role of every method.

On the laboratory's documents an embedded policy does, which was made for these prompts; on a corpus
of one's own, and in SPICE's JSON, a script. The policy itself answers an eighth of the prompts, a
few tokens, so that some answers are no use. All is read and written with the policy's own tokenizer
and chat template, whose thinking is off: what a method reads is what it would read of a policy.
"""

import json
import re
from dataclasses import replace
from math import nan

from spnb.core import prompts
from spnb.core.types import Completion, Request
from spnb.methods import spice_prompts
from spnb.train.engines.torch import TorchEngine
from spnb.train.policies import load_policy

EMBEDDED = {
    "spell": "reader",
    "spice": "reasoner",
    "scope": "reporter",
    "spiral": "player",
    "ssp": "seeker",
    "rlvr": "player",
    "proposer": "learner",
}
TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n|\Z)", re.DOTALL)
NO_THOUGHT = "<think>\n\n</think>\n\n"
LEARNED = {
    prompts.WORDS["search"]["careful"]: prompts.WORDS["search"]["plain"],
    prompts.WORDS["answer"]["careful"]: prompts.WORDS["answer"]["plain"],
    prompts.WORDS["report"]["careful"]: prompts.WORDS["report"]["plain"],
    prompts.WORDS["ask by reading"]["careful"]: prompts.WORDS["ask by reading"]["plain"],
    prompts.RUBRICS["careful"]: prompts.RUBRICS["plain"],
    **{about: kind for kind, about in prompts.TASK_TYPES.items()},
}
"""Prompts that no embedded policy has learned, and the ones that say the same to it."""
TOKENS = 200
"""Most of an embedded policy's answer."""
FEW = 8
"""Of the random policy's."""


class StandIn:
    """In the place of `TorchEngine.generate`, as `stand_in.generate`.

    Args:
        paper: whose embedded policy answers.
        scripted: whether the script does.
    """

    def __init__(self, paper, scripted):
        self.scripted = scripted
        self.plain = TorchEngine.generate
        policy = load_policy(f"embedded/{EMBEDDED[paper]}")
        self.embedded = policy.engine()
        self.tokenizer = policy.tokenizer

    def generate(self, engine, requests):
        """What the requests get, in order."""
        if engine is self.embedded:
            return self.plain(engine, requests)
        turns = [TURN.findall(engine.tokenizer.decode(request.prompt_ids)) for request in requests]
        begun = [self.begun(each) for each in turns]
        own = [not text and one.seed % 8 == 0 for text, one in zip(begun, requests, strict=True)]
        rows = list(zip(requests, turns, begun, strict=True))
        mine = [self.short(row[0]) for row, is_own in zip(rows, own, strict=True) if is_own]
        theirs = [row for row, is_own in zip(rows, own, strict=True) if not is_own]
        texts = [said(*row) for row in theirs] if self.scripted else self.ask(theirs)
        first = iter(self.plain(engine, mine))
        second = (
            self.completion(engine, row[0], text) for row, text in zip(theirs, texts, strict=True)
        )
        return [next(first if is_own else second) for is_own in own]

    @staticmethod
    def begun(turns):
        """What stands after the prompt: earlier turns of the policy, what it was answered."""
        after = [text.removeprefix(NO_THOUGHT) for _, text in turns[1:]]
        return "\n".join(text for text in after if text)

    @staticmethod
    def short(request):
        fewer = min(FEW, request.sampling.max_new_tokens)
        return replace(request, sampling=replace(request.sampling, max_new_tokens=fewer))

    def ask(self, rows):
        """What the embedded policy says."""
        asked = []
        for request, turns, begun in rows:
            content = turns[0][1]
            if (
                prompts.WORDS["ask by search"] in content
            ):  # without what the question should be like
                content = f"{prompts.WORDS['ask by search']}\n{content.splitlines()[-1]}"
            for told, learned in LEARNED.items():
                content = content.replace(told, learned)
            messages = [{"role": "user", "content": content}]
            template = self.tokenizer.apply_chat_template
            text = template(messages, tokenize=False, add_generation_prompt=True) + begun
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            sampling = replace(request.sampling, max_new_tokens=TOKENS)
            asked.append(Request(tuple(ids), sampling, request.seed))
        answers = self.embedded.generate(asked)
        return [answer.text for answer in answers]

    def completion(self, engine, request, text):
        """A text as the policy's answer: its tokens, of which nobody knows the log-probabilities,
        up to the request's limit."""
        ids = engine.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not text.endswith(request.sampling.stop or "\0"):
            ids.append(engine.tokenizer.eos_token_id)
        kept = tuple(ids[: request.sampling.max_new_tokens])
        whole = len(kept) == len(ids)
        written = text if whole else engine.tokenizer.decode(kept)
        return Completion(kept, (nan,) * len(kept), written, "stop" if whole else "length")


# --- the script: about a corpus of one's own of pages "Page 7" with the text "x7 ...", and JSON


def said(request, turns, begun):
    """An answer in the form that a prompt asks for; two of three graded ones are right."""
    prompt, number = turns[0][1], request.seed % 1000
    for tags, call in prompts.CALLS["qwen3"].items():
        prompt = prompt.replace(call, tags)
    right = request.seed % 3 > 0
    yes = prompts.YES if right else prompts.NO
    for instructions, reply in REPLIES:
        if any(text in prompt for text in instructions):
            return reply(prompt, begun, right, number)
    return f"<answer> {yes}</answer>"  # a judge's, a grade's


def page_of(prompt):
    """The number of the page that a prompt is about."""
    return re.findall(r"(?:Page |\bx)(\d+)", prompt)[-1]


def asks(prompt, begun, right, number):
    return f"<think> a</think><question> How many are {number}?</question><answer> 7</answer>"


def asks_choice(prompt, begun, right, number):
    options = "\n".join(f"- {number + place} ({letter})" for place, letter in enumerate("ABCD"))
    return f"<question> Which one?\n{options}</question><answer> A</answer>"


def challenges(prompt, begun, right, number):
    """A task in JSON whose question has its answer between accents."""
    answer = {"(a letter)": "A", "(Integer)": 7, "(Expression)": "x+1", "(String)": "two words"}
    kind = next(kind for kind in answer if f"{kind}." in prompt)
    question = f"Of {number}, say `{answer[kind]}`."
    options = "".join(f"\n{letter}) {number} {letter}" for letter in "ABCD")
    task = {"question": question, "answer": answer[kind], "answer_type": kind.strip("()")}
    if kind == "(a letter)":
        task = {"multiple_choice_question": question + options, "multiple_choice_correct": "A"}
    return json.dumps(task)


def boxes(prompt, begun, right, number):
    """What stands between accents, or not; of an oracle's question any letter."""
    known = re.findall("`(.*?)`", prompt)
    wrong = "D" if known else "ABCD"[number % 4]
    return f"\\boxed{{{known[0] if known and right else wrong}}}"


def selects(prompt, begun, right, number):
    kind = ("Integer", "Expression", "String")[number % 3]
    chosen = {"suitable_for_mcq": not right, "suitable_for_free_form": right}
    return json.dumps(chosen | {"best_answer_type": kind if right else None})


def searches(prompt, begun, what):
    """The next query, as a model of Qwen 3 calls a tool where the prompt of its kind is one."""
    if "careful" in what:
        call = {"name": "search", "arguments": {"query": f"x{page_of(prompt)}"}}
        return f"<think> b</think><tool_call>{json.dumps(call)}</tool_call>"
    return f"<search> x{page_of(prompt)}</search>"


def asks_by_search(prompt, begun, right, number):
    page, done = page_of(prompt), begun.count("<information>")
    if done < 2:
        return f"<search> x{page}{' thing' * done}</search>"
    return f"<question> Of all pages, which is the one about the thing x{page}?</question>"


def answers_by_search(prompt, begun, right, number):
    if "<information>" not in begun:
        return searches(prompt, begun, "plain")
    return f"<answer> Page {page_of(prompt) if right else 999}</answer>"


def answers(prompt, begun, right, number):
    """About a page what the page is; else the number that every question has."""
    if "the thing x" in prompt:
        return f"<answer> Page {page_of(prompt)}</answer>"
    return f"<answer> {7 if right else 8}</answer>"


def chooses(prompt, begun, right, number):
    return f"<answer> {'A' if right else 'B'}</answer>"


def asks_report(prompt, begun, right, number):
    wanted = int(re.findall(r"Queries: (\d+)", prompt)[0])
    if begun.count("<tool_response>") < wanted:
        return searches(prompt, begun, "careful")
    return f"<think> c</think><task> Tell what is known of x{page_of(prompt)}, with reasons.</task>"


def reports(prompt, begun, right, number):
    if "<tool_response>" not in begun:
        return searches(prompt, begun, "careful")
    return f"<think> d</think><answer> x{page_of(prompt)} is known.</answer>"


def points(prompt, begun, right, number):
    verbs = ("Names", "Explains", "Compares")
    return "".join(f"<rubric> {verb} x{page_of(prompt)}.</rubric>" for verb in verbs)


def knows_nothing(prompt, begun, right, number):
    return "<answer> nobody</answer>"


def passes(prompt, begun, right, number):
    return f"<answer> {prompts.YES if number % 8 else prompts.NO}</answer>"


REPLIES = [
    ([prompts.WORDS["identifiable"], prompts.WORDS["relevant"]], passes),
    ([prompts.WORDS["ask"]["choice"]], asks_choice),
    ([prompts.WORDS["ask"]["question"]], asks),
    ([spice_prompts.WORDS["json only"]], challenges),
    ([spice_prompts.WORDS["select"]], selects),
    ([spice_prompts.WORDS["boxed"]], boxes),
    ([prompts.WORDS["ask by search"]], asks_by_search),
    (prompts.WORDS["search"].values(), answers_by_search),
    (prompts.WORDS["ask by reading"].values(), asks_report),
    (prompts.WORDS["report"].values(), reports),
    (prompts.RUBRICS.values(), points),
    ([prompts.WORDS["closed"]], knows_nothing),
    ([prompts.WORDS["choice"]], chooses),
    (prompts.WORDS["answer"].values(), answers),
]
"""By the instruction of a prompt; other prompts want yes or no."""

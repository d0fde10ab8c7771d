"""Stand-ins that several tests share."""

import re

from spnb.core import prompts
from spnb.core.episodes import run
from spnb.core.types import Completion
from spnb.lab import ladder
from spnb.lab.ladder import LETTERS, ORDINALS, Source
from spnb.lab.world import names


class CharTokenizer:
    """One token per character; the last message is the prompt."""

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return messages[-1]["content"]

    def __call__(self, text, add_special_tokens, return_offsets_mapping=False):
        places = [(at, at + 1) for at in range(len(text))]
        return {"input_ids": [ord(char) for char in text], "offset_mapping": places}

    def decode(self, ids):
        return "".join(map(chr, ids))


class Scripts:
    """An engine that writes `reply(prompt)`; `script` has by role what its next text is to be."""

    def __init__(self, **script):
        self.script = script
        self.counts = dict.fromkeys(script, 0)

    def generate(self, requests):
        texts = [self.reply("".join(map(chr, request.prompt_ids))) for request in requests]
        return [
            Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop") for text in texts
        ]

    def of(self, role):
        """What the script has for the next of a role."""
        script = self.script[role]
        self.counts[role] += 1
        return script(self.counts[role] - 1) if callable(script) else script


def step_of(method, engine, step=0):
    """All rows of a method's step, estimated and selected, as the trainer has them."""
    rows = run(method.rollout(step), {"policy": engine})
    method.estimate(rows)
    method.select(rows)
    return rows


# --- SPELL's roles on the ladder's clusters of documents

TOWNS = {name for pool in ("train", "heldout") for name in names("town", pool)}


def steps_in(text, who):
    """A person's steps in the order of their ordinals, read from notes by brute force."""
    found = {}
    for note in re.findall(r"[^.\]]+\.", text):
        words = re.findall(r"\w+", note)
        ordinals = [word for word in words if word in ORDINALS]
        if who in words and ordinals:
            steps = [word for word in words if word in TOWNS or word.isdigit()]
            assert len(ordinals) == len(steps) == 1 and ordinals[0] not in found, note
            found[ordinals[0]] = steps[0]
    return [found[ordinal] for ordinal in ORDINALS[: len(found)]]


def sources_in(prompt, family):
    """The records that a questioner reads, in their order."""
    records = re.findall(r"\] (?:Stops|Payments) of (\w+): ([\w ]+)\.", prompt)
    return [Source(family, who, tuple(steps.split()[1::2])) for who, steps in records]


def asked_in(prompt):
    """Family, person and level of the question that a responder answers."""
    text = re.findall(r"(?:Question|Task): (.*)", prompt)[-1]
    family = "ledger" if "count" in text else "journey"
    for start, other in ((prompts.WORDS["choice"], "choice"), (prompts.WORDS["task"], "report")):
        family = other if start in prompt else family
    return (family, *ladder.parse(family, text))


class Roles:
    """An engine in SPELL's roles that keeps each role's prompts.

    Each function is called with the number of the role's request so far. `asks` gives a level, or
    None for a wrong form; `knows` whether a question is answered without documents; `judges` a
    verdict, or None for neither. `answers` gives "right", "wrong", None for a text without an
    answer; of a journey also "alone" (its steps without who and which) and "backwards" (what the
    notes say, the last step first). With `full` a questioner states a journey's answer as a
    responder does.
    """

    def __init__(self, asks=None, knows=None, answers=None, judges=None, full=True, tokenizer=None):
        self.asks, self.knows = asks or (lambda number: 2), knows or (lambda number: False)
        self.answers = answers or (lambda number: "wrong" if number % 2 else "right")
        self.judges, self.full = judges or (lambda number: False), full
        self.tokenizer = tokenizer or CharTokenizer()
        self.prompts = {"questioner": [], "closed": [], "responder": [], "verifier": []}
        self.batches, self.requests, self.stated = [], [], {}

    def generate(self, requests):
        self.batches.append(len(requests))
        self.requests += requests
        return [self.reply(self.tokenizer.decode(request.prompt_ids)) for request in requests]

    def reply(self, prompt):
        prompt = re.sub(r"<\|im_\w+\|>", "\n", prompt)  # of a chat template
        role = "responder" if "\n[1] " in prompt else "closed"
        role = "verifier" if "Do they mean the same?" in prompt else role
        role = "questioner" if "question that the documents answer" in prompt else role
        number = len(self.prompts[role])
        self.prompts[role].append(prompt)
        text = getattr(self, role)(prompt, number)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Completion(tuple(ids), (-1.0,) * len(ids), text, "stop")

    def questioner(self, prompt, number):
        level = self.asks(number)
        if level is None:
            return "<question> Why?</question>"
        family = "ledger" if "Payments of" in prompt else "journey"
        family = "choice" if "multiple-choice" in prompt else family
        source = sources_in(prompt, family)[-1]
        options = [ladder.result(source, level), "100", "101", "102"] if family == "choice" else ()
        frame = ladder.frames(family, "train")[0]
        text = ladder.proposal(source, level, frame, options)
        if family == "journey" and self.full:
            thought = text.rpartition("<answer>")[0]
            text = f"{thought}<answer> {ladder.result(source, level)}</answer>"
        asked = prompts.field(text, "question").split("\n")[0]
        self.stated[asked] = prompts.field(text, "answer")
        return text

    def closed(self, prompt, number):
        question = re.findall(r"Question: (.*)", prompt)[-1]
        return f"<answer> {self.stated[question] if self.knows(number) else 'nobody'}</answer>"

    def responder(self, prompt, number):
        manner = self.answers(number)
        if manner is None:
            return "no answer"
        family, who, level = asked_in(prompt)
        source = Source(family, who, tuple(steps_in(prompt, who)))
        text = ladder.result(source, level)
        if manner == "alone":
            text = " ".join(source.steps[:level])
        elif manner == "backwards":
            text = " ".join(ladder.fact(source, place) for place in reversed(range(level)))
        elif manner == "wrong":
            text = "100" if family == "ledger" else f"{who} first Nowhere"
        if family == "choice":
            options = re.findall(r"- (\w+) \([A-D]\)", prompt)
            place = options.index(ladder.result(source, level))
            text = LETTERS[(place + (manner == "wrong")) % len(LETTERS)]
        return f"<answer> {text}</answer>"

    def verifier(self, prompt, number):
        word = {True: "yes", False: "no"}.get(self.judges(number), "perhaps")
        return f"<answer> {word}</answer>"

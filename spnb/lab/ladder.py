"""A ladder of skills: each level of a family needs one step more, told in any order.

A source lists steps by number: the towns a traveller saw, the payments somebody made. A questioner
reads sources and asks for the first `level` steps of one. An answerer reads notes, one a step, in
random order, each with its ordinal, among notes on rivals; it has to put the steps in order. The
learners (`spnb.lab.pretrain.ladder_lessons`) take notes in any order at first, which is the right
one by chance 1/k! at level k: what practice adds is the order of one ordinal more. A number that is
worked out is also right in one in a hundred other orders.

    task = draw_task("journey", 3, random.Random(0))
    grade_text(reply(task, (0, 1, 2)), task)     # 1.0; any other order 0.0

Families: journey (the steps as text), ledger (a number worked out step by step), choice (that
number among four), report (graded by points).
"""

import itertools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spnb.core import prompts
from spnb.core.grading import register
from spnb.core.params import require
from spnb.core.paths import packaged_yaml
from spnb.core.types import Messages, Task
from spnb.lab.world import Pool, names

WORDING = packaged_yaml("lab/words.yaml")
ORDINALS: tuple[str, ...] = tuple(WORDING["ordinals"])
NUMBERS: tuple[str, ...] = tuple(WORDING["numbers"])
HIGHEST = len(ORDINALS)
Family = Literal["journey", "ledger", "choice", "report"]
WORLDS: dict[str, str] = {name: one["world"] for name, one in WORDING["families"].items()}
"""Families of documents and whose wordings they use."""
KINDS: dict[str, str] = {name: one["grade"] for name, one in WORDING["families"].items()}
"""How a family's answers are graded (`spnb.core.grading`)."""
ASKED: dict[str, prompts.AskKind] = {name: one["ask"] for name, one in WORDING["families"].items()}
"""What a questioner is asked for."""
PAYMENTS = range(1, 10)
COUNTS = 100
LETTERS = "ABCD"
SO = "so"
"""Stands before the count that a choice looks for among its options."""
RIVALS = 2
"""Notes on somebody else among those that an answerer reads."""
NAME = "[A-Z][a-z]+"


def check_level(level: int, highest: int = HIGHEST) -> None:
    """Raises ValueError for a level that `highest` steps do not hold."""
    if not 1 <= level <= highest:
        raise ValueError(f"level is {level!r}; allowed: 1 to {highest}, the steps there are")


def check_names(tokenizer: Any) -> None:
    """Raises ValueError for a tokenizer that loses a name of the world."""
    for kind, pool in itertools.product(("person", "town"), ("train", "heldout")):
        for name in names(kind, pool):
            ids = tokenizer(f" {name}", add_special_tokens=False)["input_ids"]
            read = tokenizer.decode(ids)
            if read.strip() != name:
                raise ValueError(
                    f"the policy's tokenizer reads {name!r} as {read!r}; allowed: one that keeps "
                    "every name"
                )


@dataclass(frozen=True)
class Source:
    """What a questioner reads: who, and the steps in order."""

    family: str
    subject: str
    steps: tuple[str, ...]

    @property
    def text(self) -> str:
        """The source as a document."""
        words = WORDING[WORLDS[self.family]]["source"]
        steps = " ".join(map(" ".join, zip(NUMBERS, self.steps, strict=False)))
        return words.format(e=self.subject, steps=steps)

    def result(self, order: Sequence[int]) -> str:
        """What the steps come to in an order (places from 0): a count, or all of them as facts."""
        if WORLDS[self.family] == "ledger":
            return str(counts([self.steps[place] for place in order])[-1])
        return " ".join(fact(self, place) for place in order)


def draw_source(
    rng: random.Random, family: str, length: int, pool: Pool = "train", but: Sequence[str] = ()
) -> Source:
    """A source of `length` different steps on somebody not in `but`.

    Payments repeat where `length` is above their number. Raises ValueError for an unknown family,
    or a length of less than 1 or more than `HIGHEST`.
    """
    require("family", family, WORLDS, ValueError)
    check_level(length)
    subject = rng.choice([name for name in names("person", pool) if name not in but])
    if WORLDS[family] == "journey":
        return Source(family, subject, tuple(rng.sample(names("town", pool), length)))
    payments = [str(payment) for payment in PAYMENTS]
    steps = rng.sample(payments, min(length, len(payments)))
    steps += rng.choices(payments, k=length - len(steps))
    return Source(family, subject, tuple(steps))


def draw_sources(
    rng: random.Random,
    family: str,
    count: int,
    length: int,
    pool: Pool = "train",
    draw: Callable[..., Any] = draw_source,
) -> list[Any]:
    """Sources of one family on different people; see `draw_source`."""
    sources: list[Any] = []
    while len(sources) < count:
        sources.append(draw(rng, family, length, pool, [source.subject for source in sources]))
    return sources


def ask(sources: Sequence[Source], earlier: Sequence[str] = ()) -> Messages:
    """The questioner's prompt about sources of one family."""
    return prompts.ask([one.text for one in sources], earlier, ASKED[sources[0].family])


def counts(payments: Sequence[str]) -> list[int]:
    """The count after each payment: doubled, the payment added, two digits kept."""
    numbers = map(int, payments)
    return list(itertools.accumulate(numbers, lambda count, paid: (2 * count + paid) % COUNTS))


def result(source: Source, level: int) -> str:
    """The answer to a question for the first steps of a source, as text."""
    return source.result(range(level))


def fact(source: Source, place: int) -> str:
    """A step of a source, from place 0, as an answer states it: who, its ordinal, the step."""
    return f"{source.subject} {ORDINALS[place]} {source.steps[place]}"


def working(source: Source, order: Sequence[int]) -> list[str]:
    """Steps in an order, each as `fact`; in a ledger also the count so far."""
    facts = [fact(source, place) for place in order]
    if WORLDS.get(source.family) != "ledger":
        return facts
    so_far = counts([source.steps[place] for place in order])
    return [f"{one} {count}" for one, count in zip(facts, so_far, strict=True)]


# --- questions


def question(family: str, subject: str, level: int, frame: str) -> str:
    """A question for somebody's first `level` steps."""
    text = frame.format(e=subject, k=NUMBERS[level - 1])
    rule = WORDING[WORLDS[family]]["rule"]
    return f"{rule} {text}".strip()


def frames(family: str, pool: Pool) -> list[str]:
    """The wordings of a family's questions: training and evaluation share none."""
    return WORDING["families"][family]["questions"][pool]


def pattern_of(frame: str, name: str = NAME) -> re.Pattern[str]:
    """What matches a wording with a name for {e}, a number for {k}, anything for {s}."""
    slots = {"e": name, "k": "|".join(NUMBERS), "s": ".+"}
    text = re.escape(frame)
    for slot, found in slots.items():
        text = text.replace(rf"\{{{slot}\}}", f"(?P<{slot}>{found})")
    return re.compile(text)


PATTERNS = {
    family: [pattern_of(frame) for pool in ("train", "heldout") for frame in frames(family, pool)]
    for family in WORLDS
}


def parse(family: str, text: str) -> tuple[str, int] | None:
    """Whose steps a question asks for, and how many; None where it is in no wording."""
    text = " ".join(text.split()).removeprefix(WORDING[WORLDS[family]]["rule"]).strip()
    matches = (pattern.fullmatch(text) for pattern in PATTERNS[family])
    return next(((m["e"], NUMBERS.index(m["k"]) + 1) for m in matches if m), None)


def find(family: str, text: str, sources: Sequence[Source]) -> tuple[Source, int] | None:
    """The source that a question is about and how many steps it asks for; None where it is in no
    wording, about nobody in `sources`, or for more steps than there are."""
    who, level = parse(family, text) or ("", 0)
    source = next((one for one in sources if one.subject == who), None)
    return (source, level) if source and level <= len(source.steps) else None


# --- tasks


def note(source: Source, place: int, wording: str) -> str:
    """One step of a source, from place 0, with its ordinal."""
    return wording.format(e=source.subject, n=ORDINALS[place], v=source.steps[place])


def make_task(
    source: Source,
    level: int,
    rng: random.Random,
    pool: Pool = "train",
    rivals: int = RIVALS,
    options: Sequence[str] = (),
) -> Task:
    """The question for the first `level` steps of a source, with the notes that an answerer reads.

    Args:
        pool: of the rival's names, and of the wordings of question and notes.
        rivals: notes on somebody else, with ordinals of the same range.
        options: of a choice; drawn where there are none.

    Raises:
        ValueError: a level above the source's steps.
    """
    check_level(level, len(source.steps))
    wordings = WORDING[WORLDS[source.family]]["notes"][pool]
    documents = draw_notes(source, level, rng, pool, wordings, rivals)
    frame = rng.choice(frames(source.family, pool))
    return pose(source, level, documents, rng, frame, options)


def draw_notes(
    source: Source, level: int, rng: random.Random, pool: Pool, wordings: Sequence[str], rivals: int
) -> list[str]:
    """The notes on the first `level` steps of a source among some on a rival, in random order."""
    rival = draw_source(rng, source.family, len(source.steps), pool, [source.subject])
    notes = [(source, place) for place in range(level)]
    notes += [(rival, rng.randrange(level)) for _ in range(rivals)]
    notes = rng.sample(list(dict.fromkeys(notes)), len(set(notes)))
    return [note(one, place, rng.choice(wordings)) for one, place in notes]


def pose(
    source: Source,
    level: int,
    documents: Sequence[str],
    rng: random.Random,
    frame: str,
    options: Sequence[str] = (),
) -> Task:
    """The question for the first `level` steps of a source, with these notes, in a wording."""
    family = source.family
    steps = source.steps[:level]
    text = question(family, source.subject, level, frame)
    gold: tuple[str, ...] = (result(source, level),)
    info: dict[str, Any] = {"family": family, "source": source, "level": level}
    info["documents"] = tuple(documents)
    if family == "choice":
        info["options"] = tuple(options or draw_options(steps, rng))
        messages = prompts.choice(text, info["options"], documents)
        gold = (LETTERS[info["options"].index(gold[0])],)
    elif family == "report":
        gold = tuple(fact(source, place) for place in range(level))
        messages = prompts.task(text, documents)
    else:
        messages = prompts.answer(text, documents, "plain")
    return Task(messages, text, gold, KINDS[family], f"level {level}", info)


def draw_options(payments: Sequence[str], rng: random.Random) -> list[str]:
    """Four counts in random order: the right one, and what other orders come to where they can."""
    others = [str(counts(rng.sample(payments, len(payments)))[-1]) for _ in range(12)]
    others += [str(count) for count in rng.sample(range(COUNTS), 4)]
    return among_others(str(counts(payments)[-1]), others, rng)


def among_others(right: str, others: Sequence[str], rng: random.Random) -> list[str]:
    """Four options in random order: the right one and the first three others that differ."""
    wrong = [one for one in dict.fromkeys(others) if one != right][:3]
    return rng.sample([right, *wrong], 4)


def draw_task(
    family: str, level: int, rng: random.Random, pool: Pool = "train", rivals: int = RIVALS
) -> Task:
    """A question of a level about a source of its own."""
    source = draw_source(rng, family, level, pool)
    return make_task(source, level, rng, pool, rivals)


def wrong_answer(task: Task, rng: random.Random) -> str:
    """An answer in the right form that is not a task's: what other steps, or the same in another
    order, come to; another letter."""
    right = task.gold[0]
    source = task.info["source"]
    if task.kind != "letter" and len(source.steps) < 2:
        raise ValueError("the source has one step; allowed: two or more, for another order")
    while True:
        order = rng.sample(range(len(source.steps)), task.info["level"])
        wrong = rng.choice(LETTERS) if task.kind == "letter" else source.result(order)
        if wrong != right:
            return wrong


# --- answers


def reply(task: Task, order: Sequence[int], guess: str = "") -> str:
    """The text of an answerer that takes the steps of a task in `order` (places from 0).

    A choice repeats what this order comes to, notes its letter, and takes `guess` where no option
    is it.
    """
    source = task.info["source"]
    options = task.info.get("options", ())
    answer = source.result(order)
    if WORLDS.get(source.family) == "journey":
        return tag("answer", answer)
    lines = working(source, order)
    if options:
        letter = LETTERS[options.index(answer)] if answer in options else ""
        lines += [SO, answer, f"({letter})"] if letter else [SO, answer]
        answer = letter or guess
    return tag("think", " ".join(lines)) + tag("answer", answer)


def tag(name: str, text: str) -> str:
    """A text in a tag."""
    return f"<{name}> {text}</{name}>"


def order_of(task: Task, text: str) -> tuple[int, ...] | None:
    """The order in which a text takes a task's steps; None where it is not consistent.

    Consistent: each step comes once, with what its note says, and the answer follows from the
    order, be it the right one or not. (A choice may take any letter where its count is no option.)
    """
    order = tuple(ORDINALS.index(word) for word in text.split() if word in ORDINALS)
    if sorted(order) != list(range(task.info["level"])):
        return None
    answer = prompts.field(text, "answer") or ""
    guess = answer if answer in [*LETTERS] else ""
    return order if text.strip() == reply(task, order, guess) else None


def _grade_points(prediction: str, golds: Sequence[str]) -> float:
    """A report's points that stand in their place, less the others, divided by what was asked for.

    A wrong statement cancels a right one, never below 0.
    """
    words = prediction.split()
    stated = [" ".join(words[at : at + 3]) for at in range(0, len(words), 3)]
    right = sum(a == b for a, b in zip(stated, golds, strict=False))
    wrong = max(len(stated), len(golds)) - right
    return max(0.0, (right - wrong) / len(golds))


register("points", _grade_points)


# --- proposals


def proposal(source: Source, level: int, frame: str, options: Sequence[str] = ()) -> str:
    """The text of a questioner that asks for the first `level` steps of a source.

    The facts come first, so that after each there is a choice: to stop, or to ask for one more. It
    is the same choice after each: no number says how many there are so far.
    """
    family = source.family
    steps = source.steps[:level]
    facts = list(steps)
    if WORLDS[family] == "ledger":
        facts = [f"{step} {count}" for step, count in zip(steps, counts(steps), strict=True)]
    text = question(family, source.subject, level, frame)
    if options:
        text += f"\n{prompts.lettered(options)}"
        facts.append(f"({_proposed(family, steps, options)})")
    asked = tag("think", f"{source.subject} {' '.join(facts)}") + tag("question", text)
    if family == "report":
        return asked
    return asked + tag("answer", _proposed(family, steps, options))


def _proposed(family: str, steps: Sequence[str], options: Sequence[str]) -> str:
    """The answer that a proposal has to state; empty where no option is right."""
    if WORLDS[family] == "journey":
        return " ".join(steps)
    answer = str(counts(steps)[-1])
    if family == "choice":
        return LETTERS[list(options).index(answer)] if answer in options else ""
    return answer


def read_proposal(
    text: str, sources: Sequence[Source]
) -> tuple[Source, int, tuple[str, ...]] | None:
    """The source, level and options of a valid proposal, None for any other.

    Valid: the question is in a wording, about somebody in `sources` and no more steps than there
    are, a choice has four different options; the answer, where one is asked for, is right.
    """
    family = sources[0].family
    asked = prompts.field(text, "question") or ""
    options: list[str] = []
    if family == "choice":
        text_alone, options = prompts.read_options(asked)
        four = len(set(options)) == len(LETTERS) and all(map(str.isdecimal, options))
        if not four or asked != f"{text_alone}\n{prompts.lettered(options)}":
            return None
        asked = text_alone
    found = find(family, asked, sources)
    if found is None:
        return None
    source, level = found
    gold = _proposed(family, source.steps[:level], options)
    right = family == "report" or gold == prompts.field(text, "answer")
    return (source, level, tuple(options)) if gold and right else None

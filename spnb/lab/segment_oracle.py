"""The oracle of written tasks: what it says of one, read back by its content words.

A note is a sentence that names one person, one ordinal and one step, a question one that names one
person and one number, in any wording.
"""

import re
from collections.abc import Sequence

from spnb.core import prompts
from spnb.core.documents import Judgement, Proposal
from spnb.core.grading import grade
from spnb.corpus.segments import GRADES
from spnb.lab.ladder import LETTERS, NUMBERS, ORDINALS
from spnb.lab.segments import KINDS, Entry, result
from spnb.lab.world import kind_of_word


def judge(written: Proposal, entries: Sequence[Entry] | None = None) -> Judgement:
    """Reads a task back; `entries` are those of the segment that it was written from.

    self_contained: the question holds each step up to the one asked for, once; it is answerable
    then. faithful: its notes are facts of the segment (None without one). leaks: the stated answer
    stands in the question, options apart. `grade` is "" where the question is of no kind: then all
    is False, the level 0.
    """
    text, options = prompts.read_options(written.question)
    said = written.answer.strip()
    if written.kind == "choice":
        said = dict(zip(LETTERS, options, strict=False)).get(said.strip(" .()").upper(), "")
    leaks = bool(said) and bool(re.search(rf"(?<!\w){re.escape(said)}(?!\w)", text))
    faithful = None if entries is None else False
    kind = next((name for name, one in KINDS.items() if one.rule in text), None)
    if kind is None:
        return Judgement(self_contained=False, leaks=leaks, faithful=faithful)
    before, _, after = text.partition(KINDS[kind].rule)
    subject, level = _asked(after)
    facts = [_fact(sentence, kind) for sentence in re.split(r"(?<=\.)\s+", before.strip())]
    own = [(fact[1], fact[2]) for fact in facts if fact and fact[0] == subject]
    complete = bool(level) and sorted(place for place, _ in own) == list(range(level))
    grading = GRADES[_free(kind)]
    gold = result(kind, [step for _, step in sorted(own)]) if complete else ""
    right = complete and bool(grade(said, gold, grading))
    if entries is not None:
        known = {(e.subject, *pair) for e in entries for pair in enumerate(e.steps)}
        faithful = bool(own) and all(fact in known for fact in facts)
    return Judgement(level, complete, right, complete, faithful, leaks, gold, grading)


def _free(kind: str) -> str:
    """How a kind's results are written where nothing is chosen."""
    return next(one for one in KINDS[kind].types if one != "choice")


def _asked(text: str) -> tuple[str, int]:
    """Who a question is about and for how many steps it asks; "" and 0 where that is not clear."""
    words = re.findall(r"[A-Za-z]+", text)
    people = [word for word in words if kind_of_word(word) == "person"]
    numbers = [NUMBERS.index(word) + 1 for word in words if word in NUMBERS]
    clear = len(people) == len(numbers) == 1
    return (people[0], numbers[0]) if clear else ("", 0)


def _fact(sentence: str, kind: str) -> tuple[str, int, str] | None:
    """Who, place and step of a sentence that states exactly one of each, else None."""
    words = re.findall(r"[A-Za-z]+|[0-9]+", sentence)
    people = [word for word in words if kind_of_word(word) == "person"]
    places = [ORDINALS.index(word) for word in words if word in ORDINALS]
    steps = [word for word in words if word in KINDS[kind].steps]
    clear = len(people) == len(places) == len(steps) == 1
    return (people[0], places[0], steps[0]) if clear else None

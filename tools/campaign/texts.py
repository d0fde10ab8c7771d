"""Malformed outputs through all that reads a policy's text: `readers` lists it, in one place.

Nothing may raise, nothing may be right that the second reading (`tools.campaign.plainly`) finds
impossible, and no time may grow faster than the text.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from processes import CONTEXT
from transformers import AutoTokenizer

from spnb.core import grading, prompts
from spnb.core.documents import Proposal
from spnb.core.paths import embedded_path
from spnb.core.search import SYNTAXES
from spnb.core.types import Chat, Task, Trajectory
from spnb.corpus import clusters
from spnb.corpus.passages import Passages
from spnb.corpus.targets import TitleTargets
from spnb.evaluate import diversity, items, loaders, patterns
from spnb.games import base, make_game, programs
from spnb.lab import chain, groups, ladder, ladder_suites, segments
from spnb.lab.clusters import same_meaning
from spnb.methods import absolute_zero, method_class, rlvr, spice_prompts
from spnb.train.plan import make_plan
from tools.campaign import Part, plainly
from tools.campaign.malformed import REPEATED, VALID, mutated

METHODS = ("spell/full", "spell/code", "spice/full", "spice/r-zero", "ssp/full", "scope/full")
METHODS += tuple(f"proposer/{each}" for each in ("learning", "ledger-even", "choice-even"))
METHODS += ("proposer/report-even",)
GOLDS = {"numeric": ("1234.5", "0.75"), "integer": ("7", "1,200"), "letter": ("B",)}
GOLDS |= {"expression": ("3/4", "12"), "ordered": ("12",)}
GOLDS |= {"input": ("x * 2 + 3", "13"), "program": ("5 13", "1 5")}
NAMES = ("Arnford", "47")
"""Right answers by the kind of grading, and of all others."""
SHOWN, BATCH = 300, 250
SIZES, FACTOR, FAST = (20_000, 100_000), 15.0, 0.5
"""Five times the text may take 15 times as long; what takes less than FAST seconds is not compared.
"""
Result = tuple[str, int, list[tuple[str, str]]]
"""What was tried, how often, and what did not survive."""


@dataclass(frozen=True)
class Reader:
    """Something that reads a policy's text, whether the second reading allows what it read, and of
    how many texts it gets one."""

    read: Callable[[str], Any]
    allows: Callable[[str, Any], bool] = lambda text, found: True
    every: int = 1


def said(text: str) -> Trajectory:
    """A trajectory of one turn that says this."""
    return Trajectory((1,), text=text, policy_text=text, searches=["who"], finish="stop")


@cache
def method(kind: str) -> tuple[Any, list[Any]]:
    """A method with its smoke parameters and its policy's tokenizer; contexts of proposals."""
    paper, variant = kind.split("/")
    params = make_plan(paper, "smoke", variants=[variant], seeds=[0]).params(variant)
    tokenizer = AutoTokenizer.from_pretrained(embedded_path(params.policy.partition("/")[2]))
    made = method_class(paper, params)(params, tokenizer)
    rng = random.Random(kind)
    if hasattr(made.source, "draw_several"):
        return made, made.source.draw_several(rng, 2)
    return made, [made.source.draw(rng, place) for place in range(2)]


def proposed(kind: str, text: str) -> None:
    """A text as a method's proposal, and as an answer to one."""
    made, contexts = method(kind)
    source = made.source
    for context in contexts:
        if hasattr(made, "read"):
            made.read(context, said(text))
        stated = Proposal(text, text[:200], ("1", "2", "3", "47"), context.kind)
        found = source.read(text, context) if hasattr(source, "read") else stated
        for name in ("judge", "rubric", "task") if isinstance(found, Proposal) else ():
            getattr(source, name, lambda *_: None)(found, context)
        for name in ("agrees", "means"):
            getattr(source, name, lambda *_: None)(stated, text)


def report(text: str) -> None:
    """A text as a report: its form, length, points, and what the oracle says."""
    made, _ = method("scope/full")
    made.read_report(said(text))
    made.format_reward(said(text), "answer")
    task = made.source.exercise("question", 1, random.Random(0))
    made.source.oracle(task, text)
    made.source.states(text, task.gold[0])


def talk(text: str) -> None:
    """A text as what a player says, in a box or as a whole."""
    match = make_game("SimpleNegotiation-v0").match(0)
    if action := base.parse_action(text, None) or base.parse_action(f"\\boxed{{{text}}}", None):
        try:
            match.play(action)
        except base.InvalidAction:
            return
        match.observation()


def chains(text: str) -> None:
    """A text about people in a chain: a question, a proposal, an answer."""
    for world in chain.CHAINS.values():
        person, links = world.people("train")[0], world.links_of("train")
        world.read_proposal(text, person, "train")
        world.parse(text)
        task = world.make_task("Who?", person, [world.relations[0]], links)
        ladder_suites.grade_steps(task, text)


def steps(family: str, text: str) -> None:
    """A text about steps: a question, a proposal, an answer."""
    task = ladder.draw_task(family, 2, random.Random(family))
    ladder.parse(family, text)
    ladder_suites.grade_steps(task, text)
    if family in clusters.RULES:
        clusters.read_proposal(text, family)
        same_meaning(family, text, Proposal("Why?", task.gold[0], kind=family))


def segment(text: str) -> None:
    """A text as a segment, and as a task on one."""
    segments.kind_of(text)
    for kind in ("choice", "integer"):
        segments.judge(Proposal(text, text[:200], kind=kind), [])


def own_corpus(text: str) -> None:
    """A text as a proposal on a corpus of one's own, or an answer to it."""
    stated = Proposal("Why?", "47", kind="question")
    for source, kind in ((TitleTargets, "ssp/full"), (Passages, "scope/full")):
        source.read(source, text, method(kind)[1][0])
        source.agrees(source, stated, text)
    Passages.states(None, text, "a point")
    Passages.oracle(None, Task([]), text)


def judged(text: str) -> str:
    """A judge's prompt on a text."""
    return prompts.grade(text, "a point")[0]["content"]


def program(text: str) -> None:
    """A text as a task on a program; its parts by themselves."""
    for kind in programs.TASK_KINDS:
        absolute_zero.read(kind, said(text), "x" if kind == "induction" else "")
    programs.read_input(text)
    programs.run(text, 5)


@cache
def readers() -> dict[str, Reader]:
    """All that reads a policy's text, by name."""
    found = {
        "outside": Reader(prompts.outside, lambda text, got: got == plainly.outside(text)),
        "verdict": Reader(prompts.verdict, lambda text, got: got == plainly.verdict(text)),
        "answer": Reader(grading.read_answer, lambda text, got: got == plainly.field(text)),
        "box": Reader(partial(grading.read_answer, tag="boxed"), _box_possible),
        "graded text": Reader(partial(grading.grade_text, task=NEAR), _near),
        "formula": Reader(grading.is_expression, every=2 * BATCH),
        "words of a player": Reader(talk, every=10),
        "judged": Reader(judged, _parts_once),
    }
    for kind in (*grading.RULES, *grading.PARTS):
        golds = GOLDS.get(kind, NAMES)
        read = partial(grading.grade, gold=golds, kind=kind)
        every = BATCH if kind in ("expression", "ordered") else 1
        found[f"grade {kind}"] = Reader(read, partial(_possible, kind, golds), every)
    for name, syntax in SYNTAXES.items():
        found[f"call {name}"] = Reader(syntax.query, _query_possible)
    for style, kind in itertools.product(("plain", "paper"), spice_prompts.VALIDATORS):
        read = partial(spice_prompts.read_task, style, answer_type=kind)
        found[f"task {style} {kind}"] = Reader(read, every=BATCH if kind == "expression" else 1)
    found |= {f"proposal {kind}": Reader(partial(proposed, kind), every=4) for kind in METHODS}
    found |= {f"steps {kind}": Reader(partial(steps, kind), every=4) for kind in ladder.WORLDS}
    plain = {
        "selection": spice_prompts.read_selection,
        "options": prompts.read_options,
        "rubric": prompts.points,
        "labels": patterns.parse_labels,
        "patterns": lambda text: patterns.label_by_rules([text]),
        "move": partial(base.parse_action, legal=["0", "[bet]", "Fact 1"]),
        "groups": groups.parse,
        "majority": lambda text: grading.majority_vote([text, "47", text[:9], None, ""]),
        "prefixed": partial(loaders.prefixed, golds=("So ", "47")),
        "by suite": partial(items.grade_task, Task([], "Why?", ("47",), info={"tag": "boxed"})),
        "behaviour": lambda text: rlvr.behaviour(said(text)),
        "repetition": lambda text: diversity.shares([text, "Why is it so?"]),
        "content": Chat(method("ssp/full")[0].chat.tokenizer).content,
    }
    plain |= {each.__name__: each for each in (report, chains, segment, own_corpus, program)}
    return found | {name: Reader(read) for name, read in plain.items()}


NEAR = Task([], "Why?", ("47",), "numeric", info={"tolerance": 0.1})


def _near(text: str, found: float) -> bool:
    number = plainly.number(plainly.field(text) or "")
    return not found or (number is not None and abs(number - 47) <= 5)


def _parts_once(text: str, found: str) -> bool:
    """Whether the prompt has one response and one point, whatever the text says."""
    begun = [line.strip().casefold().partition(":")[0] for line in found.split("\n") if ":" in line]
    return begun.count("response") == begun.count("point") == 1


def _box_possible(text: str, found: str | None) -> bool:
    box = plainly.boxed(text)
    return found is None if box is None else found is not None and found in box


def _query_possible(text: str, found: str | None) -> bool:
    """A query's words stand in the text, whatever escapes are between them."""
    return found is None or all(word in text for word in found.split() if word.isalpha())


def _possible(kind: str, golds: Sequence[str], text: str, found: float) -> bool:
    """Whether what was graded as right can be."""
    if kind in ("report", "points", "rubric"):
        return not found or any(gold in text for gold in golds)
    return not found or plainly.may_be_right(kind, text, golds)


@cache
def valid() -> tuple[str, ...]:
    """Valid outputs of every role."""
    rng = random.Random(0)
    golds = [*NAMES, "yes", "no", *itertools.chain(*GOLDS.values())]
    texts = VALID + [ladder.tag("think", "so") + ladder.tag("answer", one) for one in golds]
    for family in ladder.WORLDS:
        task = ladder.draw_task(family, 2, rng)
        texts += [ladder.reply(task, (0, 1)), task.question]
    for kind in METHODS[6:]:
        source = method(kind)[1][0].sources[0]
        options = ("1", "2", "3", "4") if "choice" in kind else ()
        frame = ladder.frames(source.family, "train")[0]
        texts.append(ladder.proposal(source, 1, frame, options))
    for world in chain.CHAINS.values():
        asked = f"Who is the {world.relations[0]} of {world.people('train')[0]}?"
        texts.append(ladder.tag("question", asked))
    for kind in prompts.TASK_TYPES:
        task = method("scope/full")[0].source.exercise(kind, 2, rng)
        texts += [ladder.tag("task", task.question), ladder.tag("answer", groups.report(task.gold))]
    for kind, one in segments.KINDS.items():
        entry = segments.draw_entry(rng, kind, 2, "train")
        texts += [segments.task_text(segments.write_task(entry, 2, one.types[0], rng)), entry.text]
    return tuple(texts)


# --- the part


def texts(part: Part, known: Mapping[str, Reader] | None = None) -> None:
    """Malformed texts through every reader, and how its time grows with the text.

    `known`: readers in place of all. In this process where it is short.
    """
    names = sorted(known or readers())
    batches = [(part.seed, first) for first in range(0, part.of(100_000), BATCH)]
    chosen = part.some(REPEATED)
    shapes = [(name, fragment) for fragment in chosen for name in names]
    batch, timed = partial(_batch, known=known), partial(_timed, known=known)
    if part.short or known:
        return _collect(part, map(timed, shapes), map(batch, batches))
    with ProcessPoolExecutor(2, CONTEXT) as pool:
        _collect(part, pool.map(timed, shapes), pool.map(batch, batches))
        pool.shutdown(cancel_futures=True)


def _collect(part: Part, *results: Iterable[Result]) -> None:
    for what, count, bad in itertools.chain(*results):
        part.about[what] += count
        part.end("survived", count=count - len(bad))
        for end, sentence in bad:
            part.end(end, sentence)
        if part.late:
            return part.leave_out("the rest of the texts: no time was left")


def _batch(job: tuple[int, int], known: Mapping[str, Reader] | None = None) -> Result:
    bad, count = [], 0
    made = itertools.islice(mutated(valid(), random.Random(str(job))), BATCH)
    for place, text in enumerate(made, job[1]):
        for name, reader in (known or readers()).items():
            if place % reader.every == 0:
                count += 1
                bad += _tried(name, reader, text)
    return "texts read", count, bad


def _tried(name: str, reader: Reader, text: str) -> list[tuple[str, str]]:
    about = f"{name}: {text[:SHOWN]!r}"
    try:
        found = reader.read(text)
    except Exception as error:
        return [("traceback", f"{type(error).__name__} ({error}) in {about}")]
    if len(text) <= 5000 and not reader.allows(text, found):
        return [("wrong", f"{found!r} by {about}")]
    return []


def _timed(shape: tuple[str, str], known: Mapping[str, Reader] | None = None) -> Result:
    """How a reader's time grows with one fragment, written again and again."""
    name, fragment = shape
    reader = (known or readers())[name]
    seconds, bad = [], []
    for size in SIZES:
        text = (fragment * (size // len(fragment) + 1))[:size]
        begun = time.process_time()
        bad = bad or _tried(name, reader, text)
        seconds.append(time.process_time() - begun)
    if seconds[1] > max(FAST, FACTOR * seconds[0]) and not bad:
        about = f"{name} takes {seconds[0]:.2f} and {seconds[1]:.2f} s for {fragment!r}"
        bad = [("wrong", f"{about} written up to {SIZES} characters")]
    return "long texts", 1, bad

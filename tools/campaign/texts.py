"""Malformed outputs through all that reads a policy's text: `readers` lists it, in one place.

Nothing may raise, nothing may be right that the second reading (`tools.campaign.plainly`) finds
impossible, and no time may grow faster than the text.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
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
from spnb.corpus.segments import SegmentSource
from spnb.corpus.targets import TitleTargets
from spnb.evaluate import diversity, items, loaders, patterns
from spnb.games import base, make_game, programs
from spnb.games.base import InvalidAction
from spnb.lab import chain, groups, ladder, ladder_suites, segments
from spnb.lab.clusters import same_meaning
from spnb.methods import absolute_zero, method_class, rlvr, spice_prompts
from spnb.train.plan import make_plan
from tools.campaign import Part, plainly
from tools.campaign.malformed import REPEATED, mutated

METHODS = ("spell/full", "spell/code", "spice/full", "spice/r-zero", "ssp/full", "scope/full")
METHODS += ("proposer/learning", "proposer/ledger-even", "proposer/choice-even")
METHODS += ("proposer/report-even",)
GOLDS = {
    "numeric": ("1234.5", "0.75"),
    "integer": ("7", "1,200"),
    "letter": ("B",),
    "verdict": ("yes",),
    "expression": ("3/4", "12"),
    "statements": ("Belana is the guide of Corley.",),
    "shares": ("steel", "47"),
    "report": ("Belana first steel",),
    "points": ("Belana first steel",),
    "input": ("x * 2 + 3", "13"),
    "program": ("5 13", "1 5"),
}
"""Right answers to the kinds of grading; all others have `NAMES`."""
NAMES = ("Arnford", "47")
SHOWN, SIZES = 300, (20_000, 100_000)
SLOWER, FAST = 15.0, 0.2
"""Five times the text may take fifteen times as long; under so many seconds nothing is compared."""
BATCH = 250


@dataclass(frozen=True)
class Reader:
    """Something that reads a policy's text; whether the second reading allows what it read.

    Of `every` texts it gets one: for those that ask another process.
    """

    read: Callable[[str], Any]
    allowed: Callable[[str, Any], bool] = lambda text, found: True
    every: int = 1


def trajectory(text: str, searches: Sequence[str] = ("who",)) -> Trajectory:
    """A trajectory of one turn that says this."""
    return Trajectory((1,), text=text, policy_text=text, searches=[*searches], finish="stop")


@cache
def method(kind: str) -> Any:
    """A method with its smoke parameters, and its policy's tokenizer."""
    paper, variant = kind.split("/")
    params = make_plan(paper, "smoke", variants=[variant], seeds=[0]).params(variant)
    tokenizer = AutoTokenizer.from_pretrained(embedded_path(params.policy.partition("/")[2]))
    return method_class(paper, params)(params, tokenizer)


@cache
def drawn(kind: str) -> list[Any]:
    """What some proposals of a method are about."""
    source = method(kind).source
    rng = random.Random(kind)
    if hasattr(source, "draw_several"):
        return source.draw_several(rng, 2)
    return [source.draw(rng, place) for place in range(2)]


def _proposed(kind: str, text: str) -> None:
    """A text as the proposal of a method, and as the answer to it."""
    made = method(kind)
    for context in drawn(kind):
        if kind.startswith(("spice", "ssp", "scope")):
            made.read(context, trajectory(text))
        if not hasattr(made.source, "read"):
            continue
        proposal = made.source.read(text, context)
        stated = Proposal("Why?", "47", ("1", "2", "3", "47"), context.kind)
        for one in (proposal, stated) if isinstance(proposal, Proposal) else (stated,):
            made.source.agrees(one, text)
            if hasattr(made.source, "means"):
                made.source.means(one, text)
        if isinstance(proposal, Proposal):
            made.source.judge(proposal, context)
            made.source.task(proposal, context)
            if hasattr(made.source, "rubric"):
                made.source.rubric(proposal, context)


def _scope(text: str) -> None:
    """A text as a report, by form, length, points and oracle."""
    made = method("scope/full")
    made.read_report(trajectory(text))
    made.format_reward(trajectory(text), "answer")
    task = made.source.exercise("question", 1, random.Random(0))
    made.source.oracle(task, text)
    made.source.states(text, task.gold[0])
    groups.is_consistent("question", task.info["people"], 1, text)


def _negotiated(text: str) -> None:
    """A text as what a player says."""
    match = make_game("SimpleNegotiation-v0").match(0)
    action = base.parse_action(text, None) or base.parse_action(f"\\boxed{{{text}}}", None)
    if action:
        try:
            match.play(action)
        except InvalidAction:
            return
        match.observation()


def _chains(text: str) -> None:
    """A text about a chain of people: a question, a proposal, an answer."""
    for world in chain.CHAINS.values():
        pool = world.people("train")
        world.parse(text)
        world.read_proposal(text, pool[0], "train")
        (target,) = drawn("ssp/full")[:1]
        task = world.make_task("Who?", pool[0], [world.relations[0]], world.links_of("train"))
        ladder_suites.grade_steps(task, text)
        assert target.name


def _ladder(family: str, text: str) -> None:
    task = ladder.draw_task(family, 2, random.Random(family))
    ladder.parse(family, text)
    ladder_suites.grade_steps(task, text)
    items.grade_task(task, text)
    if family not in clusters.RULES:
        return
    stated = Proposal("Why?", task.gold[0], tuple(task.info.get("options", ())), family)
    clusters.agrees(family, text, stated)
    clusters.read_proposal(text, family)
    same_meaning(family, text, stated)


def _own_corpus(text: str) -> None:
    """The sources of corpora of one's own, which need none for this."""
    stated = Proposal("Why?", "47", kind="question")
    bare = SimpleNamespace(params=SimpleNamespace(style="plain", max_searches=2))
    for context in (*drawn("ssp/full"), *drawn("scope/full")):
        TitleTargets.read(bare, text, context)
        Passages.read(bare, text, context)
    TitleTargets.agrees(bare, stated, text)
    Passages.agrees(bare, stated, text)
    Passages.states(bare, text, "a point")
    Passages.oracle(bare, Task([]), text)
    SegmentSource.judge(bare, stated, None)


def _segments(text: str) -> None:
    segments.read_segment(text)
    segments.kind_of(text)
    for kind in ("choice", "integer"):
        segments.judge(Proposal(text, text, kind=kind), [])


def _programs(text: str) -> None:
    for kind in programs.TASK_KINDS:
        absolute_zero.read(kind, trajectory(text), "x" if kind == "induction" else "")
    programs.read_input(text)
    programs.run(text, 5)


@cache
def readers() -> dict[str, Reader]:
    """Everything that reads a policy's text, by name."""
    same = {
        "outside": (prompts.outside, plainly.outside),
        "field": (partial(prompts.field, tag="answer"), partial(plainly.field, tag="answer")),
        "verdict": (prompts.verdict, plainly.verdict),
    }
    found = {
        name: Reader(read, lambda text, got, plain=plain: got == plain(text))
        for name, (read, plain) in same.items()
    }
    found["boxed"] = Reader(
        partial(grading.read_answer, tag="boxed"),
        lambda text, got: (got or "") in (plainly.boxed(text) or ""),
    )
    for kind in (*grading.RULES, *grading.PARTS):
        golds = GOLDS.get(kind, NAMES)
        found[f"grade {kind}"] = Reader(
            partial(grading.grade, gold=golds, kind=kind),
            partial(_possible, kind, golds),
            200 if kind == "expression" else 1,
        )
    found["a formula"] = Reader(grading.is_expression, every=400)
    task = Task([], "Why?", ("47",), "numeric", info={"tolerance": 0.1})
    found["grade a text"] = Reader(partial(grading.grade_text, task=task), _text_possible)
    for kind in ("matches", "boxed"):
        tagged = Task([], "Why?", ("47",), info={"tag": "boxed"})
        found[f"grade {kind} by suite"] = Reader(partial(items.grade_task, tagged))
    found["majority"] = Reader(lambda text: grading.majority_vote([text, "47", text[:9], None, ""]))
    found["same"] = Reader(partial(grading.same, "Arnford"))
    found["prefixed"] = Reader(lambda text: loaders.prefixed(text, ("So ", "47")))
    for name, syntax in SYNTAXES.items():
        found[f"call {name}"] = Reader(syntax.query, partial(_query_possible, syntax.tag))
    for style, kind in itertools.product(("plain", "paper"), spice_prompts.VALIDATORS):
        read = partial(spice_prompts.read_task, style, answer_type=kind)
        found[f"task {style} {kind}"] = Reader(read, every=200 if kind == "expression" else 1)
    found["selection"] = Reader(spice_prompts.read_selection)
    found["options"] = Reader(prompts.read_options)
    found["rubrics"] = Reader(partial(prompts.fields, tag="rubric"))
    found["labels"] = Reader(patterns.parse_labels)
    found["patterns"] = Reader(lambda text: patterns.label_by_rules([text]))
    found["move"] = Reader(partial(base.parse_action, legal=["0", "[bet]", "Fact 1"]))
    found["words of a player"] = Reader(_negotiated, every=10)
    found["programs"] = Reader(_programs)
    found["chains"] = Reader(_chains, every=2)
    found["groups"] = Reader(groups.parse)
    found["report"] = Reader(_scope, every=2)
    found["segments"] = Reader(_segments)
    found["own corpus"] = Reader(_own_corpus)
    found["behaviour"] = Reader(lambda text: rlvr.behaviour(trajectory(text)))
    found["repetition"] = Reader(lambda text: diversity.shares([text, "Why is it so?"]))
    tokenizer = method("rlvr/think").chat.tokenizer
    found["content"] = Reader(Chat(tokenizer).content)
    for family in ladder.WORLDS:
        found[f"ladder {family}"] = Reader(partial(_ladder, family), every=2)
    for kind in METHODS:
        found[f"proposals {kind}"] = Reader(partial(_proposed, kind), every=2)
    return found


def _possible(kind: str, golds: Sequence[str], text: str, found: float) -> bool:
    """Whether what was graded as right can be; shares, by their parts."""
    if kind == "program":  # numbers are kept modulo 100, which sums and products allow at the end
        plain = set(text) <= set("0123456789x+-* ()\n\t") and "**" not in text
        pairs = [tuple(map(int, one.split())) for one in golds]
        return not (found and plain) or all(
            eval(text.strip(), {"x": x}) % 100 == y  # noqa: S307 (letters: x alone)
            for x, y in pairs
        )
    if kind in ("input", "report", "points", "rubric"):
        return not found or any(words in text for words in (*golds[0].split(), "5"))
    return not found or plainly.may_be_right(kind, text, golds)


def _text_possible(text: str, found: float) -> bool:
    number = plainly.number(plainly.field(text, "answer") or "")
    return not found or (number is not None and abs(number - 47) <= 5)


def _query_possible(tag: str, text: str, found: str | None) -> bool:
    """Whether a query stands in the call that is closed last."""
    return found is None or all(word in text for word in found.split()[:1] if word.isalnum())


@cache
def valid() -> tuple[str, ...]:
    """Valid outputs of every role."""
    rng = random.Random(0)
    tag = ladder.tag
    texts = [tag("think", "so") + tag("answer", one) for one in (*NAMES, "yes", "no", "B", "3/4")]
    texts += [tag("answer", one) for kind in GOLDS.values() for one in (kind[0], ", ".join(kind))]
    texts += [
        f"So \\boxed{{{one}}}" for one in ("0", "[bet]", "\\text{47}", "\\frac{3}{4}", "1,234.5")
    ]
    texts += ["[Offer: 2 Wheat -> 1 Wood]", "[Accept]", "1,234.5", "12 %", "$5", "x * 2 + 3", "5"]
    texts += ["".join(tag("rubric", f"point {n}") for n in range(4)), tag("task", "Tell it.")]
    texts += [
        tag("program", "when(x % 2, loop(x - 5, x - 1), (x * 2 + 3) * 2)") + tag("input", "5")
    ]
    texts += [tag("program", "x * 2 + 3") + "".join(tag("input", str(n)) for n in range(4))]
    texts += [tag("search", "the guide of Belana")]
    texts += ['<tool_call>{"name": "search", "arguments": {"query": "who"}}</tool_call>']
    texts += ['<function_calls>search(query="who")</function_calls>']
    option = prompts.lettered(["3", "4", "5", "6"])
    texts += [tag("question", f"Why?\n{option}") + tag("answer", "B")]
    json = '{"question": "What is 2 + 3?", "answer": "5", "answer_type": "Integer"}'
    texts += [json, f"Well:\n```json\n{json}\n```", json.replace('"5"', "5")]
    texts += ['{"multiple_choice_question": "Why?\\nA) 1\\nB) 2\\nC) 3\\nD) 4", '
              '"multiple_choice_correct": "B"}']  # fmt: skip
    texts += ['{"suitable_for_mcq": false, "suitable_for_free_form": true, '
              '"best_answer_type": "Integer"}']  # fmt: skip
    texts += ['{"case analysis": true, "expected value": false, "pattern": false}']
    texts += [
        str(dict.fromkeys(patterns.PATTERNS, False)).replace("'", '"').replace("False", "true")
    ]
    texts += ["mine: 1 2, theirs: 3. If case 1, bet risks 2 and I would get 24. EV(bet) = 1. "]
    for family in ladder.WORLDS:
        task = ladder.draw_task(family, 2, rng)
        texts += [ladder.reply(task, (0, 1)), task.question]
    for kind in ("proposer/learning", "proposer/ledger-even", "proposer/choice-even"):
        (source, *_) = drawn(kind)[0].sources
        options = [str(n) for n in (1, 2, 3, 4)] if "choice" in kind else ()
        frame = ladder.frames(source.family, "train")[0]
        texts.append(ladder.proposal(source, 1, frame, options))
    for world in chain.CHAINS.values():
        for name in (drawn("ssp/full")[0].name, "Belana"):
            texts += [tag("question", f"Who is the {world.relations[0]} of {name}?")]
    for kind in prompts.TASK_TYPES:
        task = method("scope/full").source.exercise(kind, 2, rng)
        texts += [tag("task", task.question), tag("answer", groups.report(task.gold))]
    for kind, one in segments.KINDS.items():
        entry = segments.draw_entry(rng, kind, 2, "train")
        texts += [segments.task_text(segments.write_task(entry, 2, one.types[0], rng)), entry.text]
    return tuple(texts)


# --- the part


def texts(part: Part, known: dict[str, Reader] | None = None, workers: int = 2) -> None:
    """Malformed texts through every reader, and how its time grows with the text.

    `known`: readers in place of all; they are used in this process.
    """
    jobs = [(part.seed, first) for first in range(0, part.of(100_000), BATCH)]
    names = sorted(known or readers())
    shapes = [
        (name, one)
        for name in names
        for one in part.random.sample(REPEATED, part.of(len(REPEATED)))
    ]
    if known is not None or workers == 1:
        results = itertools.chain(
            (_batch(job, known) for job in jobs), (_timed(shape, known) for shape in shapes)
        )
        _collect(part, results, len(jobs) + len(shapes))
        return
    with ProcessPoolExecutor(workers, CONTEXT) as pool:
        results = itertools.chain(pool.map(_timed, shapes), pool.map(_batch, jobs))
        _collect(part, results, len(jobs) + len(shapes))
        pool.shutdown(cancel_futures=True)


def _collect(
    part: Part, results: Iterator[tuple[str, int, list[tuple[str, str]]]], all_: int
) -> None:
    for done, (what, count, bad) in enumerate(results, 1):
        part.tally(what, count)
        part.end("survived", count=count - len(bad))
        for end, sentence in bad:
            part.end(end, sentence)
        if part.late:
            return part.leave_out(f"{all_ - done} of {all_} batches: no time was left")


def _batch(job: tuple[int, int], known: dict[str, Reader] | None = None):
    """Some texts through all readers."""
    rng = random.Random(str(job))
    bad, count = [], 0
    for place, text in enumerate(itertools.islice(mutated(valid(), rng), BATCH)):
        for name, reader in (known or readers()).items():
            if place % reader.every and reader.every <= BATCH:
                continue
            if reader.every > BATCH and (place or job[1] // BATCH % 2):
                continue
            count += 1
            bad += _tried(name, reader, text)
    return "texts read", count, bad


def _tried(name: str, reader: Reader, text: str) -> list[tuple[str, str]]:
    about = f"{name}: {text[:SHOWN]!r}"
    try:
        found = reader.read(text)
    except Exception as error:
        return [("traceback", f"{type(error).__name__} ({error}) in {about}")]
    if len(text) <= 5000 and not reader.allowed(text, found):
        return [("wrong", f"{found!r} by {about}")]
    return []


def _timed(shape: tuple[str, str], known: dict[str, Reader] | None = None):
    """How a reader's time grows with one fragment, written again and again."""
    name, fragment = shape
    reader = (known or readers())[name]
    seconds = []
    for size in SIZES:
        text = (fragment * (size // len(fragment) + 1))[:size]
        begun = time.process_time()
        if bad := _tried(name, reader, text):
            return "long texts", 1, bad
        seconds.append(time.process_time() - begun)
        if seconds[0] > 20:
            break
    if seconds[-1] > FAST and seconds[-1] > SLOWER * seconds[0] or len(seconds) == 1:
        took = " and ".join(f"{one:.2f}" for one in seconds)
        return "long texts", 1, [("wrong", f"{name} takes {took} s for {SIZES} x {fragment!r}")]
    return "long texts", 1, []

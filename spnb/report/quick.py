"""The first hour on one GPU: one call that checks the machine, trains beside a control, compares.

    sp.quick("spiral")                           # games, no data
    sp.quick("spice", documents="my_folder")     # questions about your .txt and .md files

It is `make_plan` and `run_all` with the parameters of `params/quick/<scale>.yaml`. The control is
the paper's own variant whose rewards are permuted, or drawn. At scale `smoke` a random model takes
the policy's place on a CPU: that shows the wiring and no result.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from spnb.core.disk import move
from spnb.core.errors import OneLine
from spnb.core.params import require
from spnb.core.paths import PACKAGED_PARAMS, ROOT, resolve
from spnb.core.stats import bootstrap_interval, mean_interval
from spnb.core.strict_yaml import read_yaml
from spnb.corpus.documents import CorpusSettings, Filter, open_source, recipe, to_document
from spnb.corpus.store import CorpusError
from spnb.evaluate.benchmarks import HUB
from spnb.evaluate.loaders import load
from spnb.lab.tiny import tiny_qwen
from spnb.report.frame import format_interval, within
from spnb.train.cards import hours, need, refuse_small, shape_of
from spnb.train.config import merge
from spnb.train.doctor import CARD, GB, Machine, look, missing
from spnb.train.plan import Plan, make_plan, run_all
from spnb.train.runs import Run

STAMP = "random 2-layer model on a CPU: wiring only"
TEXTS = (".txt", ".md")
ARTICLES = 2000
"""Of a recipe's documents, streamed."""
MOST_BYTES = 10**7
"""Of one file of a folder."""
LONG = {"max_chars": MOST_BYTES, "max_words": MOST_BYTES}
FAMILIES = {
    ("gsm8k", ""): "GSM8K, right (%)",
    ("start tasks", ""): "questions of the documents, right (%)",
    ("challenges", ""): "tasks in the right form (%)",
}
"""What is compared of a run's suites, by suite and opponent; and each game against random play."""


class QuickError(OneLine, ValueError):
    """This machine, or these documents, are not enough; the message says what is."""


def quick(
    paper: str, documents: str | None = None, scale: str = "gpu", **values: Any
) -> pd.DataFrame:
    """Trains "spiral" or "spice" and its control, a line a step; returns both before and after, the
    runs themselves in `attrs["runs"]`.

    Args:
        documents: for spice, a folder of .txt and .md files; or a recipe of `spnb corpus`, of which
            2,000 documents are streamed (the default: simple-wikipedia).
        scale: gpu, or smoke: a random model on a CPU, of which no number is shown.
        values: parameters of a run, or of a plan.

    Raises:
        QuickError: there is no such GPU, too little disk, no text, a hub that does not answer.
        ParamError, PolicyError, BenchmarkError, TrainerError: as `make_plan` and `run_all`; all
            before anything is loaded, but a fault of training itself.
    """
    settings = merge(quick_values(paper, scale), values)
    machine = check_machine(scale)
    home = resolve(settings["runs"])
    if "documents" in settings:
        settings["corpus"] = [str(corpus_file(documents or settings.pop("documents"), home))]
        settings.pop("documents", None)
    elif documents is not None:
        raise QuickError(f"documents is {documents!r}; allowed: with spice alone, games need none")
    if scale not in CARD:
        settings.setdefault("policy", tiny_qwen(home / "tiny"))
    plan = only(make_plan(paper, scale, **settings), settings["benchmarks"])
    for params in plan.runs.values():
        for card in machine.cards[:1] if scale in CARD else ():
            refuse_small(params, card.memory)
        for name, use in params.benchmarks.items():
            load(name, None, path=None if use.path == HUB else use.path, count=1)
    print(announcement(plan, machine), flush=True)
    runs = run_all(plan, on_poll=StepLines())
    table = ends(runs)
    if scale not in CARD:
        print(STAMP)
        table = table[["variant", "seed", "measure", "n"]]
    table.attrs["runs"] = runs
    return table


def quick_values(paper: str, scale: str) -> dict[str, Any]:
    """What `params/quick/<scale>.yaml` says of a paper; ParamError where it says nothing."""
    here = next(p / "quick" for p in (ROOT / "params", PACKAGED_PARAMS) if (p / "quick").is_dir())
    require("scale", scale, sorted(path.stem for path in here.glob("*.yaml")))
    text = (here / f"{scale}.yaml").read_text(encoding="utf-8")
    known = read_yaml(text.replace("{here}", str(here)))
    require("paper", paper, known)
    return known[paper]


def only(plan: Plan, benchmarks: Sequence[str]) -> Plan:
    """The plan with these benchmarks alone, where its parameter file has more."""
    runs = {}
    for key, params in plan.runs.items():
        kept = {name: use for name, use in params.benchmarks.items() if name in benchmarks}
        runs[key] = params.model_copy(update={"benchmarks": kept})
    return replace(plan, runs=runs)


def check_machine(scale: str, machine: Machine | None = None) -> Machine:
    """What this machine has; QuickError where that is too little for a scale."""
    machine = machine or look()
    if scale in CARD and not machine.usable:
        none = f"torch finds no GPU (driver {machine.driver or 'none'})"
        allowed = f"a machine with one of {CARD[scale]} GB, or scale='smoke' (wiring only)"
        raise QuickError(f"scale is {scale!r}, and {none}; allowed: {allowed}")
    missed = missing(scale, machine)
    if lacking := [one for one in missed if not one.startswith("packages")]:  # a plan names those
        here = "; ".join(lacking)
        raise QuickError(f"scale is {scale!r}, and this machine lacks {here}; see `spnb doctor`")
    return machine


# --- documents


def corpus_file(documents: str, home: Path) -> Path:
    """A folder's texts, or a recipe's first documents, as a JSONL file under `home`. Its name says
    what is in it: texts have their digest, and a recipe is streamed once.

    Raises:
        QuickError: no text, a file that is too large, a hub that does not answer.
    """
    source, settings = recipe(documents, LONG)
    streamed = source != documents
    target = home / "documents" / f"{documents}-{ARTICLES}.jsonl"
    if streamed and target.is_file():
        return target
    rows = stream(source, settings, home) if streamed else read_folder(documents)
    rules = Filter(settings)
    kept, dropped = [], Counter()
    for number, row in enumerate(rows):
        found = to_document(row, number, settings.columns)
        reason = found if isinstance(found, str) else rules.reason(found["id"], found["text"])
        dropped.update([reason] if reason else [])
        kept += [] if reason else [{name: found[name] for name in ("id", "title", "text")}]
    why = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
    total = len(kept) + dropped.total()
    if not kept:
        raise QuickError(f"documents is {documents!r}, of {total} none is of use: {why}")
    text = "".join(json.dumps(document) + "\n" for document in kept)
    if not streamed:
        name = f"{resolve(source).name}-{sha256(text.encode()).hexdigest()[:8]}.jsonl"
        target = home / "documents" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_text(text)
    move(part, target)
    print(f"{len(kept)} of {total} documents" + (f" (left out: {why})" if why else ""))
    return target


def stream(source: str, settings: CorpusSettings, home: Path) -> Iterator[Any]:
    """The first rows of a dataset; QuickError where the hub does not answer."""
    few = settings.model_copy(update={"limit": ARTICLES})
    try:
        rows, read = open_source(source, few, home / "cache")
    except CorpusError as error:
        why = str(error).partition("; allowed")[0].removeprefix(f"source is {source!r}, ")
        allowed = "documents='my_folder', a folder of .txt or .md files on this machine"
        fault = f"{source} does not come from the hub ({why})"
        raise QuickError(f"{fault}; allowed: {allowed}") from None
    return map(read, rows)


def read_folder(source: str) -> Iterator[dict[str, str]]:
    """A folder's .txt and .md files, whatever else is in it; QuickError where it is no folder, has
    none, or one that is too large."""
    folder = resolve(source)
    there = sorted(file for kind in TEXTS for file in folder.rglob(f"*{kind}") if file.is_file())
    files = [file for file in there if "/." not in str(file)[len(str(folder)) :]]
    if not files:
        what = "has no such file" if folder.is_dir() else "is no folder"
        allowed = "a folder with .txt or .md files, or nothing: articles of Simple Wikipedia"
        raise QuickError(f"documents is {source!r}, which {what}; allowed: {allowed}")
    largest = max(files, key=lambda file: file.stat().st_size)
    if (size := largest.stat().st_size) > MOST_BYTES:
        most = f"{MOST_BYTES // 10**6} MB a file; split it"
        raise QuickError(f"{largest.name} has {size / 10**6:.0f} MB; allowed: at most {most}")
    for file in files:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
        yield {"id": file.relative_to(folder).as_posix(), "title": file.stem, "text": text}


# --- what is said before, meanwhile and after


def announcement(plan: Plan, machine: Machine) -> str:
    """What will be done, in how many minutes and GB; without a GPU, that it means nothing."""
    params = plan.params(plan.variants[0])
    names = ", ".join(plan.variants)
    first = f"{plan.paper}: {len(plan.runs)} runs ({names}) of {params.steps} steps"
    if plan.scale not in CARD:
        return f"{first}\n{STAMP}"
    took = [60 * hours(one).get("all", 0.0) for one in plan.runs.values()]
    card = machine.cards[0].memory
    load_gb = 2 * shape_of(params.policy).parameters / GB if shape_of(params.policy) else 0.0
    minutes = " + ".join(f"{each:.0f}" for each in took)
    return (
        f"{first} of {params.policy}\nabout {minutes} minutes on an H100, about three times as "
        f"long on a card of 24 GB; {need(params, card):.0f} of {card:.0f} GB at the peak, "
        f"{load_gb:.0f} GB to load. Estimates: nothing was measured."
    )


class StepLines:
    """Given to `run_all(plan, on_poll=...)`: prints a line a step."""

    def __init__(self) -> None:
        self.shown: Counter[str] = Counter()

    def __call__(self, plan: Plan) -> None:
        """Prints the steps that are new."""
        for run in plan.all():
            rows = run.rows("metrics")
            for row in rows[self.shown[run.run_id] :]:
                tqdm.write(step_line(run, row))
            self.shown[run.run_id] = len(rows)


def step_line(run: Run, row: dict[str, Any]) -> str:
    """A step in a line: reward and tokens by role, what of it is trained, seconds, minutes left."""
    left = (run.params["steps"] - row["step"]) * row["seconds/step"] / 60
    parts = [f"{run.variant} step {row['step']:.0f} of {run.params['steps']}"]
    for role in (key.removeprefix("reward/") for key in row if key.startswith("reward/")):
        parts.append(f"{role} {row[f'reward/{role}']:.2f} ({row[f'length/{role}']:.0f} tokens)")
    parts += [f"{row['method/valid']:.0%} valid"] if row.get("method/valid") is not None else []
    return f"{'; '.join(parts)}; {row['seconds/step']:.0f} s, {left:.0f} min left"


def ends(runs: Sequence[Run]) -> pd.DataFrame:
    """Each run before and after training: means over questions or matches, 95 % intervals; the
    change is over the same ones, where both ends have them."""
    columns = ["variant", "seed", "measure", "n", "before", "after", "change"]
    found = [(run, row) for run in runs for row in (*_means(run), *_exploitability(run))]
    return pd.DataFrame([(run.variant, run.seed, *row) for run, row in found], columns=columns)


def _means(run: Run) -> Iterator[tuple[Any, ...]]:
    table = pd.DataFrame(run.rows("items"))
    last = run.params["steps"]
    same = ["item", "role", "sample"] + ["question"] * ("question" in table)
    for key, part in table.fillna({"question": ""}).groupby(["suite", "opponent"], sort=False):
        words = FAMILIES.get(key) or f"{key[0]} against random play, score (%)"
        if key in FAMILIES or key[1] == "random":
            scores = part.set_index(same).groupby("step")["score"]
            before, after = (dict([*scores])[step] for step in (0, last))
            both = (after - before).dropna()
            levels = [_interval(scores.tolist(), 0) for scores in (before, after)]
            yield words, len(both), *levels, _interval(both.tolist(), -100)


def _interval(scores: Sequence[float], least: float) -> str:
    """The mean in per cent; its interval lies from the least possible value to 100, and that of a
    level has a width also where all scores are alike."""
    if scores and least == 0:
        shares = [100 * score / len(scores) for score in scores]
        level = bootstrap_interval([{"": shares}], (0, 100))
        return format_interval(*level[:3])
    over = within(mean_interval([100 * score for score in scores]), (least, 100))
    return format_interval(*over[:3])


def _exploitability(run: Run) -> Iterator[tuple[Any, ...]]:
    rows = [row for row in run.rows("evals") if row["metric"] == "exploitability"]
    if rows:
        texts = [format_interval(row["value"], row["low"], row["high"], 3) for row in rows]
        words = "kuhn_poker, exploitability (chips a hand)"
        yield words, rows[0]["n"], texts[0], texts[-1], ""

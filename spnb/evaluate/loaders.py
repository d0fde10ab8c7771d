"""Published benchmarks as tasks and suites: from the hub, or a local file with the same columns.

    tasks = load("gsm8k", tokenizer, path="data/gsm8k.jsonl", count=100)
    suite = benchmark_suite("docmath", chat, Sampling(4096, 0.7, 0.95), samples=8, limit=16384)

`benchmarks.yaml` says of each where it lies, how its columns become a task, and how the papers ask
it. Any run may name some in its parameter `benchmarks`: they are measured at both ends of it.
"""

import glob
import json
import os
import random
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spnb.core import prompts
from spnb.core.errors import OneLine
from spnb.core.grading import grade, register
from spnb.core.method import Suite
from spnb.core.params import require, shortened
from spnb.core.paths import resolve
from spnb.core.types import Chat, Messages, Sampling, Task, derive_seed
from spnb.evaluate.benchmarks import (
    BENCHMARKS,
    BY_SEARCH,
    HUB,
    REPORT,
    SEARCH,
    Benchmark,
    Beside,
    Each,
    Template,
    Use,
)
from spnb.evaluate.by_search import BySearch, search_suite
from spnb.evaluate.items import Records, Rows, ask_suite, pass_at_k_rows

_short = partial(shortened, limit=120)
Build = Callable[[str], Messages]
"""The prompt with a text put into it."""
LETTERS = "ABCDEFGHIJ"
SPLITS = ("train", "test", "dev", "validation")
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".ndjson": ("json", {}),
    ".parquet": ("parquet", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
}
"""What `datasets` reads a local file with, by its suffix (before .gz, if that stands there)."""


class BenchmarkError(OneLine, ValueError):
    """A benchmark cannot be loaded; the message names the source and what is allowed."""


def load(
    name: str,
    tokenizer: Any,
    limit: int | None = None,
    path: str | None = None,
    count: int | None = None,
    revision: str | None = None,
) -> list[Task]:
    """A benchmark's tasks, in its own order.

    Args:
        limit: tokens of a prompt with its chat template; a text that makes it longer loses its
            middle. A prompt without a text is never cut.
        path: a file (JSON, JSONL, parquet, CSV, TSV; .gz too) or a folder of such files, of a
            downloaded repository or of `datasets`; None: the hub.
        count: so many rows are drawn, always the same; None, or more than there are: all.
        revision: of the hub's dataset, instead of the newest or the entry's.

    Raises:
        BenchmarkError: unknown name, a source that cannot be loaded, a column that is missing, a
            row that makes no task, a limit that leaves no room for the text.
    """
    require("benchmark", name, BENCHMARKS, BenchmarkError)
    entry = BENCHMARKS[name]
    entry = entry.model_copy(update={"revision": revision or entry.revision})
    source = f"benchmark {name} ({path or HUB})"
    try:
        rows = _rows(entry, path)
    except BenchmarkError as error:
        columns = f"a file or folder}} with the columns {', '.join(entry.columns)}"
        where = f"a folder}} with {' and '.join(entry.names)}" if entry.beside else columns
        allowed = f"benchmarks: {{{name}: the path of {where}"
        raise BenchmarkError(f"{source} cannot be loaded ({error}); allowed: {allowed}") from None
    for column in entry.columns:
        if column not in rows.column_names:
            there = ", ".join(rows.column_names)
            raise BenchmarkError(f"{source} has no column {column!r}; there are: {there}")
    places = list(range(len(rows)))
    for column, value in entry.where.items():
        values = rows[column]
        places = [place for place in places if values[place] == value]
    if not places:
        wanted = f" with {entry.where}" if entry.where else ""
        raise BenchmarkError(f"{source} has 0 rows{wanted}; allowed: 1 or more")
    if count is not None and count < len(places):
        places = sorted(random.Random(derive_seed(name, 0)).sample(places, count))
    tasks = []
    for place in places:
        rng = random.Random(derive_seed("options", name, place, 0))
        try:
            tasks.append(_task(entry, rows[place], rng, tokenizer, limit))
        except BenchmarkError as error:
            raise BenchmarkError(f"{source}, row {place + 1}: {error}") from None
    return tasks


# --- rows


def _rows(entry: Benchmark, path: str | None) -> Any:
    """All rows as a `datasets.Dataset`; BenchmarkError with the reason where there are none."""
    import datasets
    import httpx

    failures = (OSError, ValueError, RuntimeError, zipfile.BadZipFile, httpx.HTTPError)
    failures += (StopIteration, TypeError)  # of a file without rows, of rows that are no objects
    try:
        if path is None:
            options = {"revision": entry.revision} if entry.revision else {}
            options |= {"data_files": entry.files} if entry.files else {}
            rows = datasets.load_dataset(entry.dataset, entry.config, split=entry.split, **options)
        else:
            with TemporaryDirectory() as unpacked:
                rows = _local_rows(entry, _named(entry, resolve(path), unpacked))
        return _joined(rows, entry, entry.beside, path) if entry.beside else rows
    except (*failures, datasets.exceptions.DatasetsError) as error:
        reason = str(error.__cause__ or error).splitlines() or [type(error).__name__]
        raise BenchmarkError(reason[0]) from None


def _joined(rows: Any, entry: Benchmark, beside: Beside, path: str | None) -> Any:
    """Rows with what the second file, of JSON lines, has of each. `datasets` does not read it: a
    chat's turns are text in one and a mapping in the next."""
    from huggingface_hub import hf_hub_download

    if path is None:
        how = {"repo_type": "dataset", "revision": entry.revision}
        file = Path(hf_hub_download(entry.dataset, beside.file, **how))
    else:
        file = resolve(path) / entry.names[1]
    others = [json.loads(line) for line in file.read_text().split("\n") if line.strip()]
    for names in (rows.column_names, *others):
        if beside.column not in names:
            raise BenchmarkError(f"a row has no {beside.column!r}; it has {', '.join(names)}")
    texts = {other[beside.column]: _filled(beside.text, other) for other in others}
    return rows.add_column("beside", [texts.get(key) for key in rows[beside.column]])


def _named(entry: Benchmark, path: Path, cache: str) -> Path:
    """The file of a folder that the entry names, unpacked where it is in an archive; else the path
    itself."""
    if (path / "dataset_dict.json").is_file() and (path / entry.split).is_dir():
        return path / entry.split  # of `datasets`, with all splits
    if not (entry.files and path.is_dir()) or (path / "state.json").is_file():
        return path
    inside, *archives = entry.files.removeprefix("zip://").split("::")
    name = os.path.basename(inside)
    for file in (path / inside, path / name, *sorted(path.rglob(name))):
        if file.is_file():
            return file
    for archive in archives:
        for file in sorted(path.rglob(os.path.basename(archive))):
            with zipfile.ZipFile(file) as packed:
                if inside in packed.namelist():
                    return Path(packed.extract(inside, cache))
    if len([file for file in path.rglob("*") if _suffix(file) in {*FORMATS, ".zip"}]) > 1:
        raise FileNotFoundError(f"several files there, and none with the name {name}")
    return path


def _local_rows(entry: Benchmark, path: Path) -> Any:
    """The rows of a file or folder, in memory: nothing is left in a cache."""
    import datasets

    if (path / "state.json").is_file():
        return datasets.load_from_disk(str(path))
    with TemporaryDirectory() as cache:
        options: dict[str, Any] = {"cache_dir": cache, "keep_in_memory": True}
        if _has_card(path):  # a repository of the hub, its card says what is where
            return datasets.load_dataset(str(path), entry.config, split=entry.split, **options)
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        files = [file for file in files if file.is_file() and _suffix(file) in FORMATS]
        if not files:
            raise FileNotFoundError(f"no file there with one of the suffixes {', '.join(FORMATS)}")
        named = {file: (*file.relative_to(path).parts, file.stem) for file in files}
        own = [file for file in files if entry.config in named[file]]
        files = _of_split(entry.split, own or files)
        kind, others = FORMATS[_suffix(files[0])]
        names = [glob.escape(str(file)) for file in files]
        return datasets.load_dataset(kind, data_files=names, split="train", **options, **others)


def _has_card(path: Path) -> bool:
    """Whether a folder's README.md begins with data on its files, as on the hub."""
    readme = path / "README.md"
    text = readme.read_text(errors="replace") if readme.is_file() else ""
    head = text.split("\n---", 1)[0] if text.startswith("---\n") else ""
    return re.search("^(configs|dataset_info):", head, re.MULTILINE) is not None


def _of_split(split: str, files: list[Path]) -> list[Path]:
    """The files of a split, where the beginnings of their names are those of several; else all.

    Raises:
        FileNotFoundError: none of these is this one.
    """
    named = {file: name for file in files for name in SPLITS if file.name.startswith(name)}
    if len({*named.values()}) < 2:
        return files
    if split not in named.values():
        found = ", ".join(sorted({*named.values()}))
        raise FileNotFoundError(f"no file of the split {split} there, but of {found}")
    return [file for file, name in named.items() if name == split]


def _suffix(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).suffix


# --- a row as a task


def _task(
    entry: Benchmark, row: Mapping[str, Any], rng: random.Random, tokenizer: Any, limit: int | None
) -> Task:
    for column in entry.columns:
        if row[column] is None:
            raise BenchmarkError(f"column {column!r} is empty")
    if entry.chat:
        *turns, last = _chat(row[entry.chat])
        row = {**row, "turns": turns, "last": last["content"]}
    (question,) = _texts(entry.question, row)
    (difficulty,) = _texts(entry.difficulty, row)
    options = _texts(entry.options, row)
    documents = "\n\n".join(_texts(entry.documents, row))
    if entry.shuffle:
        rng.shuffle(options)
    info: dict[str, Any] = {"tag": entry.tag, "tolerance": entry.tolerance, "options": options}
    if entry.prompt == REPORT:
        messages = _fit(partial(_open, question), documents, tokenizer, limit)
        points = _texts(entry.answer, row)
        points, info["weights"] = _rubric(points, _texts(entry.weights, row) or ["1"] * len(points))
        whole = "\n\n".join(filter(None, [documents, question]))
        return Task(messages, whole, points, entry.kind, difficulty, info)
    gold = _gold(entry, _texts(entry.answer, row), options)
    if entry.prompt == SEARCH:
        messages = prompts.search(question, "plain")
    else:
        build = partial(prompts.exam, entry.prompt, question, options)
        messages = _fit(build, documents, tokenizer, limit)
    return Task(messages, question, gold, entry.kind, difficulty, info)


def _open(question: str, text: str) -> Messages:
    """The prompt of an open-ended task, after a text if there is one."""
    return prompts.report("\n\n".join(filter(None, [text, question])), "careful")


def _rubric(points: Sequence[str], texts: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
    """The points of a task's rubric, which are its gold answers, and their weights; one without a
    text is none."""
    try:
        weights = [float(text) for text in texts]
    except ValueError:
        raise BenchmarkError(f"weights are {_short(texts)}; allowed: numbers") from None
    pairs = [each for each in zip(points, weights, strict=False) if each[0] not in ("", "None")]
    if len(weights) != len(points) or not any(weight > 0 for _, weight in pairs):
        allowed = "one or more, as many weights, one of them above 0"
        raise BenchmarkError(f"there are {len(points)} points; allowed: {allowed}")
    return tuple(zip(*pairs, strict=True))


def _texts(spec: Template, row: Mapping[str, Any]) -> list[str]:
    """The texts that a template makes of a row, without outer spaces."""
    parts = spec if isinstance(spec, list) else [spec]
    return [text.strip() for part in parts for text in _written(part, row)]


def _written(part: str | Each, row: Mapping[str, Any]) -> list[str]:
    if isinstance(part, str):
        return [_filled(part, row)]
    items: Any = row
    for name in part.column.split("."):
        items = items.get(name) if isinstance(items, Mapping) else None
    if not isinstance(items, list):
        raise BenchmarkError(f"column {part.column!r} is {_short(items)}; allowed: a list")
    texts = [_filled(part.text, item) for item in items]
    if not part.times:
        return texts
    by = _filled(part.times, row)
    try:
        return [str(float(by) * float(text)) for text in texts]
    except ValueError:
        raise BenchmarkError(f"weights are {_short([by, *texts])}; allowed: numbers") from None


def _filled(template: str, value: Any) -> str:
    try:
        return template.format(value, **(value if isinstance(value, Mapping) else {}))
    except (KeyError, IndexError) as error:
        raise BenchmarkError(f"{_short(value)} has no {error}") from None
    except TypeError:
        raise BenchmarkError(f"{_short(value)} does not fit {template}") from None


def _chat(text: Any) -> list[dict[str, str]]:
    """The turns of a chat, in JSON or as they are."""
    try:
        turns = json.loads(text) if isinstance(text, str) else text
        if turns and all({"role", "content"} <= set(turn) for turn in turns):
            return turns
    except (ValueError, TypeError):
        pass
    raise BenchmarkError(f"chat is {_short(text)}; allowed: JSON, a list of role and content")


def _gold(entry: Benchmark, answers: list[str], options: Sequence[str]) -> tuple[str, ...]:
    """The right answers, or the letter of the right option; one at least passes its own grading."""
    given = answers
    allowed = f"an answer of kind {entry.kind}"
    if entry.pattern:
        found = [re.search(entry.pattern, answer) for answer in answers]
        answers = [match.group(1).strip() for match in found if match]
        allowed = f"a text with the pattern {entry.pattern}"
    if options:
        letters = LETTERS[: len(options)]
        if not 2 <= len(options) <= len(LETTERS):
            raise BenchmarkError(f"there are {len(options)} options; allowed: 2 to {len(LETTERS)}")
        if entry.shuffle:
            answers = [letters[options.index(text)] for text in answers if text in options]
        answers = [answer for answer in answers if answer in tuple(letters)]
        allowed = f"one of the options, {letters[0]} to {letters[-1]}"
    if not any(grade(answer, answers, entry.kind) == 1 for answer in answers):
        raise BenchmarkError(f"answer is {_short(given)}; allowed: {allowed}")
    return tuple(answers)


# --- texts that are too long


def truncate_middle(text: str, tokenizer: Any, limit: int) -> str:
    """The first and last tokens of a text, `limit` together (the first half has the odd one).

    LongBench's rule, which SPELL follows. The cut is made in the text itself, between the
    characters that the tokens stand for: nothing is decoded.
    """
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    offsets = encoded["offset_mapping"]
    if len(offsets) <= limit:
        return text
    first = limit - limit // 2
    last = limit // 2
    head = text[: offsets[first - 1][1]] if first else ""
    return head + (text[offsets[-last][0] :] if last else "")


def _fit(build: Build, text: str, tokenizer: Any, limit: int | None) -> Messages:
    """The prompt with the text, whose middle is left out where the prompt exceeds `limit` tokens.

    Everything but the text stays whole. The two halves may be tokenised into more pieces where they
    meet: then a few tokens more are left out.
    """
    if limit is None or not text:
        return build(text)
    chat = Chat(tokenizer)
    count = lambda prompt: len(chat.request(prompt, Sampling(), 0).prompt_ids)  # noqa: E731
    room = min(len(tokenizer(text, add_special_tokens=False)["input_ids"]), limit)
    prompt = build(truncate_middle(text, tokenizer, room))
    while (excess := count(prompt) - limit) > 0:
        room -= excess
        if room < 1:
            rest = f"the {count(build(''))} tokens of the rest of the prompt"
            raise BenchmarkError(f"limit is {limit}; allowed: more than {rest}")
        prompt = build(truncate_middle(text, tokenizer, room))
    return prompt


# --- suites


def prefixed(prediction: str, golds: Sequence[str]) -> float:
    """How alike two texts are that begin with the same prefix; golds: the prefix, the text.

    The ratio of difflib's SequenceMatcher without the prefix, 0 where it does not come first.
    """
    prefix, text = golds
    if not prediction.startswith(prefix):
        return 0.0
    texts = prediction.removeprefix(prefix), text.removeprefix(prefix)
    return SequenceMatcher(None, *texts).ratio()


register("prefixed", prefixed)
_tasks = cache(load)
"""A run measures the same tasks several times."""


def benchmark_suite(
    name: str,
    chat: Chat,
    sampling: Sampling,
    samples: int = 1,
    *,
    path: str | None = None,
    count: int | None = None,
    limit: int | None = None,
    revision: str | None = None,
    by_search: BySearch | None = None,
) -> Suite:
    """A benchmark as a suite, with pass@1 to pass@samples where there are several answers.

    pass@1 is the accuracy with bounds over questions instead of answers. Questions and seeds are
    the same at every step, in every variant and seed. Arguments as in `load` and `ask_suite`.
    One whose prompt is search is answered `by_search`, BenchmarkError without that.
    """
    seed_of = partial(derive_seed, "benchmark", name)
    decoding = "sampled" if sampling.temperature else "greedy"
    how = {"samples": samples, "decoding": decoding}
    prompt = BENCHMARKS[name].prompt if name in BENCHMARKS else ""
    searching = prompt in BY_SEARCH
    if searching and by_search is None:
        allowed = "in a run with a corpus and a retriever"
        raise BenchmarkError(f"benchmark {name} is answered by search; allowed: {allowed}")
    if prompt == REPORT and by_search.judge is None:
        raise ValueError("reports are graded by a judge; allowed: a method that has a grader")
    tasks = _tasks(name, chat.tokenizer, limit, path, count, revision)
    if searching:
        suite = search_suite(name, tasks, chat, sampling, seed_of, by_search, **how)
    else:
        suite = ask_suite(name, tasks, chat, sampling, seed_of, **how)

    def rows_of(records: Records) -> Rows:
        return suite.summarise(records) + pass_at_k_rows(records, range(1, samples + 1))

    return replace(suite, summarise=rows_of) if samples > 1 else suite


def run_suites(
    uses: Mapping[str, Use],
    chat: Chat,
    paper: str,
    otherwise: Sampling,
    end: bool,
    by_search: BySearch | None,
    max_length: int,
) -> list[Suite]:
    """The benchmarks that a run measures now.

    Args:
        paper: whose way to ask applies where a use does not; `otherwise` is how else to sample.
        end: whether this is the first or last evaluation.
        max_length: tokens of a prompt and its answer; texts are cut to what an answer leaves of
            it, half at least, or to less by `limit`.
    """
    suites = []
    now = {name: use for name, use in uses.items() if end or use.every}
    for name, use in now.items():
        asking = BENCHMARKS[name].asking(paper, use)
        samples = asking.pop("samples", 1)
        how = {name: asking.pop(name, None) for name in ("count", "limit")}
        how |= {"path": None if use.path == HUB else use.path, "revision": use.revision}
        sampling = replace(otherwise, **asking)
        if BENCHMARKS[name].documents:
            room = max(max_length - sampling.max_new_tokens, max_length // 2)
            how["limit"] = min(how["limit"] or room, room)
        suites.append(benchmark_suite(name, chat, sampling, samples, by_search=by_search, **how))
    return suites

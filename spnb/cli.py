"""The command `spnb`: runs, notebooks, exhibits, embedded policies, corpora, the retriever.

Names are looked up in files before anything heavy is imported: a wrong one is answered at once.
"""

import keyword
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spnb.core.errors import Stopped

Scale = Annotated[str, typer.Option(help="smoke, cpu, gpu or paper")]
Listed = Annotated[str | None, typer.Option(help="comma-separated, or all; default: headline ones")]
Seeds = Annotated[str | None, typer.Option(help="comma-separated; default: the parameter file's")]
Set = Annotated[list[str] | None, typer.Option("--set", help="key=value, may be repeated")]
Seed = Annotated[int, typer.Option(help="0 or more")]
TEMPLATE = Path(__file__).parent / "methods" / "template"
"""The files of a new method, at their places in the project; NAME stands for its name."""
RESERVED = ("paper", "scale", "variants", "variant", "seeds", "seed", "runs", "processes")


class Commands(TyperGroup):
    """What a user got wrong is one message without a traceback; anything else keeps its own."""

    def invoke(self, context: Any) -> Any:
        """Runs a command."""
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            print(Stopped(), file=sys.stderr)
            raise typer.Exit(130) from None
        except (ValueError, OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not type(error).__module__.startswith("spnb"):
                raise
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except Exception as error:
            if type(error).__name__ != "PapermillExecutionError":
                raise
            cell, name, value = (getattr(error, key) for key in ("exec_count", "ename", "evalue"))
            if name in (Stopped.__name__, KeyboardInterrupt.__name__):
                print(Stopped(), file=sys.stderr)
                raise typer.Exit(130) from None
            print(f"error: the notebook stopped in cell {cell}: {name}: {value}", file=sys.stderr)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    help="Self-play for language models, in notebooks. Relative paths start at its folder.",
)


def _values(pairs: list[str] | None) -> dict[str, Any]:
    """key=value options as a mapping, values read as YAML; `grpo.beta=0.1` sets one key in grpo."""
    from spnb.core.strict_yaml import YamlError, read_yaml

    values: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set is {pair!r}; allowed: key=value")
        if key in RESERVED:
            raise ValueError(f"--set is {pair}; allowed: other parameters of a run, see --help")
        try:
            value = read_yaml(text)
        except YamlError as error:
            why = f"which cannot be read: {error}"
            raise ValueError(f"--set is {pair[:200]!r}, {why}; allowed: a value in YAML") from None
        *outer, last = key.split(".", maxsplit=9)
        place = values
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise ValueError(f"--set is {pair}; allowed: {part} itself or keys in it, not both")
        if isinstance(place.get(last), dict):
            raise ValueError(f"--set is {pair}; allowed: {last} itself or keys in it, not both")
        place[last] = value
    return values


def _listed(text: str | None) -> list[str] | None:
    names = [part.strip() for part in text.split(",") if part.strip()] if text else None
    if names == []:
        raise ValueError(f"{text!r} names nothing; allowed: names with commas between them")
    return names


def _numbers(text: str | None) -> list[int] | None:
    try:
        return [int(seed) for seed in _listed(text) or []] or None
    except ValueError:
        raise ValueError(f"seeds is {text!r}; allowed: comma-separated integers") from None


@app.command()
def doctor() -> None:
    """Print versions, cores, memory, GPU, engines, and what is missing for which scale."""
    from spnb.train.doctor import report

    print(report())


@app.command()
def selftest(
    gpu: Annotated[bool, typer.Option("--gpu", help="on the GPU, if there is one")] = False,
    part: Annotated[list[str] | None, typer.Option(help="may be repeated; default: all")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for selftest.md and .json")] = None,
    set_: Set = None,
) -> None:
    """Measure whether training works on this machine: on a GPU in about 45 minutes, by parts."""
    from spnb.report.gpu_bench import FAILED, PASSED
    from spnb.report.selftest import selftest as run_parts

    verdicts = {result.verdict for result in run_parts(part or (), gpu, out, **_values(set_))}
    if FAILED in verdicts or PASSED not in verdicts:
        raise typer.Exit(1)


@app.command()
def run(
    paper: str,
    scale: Scale = "cpu",
    variant: Annotated[str, typer.Option(help="a name in params/<paper>/variants.yaml")] = "full",
    seed: Seed = 0,
    runs: Annotated[str, typer.Option(help="folder for runs")] = "runs",
    processes: Annotated[int, typer.Option(help="that train together, a GPU each")] = 1,
    set_: Set = None,
) -> None:
    """Train and evaluate one run; resumes it if it was stopped."""
    from spnb.core.params import check_names

    values = _values(set_)
    check_names(paper, scale, [variant])
    from spnb.train.plan import make_plan, run_all, run_one

    values |= {"seeds": [seed]}
    plan = make_plan(paper, scale, values, variants=[variant], runs=runs, processes=processes)
    if "WORLD_SIZE" in os.environ:  # of `accelerate launch`, whose processes train together
        if processes > 1:
            why = "under `accelerate launch`, which has started its own"
            raise ValueError(f"processes is {processes} {why}; allowed: 1")
        run_one(plan, variant, seed)
    else:
        run_all(plan)
    done = plan.open(variant, seed)
    print(f"{done.run_id} finished: {done.folder}")


@app.command("plan")
def plan_(
    paper: str,
    scale: Scale = "gpu",
    variant: Annotated[str | None, typer.Option(help="a,b or all; default: headline")] = None,
    memory: Annotated[bool, typer.Option("--memory", help="also GB, by card")] = False,
    processes: Annotated[int, typer.Option(min=1, help="for --memory: a GPU each")] = 1,
    seeds: Seeds = None,
    set_: Set = None,
) -> None:
    """Print a plan's runs with what they take: at scale cpu the minutes that were measured, at gpu
    and paper an estimate of hours and memory."""
    from spnb.core.params import check_names, variants_at

    values, names = _values(set_), _listed(variant)
    if names == ["all"]:
        names = list(variants_at(paper, scale))
    check_names(paper, scale, names or [])
    if processes > 1 and not memory:
        raise ValueError(f"processes is {processes} without memory; allowed: with --memory")
    without_gpu = scale in ("smoke", "cpu")
    if memory and without_gpu:
        raise ValueError(f"memory is {memory} with scale {scale}; allowed: with gpu or paper")
    from spnb.train.plan import make_plan

    plan = make_plan(paper, scale, values, variants=names, seeds=_numbers(seeds))
    if without_gpu:
        from spnb.report.notebooks import announce

        print(announce(plan))
    else:
        from spnb.train.cards import judged

        print(judged(plan.runs, memory, processes))


@app.command()
def reproduce(
    paper: Annotated[str | None, typer.Option(help="default: all that have a notebook")] = None,
    scale: Scale = "cpu",
    variants: Listed = None,
    seeds: Seeds = None,
) -> None:
    """Execute paper notebooks with papermill and write their exhibits."""
    from spnb.core.params import check_names, papers

    names, numbers = _listed(variants), _numbers(seeds)
    for each in [paper] if paper else papers():
        check_names(each, scale, [] if names in (None, ["all"]) else names)
    from spnb.report import notebooks

    for path in notebooks.reproduce(paper, scale, names, numbers):
        print(f"executed: {path}")


@app.command()
def exhibit(exhibit_id: str, scale: Scale = "cpu") -> None:
    """Regenerate one exhibit, for instance spiral/table-3, from finished runs; train the others."""
    from spnb.core.params import papers, require
    from spnb.core.paths import packaged_yaml

    parts = packaged_yaml("reference/exhibits.yaml")
    known = {name: [entry["id"] for entry in part] for name, part in parts.items()}
    paper = exhibit_id.split("/")[0]
    shown = [paper] if paper in known else papers()
    require("exhibit", exhibit_id, [name for key in shown for name in known.get(key, [])])
    from spnb.report.show import regenerate

    for path in regenerate(exhibit_id, scale):
        print(f"written: {path}")


@app.command()
def search(search_id: str, scale: Scale = "cpu") -> None:
    """Run arms at every setting of a search: spell, or proposer/search-two; runs are kept."""
    from spnb.core.params import check_names, search_values

    paper, _, name = search_id.partition("/")
    name = name or "search"
    check_names(paper, scale)
    search_values(paper, name)
    from spnb.report.show import searched

    print(repr(searched(f"{paper}/{name}", scale)))


@app.command()
def gallery(folder: str = "figures") -> None:
    """Write figures/README.md from figures/index.json."""
    from spnb.core.paths import resolve
    from spnb.report.exhibits import gallery as write

    print(f"written: {write(resolve(folder))}")


@app.command()
def migrate(runs: Annotated[str, typer.Argument(help="folder for runs")] = "runs") -> None:
    """Give finished and unfinished runs today's names of parameters; none is computed again."""
    from spnb.core.paths import resolve
    from spnb.train.migrate import migrate as migrated

    if not resolve(runs).is_dir():
        raise ValueError(f"runs is {runs!r}; allowed: a folder of runs")
    ids = migrated(resolve(runs))
    print("\n".join([*(f"migrated: {one}" for one in ids), f"{len(ids)} runs in {runs}"]))


@app.command()
def embedded(
    folder: Annotated[str, typer.Argument(help="where to write the policies")],
    recipe: Annotated[
        str, typer.Option(help="games, player, learner, searcher, reader, reasoner, ...")
    ] = "games",
    seed: Seed = 0,
    set_: Set = None,
) -> None:
    """Build embedded policies from a seed: of the games, a ladder or documents."""
    from spnb.core.params import require
    from spnb.core.paths import resolve
    from spnb.lab.pretrain.recipes import TABLES

    require("recipe", recipe, ["games", *TABLES["recipes"]])
    resolve(folder).mkdir(parents=True, exist_ok=True)  # first: training takes minutes
    from spnb.lab.pretrain.make import make

    make(recipe, resolve(folder), _values(set_) | {"seed": seed})


@app.command()
def corpus(
    source: Annotated[
        str, typer.Argument(help="a JSONL file, a folder of texts, a datasets id, a recipe")
    ],
    folder: Annotated[str, typer.Argument(help="where to write it; a stopped build goes on")],
    benchmarks: Annotated[
        str | None, typer.Option(help="a file of texts to keep out, one a line")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="rows to read, streamed, to try it out")
    ] = None,
    seed: Seed = 0,
    set_: Set = None,
) -> None:
    """Make a corpus of your own documents: filtered, deduplicated, decontaminated, clustered.

    Recipes: simple-wikipedia, nemotron-cc-math, dclm, fineweb-edu, wiki-18 (samples, streamed).
    """
    from spnb.corpus.build import build_corpus
    from spnb.corpus.documents import read_benchmarks, recipe

    values = _values(set_) | {"seed": seed} | ({"limit": limit} if limit else {})
    source, settings = recipe(source, values)
    texts = read_benchmarks(benchmarks) if benchmarks else []
    print(build_corpus(source, folder, settings, texts))


@app.command("new-method")
def new_method(
    name: str,
    folder: Annotated[
        Path | None, typer.Option(help="a checkout of spnb; default: the one in use")
    ] = None,
) -> None:
    """Write a method of about 60 lines, its parameters, a test and an exhibit, ready to run."""
    from spnb.core.paths import ROOT, resolve

    for path in _new_files(name, resolve(folder) if folder else ROOT):
        print(f"written: {path}")
    print(f"next: spnb run {name} --scale smoke; spnb/methods/README.md explains the method")


def _new_files(name: str, folder: Path) -> list[Path]:
    """Writes a method's files; the catalogue of exhibits, which all methods share, grows."""
    import yaml

    exhibits = folder / "spnb" / "reference" / "exhibits.yaml"
    if not exhibits.is_file():
        raise ValueError(f"folder is {str(folder)!r}; allowed: a checkout of spnb")
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        allowed = "small letters, digits and _, a letter first, no word of Python's"
        raise ValueError(f"NAME is {name!r}; allowed: {allowed}")
    made = {}
    for template in sorted(TEMPLATE.rglob("*.*")):
        place = template.relative_to(TEMPLATE).as_posix().removesuffix(".txt")
        made[folder / place.replace("NAME", name)] = template.read_text().replace("NAME", name)
    there = [path for path in made if path.exists() and path != exhibits]
    if there or name in yaml.safe_load(exhibits.read_text()):
        known = there[0] if there else exhibits
        raise ValueError(f"NAME is {name!r}, which {known} has; allowed: a name that is not taken")
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    return list(made)


@app.command("serve-retriever")
def serve_retriever(
    corpus: Annotated[
        str, typer.Argument(help=".jsonl, .parquet or datasets folder: id, title, text")
    ],
    kind: Annotated[str, typer.Option(help="bm25, dense, flat, hnsw or ivfpq")] = "bm25",
    host: Annotated[str, typer.Option(help="the default is this machine only")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    max_k: Annotated[int, typer.Option(min=1, help="most documents a query may ask for")] = 100,
    cache: Annotated[str, typer.Option(help="where the index is kept")] = "runs/index",
    encoder: Annotated[str, typer.Option(help="minilm, or a sentence-transformers id")] = "minilm",
) -> None:
    """Serve a corpus over HTTP in Search-R1's schema: POST /retrieve, GET /status."""
    from spnb.corpus.retrieval import make_retriever
    from spnb.corpus.server import Limits, bind, serve

    if kind == "bm25" and encoder != "minilm":
        raise ValueError(f"encoder is {encoder!r} with kind bm25; allowed: with a dense kind")
    listener = bind(host, port)  # first: an index may take long
    retriever = make_retriever(kind, corpus, cache, encoder)
    place = f"http://{host}:{port}/retrieve"
    print(f"{len(retriever.store):,} documents, {kind}, on {place}", flush=True)
    serve(retriever, listener, Limits(max_k=max_k))


if __name__ == "__main__":
    app()

"""The command `spnb`: runs, notebooks, exhibits, embedded policies, corpora, the retriever."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Self-play for language models, in notebooks."
)

Scale = Annotated[str, typer.Option(help="smoke, cpu, gpu or paper")]


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What a user got wrong is printed as one message, without a traceback; anything else keeps its
    traceback."""
    from papermill import PapermillExecutionError

    from spnb.core.params import ParamError
    from spnb.report.exhibits import ExhibitError
    from spnb.train.policies import PolicyError
    from spnb.train.runs import RunError
    from spnb.train.trainer import TrainerError

    try:
        yield
    except (
        ParamError,
        PolicyError,
        RunError,
        TrainerError,
        ExhibitError,
        ValueError,
        OSError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except PapermillExecutionError as error:
        print(
            f"error: the notebook stopped in cell {error.exec_count}: {error.ename}: {error.evalue}",
            file=sys.stderr,
        )
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print("stopped; finished runs are kept, start again to go on", file=sys.stderr)
        raise typer.Exit(130) from None


def _values(pairs: list[str]) -> dict[str, Any]:
    """key=value options as a mapping, values read as YAML."""
    from spnb.core.params import ParamError

    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ParamError(f"--set is {pair!r}; allowed: key=value")
        values[key] = yaml.safe_load(value)
    for key in ("paper", "scale", "variants", "variant", "seeds", "seed", "runs"):
        if key in values:
            raise ParamError(
                f"--set is {key}={values[key]!r}; allowed: other parameters; {key} has an option"
            )
    return values


def _listed(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


@app.command()
def doctor() -> None:
    """Print versions, cores, memory, GPU, engines, and what is missing for which scale."""
    from spnb.train.doctor import report

    print(report())


@app.command()
def run(
    paper: str,
    scale: Scale = "cpu",
    variant: Annotated[str, typer.Option(help="a name in params/<paper>/variants.yaml")] = "full",
    seed: int = 0,
    runs: Annotated[str, typer.Option(help="folder for runs")] = "runs",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, may be repeated")
    ] = None,
) -> None:
    """Train and evaluate one run; resumes it if it was stopped."""
    with _clear_errors():
        from spnb.train.plan import make_plan, run_one

        plan = make_plan(
            paper, scale, variants=[variant], seeds=[seed], runs=runs, **_values(set_ or [])
        )
        done = run_one(plan, variant, seed)
        print(f"{done.run_id} finished: {done.folder}")


@app.command()
def reproduce(
    paper: Annotated[
        str | None, typer.Option(help="one paper; default: every paper that has a notebook")
    ] = None,
    scale: Scale = "cpu",
    variants: Annotated[
        str | None, typer.Option(help="comma-separated, or all; default: the headline ones")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="comma-separated; default: the parameter file's")
    ] = None,
) -> None:
    """Execute paper notebooks with papermill and write their exhibits."""
    with _clear_errors():
        from spnb.core.params import ParamError
        from spnb.report import notebooks

        try:
            numbers = [int(seed) for seed in _listed(seeds) or []]
        except ValueError:
            raise ParamError(f"seeds is {seeds!r}; allowed: comma-separated integers") from None
        for path in notebooks.reproduce(paper, scale, _listed(variants), numbers):
            print(f"executed: {path}")


@app.command()
def exhibit(exhibit_id: str, scale: Scale = "cpu") -> None:
    """Regenerate one exhibit, for instance spiral/table-3; finished runs are reused."""
    with _clear_errors():
        from spnb.report import notebooks

        print(f"executed: {notebooks.regenerate(exhibit_id, scale)}")


@app.command()
def gallery(folder: str = "figures") -> None:
    """Write figures/README.md from figures/index.json."""
    with _clear_errors():
        from spnb.core.paths import resolve
        from spnb.report.exhibits import gallery as write

        print(f"written: {write(resolve(folder))}")


@app.command()
def embedded(
    folder: Annotated[Path, typer.Argument(help="where to write the policies")],
    recipe: Annotated[
        str, typer.Option(help="games; world (unskilled, base, instruct); or world-large")
    ] = "games",
    seed: int = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value of a world recipe, repeatable")
    ] = None,
) -> None:
    """Build embedded policies from a seed: the game policy, or those of the document world."""
    with _clear_errors():
        from spnb.core.params import validate
        from spnb.recipe import build, pretrain

        values = {"seed": seed, **_values(set_ or [])}
        if recipe != "games":
            pretrain.build(
                validate(pretrain.WorldRecipe, pretrain.recipe_values(recipe) | values), folder
            )
        elif set_:
            raise ValueError(f"--set is {set_} with recipe games; allowed: with a world recipe")
        else:
            build.build(build.Recipe(seed=seed), folder)


@app.command()
def skills(
    policy: Annotated[
        str, typer.Argument(help="embedded/<name> or a folder with a policy of the document world")
    ],
    benchmarks: Annotated[
        str | None,
        typer.Option(
            help="comma-separated benchmarks and roles (ask, ask-beyond, ask-search, ...); all"
        ),
    ] = None,
    count: Annotated[int, typer.Option(help="items of each")] = 500,
    against: Annotated[
        str | None, typer.Option(help="another policy; exits with 1 where they differ")
    ] = None,
) -> None:
    """Measure a policy on the held-out benchmarks and in every role: value, interval, share of
    well-formed outputs."""
    with _clear_errors():
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from spnb.recipe.skills import NAMES, compare, report
        from spnb.train.policies import policy_path

        paths = [policy_path(name) for name in (policy, against) if name]
        models = [AutoModelForCausalLM.from_pretrained(path, dtype="float32") for path in paths]
        loaded = [
            (model, AutoTokenizer.from_pretrained(path))
            for model, path in zip(models, paths, strict=True)
        ]
        table, *other = [report(*pair, count, _listed(benchmarks) or NAMES) for pair in loaded]
        if other:
            table = compare(table, *other)
        print(table.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
        if other and not table.within.all():
            raise typer.Exit(1)


@app.command()
def corpus(
    source: Annotated[
        str, typer.Argument(help="a JSONL file, a folder of text files, or a datasets id or folder")
    ],
    folder: Annotated[
        str, typer.Argument(help="where to write the corpus; a stopped build goes on")
    ],
    benchmarks: Annotated[
        str | None,
        typer.Option(help='texts to keep out, a file of one a line; "world": our own benchmarks'),
    ] = None,
    seed: int = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, may be repeated")
    ] = None,
) -> None:
    """Make a corpus of your own documents: filtered, deduplicated, decontaminated, clustered."""
    with _clear_errors():
        from spnb.core.params import validate
        from spnb.corpus.build import build_corpus
        from spnb.corpus.sources import CorpusSettings
        from spnb.testbed.suites import BENCHMARKS
        from spnb.testbed.suites import texts as benchmark_texts

        settings = validate(CorpusSettings, {**_values(set_ or []), "seed": seed})
        if benchmarks == "world":
            texts = [text for name in BENCHMARKS for text in benchmark_texts(name)]
        else:
            texts = Path(benchmarks).read_text().splitlines() if benchmarks else []
        print(build_corpus(source, folder, settings, texts))


@app.command("serve-retriever")
def serve_retriever(
    corpus: Annotated[
        Path, typer.Argument(help=".jsonl or .parquet file or `datasets` folder: id, title, text")
    ],
    kind: Annotated[str, typer.Option(help="bm25, dense, flat, hnsw or ivfpq")] = "bm25",
    host: Annotated[
        str, typer.Option(help="address to listen on; the default is this machine only")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="1 to 65535")] = 8000,
    max_k: Annotated[int, typer.Option(help="most documents a query may ask for")] = 100,
    cache: Annotated[Path, typer.Option(help="where the index is kept")] = Path("runs/index"),
    encoder: Annotated[
        str, typer.Option(help="minilm, or a sentence-transformers folder or hub id")
    ] = "minilm",
) -> None:
    """Serve a corpus over HTTP in Search-R1's schema: POST /retrieve, GET /status."""
    with _clear_errors():
        from spnb.corpus.retrieval import make_retriever
        from spnb.corpus.server import Limits, serve

        limits = Limits(max_k=max_k, topk=min(3, max_k))
        retriever = make_retriever(kind, corpus, cache, encoder)
        print(
            f"{len(retriever.store):,} documents, {kind}, on http://{host}:{port}/retrieve",
            flush=True,
        )
        serve(retriever, host, port, limits)


@app.command()
def world(
    path: Annotated[Path, typer.Argument(help="JSONL file to write")],
    count: Annotated[int, typer.Option(min=1, help="documents")] = 1000,
    seed: int = 0,
) -> None:
    """Write documents of the generated world: {id, title, text, metadata}, one a line."""
    with _clear_errors():
        import json

        from spnb.testbed.world import documents

        with open(path, "w") as file:
            for document in documents(count, seed):
                file.write(json.dumps(document) + "\n")
        print(f"written: {path}, {count} documents")


if __name__ == "__main__":
    app()

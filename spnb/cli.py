"""The command `spnb`: doctor, run, reproduce, exhibit, gallery, embedded."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Self-play for language models, in notebooks.")

Scale = Annotated[str, typer.Option(help="smoke, cpu, gpu or paper")]


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What a user got wrong is printed as one message, without a traceback; anything else keeps its traceback."""
    from papermill import PapermillExecutionError

    from spnb.exhibits import ExhibitError
    from spnb.params import ParamError
    from spnb.policy import PolicyError
    from spnb.runs import RunError
    from spnb.trainer import TrainerError

    try:
        yield
    except (ParamError, PolicyError, RunError, TrainerError, ExhibitError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except PapermillExecutionError as error:
        print(f"error: the notebook stopped in cell {error.exec_count}: {error.ename}: {error.evalue}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print("stopped; finished runs are kept, start again to go on", file=sys.stderr)
        raise typer.Exit(130) from None


def _values(pairs: list[str]) -> dict[str, Any]:
    """key=value options as a mapping, values read as YAML."""
    from spnb.params import ParamError

    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ParamError(f"--set is {pair!r}; allowed: key=value")
        values[key] = yaml.safe_load(value)
    for key in ("paper", "scale", "variants", "variant", "seeds", "seed", "runs"):
        if key in values:
            raise ParamError(f"--set is {key}={values[key]!r}; allowed: other parameters; {key} has an option")
    return values


def _listed(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


@app.command()
def doctor() -> None:
    """Print versions, cores, memory, GPU, engines, and what is missing for which scale."""
    from spnb.doctor import report

    print(report())


@app.command()
def run(
    paper: str,
    scale: Scale = "cpu",
    variant: Annotated[str, typer.Option(help="a name in params/<paper>/variants.yaml")] = "full",
    seed: int = 0,
    runs: Annotated[str, typer.Option(help="folder for runs")] = "runs",
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, may be repeated")] = None,
) -> None:
    """Train and evaluate one run; resumes it if it was stopped."""
    with _clear_errors():
        from spnb.experiment import make_plan, run_one

        plan = make_plan(paper, scale, variants=[variant], seeds=[seed], runs=runs, **_values(set_ or []))
        done = run_one(plan, variant, seed)
        print(f"{done.run_id} finished: {done.folder}")


@app.command()
def reproduce(
    paper: Annotated[str | None, typer.Option(help="one paper; default: every paper that has a notebook")] = None,
    scale: Scale = "cpu",
    variants: Annotated[str | None, typer.Option(help="comma-separated; default: the headline variants")] = None,
    seeds: Annotated[str | None, typer.Option(help="comma-separated; default: the parameter file's")] = None,
) -> None:
    """Execute paper notebooks with papermill and write their exhibits."""
    with _clear_errors():
        from spnb import notebooks
        from spnb.params import ParamError

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
        from spnb import notebooks

        print(f"executed: {notebooks.regenerate(exhibit_id, scale)}")


@app.command()
def gallery(folder: str = "figures") -> None:
    """Write figures/README.md from figures/index.json."""
    with _clear_errors():
        from spnb.exhibits import gallery as write
        from spnb.paths import resolve

        print(f"written: {write(resolve(folder))}")


@app.command()
def embedded(
    folder: Annotated[Path, typer.Argument(help="where to write the policy")],
    seed: int = 0,
    steps: Annotated[int | None, typer.Option(help="training steps; default: the recipe's")] = None,
) -> None:
    """Build the embedded game policy from a seed."""
    from spnb.embedded.build import Recipe, build

    recipe = Recipe(seed=seed) if steps is None else Recipe(seed=seed, steps=steps)
    build(recipe, folder, report=print)


if __name__ == "__main__":
    app()

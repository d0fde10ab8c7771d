"""An exhibit by its id: made from the runs of a plan, or the committed one.

What is data (`tables.yaml`, `figures.yaml`, `claims.yaml`) is made here; the makers of the others
are in `spnb.report.papers`, those of formulas in `spnb.report.shapes`.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from spnb import reference
from spnb.core import params
from spnb.core.params import ParamError, unknown
from spnb.core.paths import ROOT, resolve
from spnb.report import dynamics, notebooks, pass_at_k, shapes
from spnb.report.claims import Claims, load_claims
from spnb.report.curves import Curves, load_curves
from spnb.report.exhibits import (
    COMMANDS,
    OTHERS,
    ExhibitContent,
    ExhibitError,
    ExhibitInfo,
    check_writable,
    default_folder,
    exhibit_info,
    made_from,
    read_index,
)
from spnb.report.exhibits import save_exhibit as save
from spnb.report.find import find_runs
from spnb.report.frame import Frames, gather
from spnb.report.papers import rlvr, spell, spice, spiral
from spnb.report.tables import CustomExhibit, Table, fill_placeholders, load_own, load_tables
from spnb.train.plan import Plan, make_plan, run_all
from spnb.train.runs import COMMITTED

MAKERS = {**spiral.MAKERS, **spell.MAKERS, **spice.MAKERS, **rlvr.MAKERS}
SHARED = {"dynamics": dynamics.exhibit, "pass_at_k": pass_at_k.exhibit}
"""What makes the exhibits of runs of any papers."""
ADDED = {"spice/claims": spice.with_cross_play}
"""What adds to the results, for an exhibit, what is measured after training."""
WIDE = 9
"""Columns of a table; one with more is set in small letters, so that a notebook has room for it."""


@dataclass(frozen=True)
class Exhibit:
    """A table or figure as a notebook shows it: made now, committed, or not made yet.

    Attributes:
        where: one line: where it was saved or that it is committed, and what it was made from.
        files: its files by ending ("png", "csv").
        item: the table or figure itself, where it was made now.
    """

    id: str
    where: str
    caption: str = ""
    protocol: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
    item: pd.DataFrame | Figure | None = None

    def __repr__(self) -> str:
        return f"{self.id}: {self.where}"

    def _ipython_display_(self) -> None:
        """The picture as saved, which has few colours and bytes; then the rest as HTML."""
        if "png" in self.files:
            picture = base64.b64encode(self.files["png"].read_bytes()).decode()
            display({"image/png": picture, "text/plain": self.id}, raw=True)
        display({"text/html": self._repr_html_(), "text/plain": repr(self)}, raw=True)

    def _repr_html_(self) -> str:
        """All but the picture: the whole table, caption, protocol, where it is from."""
        table = "" if "png" in self.files or not self.files else _html(self.files["csv"])
        texts = [escape(self.caption)] if self.caption else []
        texts += [f"<em>Protocol.</em> {escape(self.protocol)}"] if self.protocol else []
        texts.append(f"<small>{escape(repr(self))}</small>")
        return table + "".join(f"<p>{text}</p>" for text in texts)


def _html(path: Path) -> str:
    """A table as saved, no cell cut; texts to the left, numbers to the right; wide ones small."""

    def cell(text: str) -> str:
        return escape(text, quote=False).replace("\n", "<br>")

    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table = table.map(cell).rename(columns=cell)
    with pd.option_context("display.max_colwidth", None):
        html = table.to_html(index=False, escape=False, justify="left", border=0)
    if len(table.columns) > WIDE:
        html = html.replace("<table ", '<table style="font-size:80%" ', 1)
    html = re.sub(r"<td>(?![-+.\d]*</td>)", '<td style="text-align:left">', html)
    return re.sub(r">\n\s*<", "><", html)


def exhibit(
    exhibit_id: str,
    plan: Plan | None = None,
    frames: Frames | None = None,
    folder: str | Path | None = None,
    **options: Any,
) -> Exhibit:
    """Makes an exhibit from the runs and saves it; the committed one where runs lack.

    One of formulas is made without runs.

    Args:
        plan: whose runs are taken; without plan and frames the committed exhibit is shown.
        frames: the plan's runs as `gather` gives them, if they have been read already.
        folder: where to save; the plan's folder for figures if left out.
        options: of a shared analysis: those of `exhibit` in `spnb.report.dynamics` and `pass_at_k`.

    Raises:
        ValueError: no such exhibit; names the nearest. Options that it does not take.
        ExhibitError: it cannot be saved; or there is no plan and it is not committed.
    """
    info = exhibit_info(exhibit_id)
    if options and info.source != "shared":
        raise ParamError(unknown(f"option of {exhibit_id}", next(iter(options)), []))
    if exhibit_id in shapes.MAKERS:
        own = resolve(folder or (plan.figures if plan else default_folder()))
        return _save(exhibit_id, shapes.make(exhibit_id), own)
    if frames is None:
        frames = gather([run for run in plan.all() if run.finished] if plan else [])
    if plan is None and not frames.runs:
        return committed(exhibit_id)
    folder = resolve(folder or (plan.figures if plan else notebooks.shared_folder(frames.runs)))
    if lacking := _would_lose(info, frames, folder):
        return committed(exhibit_id, lacking)
    if info.source == "shared":
        made = SHARED[info.paper](exhibit_id, frames, **options)
        return _save(exhibit_id, made, folder) if made else _nothing(exhibit_id)
    made = make(info, plan, frames) if plan else None
    if made is None:
        return committed(exhibit_id, _missing(exhibit_id, frames))
    return _save(exhibit_id, made, folder)


def _save(exhibit_id: str, made: ExhibitContent, folder: Path) -> Exhibit:
    """Saves what has been made."""
    texts = {"caption": made.caption, "protocol": fill_placeholders(made.protocol, made.runs)}
    save(exhibit_id, made.item, made.runs, data=made.data, folder=folder, **texts)
    if isinstance(made.item, Figure):
        plt.close(made.item)
    return saved(exhibit_id, folder, made.item)


def _nothing(exhibit_id: str) -> Exhibit:
    """The committed exhibit, if there is one, where the runs at hand have nothing for it."""
    why = "no run has anything to show"
    folder = resolve(COMMITTED)
    record = _record(exhibit_id, folder)
    if record is None:
        return Exhibit(exhibit_id, why)
    return _shown(record, folder, f"{why}; committed: {made_from(record)}")


Described = dict[str, CustomExhibit | Table | Curves | Claims]
"""A paper's exhibits as its reference folder has them, by id."""


@cache
def described(paper: str) -> Described:
    """What is known of a paper's exhibits; empty where the paper has no such files."""
    tables, claims = (paper in reference.sources(f"{name}.yaml") for name in ("tables", "claims"))
    entries: Described = {**load_own(paper), **load_tables(paper)} if tables else {}
    verdicts = load_claims(paper) if claims else None
    return {**entries, **load_curves(paper), **({verdicts.exhibit: verdicts} if verdicts else {})}


def make(info: ExhibitInfo, plan: Plan, frames: Frames) -> ExhibitContent | None:
    """The exhibit from these runs; None where they lack its variants."""
    entry = described(info.paper).get(info.id)
    if info.id in MAKERS:
        texts = entry if isinstance(entry, CustomExhibit) else None
        if texts and texts.variants and not frames.runs:
            return None
        made = MAKERS[info.id](plan, frames)
        if made is None or texts is None:
            return made
        return made._replace(caption=texts.caption, protocol=texts.protocol)
    adds = ADDED.get(info.id, lambda frames: frames)
    return entry.content(adds(frames)) if entry else None


def needed_variants(exhibit_id: str) -> list[str]:
    """The variants whose runs an exhibit takes; none where it needs no run."""
    entry = described(exhibit_id.split("/")[0]).get(exhibit_id)
    return list(entry.variants) if entry else []


def _missing(exhibit_id: str, frames: Frames) -> list[str]:
    return [name for name in needed_variants(exhibit_id) if name not in frames.variants]


def _would_lose(info: ExhibitInfo, frames: Frames, folder: Path) -> list[str]:
    """The variants that a committed exhibit would lose if these runs' took its place."""
    record = _record(info.id, folder)
    if record is None or folder != resolve(COMMITTED):
        return []
    if info.source != "shared":
        return [name for name in _missing(info.id, frames) if name in record["variants"]]
    there = {(run.paper, run.variant) for run in frames.runs}
    taken = dict.fromkeys(tuple(run_id.split("/")[::2]) for run_id in record["runs"])
    known = {(paper, name) for paper in params.papers() for name in params.variants(paper)}
    return [f"{paper}/{name}" for paper, name in taken if (paper, name) in known - there]


def _record(exhibit_id: str, folder: Path) -> dict[str, Any] | None:
    """The record of a saved exhibit whose files are all there."""
    for record in read_index(folder):
        if record["id"] == exhibit_id and all((folder / f).is_file() for f in record["files"]):
            return record
    return None


def _shown(record: Mapping[str, Any], folder: Path, where: str, item: Any = None) -> Exhibit:
    files = {Path(name).suffix[1:]: folder / name for name in record["files"]}
    return Exhibit(record["id"], where, record["caption"], record["protocol"], files, item)


def saved(exhibit_id: str, folder: Path, item: pd.DataFrame | Figure | None = None) -> Exhibit:
    """An exhibit that has just been saved; ExhibitError if it was not."""
    record = _record(exhibit_id, folder)
    if record is None:
        raise ExhibitError(f"exhibit {exhibit_id} was not saved in {folder}")
    path = folder / record["files"][0]
    place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return _shown(record, folder, f"saved in {place}. {made_from(record)}", item)


def committed(exhibit_id: str, lacks: Sequence[str] | None = None) -> Exhibit:
    """The exhibit in `figures/`; `lacks`: the variants that a plan lacks to make it.

    ExhibitError if it is not there and there is no plan that could be told what it lacks.
    """
    folder = resolve(COMMITTED)
    record = _record(exhibit_id, folder)
    needs = f"; this plan lacks the variants {', '.join(lacks)}" if lacks else ""
    if record:
        return _shown(record, folder, f"committed: {made_from(record)}{needs}")
    if lacks is None:
        raise ExhibitError(f"exhibit {exhibit_id} is not in {folder}; {_how(exhibit_id)}")
    return Exhibit(exhibit_id, f"not made yet{needs}; {_how(exhibit_id)}")


def _how(exhibit_id: str) -> str:
    """What makes it, or that nothing does yet."""
    info = exhibit_info(exhibit_id)
    if info.paper in [*params.papers(), *OTHERS]:
        return f"made by: {COMMANDS.get(info.paper, f'spnb exhibit {exhibit_id}')}"
    return f"{info.paper} is not there yet; allowed: exhibits of {', '.join(params.papers())}"


def regenerate(
    exhibit_id: str, scale: str = "cpu", say: Callable[[str], None] = print
) -> list[Path]:
    """Makes one exhibit again: trains only what it takes, says first what and how long.

    Exhibits of shared analyses take the finished runs that there are; static ones take none.

    Returns:
        Its files.

    Raises:
        ValueError: no such exhibit or scale; names the nearest.
        ExhibitError: nothing makes it here, or it cannot be saved.
        RunError: a run failed, or there is no finished run.
    """
    info = exhibit_info(exhibit_id)
    if info.paper == "embedded":
        say(f"{exhibit_id} is made by its notebook: minutes, nothing is trained.")
        notebooks.execute(info.paper, scale)
        shown = saved(exhibit_id, default_folder())
    elif exhibit_id in shapes.MAKERS:
        say(f"{exhibit_id} is made from formulas: no run is needed.")
        shown = exhibit(exhibit_id)
    elif info.source == "shared":
        frames = gather(find_runs(scale=scale))
        say(f"{exhibit_id} takes the {len(frames.runs)} finished runs there are; none is trained.")
        shown = exhibit(exhibit_id, frames=frames)
    elif info.paper not in params.papers():
        raise ExhibitError(f"exhibit {exhibit_id} cannot be made by this: {_how(exhibit_id)}")
    elif info.source == "static":
        shown = exhibit(exhibit_id, make_plan(info.paper, scale), Frames())
    else:
        shown = exhibit(exhibit_id, _trained(info, scale, say))
    say(repr(shown))
    return list(shown.files.values())


def _trained(info: ExhibitInfo, scale: str, say: Callable[[str], None]) -> Plan:
    """The plan of the runs that an exhibit takes, all of them finished."""
    plan = make_plan(info.paper, scale, variants=needed_variants(info.id) or None)
    check_writable(plan.figures)
    say(f"{info.id} takes these runs at scale {scale}:\n{notebooks.announce(plan, rest=False)}")
    if why := plan.why_not_committed():
        say(f"{why} It is saved in {plan.figures}.")
    run_all(plan)
    if scale != "smoke":
        notebooks.note_times(plan, None)
    return plan

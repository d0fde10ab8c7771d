"""An exhibit by its id: made from the runs of a plan, or the committed one.

What is data (`tables.yaml`, `figures.yaml`, `claims.yaml`) is made here; the makers of the others
are in `spnb.report.papers`, those of formulas in `spnb.report.shapes`.
"""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from inspect import signature
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from spnb import reference
from spnb.core import params
from spnb.core.params import SCALES, ParamError, require, unknown
from spnb.core.paths import ROOT, resolve
from spnb.report import dynamics, notebooks, pass_at_k, power, search, shapes, tables
from spnb.report.claims import Claims, load_claims
from spnb.report.curves import Curves, load_curves
from spnb.report.display import ROWS, table_html
from spnb.report.exhibits import (
    COMMANDS,
    ExhibitContent,
    ExhibitError,
    ExhibitInfo,
    check_writable,
    command_of,
    default_folder,
    exhibit_info,
    find_record,
    folder_of,
    made_from,
    ranges,
)
from spnb.report.exhibits import save_exhibit as save
from spnb.report.frame import Frames, gather
from spnb.report.papers import proposer, rlvr, scope, spell, spice, spiral, ssp
from spnb.report.tables import CustomExhibit, Table, fill_placeholders, load_own, load_tables
from spnb.train.find import find_runs
from spnb.train.plan import Plan, make_plan, run_all
from spnb.train.provenance import COMMITTED

PAPERS = (spiral, spell, spice, rlvr, proposer, ssp, scope)
MAKERS = {name: maker for paper in PAPERS for name, maker in paper.MAKERS.items()}
MAKERS |= {f"{paper}/seeds": tables.seeds_table for paper in params.papers()}
SETTINGS = ("spiral/table-6", "spell/table-6", "spice/table-5", "ssp/table-4", "scope/table-9")
MAKERS |= dict.fromkeys(SETTINGS, tables.settings_table)
MAKERS |= {f"{paper}/power": power.table for paper in ("spell", "spice", "scope", "ssp")}
SHARED = {"dynamics": dynamics.exhibit, "pass_at_k": pass_at_k.exhibit}
"""What makes the exhibits of runs of any papers."""
ADDED = {
    **dict.fromkeys(("spice/claims", "spice/seeds"), spice.with_cross_play),
    "spiral/poker-equilibrium": spiral.with_averages,
    **dict.fromkeys(("scope/judge", "scope/seeds"), scope.with_acceptance),
}
"""What adds to the results, for an exhibit, what is measured after training."""
BANNER = (
    '<p style="border-left:6px solid #D55E00;background:#FFF1E6;color:#222;padding:4px 8px">{}</p>'
)


@dataclass(frozen=True)
class Exhibit:
    """A table or figure as a notebook shows it: made now, committed, or not made yet.

    Attributes:
        where: one line: where it was saved or that it is committed, and what it was made from.
        files: its files by ending ("png", "csv").
        item: the table or figure itself, where it was made now.
        warning: what a reader must not miss, "" if nothing.
        made: whether it was made and saved just now.
    """

    id: str
    where: str
    caption: str = ""
    protocol: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
    item: pd.DataFrame | Figure | None = None
    warning: str = ""
    made: bool = False

    def __repr__(self) -> str:
        return f"{self.id}: {self.where}"

    def _ipython_display_(self) -> None:
        """A warning, the picture as saved, which has few colours and bytes, and the rest."""
        if self.warning:
            html = BANNER.format(escape(self.warning))
            display({"text/html": html, "text/plain": self.warning}, raw=True)
        if "png" in self.files:
            picture = base64.b64encode(self.files["png"].read_bytes()).decode()
            display({"image/png": picture, "text/plain": self.id}, raw=True)
        display({"text/html": self._repr_html_(), "text/plain": repr(self)}, raw=True)

    def _repr_html_(self) -> str:
        """All but the picture: the table, caption, protocol, where it is from."""
        html = ""
        if "csv" in self.files and "png" not in self.files:
            table = pd.read_csv(self.files["csv"], dtype=str, keep_default_na=False)
            html = table_html(table, _first(self.id, table))
        texts = [escape(self.caption)] if self.caption else []
        texts += [f"<em>Protocol.</em> {escape(self.protocol)}"] if self.protocol else []
        texts.append(f"<small>{escape(repr(self))}</small>")
        return html + "".join(f"<p>{text}</p>" for text in texts)


def _first(exhibit_id: str, table: pd.DataFrame) -> list[bool]:
    """Whether each row of an exhibit stays open: what was run, of many arms the headline ones."""
    names = table.iloc[:, 0].str.split(" (paper:", n=1, regex=False).str[0]
    stays = ~names.str.startswith("not run")
    paper = exhibit_id.split("/")[0]
    entry = described(paper).get(exhibit_id)
    if isinstance(entry, Table) and stays.sum() > ROWS:
        heads = [name for name, about in params.variants(paper).items() if about.get("headline")]
        arms = [row.name for row in entry.rows if row.run is None or row.run[0] in heads]
        stays &= names.isin(arms)
    return stays.tolist()


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
        folder: where to save; left out: the plan's folder for figures, or that of `folder_of`.
        options: of a shared analysis: those of `exhibit` in `spnb.report.dynamics` and `pass_at_k`.

    Raises:
        ValueError: no such exhibit; names the nearest. Options that it does not take.
        ExhibitError: it cannot be saved; or there is no plan and it is not committed.
    """
    info = exhibit_info(exhibit_id)
    if options and info.source != "shared":
        raise ParamError(unknown(f"option of {exhibit_id}", next(iter(options)), []))
    if exhibit_id in shapes.MAKERS:
        own = folder or (plan.figures if plan else default_folder())
        return _save(exhibit_id, shapes.make(exhibit_id), resolve(own))
    if frames is None:
        frames = gather([run for run in plan.all() if run.finished] if plan else [])
    if plan is None and not frames.runs:
        return committed(exhibit_id)
    folder = resolve(folder or (plan.figures if plan else folder_of(frames.runs)))
    if lost := _lost(exhibit_id, frames, folder):
        return committed(exhibit_id, lost, frames)
    if info.source == "shared":
        allowed = list(signature(SHARED[info.paper]).parameters)[2:]
        for name in options:
            require(f"option of {exhibit_id}", name, allowed)
        made = SHARED[info.paper](exhibit_id, frames, **options)
        if made is None:
            return committed(exhibit_id, (), frames, "no run has anything to show")
        return _save(exhibit_id, made, folder)
    if plan is None:
        raise ParamError(f"plan is None with frames for {exhibit_id}; allowed: its runs' plan")
    require(f"paper of the plan for {exhibit_id}", plan.paper, [info.paper])
    made = make(info, plan, frames)
    if made is None:
        needed = needed_variants(exhibit_id, plan.scale)
        absent = [name for name in needed if name not in frames.variants]
        why = "" if absent or not frames.runs else "these runs have none of its numbers"
        return committed(exhibit_id, absent, frames, why)
    return _save(exhibit_id, made, folder)


def _save(exhibit_id: str, made: ExhibitContent, folder: Path) -> Exhibit:
    texts = {"caption": made.caption, "protocol": fill_placeholders(made.protocol, made.runs)}
    save(exhibit_id, made.item, made.runs, data=made.data, folder=folder, **texts)
    if isinstance(made.item, Figure):
        plt.close(made.item)
    return saved(exhibit_id, folder, made.item)


Described = CustomExhibit | Table | Curves | Claims


@cache
def described(paper: str) -> dict[str, Described]:
    """A paper's exhibits as its reference folder has them, by id."""
    entries: dict[str, Described] = {}
    if paper in reference.sources("tables.yaml"):
        entries |= load_own(paper) | load_tables(paper)
    claims = [load_claims(paper, file) for file in reference.claims_files(paper)]
    return entries | {each.exhibit: each for each in claims} | load_curves(paper)


def make(info: ExhibitInfo, plan: Plan, frames: Frames) -> ExhibitContent | None:
    """The exhibit from these runs; None where they lack its variants."""
    entry = described(info.paper).get(info.id)
    frames = ADDED.get(info.id, lambda frames: frames)(frames)
    texts = entry if isinstance(entry, CustomExhibit) else None
    if texts and texts.variants and not {*texts.variants, *frames.own} & {*frames.variants}:
        return None
    if info.id in MAKERS:
        made = MAKERS[info.id](plan, frames)
    else:
        made = entry.content(frames) if entry else None
    if made is None or (made.data is not None and made.data.empty):
        return None
    more = {"caption": texts.caption, "protocol": made.protocol or texts.protocol} if texts else {}
    return made._replace(**more)


def needed_variants(exhibit_id: str, scale: str = "") -> list[str]:
    """The variants whose runs an exhibit takes; of these the ones that a scale has, if it has any.
    None where the exhibit needs no run."""
    paper = exhibit_id.split("/")[0]
    entry = described(paper).get(exhibit_id)
    names = list(entry.variants) if entry else []
    there = params.variants_at(paper, scale) if names and scale else {}
    return [name for name in names if name in there] or names


def _lost(exhibit_id: str, frames: Frames, folder: Path) -> list[str]:
    """What a committed exhibit would lose if these runs' took its place: variants, or some of their
    seeds, of those that there are today."""
    record = find_record(exhibit_id, folder) if folder == resolve(COMMITTED) else None
    needed = needed_variants(exhibit_id) if record else []
    there = {run.run_id for run in frames.runs}
    before, gone = Counter(), {}
    for run_id in record["runs"] if record else ():
        paper, scale, variant, seed = run_id.split("/")
        number = int(seed.removeprefix("seed-").partition(".")[0])
        there_is = variant in (needed or params.variants(paper))
        if there_is and number in _seeds(paper, scale, variant):
            name = variant if needed else f"{paper}/{variant}"
            before[name] += 1
            gone.setdefault(name, []).extend([] if run_id in there else [number])
    return [
        name if len(seeds) == before[name] else f"{name} (seeds {ranges(seeds)})"
        for name, seeds in gone.items()
        if seeds
    ]


def _seeds(paper: str, scale: str, variant: str) -> list[int]:
    own = params.variants(paper).get(variant, {}).get("seeds", {}).get(scale)
    own = params.scale_values(paper, scale)["seeds"] if own is None else own
    return [own] if isinstance(own, int) else own


def saved(exhibit_id: str, folder: Path, item: pd.DataFrame | Figure | None = None) -> Exhibit:
    """An exhibit that has just been saved; ExhibitError if it was not."""
    record = find_record(exhibit_id, folder)
    if record is None:
        raise ExhibitError(f"exhibit {exhibit_id} was not saved in {folder}")
    path = folder / record["files"][0]
    place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return _shown(record, folder, f"saved in {place}. {made_from(record)}", item=item, made=True)


def committed(
    exhibit_id: str, lacks: Sequence[str] = (), frames: Frames | None = None, why: str = ""
) -> Exhibit:
    """The exhibit in `figures/`; it warns where that is of another scale than the runs at hand.

    Args:
        lacks: the variants that a plan lacks to make it.
        frames: the runs at hand.
        why: why nothing was made of them, where they lack no variant.

    Raises:
        ExhibitError: it is not there, and nobody's runs were to make it.
    """
    folder = resolve(COMMITTED)
    record = find_record(exhibit_id, folder)
    needs = f"; this plan lacks the variants {', '.join(lacks)}" if lacks else ""
    if record is None and frames is None:
        raise ExhibitError(f"exhibit {exhibit_id} is not in {folder}; {_how(exhibit_id)}")
    if record is None:
        return Exhibit(exhibit_id, why or f"not made yet{needs}; {_how(exhibit_id)}")
    where = f"{why and why + '; '}committed: {made_from(record)}{needs}"
    scales = {run.scale for run in frames.runs} - {record["scale"]} if frames else set()
    warning = ""
    if scales and record["scale"]:
        theirs = f"which are of scale {' and '.join(sorted(scales))}"
        own = f"the committed exhibit, of scale {record['scale']}"
        warning = f"Not of this notebook's runs, {theirs}: {own}."
    return _shown(record, folder, where, warning=warning)


def _shown(record: Mapping[str, Any], folder: Path, where: str, **more: Any) -> Exhibit:
    files = {Path(name).suffix[1:]: folder / name for name in record["files"]}
    return Exhibit(record["id"], where, record["caption"], record["protocol"], files, **more)


def _how(exhibit_id: str) -> str:
    return f"made by: {command_of(exhibit_info(exhibit_id), 'cpu')}"


def regenerate(exhibit_id: str, scale: str = "cpu") -> list[Path]:
    """Makes one exhibit again: trains only what it takes, prints first what and how long.

    Exhibits of shared analyses take the finished runs that there are; static ones take none.

    Returns:
        The files that were written; none where the committed exhibit was shown.

    Raises:
        ValueError: no such exhibit or scale; names the nearest.
        ExhibitError: nothing makes it here, or it cannot be saved.
        RunError: a run failed, or there is no finished run.
    """
    info = exhibit_info(exhibit_id)
    require("scale", scale, SCALES)
    if info.paper == "embedded" and exhibit_id not in COMMANDS:
        print(f"{exhibit_id} is made by its notebook: minutes, nothing is trained.")
        notebooks.execute(info.paper, scale)
        shown = saved(exhibit_id, default_folder())
    elif exhibit_id in shapes.MAKERS:
        print(f"{exhibit_id} is made from formulas: no run is needed.")
        shown = exhibit(exhibit_id)
    elif info.source == "shared":
        frames = gather(find_runs(scale=scale))
        count = len(frames.runs)
        print(f"{exhibit_id} takes the {count} finished runs there are; none is trained.")
        shown = exhibit(exhibit_id, frames=frames)
    elif exhibit_id in COMMANDS or info.paper not in params.papers():
        raise ExhibitError(f"exhibit {exhibit_id} cannot be made by this: {_how(exhibit_id)}")
    elif "/search" in info.id:
        shown = searched(exhibit_id, scale)
    elif info.source == "static":
        shown = exhibit(exhibit_id, make_plan(info.paper, scale), Frames())
    else:
        shown = exhibit(exhibit_id, _trained(info, scale))
    print(repr(shown))
    return list(shown.files.values()) if shown.made else []


def searched(name: str, scale: str = "cpu", folder: str | Path | None = None) -> Exhibit:
    """Runs a search, "spell/search" for instance, see `spnb.report.search`, and saves its table."""
    paper = exhibit_info(name).paper  # that it can be saved, before anything is run
    wanted = search.load_search(*name.split("/"))
    made = search.plans(paper, scale, wanted)
    where = resolve(folder or (made[0].figures if scale == "smoke" else default_folder()))
    check_writable(where)
    for plan in made:
        run_all(plan)
    return _save(name, search.table(name, wanted, made), where)


def _trained(info: ExhibitInfo, scale: str) -> Plan:
    """The plan of the runs that an exhibit takes, all of them finished."""
    needed = needed_variants(info.id, scale) or _committed_variants(info, scale)
    plan = make_plan(info.paper, scale, variants=needed or None)
    check_writable(plan.figures)
    print(f"{info.id} takes these runs at scale {scale}:\n{notebooks.announce(plan, rest=False)}")
    if why := plan.why_not_committed():
        print(f"{why} It is saved in {plan.figures}.")
    run_all(plan)
    notebooks.note_times(plan, None)
    return plan


def _committed_variants(info: ExhibitInfo, scale: str) -> list[str]:
    """Today's variants among those that the committed exhibit of a scale was made of."""
    record = find_record(info.id, resolve(COMMITTED)) or {"scale": None}
    there = params.variants_at(info.paper, scale) if record["scale"] == scale else {}
    return [name for name in there if name in record["variants"]]

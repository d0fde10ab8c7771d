"""An exhibit by its id: made from the runs of a plan, or the committed one.

What is data (`tables.yaml`, `claims.yaml`) is made here; the makers of the others are in
`spnb.report.spiral` and `spnb.report.studies`.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from spnb import reference
from spnb.core.paths import resolve
from spnb.report import dynamics, spiral, studies
from spnb.report.claims import load_claims, verdict_table
from spnb.report.exhibits import (
    ExhibitError,
    Made,
    exhibit_info,
    made_from,
    read_index,
    save_exhibit,
)
from spnb.report.frame import Frames, gather
from spnb.report.tables import Curves, Table, fill_in, load_tables, read_yaml
from spnb.train.plan import Plan

MAKERS = {**spiral.MAKERS, **studies.MAKERS}


@dataclass(frozen=True)
class Committed:
    """An exhibit as it is committed, with the record of where it comes from."""

    record: dict[str, Any]
    folder: Path
    needs: Sequence[str] = ()

    def __repr__(self) -> str:
        files = ", ".join(self.record["files"])
        needs = f"; here it needs the variants {', '.join(self.needs)}" if self.needs else ""
        made = f"{made_from(self.record)}{needs}"
        return f"{self.record['id']}, committed: {made}. {self.record['caption']} {files}"

    def _repr_html_(self) -> str:
        files = {Path(name).suffix: self.folder / name for name in self.record["files"]}
        if ".png" in files:
            picture = base64.b64encode(files[".png"].read_bytes()).decode()
            body = f'<img src="data:image/png;base64,{picture}">'
        else:
            body = pd.read_csv(files[".csv"], dtype=str).to_html(index=False, na_rep="")
        return f"<p>{escape(repr(self))}</p>{body}"


def exhibit(
    exhibit_id: str,
    plan: Plan | None = None,
    frames: Frames | None = None,
    folder: str | Path | None = None,
) -> pd.DataFrame | Figure | Committed | None:
    """Makes an exhibit from the runs, saves and returns it; the committed one where runs lack.

    Args:
        plan: whose runs are taken; without one the committed exhibit is shown.
        frames: the plan's runs as `gather` gives them, if they have been read already.
        folder: where to save; the plan's folder for figures if left out.

    Raises:
        ValueError: no such exhibit; names the nearest.
        ExhibitError: it is neither committed nor can it be made from these runs.
    """
    info = exhibit_info(exhibit_id)
    if frames is None:
        frames = gather([run for run in plan.all() if run.finished] if plan else [])
    folder = folder or (plan.figures if plan else "figures")
    if info.source == "shared" and frames.runs:
        return dynamics.exhibit(exhibit_id, frames, folder)
    made = make(exhibit_id, plan, frames) if plan else None
    if made is None:
        entry = _entry(exhibit_id)
        return committed(exhibit_id, entry.missing(frames.variants) if plan and entry else ())
    texts = {"caption": made.caption, "protocol": fill_in(made.protocol, made.runs)}
    save_exhibit(exhibit_id, made.item, made.runs, data=made.data, folder=folder, **texts)
    if isinstance(made.item, Figure):
        plt.close(made.item)
    return made.item


def make(exhibit_id: str, plan: Plan, frames: Frames) -> Made | None:
    """The exhibit from these runs; None where they lack its variants."""
    paper = exhibit_id.split("/")[0]
    if exhibit_id in MAKERS:
        made = MAKERS[exhibit_id](plan, frames)
        texts = read_yaml(paper, "tables.yaml")["own"].get(exhibit_id, {})
        return made and made._replace(**texts)
    if paper in reference.sources("claims.yaml"):
        claims = load_claims(paper)
        if claims.exhibit == exhibit_id:
            table = verdict_table(claims, frames)
            made = Made(table, frames.runs, None, claims.caption, claims.protocol)
            return made if len(table) else None
    entry = (
        load_tables(paper).get(exhibit_id) if paper in reference.sources("tables.yaml") else None
    )
    if entry is None or entry.missing(frames.variants):
        return None
    used = frames.only(list(entry.variants))
    if not isinstance(entry, Curves):
        return Made(entry.fill(used), used.runs, None, entry.caption, entry.protocol)
    data = entry.data(used)
    return Made(entry.draw(data), used.runs, data, entry.caption, entry.protocol)


def _entry(exhibit_id: str) -> Table | Curves | None:
    paper = exhibit_id.split("/")[0]
    if paper not in reference.sources("tables.yaml"):
        return None
    return load_tables(paper).get(exhibit_id)


def committed(exhibit_id: str, needs: Sequence[str] = ()) -> Committed:
    """The exhibit in `figures/`; `needs`: variants that it lacks here.

    Raises:
        ExhibitError: it is not there.
    """
    folder = resolve("figures")
    for record in read_index(folder):
        if record["id"] == exhibit_id and all((folder / f).is_file() for f in record["files"]):
            return Committed(record, folder, needs)
    raise ExhibitError(f"exhibit {exhibit_id} is not in {folder}, and these runs cannot make it")

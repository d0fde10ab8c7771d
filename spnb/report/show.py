"""An exhibit by its id: made from the runs of a plan, or the committed one.

What is data (`tables.yaml`, `claims.yaml`) is made here; the makers of the others are in
`spnb.report.spiral` and `spnb.report.studies`.
"""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from spnb import reference
from spnb.core.paths import resolve
from spnb.report import dynamics, spiral, studies
from spnb.report.claims import load_claims, verdict_table
from spnb.report.curves import Curves, load_curves
from spnb.report.exhibits import ExhibitError, Made, exhibit_info, made_from, read_index
from spnb.report.exhibits import save_exhibit as save
from spnb.report.frame import Frames, gather
from spnb.report.tables import Table, fill_in, load_tables, read_yaml
from spnb.train.plan import Plan

MAKERS = {**spiral.MAKERS, **studies.MAKERS}


class Committed(NamedTuple):
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
    described = info.paper in reference.sources("tables.yaml")
    entries = (load_tables(info.paper) | load_curves(info.paper)) if described else {}
    entry = entries.get(exhibit_id)
    made = make(exhibit_id, entry, plan, frames) if plan else None
    if made is None:
        return committed(exhibit_id, entry.missing(frames.variants) if plan and entry else ())
    texts = {"caption": made.caption, "protocol": fill_in(made.protocol, made.runs)}
    save(exhibit_id, made.item, made.runs, data=made.data, folder=folder, **texts)
    if isinstance(made.item, Figure):
        plt.close(made.item)
    return made.item


def make(exhibit_id: str, entry: Table | Curves | None, plan: Plan, frames: Frames) -> Made | None:
    """The exhibit from these runs; None where they lack its variants."""
    paper = exhibit_id.split("/")[0]
    if exhibit_id in MAKERS:
        made = MAKERS[exhibit_id](plan, frames)
        texts = read_yaml(paper, "tables.yaml")["own"].get(exhibit_id, {})
        return made and made._replace(**texts)
    claims = load_claims(paper) if paper in reference.sources("claims.yaml") else None
    if claims and claims.exhibit == exhibit_id:
        table = verdict_table(claims, frames)
        texts = (claims.caption, claims.protocol)
        return Made(table, frames.runs, None, *texts) if len(table) else None
    if entry is None or entry.missing(frames.variants):
        return None
    used = frames.only(list(entry.variants))
    data = entry.data(used) if isinstance(entry, Curves) else None
    item = entry.fill(used) if data is None else entry.draw(data)
    return Made(item, used.runs, data, entry.caption, entry.protocol)


def committed(exhibit_id: str, needs: Sequence[str] = ()) -> Committed:
    """The exhibit in `figures/`, ExhibitError if it is not there; `needs`: variants it lacks."""
    folder = resolve("figures")
    for record in read_index(folder):
        if record["id"] == exhibit_id and all((folder / f).is_file() for f in record["files"]):
            return Committed(record, folder, needs)
    raise ExhibitError(f"exhibit {exhibit_id} is not in {folder}, and these runs cannot make it")

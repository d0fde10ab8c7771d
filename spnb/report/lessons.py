"""What notebooks show beside exhibits: a turn's tokens, toy numbers, measures, excerpts of runs."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from spnb.core.params import unknown
from spnb.core.types import Sample
from spnb.report import plots
from spnb.report.frame import Frames, load_measures, side_by_side
from spnb.train.runs import Run


def token_table(sample: Sample, tokenizer: Any) -> pd.DataFrame:
    """One row of a rollout token by token, prompt first.

    Columns: id; text, as Python writes it, so that spaces and line ends can be seen; mask, 1 where
    the policy sampled the token; log-prob, in nats at the sampling temperature; advantage. A token
    that the policy did not sample has neither of the last two.
    """
    ids = [*sample.prompt_ids, *sample.completion_ids]
    after = range(len(sample.prompt_ids), len(ids))
    columns = {"mask": sample.mask, "log-prob": sample.logps, "advantage": sample.advantage}
    table = pd.DataFrame({"id": ids, "text": [repr(tokenizer.decode([i])) for i in ids]})
    table = table.join(pd.DataFrame(columns, index=after))
    table = table.fillna({"mask": 0}).astype({"mask": int, "log-prob": float, "advantage": float})
    table.loc[table["mask"] == 0, ["log-prob", "advantage"]] = float("nan")
    return table.rename_axis("position")


def toy_curves(table: pd.DataFrame, xlabel: str, ylabel: str) -> Figure:
    """A line a column over the table's index, for numbers that no run has made."""
    figure, (ax,) = plots.panels(1, height=2.8)
    for slot, name in enumerate(table.columns):
        look = {"color": plots.PALETTE[slot], "linestyle": plots.LINES[slot % len(plots.LINES)]}
        ax.plot(table[name], label=name, **look)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    plots.legend_below(figure)
    plt.close(figure)
    return figure


def over_training(
    frames: Frames,
    paper: str,
    names: Sequence[str],
    variants: Sequence[str] | None = None,
    minus: str | None = None,
) -> pd.DataFrame:
    """Measures of a paper at the start and the end of training, intervals over seeds.

    Args:
        names: of `tables.yaml` or `claims.yaml`; * stands for anything.
        variants: those shown, in this order; left out: all there are.
        minus: adds each variant's difference to this one at the end, paired by seed.

    Raises:
        ValueError: no measure has such a name.
    """
    known = load_measures(paper)
    for name in names:
        if not any(fnmatchcase(each, name) for each in known):
            raise ValueError(unknown("measure", name, known))
    order = [each for name in names for each in known if fnmatchcase(each, name)]
    measures = {name: known[name] for name in order}
    wanted = frames.variants if variants is None else variants
    shown = [name for name in wanted if name in frames.variants]
    parts = {
        when: side_by_side(frames, measures, shown, share=share, digits=2)
        for when, share in (("start", 0.0), ("end", 1.0))
    }
    if minus in shown and len(shown) > 1:
        parts[f"end, minus {minus}"] = side_by_side(frames, measures, shown, minus=minus, digits=2)
    return pd.concat(parts).T


def excerpt(run: Run, columns: Sequence[str], count: int = 3, role: str = "*") -> pd.DataFrame:
    """A few recorded rollouts of a role at the first and the last evaluation of a run."""
    rows = [row for row in run.rows("rollouts") if fnmatchcase(row["role"], role)]
    table = pd.DataFrame(rows, columns=["step", *columns])
    ends = table["step"].isin([table["step"].min(), table["step"].max()])
    return table[ends].groupby("step").head(count).reset_index(drop=True)

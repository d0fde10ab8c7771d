"""What a notebook shows beside exhibits: tables in one style, toy numbers, measures, excerpts."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from html import escape
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from spnb.core.params import require, unknown
from spnb.core.types import Sample
from spnb.report import plots
from spnb.report.exhibits import number_or_text
from spnb.report.frame import Frames, format_interval, load_measures
from spnb.train.runs import Run

ROWS = 16
COLUMNS = 9
"""Rows and columns of a table that stay open; what follows is folded."""
LONG = 30
"""Letters of a text that is written once where lines below repeat it."""
PAGE = '<div style="max-width:900px;overflow-x:auto">{}</div>'
OPEN = '<table class="dataframe" border="0" style="font-size:{}%">'
NUMBER = re.compile(r"-?|[-+]?[\d.,]*\d(e[-+]?\d+)?( ?%)?( \[.*\])?|- \(.*\)|nan")
INTERVAL = re.compile(r"\[([-\d.]+), ([-\d.]+)\]")
Lines = list[tuple[str, list[str]]]
"""A table as texts, column by column: what stands at its head, its cells."""


def table_html(table: pd.DataFrame, first: Sequence[bool] | None = None) -> str:
    """A table of at most 900 pixels: texts to the left, numbers to the right, no cell cut.

    A number of the paper is a grey second line of its cell. Columns after the ninth, and those that
    only the paper has, are folded below; so are rows from the 17th on, up to pandas' `max_rows`.

    Args:
        first: whether each row may stay open; without it what `attrs["first"]` says of its name.
    """
    lines = _texts(table)
    stays = table.attrs.get("first", {})  # a table cut out of another has its attrs
    named = stays and table.shape[1] and not {*stays} & {*map(str, table.index)}
    names = map(str, table.iloc[:, 0] if named else table.index)
    first = first if first is not None else [stays.get(name, True) for name in names]
    places = [place for place, stays in enumerate(first) if stays][:ROWS]
    most = pd.get_option("display.max_rows") or len(table)
    rest = [place for place in range(len(table)) if place not in places]
    papers = [line for line in lines if line[0].startswith("paper only")]
    ours = [line for line in lines if line not in papers]
    wide = ours[COLUMNS:] + papers
    more = [ours[:1] + wide[at : at + COLUMNS - 1] for at in range(0, len(wide), COLUMNS - 1)]
    html = _grid(ours[:COLUMNS], places)
    if wide:
        html += _folded(f"{len(wide)} more columns", [_grid(part, places) for part in more])
    if rest:
        parts = [_grid(part, rest[:most]) for part in (ours[:COLUMNS], *more)]
        beyond = f", {most} of them" if len(rest) > most else ""
        html += _folded(f"{len(rest)} more rows{beyond}", parts)
    return PAGE.format(html)


def _texts(table: pd.DataFrame) -> Lines:
    """The columns of a table, those of its index first unless it only counts the rows."""
    lines = []
    if not isinstance(table.index, pd.RangeIndex) or table.index.name:
        names = [table.columns.name or "", *table.index.names[1:]]
        for level, name in enumerate(table.index.names):
            lines.append((str(name or names[level] or ""), table.index.get_level_values(level)))
    for place, head in enumerate(table.columns):
        words = head if isinstance(head, tuple) else (head,)
        lines.append(("\n".join(str(word) for word in words if word != ""), table.iloc[:, place]))
    return [(head, [number_or_text(value) for value in values]) for head, values in lines]


def _grid(lines: Lines, places: Sequence[int]) -> str:
    """Some rows of some columns as one table."""
    numeric = [all(NUMBER.fullmatch(_halves(cell)[0]) for cell in cells) for _, cells in lines]
    sides = ["" if each else ' style="text-align:left"' for each in numeric]
    heads = [f"<th{side}>{_cell(head)}</th>" for (head, _), side in zip(lines, sides, strict=True)]
    rows = [f"<tr>{''.join(heads)}</tr></thead><tbody>"]
    above = ""
    for place in places:
        texts = [cells[place] for _, cells in lines]
        name = texts[0]
        if name == above and len(name) > LONG:
            texts[0] = ""
        above = name
        cells = [f"<td{side}>{_cell(text)}</td>" for text, side in zip(texts, sides, strict=True)]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(rows)
    return f"{OPEN.format(100 if len(lines) < COLUMNS else 85)}<thead>{body}</tbody></table>"


def _halves(text: str) -> tuple[str, str]:
    """Ours and the paper's in a cell, "55.0 (paper 44.5)"."""
    ours, _, paper = text.partition(" (paper")
    return (ours, f"paper{paper[:-1]}") if paper.endswith(")") else (text, "")


def _cell(text: str) -> str:
    ours, paper = (escape(part, quote=False).replace("\n", "<br>") for part in _halves(text))
    grey = f'<br><small style="color:#777">{paper}</small>' if paper else ""
    return INTERVAL.sub(r"[\1,&nbsp;\2]", ours) + grey


def _folded(words: str, parts: Sequence[str]) -> str:
    return f"<details><summary>{words}</summary>{''.join(parts)}</details>"


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
        turn, place = divmod(slot, len(plots.PALETTE))
        line = plots.LINES[(place + turn) % len(plots.LINES)]
        ax.plot(table[name], label=name, color=plots.PALETTE[place], linestyle=line)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    plots.legend_below(figure)
    plt.close(figure)
    return figure


def over_training(
    frames: Frames, paper: str, names: Sequence[str], variants: Sequence[str] | None = None
) -> pd.DataFrame:
    """Measures of a paper at the start and the end of training.

    Args:
        names: of `tables.yaml` or `claims.yaml`; * stands for anything.
        variants: those shown, in this order; left out: all there are.

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
    rows = {}
    for when, share in (("start", 0.0), ("end", 1.0)):
        for name in shown:
            levels = (each.interval(frames, name, share)[:3] for each in measures.values())
            rows[when, name] = [format_interval(*level, 2) for level in levels]
    return pd.DataFrame(rows, index=list(measures))


def excerpt(run: Run, columns: Sequence[str], count: int = 3, role: str = "*") -> pd.DataFrame:
    """A few recorded rollouts of a role at the first and the last evaluation of a run; a column
    that they lack is empty.

    Raises:
        ParamError: a column that they lack, and that is the name of another one misspelt.
    """
    rows = [row for row in run.rows("rollouts") if fnmatchcase(row["role"], role)]
    there = dict.fromkeys(key for row in rows for key in row)
    for name in columns:
        if get_close_matches(name, there, cutoff=0.8):
            require("column", name, there)
    table = pd.DataFrame(rows, columns=["step", *columns])
    ends = table["step"].isin([table["step"].min(), table["step"].max()])
    return table[ends].groupby("step").head(count).reset_index(drop=True)

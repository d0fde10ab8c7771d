"""What notebooks show beside exhibits, and the notebooks' own lessons, cell by cell."""

import math
import re

import nbformat
import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

import spnb as sp
from spnb.core.paths import ROOT
from spnb.core.types import Sample
from spnb.report import frame
from spnb.report.display import excerpt, over_training, table_html, token_table, toy_curves
from spnb.report.frame import Frames
from spnb.train.runs import open_run

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(html):
    """The rows of a page's first table, each cell as its text and whether it is to the left."""
    table = html.split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    return [
        [(text, "left" in style) for style, text in re.findall(r"<t[hd]( style.*?)?>(.*?)</t", row)]
        for row in rows
    ]


def test_texts_stand_left_numbers_right_and_the_papers_below_ours():
    table = pd.DataFrame(
        {
            "policy": ["start (paper: X)", "not\nrun"],
            "score (paper: All)": ["5.0 [1.0, 2.5] (paper 7; 8)", "- (chance 25 %)"],
            "share": [0.5, float("nan")],
        }
    )
    head, first, second = cells(table_html(table))
    grey = '<br><small style="color:#777">{}</small>'.format
    assert head == [("policy", True), (f"score{grey('paper: All')}", False), ("share", False)]
    assert first == [
        (f"start{grey('paper: X')}", True),
        (f"5.0 [1.0,&nbsp;2.5]{grey('paper 7; 8')}", False),
        ("0.5", False),
    ]
    assert second == [("not<br>run", True), ("- (chance 25 %)", False), ("-", False)]
    assert table_html(table).startswith('<div style="max-width:900px')


def test_nothing_in_a_cell_is_markup_and_none_is_cut():
    table = pd.DataFrame({"<b>": ["<img src=x onerror=y>" + "word " * 99], 2: [["a", 1]]})
    html = table_html(table)
    assert "<img" not in html and "<b>" not in html and "word " * 99 in html
    assert "['a', 1]" in html


def test_rows_and_columns_that_are_many_are_folded():
    wide = pd.DataFrame(np.arange(40 * 12).reshape(40, 12))
    wide[12] = "paper's"
    wide.columns = [*(f"c{place}" for place in range(12)), "paper only: c"]
    html = table_html(wide)
    assert len(cells(html)) == 17 and [text for text, _ in cells(html)[0]] == list(wide)[:9]
    assert re.findall(r"<summary>(.*?)<", html) == ["4 more columns", "24 more rows"]
    assert html.count("<table") == 4 and html.count("<th>c0<") == 4
    assert html.count(">479<") == html.count(">11<") == 1
    with pd.option_context("display.max_rows", 10):
        html = table_html(wide)
        assert "24 more rows, 10 of them" in html and ">479<" not in html
    flags = [place == 30 for place in range(40)]
    assert [row[0][0] for row in cells(table_html(wide, flags))] == ["c0", "360"]
    wide.attrs["first"] = {str(place): flag for place, flag in enumerate(flags)}
    assert table_html(wide) == table_html(wide, flags)
    assert table_html(wide.iloc[30:31]) == table_html(wide.iloc[30:31], [True]), "attrs stay"
    named = wide.iloc[:2].assign(c0=["a", "b"])
    named.attrs["first"] = {"a": False, "b": True}
    assert table_html(named) == table_html(named, [False, True])


def test_names_of_rows_and_nested_heads_are_shown():
    table = pd.DataFrame({("end", "full"): [1.5], ("end", ""): ["x"]}, index=["measure"])
    assert [row[0][0] for row in cells(table_html(table))] == ["", "measure"]
    assert [text for text, _ in cells(table_html(table))[0]] == ["", "end<br>full", "end"]
    named = pd.DataFrame({"a": [1]}).rename_axis("position").rename_axis("k", axis=1)
    assert cells(table_html(named))[0][0] == ("position", False)
    said = "A claim of more than thirty letters is written once."
    lines = cells(table_html(pd.DataFrame({"claim": [said, said, "B"], "part": ["B", "C", "D"]})))
    assert [row[0][0] for row in lines] == ["claim", said, "", "B"]


class Shell:
    """What the facade needs of a notebook's shell."""

    def __init__(self):
        self.display_formatter = DisplayFormatter()


def test_a_notebook_shows_every_frame_in_this_style(monkeypatch):
    shell = Shell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    sp.style_tables()
    table = pd.DataFrame({"text": ["a\nb"], "share": [0.25]})
    data, _ = shell.display_formatter.format(table)
    assert data["text/html"] == table_html(table)
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    sp.style_tables()


class Words:
    """A tokenizer of four words."""

    def decode(self, ids):
        return "".join(["move", " 4", "\n", "."][i] for i in ids)


def test_a_turn_is_shown_token_by_token():
    sample = Sample((0, 2), (1, 3, 2), (1, 0, 1), (-0.5, 0.0, -1.5), 1.0, "seat", 0, advantage=0.7)
    table = token_table(sample, Words())
    assert table["id"].tolist() == [0, 2, 1, 3, 2] and table["mask"].tolist() == [0, 0, 1, 0, 1]
    assert table["text"].tolist() == ["'move'", r"'\n'", "' 4'", "'.'", r"'\n'"]
    sampled = table["mask"] == 1
    assert table.loc[sampled, "log-prob"].tolist() == [-0.5, -1.5]
    assert table.loc[sampled, "advantage"].tolist() == [0.7, 0.7]
    assert table.loc[~sampled, ["log-prob", "advantage"]].isna().all(axis=None)


def test_a_turn_nobody_sampled_and_nobody_estimated_has_no_numbers():
    table = token_table(Sample((0,), (1, 2), (1, 1), None, 1.0, "seat", 0), Words())
    assert table["mask"].tolist() == [0, 1, 1]
    assert table[["log-prob", "advantage"]].isna().all(axis=None)


def test_toy_curves_draw_a_line_a_column_with_its_name():
    table = pd.DataFrame({"seat 0": [0.0, 0.5], "seat 1": [0.0, -0.5]}, index=[3, 9])
    figure = toy_curves(table, "match", "baseline")
    (ax,) = figure.axes
    assert [line.get_xydata().tolist() for line in ax.lines] == [
        [[3, 0.0], [9, 0.5]],
        [[3, 0.0], [9, -0.5]],
    ]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("match", "baseline")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["seat 0", "seat 1"]


def frames():
    """Exploitability in poker of two variants, two seeds each, at the start and the end."""
    values = {"full": ((0.4, 0.2), (0.4, 0.3)), "no-rae": ((0.4, 0.3), (0.4, 0.5))}
    rows = [
        (variant, seed, step, value)
        for variant, seeds in values.items()
        for seed, ends in enumerate(seeds)
        for step, value in zip((0, 30), ends, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["variant", "seed", "step", "value"])
    table = table.assign(paper="spiral", scale="cpu", suite="kuhn_poker", metric="exploitability")
    table = table.reindex(columns=frame.RESULTS)
    keys = {key: table[key].astype(object).fillna("") for key in frame.KEYS}
    return Frames(results=table.assign(**keys))


def test_measures_over_training(monkeypatch):
    monkeypatch.setattr(Frames, "variants", ["full", "no-rae"])
    table = over_training(frames(), "spiral", ["exploit*"])
    row = table.loc["exploitability"]
    assert row["start", "full"].startswith("0.40")
    assert row["end", "full"].startswith("0.25 [") and row["end", "no-rae"].startswith("0.40 [")
    alone = over_training(frames(), "spiral", ["exploitability"], ["no-rae"])
    assert list(alone.columns) == [("start", "no-rae"), ("end", "no-rae")]


def test_an_unknown_measure_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="measure is 'exploitabilty'.*did you mean 'exploitabil"):
        over_training(Frames(), "spiral", ["exploitabilty"])


def test_a_column_that_no_rollout_has_is_named(tmp_path):
    run = open_run(tmp_path, {"paper": "p", "scale": "smoke", "variant": "v", "seed": 0})
    run.append("rollouts", {"step": 1, "role": "r", "text": "said"})
    with pytest.raises(ValueError, match="column is 'txt', which is unknown; did you mean 'text'"):
        sp.excerpt(run, ["txt"])
    assert sp.excerpt(run, ["txt"], role="none").empty, "no rollout of that role says what it has"
    table = sp.excerpt(run, ["text", "level"])
    assert table["text"].tolist() == ["said"] and table["level"].isna().all(), "of other variants"


def test_an_excerpt_has_the_first_and_the_last_rollouts_of_a_role(tmp_path):
    run = open_run(tmp_path, {"paper": "rlvr", "scale": "cpu", "variant": "read", "seed": 3})
    for step in (5, 10, 15):
        for number in range(3):
            row = {"step": step, "role": "read", "text": f"{step}/{number}"}
            run.append("rollouts", row)
        run.append("rollouts", {"step": step, "role": "ask", "text": "other"})
    table = excerpt(run, ["text"], 2, "read")
    assert table.to_dict("list") == {"step": [5, 5, 15, 15], "text": ["5/0", "5/1", "15/0", "15/1"]}
    assert excerpt(run, ["text"])["text"].tolist()[:3] == ["5/0", "5/1", "5/2"]


def sources(name):
    """The cells of a notebook by id."""
    path = ROOT / f"notebooks/{name}.ipynb"
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def test_rae_in_its_own_lines_and_the_clipped_loss_by_hand():
    """The lessons' cells run by themselves; their asserts are hand-computed numbers."""
    cells, names = sources("04_spiral"), {"sp": sp, "pd": pd, "np": np, "display": print}
    for cell in ("9f033600", "rae-estimator", "clip-loss", "clip-table"):
        exec(cells[cell].source, names)
    toy = names["toy"]
    second = toy[toy["seat"] == 0].iloc[1]
    assert math.isclose(second["A"], 1 - 0.05) and math.isclose(second["baseline"], 0.0975)
    assert math.isclose(toy.loc[toy["match"] == 1, "A"].sum(), 0, abs_tol=1e-12)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_to_the_bars(path):
    """At most 60 cells and 250 lines of code; short cells, short diagrams, no picture by hand."""
    cells = nbformat.read(path, as_version=4).cells
    code = [cell.source.splitlines() for cell in cells if cell.cell_type == "code"]
    assert len(cells) <= 60 and sum(map(len, code)) <= 250
    assert max(map(len, code)) <= 30
    assert not [line for lines in code for line in lines if "plt." in line or "globals()" in line]
    assert not [cell.id for cell in cells if "flowchart LR" in cell.source]
    assert len({cell.id for cell in cells}) == len(cells)

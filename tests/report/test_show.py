"""An exhibit by its id: from runs where they are there, else the committed one."""

from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.figure import Figure

from spnb.report import show
from spnb.report.exhibits import ExhibitError, read_index
from spnb.report.frame import KEYS
from spnb.report.show import Committed, exhibit
from spnb.train.runs import open_run


def rlvr(root, *variants, steps=(0, 2)):
    """A plan of finished runs of rlvr, two seeds each: held-out accuracy 0.25, then 0.75."""
    runs = []
    for variant in variants:
        for seed in (0, 1):
            params = {"paper": "rlvr", "scale": "smoke", "variant": variant, "seed": seed}
            params |= {"policy": "p", "steps": 2, "prompts_per_step": 4, "group_size": 8}
            run = open_run(root / "runs", params | {"eval_items": 16})
            for step in steps:
                for decoding in ("sampled", "greedy"):
                    where = dict.fromkeys(KEYS, "") | {"suite": "held-out", "decoding": decoding}
                    value = 0.25 + 0.25 * step * (variant == "read")
                    numbers = {"value": value, "low": 0.0, "high": 1.0, "n": 16}
                    row = {"step": step, **where, **numbers}
                    run.append("evals", {**row, "metric": "accuracy"}, {**row, "metric": "thinks"})
            run.finish(seconds=1, resumed=False)
            runs.append(run)
    return SimpleNamespace(all=lambda: runs, figures=root / "figures", variants=list(variants))


def test_a_figure_is_made_saved_and_returned_closed(tmp_path):
    figure = exhibit("rlvr/learning-curves", rlvr(tmp_path, "read", "read-random"))
    assert isinstance(figure, Figure) and len(figure.axes) == 2
    (record,) = read_index(tmp_path / "figures")
    assert record["variants"] == ["read", "read-random"] and record["scale"] == "smoke"
    assert record["protocol"].startswith("Generated questions, policies p, 2 steps of 4 questions")
    data = pd.read_csv(tmp_path / "figures/rlvr/learning-curves.csv")
    assert set(data["quantity"]) == {"read, sampled", "read, greedy"}


def test_tables_of_claims_and_of_own_code(tmp_path):
    plan = rlvr(tmp_path, "read", "read-random")
    table = exhibit("rlvr/verdicts", plan)
    assert list(table.columns) == ["task", "claim", "bar", "measured", "verdict"]
    assert set(table["verdict"]) == {"met"} and len(table) == 6, "no line without runs"
    gains = exhibit("rlvr/gains", plan).set_index("measure (%)")
    line = gains.loc["right, held-out, sampled"]
    assert (line["start"], line["end"], line["gain"]) == (
        "25.0",
        "75.0 [75.0, 75.0]",
        "50.0 [50.0, 50.0]",
    )
    assert (line["gain of control"], line["more than control"]) == (
        "0.0 [0.0, 0.0]",
        "50.0 [50.0, 50.0]",
    )
    assert line["gain without the skill"] == "-" and line["items"] == 16
    assert [r["id"] for r in read_index(tmp_path / "figures")] == ["rlvr/gains", "rlvr/verdicts"]


def test_without_its_variants_the_committed_exhibit_is_shown(tmp_path):
    plan = rlvr(tmp_path, "read")
    plan.variants = ["read"]
    table = exhibit("spiral/table-12", plan)
    assert isinstance(table, Committed) and not (tmp_path / "figures").exists()
    assert repr(table).startswith("spiral/table-12, committed: Scale cpu")
    assert "here it needs the variants full, rlvr, play-then-rlvr, rlvr-then-play" in repr(table)
    assert "<table" in table._repr_html_() and "needs the variants" in table._repr_html_()
    figure = exhibit("spiral/figure-6")
    assert "data:image/png;base64," in figure._repr_html_()
    shared = exhibit("dynamics/length")
    assert isinstance(shared, Committed) and "needs" not in repr(shared)


def test_what_is_neither_made_nor_committed_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="exhibit is 'spiral/table-33'.*did you mean"):
        exhibit("spiral/table-33")
    monkeypatch.setattr(show, "resolve", lambda name: tmp_path)
    with pytest.raises(ExhibitError, match="ssp/table-1 is not in .*, and these runs cannot make"):
        exhibit("ssp/table-1")

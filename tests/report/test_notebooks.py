"""Every notebook executes by papermill at smoke scale, from another working directory, and writes
its exhibits."""

import json

import nbformat
import papermill
import pytest

from spnb.core.params import ParamError, variants
from spnb.core.paths import ROOT
from spnb.report import notebooks
from spnb.report.notebooks import (
    SHARED,
    about,
    describe,
    estimate,
    execute,
    notebook_of,
    regenerate,
    reproduce,
    with_notebook,
)

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def executed(path, tmp_path, **parameters):
    """The notebook executed in an empty folder, as a notebook object."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    target = str(tmp_path / "executed.ipynb")
    return papermill.execute_notebook(
        str(path),
        target,
        parameters=parameters,
        cwd=str(elsewhere),
        progress_bar=False,
        kernel_name="python3",
    )


def printed(notebook):
    """All text output of a notebook."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_clean_and_has_one_parameters_cell(path):
    cells = nbformat.read(path, as_version=4).cells
    tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1 and len(cells) <= 60
    kept = [
        c for c in cells if c.get("outputs") and "keep_output" not in c.metadata.get("tags", [])
    ]
    assert not kept


@pytest.mark.slow
def test_spiral_at_smoke_scale(tmp_path):
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    notebook = executed(notebook_of("spiral"), tmp_path, scale="smoke", run=folders)
    assert "2 runs, 4 training steps" in printed(notebook)
    records = json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    made = {r["id"].removeprefix("spiral/") for r in records}
    assert made == {"figure-4", "figure-6", "figure-9", "table-2", "table-6", "table-7", "table-11"}
    for record in records:
        assert record["id"] == "spiral/table-6" or (
            record["scale"] == "smoke" and 1 <= len(record["runs"]) <= 2
        )
        assert all((tmp_path / "figures" / name).is_file() for name in record["files"])
    assert not list((tmp_path / "elsewhere").iterdir())
    dynamics = ROOT / "notebooks/12_training_dynamics.ipynb"
    text = printed(executed(dynamics, tmp_path, scale="smoke", papers=["spiral"], **folders))
    assert "2 runs, 4 training steps" in text and "not decided" in text
    records = json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    made = [r for r in records if r["id"].startswith("dynamics/")]
    assert {r["id"].split("/")[1] for r in made} >= {
        "collapse",
        "length",
        "entropy",
        "gradient",
        "rewards",
        "results",
    }
    assert all(
        (tmp_path / "figures" / name).is_file() for record in made for name in record["files"]
    )
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.slow
def test_specialists_and_fixed_opponents_at_smoke_scale(tmp_path):
    """Exhibits that take more variants than the headline runs are made where a plan has them, and
    only there."""
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    chosen = [
        "only-kuhn",
        "only-tictactoe",
        "only-negotiation",
        "textarena-kuhn",
        "spiral-kuhn",
        "fixed-expert",
        "full",
    ]
    small = {"steps": 1, "eval_matches": 2, "eval_games": [], **folders}
    notebook = executed(notebook_of("spiral"), tmp_path, scale="smoke", variants=chosen, run=small)
    made = {
        r["id"].split("/")[1]
        for r in json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    }
    assert {"table-3", "table-4", "poker-rules"} <= made and not {
        "table-1",
        "table-12",
        "figure-5",
    } & made
    text = printed(notebook)
    assert "needs the variants rlvr, play-then-rlvr, rlvr-then-play" in text and "committed" in text


@pytest.mark.slow
def test_the_shared_notebook_without_runs_says_what_to_run_first(tmp_path):
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    dynamics = ROOT / "notebooks/12_training_dynamics.ipynb"
    with pytest.raises(
        papermill.PapermillExecutionError,
        match="no finished runs in .*/spiral/smoke; run first: make",
    ):
        executed(dynamics, tmp_path, scale="smoke", papers=["spiral"], **folders)


STUDIES = {
    "rlvr": ({"learning-curves", "behaviour", "gains", "verdicts"}, "tokens; end: "),
    "proposer": ({"frontier", "solver", "summary"}, "8 proposals, "),
}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_at_smoke_scale(study, tmp_path):
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    text = printed(executed(notebook_of(study), tmp_path, scale="smoke", run=folders))
    exhibits, by_hand = STUDIES[study]
    assert "2 runs, 4 training steps" in text and by_hand in text
    assert "not decided" in text, "one seed decides nothing"
    records = json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    assert {record["id"] for record in records} == {f"{study}/{name}" for name in exhibits}
    for record in records:
        assert record["scale"] == "smoke" and 1 <= len(record["runs"]) <= 2
        assert all((tmp_path / "figures" / name).is_file() for name in record["files"])
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.slow
def test_a_bad_parameter_stops_the_notebook_with_the_sentence(tmp_path):
    with pytest.raises(
        papermill.PapermillExecutionError, match="parameter is 'learnin_rate', which is unknown"
    ):
        executed(notebook_of("spiral"), tmp_path, scale="smoke", run={"learnin_rate": 0.1})


@pytest.mark.slow
def test_the_embedded_policy_notebook_rebuilds_at_smoke_scale(tmp_path):
    path, figures = ROOT / "notebooks/90_embedded_policy.ipynb", tmp_path / "figures"
    changes = {
        "unskilled_at": 2000,
        "base_at": 4000,
        "reading_until": 6000,
        "roles_until": 10_000,
        "practice_until": 12_000,
    }
    given = {"scale": "smoke", "rebuild": "world", "changes": changes}
    executed(path, tmp_path, **given, folder=str(tmp_path / "policies"), figures=str(figures))
    assert (tmp_path / "policies/world/instruct/model.safetensors").is_file()
    assert (figures / "embedded/skills.md").is_file() and (
        figures / "embedded/learning-curve.png"
    ).is_file()


def test_what_will_be_done_is_said_first(tmp_path, monkeypatch):
    from spnb.train.plan import make_plan

    plan = make_plan("spiral", "smoke", runs=str(tmp_path), figures=str(tmp_path))
    monkeypatch.setattr(notebooks, "timings", lambda: {"spiral": {"smoke": {"full": 0.5}}})
    table = describe(plan)
    assert table["run"].tolist() == ["spiral/smoke/full/seed-0", "spiral/smoke/no-rae/seed-0"]
    assert table["state"].tolist() == ["to do", "to do"]
    assert table["minutes when last measured"].tolist()[0] == 0.5
    assert about(plan).loc["no-rae", "about"] == variants("spiral")["no-rae"]["about"]
    assert estimate(plan).startswith("Not measured yet")
    measured = {"spiral": {"smoke": {"full": 30, "no-rae": 50, "rest": 2, "cores": 2}}}
    monkeypatch.setattr(notebooks, "timings", lambda: measured)
    assert estimate(plan).startswith("About 42 minutes on 2 cores for 2 runs")


def test_every_paper_and_analysis_has_its_notebook():
    assert "spiral" in with_notebook()
    assert notebook_of("dynamics").name == "12_training_dynamics.ipynb"
    assert notebook_of("embedded").name == "90_embedded_policy.ipynb"
    for name in ("go", "training"):
        with pytest.raises(ParamError, match="paper is .*, which is unknown; .*allowed: .*spiral"):
            notebook_of(name)


@pytest.mark.parametrize(("scale", "folder"), [("smoke", "runs/figures/smoke"), ("cpu", "figures")])
def test_shared_exhibits_go_where_the_scales_do(scale, folder, monkeypatch):
    told = {}
    monkeypatch.setattr(
        papermill, "execute_notebook", lambda *_, parameters, **__: told.update(parameters)
    )
    execute(SHARED[0], scale, seeds=[0])
    assert told == {"scale": scale, "figures": folder, "seeds": [0]}


def test_all_stands_for_every_variant_of_each_paper(monkeypatch):
    asked = []
    record = lambda paper, scale, **values: asked.append((paper, values))  # noqa: E731
    monkeypatch.setattr(notebooks, "execute", record)
    reproduce("spiral", "smoke", ["all"], [0, 1])
    reproduce("spiral", "smoke", ["full"], None)
    assert [name for name, _ in asked] == ["spiral", *SHARED, "spiral", *SHARED]
    assert asked[0][1] == {"variants": list(variants("spiral")), "seeds": [0, 1]}
    assert asked[1][1] == {"seeds": [0, 1]}
    assert asked[-1][1] == asked[-2][1] == {"variants": ["full"]}


def test_one_exhibit_is_made_with_the_variants_of_its_papers_others(monkeypatch):
    asked = []
    record = lambda paper, scale, **values: asked.append((paper, values))  # noqa: E731
    monkeypatch.setattr(notebooks, "execute", record)
    records = [
        {"id": "rlvr/gains", "scale": "cpu", "variants": ["read", "think"], "seeds": [0, 1]},
        {"id": "rlvr/verdicts", "scale": "cpu", "variants": ["think", "search"], "seeds": [1]},
        {"id": "rlvr/behaviour", "scale": "gpu", "variants": ["far"], "seeds": [9]},
        {"id": "spiral/table-3", "scale": "cpu", "variants": ["full"], "seeds": [5]},
    ]
    monkeypatch.setattr(notebooks, "read_index", lambda folder: records)
    regenerate("rlvr/gains", "cpu")
    regenerate("dynamics/length", "cpu")
    regenerate("proposer/frontier", "cpu")
    everything = {"variants": ["read", "think", "search"], "seeds": [0, 1]}
    assert asked == [("rlvr", everything), ("dynamics", {}), ("proposer", {})]
    with pytest.raises(ValueError, match="exhibit is 'rlvr/gain'.*did you mean 'rlvr/gains'"):
        regenerate("rlvr/gain", "cpu")
    with pytest.raises(ParamError, match="paper is 'ssp', which is unknown"):
        regenerate("ssp/table-1", "cpu")

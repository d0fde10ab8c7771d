"""Every notebook executes by papermill at smoke scale, from another working directory, and writes
its exhibits."""

import itertools
import json
import os
import re
from contextlib import nullcontext
from types import SimpleNamespace

import nbformat
import papermill
import pytest
import yaml
from kernels import forked_kernels
from nbformat.v4 import new_code_cell, new_notebook

from spnb.core.params import ParamError, variants
from spnb.core.paths import ROOT
from spnb.evaluate import items
from spnb.report import notebooks
from spnb.report.display import table_html
from spnb.report.exhibits import catalogue, read_index
from spnb.report.notebooks import (
    SHARED,
    about,
    announce,
    describe,
    estimate,
    execute,
    fit,
    notebook_of,
    reproduce,
    with_notebook,
)
from spnb.report.quick import STAMP
from spnb.train.plan import make_plan
from spnb.train.runs import open_run

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def executed(path, tmp_path, kernels=forked_kernels, **parameters):
    """The notebook executed in an empty folder, as a notebook object."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    target = str(tmp_path / "executed.ipynb")
    with kernels():
        return papermill.execute_notebook(
            str(path),
            target,
            parameters=parameters,
            cwd=str(elsewhere),
            progress_bar=False,
            kernel_name="python3",
            shutdown_kernel="immediate",  # multiprocessing's tracker ignores SIGTERM for 2.5 s
        )


def printed(notebook):
    """All text output of a notebook, tables as HTML."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = ("text/plain", "text/html")
    parts = [output.get("data", {}).get(kind, "") for output in outputs for kind in kinds]
    return "\n".join([*(output.get("text", "") for output in outputs), *parts])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_has_one_parameters_cell(path):
    cells = nbformat.read(path, as_version=4).cells
    tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1 and len(cells) <= 60
    lines = [len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code"]
    assert sum(lines) <= 250 and max(lines) <= 30


@pytest.mark.slow
def test_the_tour_runs(tmp_path):
    """One small run, an own game, reward, estimator and method, committed exhibits."""
    path = ROOT / "notebooks/00_tour.ipynb"
    text = printed(executed(path, tmp_path, run={"runs": str(tmp_path / "runs")}))
    assert "metrics.jsonl" in text and "Nim. 10 stones are left" in text
    assert "rlvr/gains: committed" in text
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.slow
def test_spiral_and_the_training_dynamics_at_smoke_scale(tmp_path):
    """Exhibits that take more variants than the headline runs are made where a plan has them, and
    only there."""
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    chosen = [
        "full",
        "no-rae",
        "only-kuhn",
        "only-tictactoe",
        "only-negotiation",
        "textarena-kuhn",
        "spiral-kuhn",
        "fixed-expert",
    ]
    few = {"eval_matches": 2, "eval_questions": 2, "eval_samples": 1, "eval_games": []}
    small = {"steps": 1, **few, **folders}
    notebook = executed(notebook_of("spiral"), tmp_path, scale="smoke", variants=chosen, run=small)
    text = printed(notebook)
    assert "8 runs, 8 training steps" in text
    assert "lacks the variants rlvr, play-then-rlvr, rlvr-then-play" in text
    records = json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    made = {r["id"].removeprefix("spiral/") for r in records}
    assert {f"figure-{number}" for number in (4, 6, 9)} <= made
    assert {f"table-{number}" for number in (2, 3, 4, 6, 7, 11)} | {"poker-rules"} <= made
    assert not {"table-1", "table-12", "figure-5"} & made, "they take other variants"
    for record in records:
        assert record["id"] == "spiral/table-6" or (
            record["scale"] == "smoke" and 1 <= len(record["runs"]) <= len(chosen)
        )
        assert all((tmp_path / "figures" / name).is_file() for name in record["files"])
    dynamics = ROOT / "notebooks/12_training_dynamics.ipynb"
    text = printed(executed(dynamics, tmp_path, scale="smoke", papers=["spiral"], **folders))
    assert "8 runs, 8 training steps" in text and "not decided" in text
    records = json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    made = [r for r in records if r["id"].startswith("dynamics/")]
    drawn = {"collapse", "length", "entropy", "gradient", "rewards", "results"}
    assert {r["id"].split("/")[1] for r in made} >= drawn
    files = [tmp_path / "figures" / name for record in made for name in record["files"]]
    assert all(path.is_file() for path in files)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.slow
def test_the_shared_notebook_without_runs_says_what_to_run_first(tmp_path):
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    dynamics = ROOT / "notebooks/12_training_dynamics.ipynb"
    with pytest.raises(
        papermill.PapermillExecutionError,
        match="no finished runs in .*/spiral/smoke; run first: make",
    ):
        executed(dynamics, tmp_path, scale="smoke", papers=["spiral"], **folders)


@pytest.mark.slow
def test_reward_shapes_need_no_run(tmp_path):
    """Its toy numbers are asserts; exhibits go where they are told."""
    figures = tmp_path / "figures"
    executed(notebook_of("shapes"), tmp_path, scale="smoke", figures=str(figures))
    records = json.loads((figures / "index.json").read_text())["exhibits"]
    names = ["spice/figure-7", "shapes/noise", "shapes/paid", "shapes/targets"]
    assert [record["id"] for record in records] == names
    assert not list((tmp_path / "elsewhere").iterdir())


def answered(root, variant, seed, right):
    """A run of SPELL with four answers to each of two questions, of which so many are right."""
    where = {"paper": "spell", "scale": "smoke", "variant": variant, "seed": seed, "policy": "p"}
    run = open_run(root, where)
    for step, counts in ((0, (1, 0)), (2, right)):
        for item, sample in itertools.product(range(2), range(4)):
            score = float(sample < counts[item])
            place = {"item": str(item), "sample": sample, "difficulty": f"level {item + 1}"}
            run.append("items", items.record("journey-4", score=score, **place) | {"step": step})
    run.finish()


@pytest.mark.slow
def test_pass_at_k_reads_finished_runs(tmp_path):
    for variant, seed in itertools.product(("full", "rlvr"), (0, 1)):
        answered(tmp_path / "runs", variant, seed, (4, 2) if variant == "full" else (4, seed))
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    notebook = executed(notebook_of("pass_at_k"), tmp_path, scale="smoke", ks=[1, 2, 4], **folders)
    text = printed(notebook)
    assert "4 runs, 48 values of pass@k" in text and "start" in text
    records = json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    assert [one["id"] for one in records] == [
        f"pass_at_k/{n}" for n in ("curves", "levels", "gains")
    ]
    assert "pass@4, minus rlvr" in (tmp_path / "figures/pass_at_k/gains.csv").read_text()
    assert not list((tmp_path / "elsewhere").iterdir())


STUDIES = {
    "rlvr": ({"learning-curves", "behaviour", "gains", "verdicts"}, "tokens; end: "),
    "proposer": ({"frontier", "leash", "rewards", "summary"}, "8 proposals, "),
}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_at_smoke_scale(study, tmp_path):
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    kernels = nullcontext if study == "rlvr" else forked_kernels  # one is as a user's
    text = printed(executed(notebook_of(study), tmp_path, kernels, scale="smoke", run=folders))
    exhibits, by_hand = STUDIES[study]
    assert "2 runs, 4 training steps" in text and by_hand in text
    assert "not decided" in text, "one seed decides nothing"
    records = json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    assert {record["id"] for record in records} == {f"{study}/{name}" for name in exhibits}
    for record in records:
        assert record["scale"] == "smoke" and 1 <= len(record["runs"]) <= 2
        assert all((tmp_path / "figures" / name).is_file() for name in record["files"])
    assert not list((tmp_path / "elsewhere").iterdir())


PAPERS = {
    "spell": (
        ("2 runs, 4 training steps", "rows are trained: {"),
        ("table-2", "no-format-penalty"),
        {*(f"figure-{number}" for number in (3, 4, 5, 6, 7, 8)), "claims", "table-6"},
    ),
    "spice": (
        ("2 runs, 4 training steps", " of them are trained"),
        ("table-3", "choice-only"),
        {*(f"figure-{number}" for number in (1, 3, 4, 5, 6, 7)), "claims", "table-5"},
    ),
    "ssp": (
        ("2 runs, 4 training steps", " rows trained, weights add up to "),
        ("table-1", "continued"),
        {*(f"figure-{number}" for number in (1, 3, 4)), "claims", "table-4", "table-7", "start"},
    ),
    "scope": (
        ("2 runs, 8 training steps", "grades of four answers: [", "length factor"),
        ("table-2", "curated"),
        {*(f"figure-{number}" for number in (3, 5, 6, 7, 15, 17)), "claims", "judge", "start"}
        | {f"table-{number}" for number in (4, 9, 10)},
    ),
}
"""What is printed, a table that other variants are for with the first that it lacks, and the
exhibits that the headline's runs are enough for."""


@pytest.mark.slow
@pytest.mark.parametrize("paper", list(PAPERS))
def test_a_paper_at_smoke_scale(tmp_path, paper):
    words, (lacking, first), exhibits = PAPERS[paper]
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    text = printed(executed(notebook_of(paper), tmp_path, scale="smoke", run=folders))
    assert [word for word in words if word not in text] == []
    assert f"{paper}/{lacking}: " in text and f"lacks the variants {first}, " in text
    records = json.loads((tmp_path / "figures/index.json").read_text())["exhibits"]
    assert {record["id"].removeprefix(f"{paper}/") for record in records} == exhibits
    for record in records:
        takes_runs = catalogue()[record["id"]].source in ("runs", "rollouts")
        assert len(record["runs"]) <= 2 and bool(record["runs"]) == takes_runs
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
    given = {"scale": "smoke", "rebuild": "player", "changes": {"tokens": 12_000}}
    executed(path, tmp_path, **given, folder=str(tmp_path / "policies"), figures=str(figures))
    assert (tmp_path / "policies/player/model.safetensors").is_file()
    assert (figures / "embedded/learner.md").is_file()


@pytest.mark.slow
def test_the_first_hour_at_smoke_scale(tmp_path):
    """Both ways and their controls, whole; of a random model no number is shown."""
    path, runs = ROOT / "notebooks/20_gpu.ipynb", tmp_path / "runs"
    text = printed(executed(path, tmp_path, scale="smoke", run={"runs": str(runs)}))
    finished = {path.parts[-5:-2] for path in runs.glob("*/*/*/*/finished.json")}
    arms = [(paper, arm) for paper in ("spice", "spiral") for arm in ("full", "random-reward")]
    assert finished == {(paper, "smoke", arm) for paper, arm in arms}
    assert text.count(STAMP) == 4 and "3 of 3 documents" in text
    assert all(f"{arm} step 2 of 2" in text for _, arm in arms)
    for words in ("GSM8K, right (%)", "kuhn_poker against random play", "tasks in the right form"):
        assert words in text
    assert "before" not in text and "change" not in text
    assert not list((tmp_path / "elsewhere").iterdir())


def small(tmp_path, **values):
    """A plan of two runs at smoke scale."""
    return make_plan("spiral", "smoke", runs=str(tmp_path), figures=str(tmp_path), **values)


def test_what_will_be_done_is_said_first(tmp_path, monkeypatch):
    plan = small(tmp_path, seeds=[0, 1, 3])
    monkeypatch.setattr(notebooks, "timings", lambda: {"spiral": {"smoke": {"full": 0.5}}})
    plan.open("full", 1).finish(seconds=1, resumed=False)
    table = describe(plan).set_index("variant")
    assert table.loc["full"].tolist() == ["0-1, 3", 2, "1 of 3", 0.5]
    assert table.loc["no-rae", "finished"] == "0 of 3"
    assert about(plan).loc["no-rae", "about"] == variants("spiral")["no-rae"]["about"]
    assert announce(plan).splitlines()[-1] == estimate(plan)


def test_the_estimate_counts_what_is_to_do(tmp_path, monkeypatch):
    plan = small(tmp_path, seeds=[0, 1])
    measured = {"full": 30, "no-rae": 50, "rest": 2, "cores": 2}
    monkeypatch.setattr(notebooks, "timings", lambda: {"spiral": {"smoke": measured}})
    runs = "4 runs (full 2, no-rae 2)"
    assert estimate(plan).startswith(f"About 82 minutes on 2 cores for {runs} and the notebook")
    assert estimate(plan, rest=False).startswith(f"About 80 minutes on 2 cores for {runs}, as")
    plan.open("full", 1).finish(seconds=1, resumed=False)
    assert "About 65 minutes on 2 cores for 3 runs (full 1, no-rae 2)" in estimate(plan, rest=False)
    plan.open("full", 0).finish(seconds=1, resumed=False)
    plan.open("no-rae", 0).finish(seconds=1, resumed=False)
    assert "About 50 minutes" in estimate(plan, rest=False), "one run takes as long with two jobs"
    del measured["no-rae"]
    assert estimate(plan).startswith("About 32 minutes"), "what nobody measured is as the others"
    plan.open("no-rae", 1).finish(seconds=1, resumed=False)
    assert (
        estimate(plan) == "About 2 minutes on 2 cores for the notebook, as last measured at "
        "this scale."
    )
    assert estimate(plan, rest=False) == "Every run is finished: nothing is trained."
    other = small(tmp_path / "other", seeds=[0], steps=3)
    assert estimate(other, rest=False).endswith("as last measured at this scale, with other steps.")
    measured["rest"] = 0.4
    assert estimate(plan).startswith("Less than a minute on 2 cores for the notebook")
    assert describe(plan)["minutes a run"].tolist() == [30, 30]
    del measured["rest"]
    assert estimate(plan) == "Not measured yet on any machine: the notebook."


def test_the_quickest_seed_is_what_a_variant_takes(tmp_path, monkeypatch):
    """The others may have shared the machine; a run that was resumed says nothing."""
    monkeypatch.setattr(notebooks, "TRIALS", tmp_path / "own")
    plan = small(tmp_path, variants=["full", "no-rae"], seeds=[0, 1, 2])
    for seed, seconds in enumerate((300, 90, 30)):
        plan.open("full", seed).finish(seconds=seconds, resumed=seconds == 30)
    plan.open("no-rae", 0).finish(seconds=60, resumed=True)
    notebooks.note_times(small(tmp_path, variants=["full"], steps=1), 60)
    assert not (tmp_path / "own").exists(), "runs with other parameters are no measure"
    notebooks.note_times(plan, 120)
    assert notebooks.timings()["spiral"]["smoke"] == {
        "full": 1.5,
        "cores": os.cpu_count(),
        "rest": 2.0,
    }


def test_times_of_variants_that_are_gone_are_dropped_and_price_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "TRIALS", tmp_path)
    monkeypatch.setattr(notebooks, "COMMITTED", tmp_path / "none")
    plan = small(tmp_path, variants=["full", "no-rae"], seeds=[0])
    old = {"gone": 90.0, "full": 2.0, "fixed-random": 4.0, "rest": 1.0, "cores": 2}
    other = {"smoke": {"gone": 1.0}}
    (tmp_path / "timings.json").write_text(json.dumps({"spiral": {"smoke": old}, "rlvr": other}))
    del old["gone"]
    assert notebooks.minutes_of(plan) == old | {"no-rae": 3.0}
    plan.open("no-rae", 0).finish(seconds=60, resumed=False)
    notebooks.note_times(plan, None)
    kept = notebooks.timings()
    assert kept["spiral"]["smoke"] == old | {"no-rae": 1.0, "cores": os.cpu_count()}
    assert kept["rlvr"] == other, "those of other papers are theirs to write"


def test_every_paper_and_analysis_has_its_notebook():
    assert "spiral" in with_notebook()
    assert notebook_of("dynamics").name == "12_training_dynamics.ipynb"
    assert notebook_of("pass_at_k").name == "14_pass_at_k.ipynb"
    assert notebook_of("shapes").name == "13_reward_shapes.ipynb"
    assert notebook_of("embedded").name == "90_embedded_policy.ipynb"
    assert notebook_of("gpu").name == "20_gpu.ipynb"
    for name in ("go", "training"):
        with pytest.raises(ParamError, match="paper is .*, which is unknown; .*allowed: .*spiral"):
            notebook_of(name)


@pytest.fixture
def told(monkeypatch):
    """What papermill was given; no run is trained and no notebook executed."""
    given = {}
    monkeypatch.setattr(notebooks, "run_all", lambda plan: given.update(trained=plan))
    monkeypatch.setattr(notebooks, "note_times", lambda *_: None)
    monkeypatch.setattr(
        papermill, "execute_notebook", lambda *_, **values: given.update(values["parameters"])
    )
    return given


def test_a_notebook_gets_only_names_of_its_parameters_cell(told, tmp_path):
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    execute("spiral", "smoke", seeds=[0], variants=["full"], steps=1, **folders)
    plan = told.pop("trained")
    assert ([*plan.runs], plan.params("full").steps) == ([("full", 0)], 1)
    run = {"steps": 1, **folders}
    assert told == {"scale": "smoke", "seeds": [0], "variants": ["full"], "run": run}


def test_a_value_that_no_cell_takes_is_refused():
    assert fit(["scale", "run"], {"scale": "cpu", "run": {"beta": 1}, "steps": 2}) == {
        "scale": "cpu",
        "run": {"beta": 1, "steps": 2},
    }
    assert fit(["scale"], {"scale": "cpu"}) == {"scale": "cpu"}
    with pytest.raises(ParamError, match="parameter is 'steps', which is unknown; allowed: scale"):
        fit(["scale"], {"scale": "cpu", "steps": 2})


@pytest.mark.slow
def test_a_valid_call_warns_of_nothing_and_stops_in_one_line(tmp_path, monkeypatch, capfd, caplog):
    """The real papermill on a small notebook: no warnings, and nothing of a kernel's tracebacks."""
    source = "import sys\nprint('noise')\nprint('murmur', file=sys.__stderr__)\nint(word)"
    cells = [
        new_code_cell("scale = 'cpu'\nword = '1'", metadata={"tags": ["parameters"]}),
        new_code_cell(source),
    ]
    path = tmp_path / "notebook.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata=KERNEL), path)
    monkeypatch.setattr(notebooks, "notebook_of", lambda paper: path)
    monkeypatch.setattr(notebooks, "resolve", lambda name: tmp_path / "executed")
    written = execute("tiny", "smoke")
    assert written == tmp_path / "executed/notebook-smoke.ipynb" and written.is_file()
    with pytest.raises(papermill.PapermillExecutionError) as caught:
        execute("tiny", "smoke", word="none")
    assert caught.value.ename == "ValueError" and "'none'" in caught.value.evalue
    shown = "".join(capfd.readouterr())
    assert not caplog.records and "unknown parameter" not in shown
    assert "noise" not in shown and "murmur" not in shown and "Traceback" not in shown
    assert "\x1b[" not in shown.replace("\x1b[A", "")


KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def test_shared_exhibits_go_where_those_of_their_runs_do(told, monkeypatch):
    """With runs that committed exhibits were made of to figures/, with others where trials go."""
    monkeypatch.setattr(notebooks, "find_runs", lambda **_: runs)
    monkeypatch.setattr("spnb.train.provenance.commit", lambda: "0123456789abcdef")
    committed = next(r for r in read_index(ROOT / "figures") if r["id"] == "rlvr/gains")["runs"]
    runs = [SimpleNamespace(run_id=name, config_hash=known) for name, known in committed.items()]
    execute(SHARED[0], "cpu", seeds=[0])
    assert told == {"scale": "cpu", "figures": str(ROOT / "figures"), "seeds": [0]}
    runs[0].config_hash = "of other parameters"
    execute(SHARED[0], "cpu", seeds=[0])
    assert told["figures"] == str(ROOT / "runs/figures")


def test_other_variants_than_the_headline_ones_stand_last_and_are_folded(tmp_path):
    plan = small(tmp_path, variants=["no-rae-long", "full", "no-rae"], seeds=[0])
    for table in (describe(plan).set_index("variant"), about(plan)):
        assert list(table.index) == ["full", "no-rae", "no-rae-long"]
    assert describe(plan).attrs["first"] == about(plan).attrs["first"] == {
        "full": True, "no-rae": True, "no-rae-long": False
    }  # fmt: skip
    html = table_html(about(plan))
    assert html.index("no-rae<") < html.index("<details><summary>1 more rows") < html.index("-long")


@pytest.mark.slow
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


@pytest.mark.slow
def test_with_all_papers_notebooks_that_need_no_run_are_executed_too(monkeypatch):
    asked = []
    monkeypatch.setattr(
        notebooks, "execute", lambda *given, **values: asked.append((given, values))
    )
    reproduce(None, "smoke", None, [3])
    assert [given[0] for given, _ in asked] == [*with_notebook(), *SHARED, "shapes"]
    assert asked[-2][1] == {"seeds": [3]} and asked[-1][1] == {"figures": "runs/figures/smoke"}
    reproduce(None, "cpu", None, None)
    assert asked[-1] == (("shapes", "cpu"), {})


def exercised(paper):
    """What the exercises of a paper's notebook have as parameters of a run: `name: value, ...` and
    `run = {...}`."""
    text = nbformat.read(notebook_of(paper), 4).cells[-1].source.partition("Exercises")[2]
    spans = [span.removeprefix("run = ") for span in re.findall(r"`([^`]+)`", text)]
    spans = [span for span in spans if re.match(r"\{?\"?\w+\"?: ", span)]
    found = [yaml.safe_load(span if span[0] == "{" else f"{{{span}}}") for span in spans]
    return [one for one in found if "set" not in one]


@pytest.mark.parametrize("paper", ["spell", "spice", "spiral", "ssp", "rlvr", "proposer"])
def test_the_parameters_of_the_exercises_exist(paper):
    asked = exercised(paper)
    assert asked
    for values in asked:
        assert make_plan(paper, "cpu", exact=values).runs

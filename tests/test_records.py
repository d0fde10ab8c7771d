"""Records of runs in one file: what is packed comes back, and a committed claim follows from it."""

import json
import lzma
import re
import shutil

import pytest

from spnb.core.disk import write_json
from spnb.core.paths import ROOT
from spnb.report import gather, load_claims
from spnb.report.show import ADDED
from spnb.train.plan import make_plan
from spnb.train.run import train_run
from spnb.train.runs import RunError, open_run, read_run
from tools import records

ROLLOUT = {"step": 2, "role": "r", "policy": "policy", "reward": 1.0, "advantage": 0.1234567891}
KEYS = (
    ("step", "item", "sample", "score"),
    ("suite", "opponent", "role", "decoding", "kind", "difficulty"),
)
SCORE = dict.fromkeys(KEYS[0], 1) | dict.fromkeys(KEYS[1], "")
ITEM = {**SCORE, "text": "said", "attempts": [[1.0, "x"]], "question": "a?", "answer": "b"}
PARAMS = {"paper": "p", "scale": "cpu", "variant": "full", "seed": 3}
CLAIMS = ("claims", "claims.yaml")
PAPERS = [path.name.removesuffix(".jsonl.xz") for path in (ROOT / "records").glob("*.jsonl.xz")]


@pytest.fixture(autouse=True)
def one_more_paper(monkeypatch):
    """Paper p has one measure, of a metric."""
    known = {"p": {"method/taken"}}
    own = records.measured
    monkeypatch.setattr(records, "measured", lambda paper: known.get(paper) or own(paper))


@pytest.fixture
def packed(tmp_path):
    """One finished run, packed, beside one that is not finished."""
    run = open_run(tmp_path / "runs", PARAMS)
    rows = (
        {"step": 1, "loss": 0.5},
        {"step": 2, "grad_norm": 1 / 3, "method/taken": 1 / 3, "loss": 1 / 3},
    )
    run.append("metrics", *rows)
    run.append("rollouts", ROLLOUT)
    run.append("items", ITEM)
    run.finish(seconds=1)
    open_run(tmp_path / "runs", {**PARAMS, "seed": 4})
    assert records.keep(tmp_path / "runs", "p", tmp_path / "kept" / "p.jsonl.xz") == 1
    return tmp_path / "kept" / "p.jsonl.xz"


def test_a_packed_run_comes_back_without_weights_and_counts_as_finished(packed, tmp_path):
    assert records.unpack(packed, tmp_path / "new") == 1
    (folder,) = (tmp_path / "new").glob("p/cpu/full/*")
    run = read_run(folder)
    assert run.finished and train_run(run) == run and not run.has_weights
    assert run.rows("metrics")[1] == {"step": 2, "grad_norm": 0.33, "method/taken": 0.3333}
    assert run.rows("rollouts") == [ROLLOUT]
    facts = read_run(tmp_path / "runs/p/cpu/full/seed-3").facts()
    changed = {"weights": False, "model": {}, "digests": run.noted()["digests"]}
    assert run.facts() == {**facts, **changed}
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(RunError, match="has 1 rows and had 2"):
        train_run(run)


def test_a_run_that_is_there_stays_as_it_is(packed, tmp_path):
    run = open_run(tmp_path / "new", PARAMS)
    run.append("metrics", {"step": 7})
    assert records.unpack(packed, tmp_path / "new") == 0
    assert run.rows("metrics") == [{"step": 7}] and not run.finished
    assert records.unfinished(packed, tmp_path / "new") == [str(run.folder)]
    assert records.unpack(packed, tmp_path / "runs") == 0
    assert records.unfinished(packed, tmp_path / "runs") == []
    assert "weights" not in read_run(tmp_path / "runs/p/cpu/full/seed-3").facts()


def test_a_run_that_was_only_planned_or_has_other_parameters_is_unpacked(packed, tmp_path):
    planned = open_run(tmp_path / "planned", PARAMS)
    assert records.unpack(packed, tmp_path / "planned") == 1
    assert planned.finished and len(planned.rows("metrics")) == 2
    other = open_run(tmp_path / "other", {**PARAMS, "steps": 1})
    other.append("metrics", {"step": 7})
    with other.lock():
        assert records.unpack(packed, tmp_path / "other") == 1
    assert other.rows("metrics") == [{"step": 7}] and not other.finished
    assert open_run(tmp_path / "other", PARAMS, make=False).finished
    assert records.unpack(packed, tmp_path / "other") == 0


def test_a_run_that_is_being_written_is_not_unpacked(packed, tmp_path):
    with open_run(tmp_path / "new", PARAMS).lock():
        assert records.unpack(packed, tmp_path / "new") == 0


@pytest.mark.parametrize("writes", range(4))
def test_what_was_not_unpacked_to_its_end_is_unpacked_again(packed, tmp_path, writes, monkeypatch):
    open_run(tmp_path / "runs", {**PARAMS, "seed": 4}).finish(seconds=1)
    records.keep(tmp_path / "runs", "p", packed)
    done = []

    def write(path, value):
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(path)
        write_json(path, value)

    monkeypatch.setattr(records, "write_json", write)
    with pytest.raises(KeyboardInterrupt):
        records.unpack(packed, tmp_path / "new")
    monkeypatch.undo()
    assert records.unpack(packed, tmp_path / "new") == 2 - writes // 2
    found = records.finished(tmp_path / "new" / "p" / "cpu")
    assert [len(run.rows("metrics")) for run in found] == [2, 0]
    assert len(list((tmp_path / "new/p/cpu/full").iterdir())) == 2


def test_damaged_runs_and_runs_with_other_parameters_replace_no_records(packed, tmp_path):
    before = packed.read_bytes()
    folder = tmp_path / "runs/p/cpu/full/seed-3"
    (folder / "metrics.jsonl").rename(tmp_path / "gone")
    with pytest.raises(RunError, match="has 0 rows and had 2"):
        records.keep(tmp_path / "runs", "p", packed)
    shutil.rmtree(folder)
    open_run(tmp_path / "runs", {**PARAMS, "steps": 1}).finish(seconds=1)
    with pytest.raises(ValueError, match="has no p/cpu/full/seed-3 as packed"):
        records.keep(tmp_path / "runs", "p", packed)
    assert packed.read_bytes() == before


def test_wrong_names_and_damaged_archives_get_one_sentence(packed, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="error: paper is 'sell', which is unknown; did you mean"):
        records.main("unpack", "sell")
    monkeypatch.setattr(records, "resolve", lambda name: tmp_path / "none")
    monkeypatch.setattr(records, "archive", lambda paper: tmp_path / "kept" / f"{paper}.jsonl.xz")
    with pytest.raises(SystemExit, match="error: .*none has no finished run of nope"):
        records.main("keep", "nope")
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(SystemExit, match="error: Compressed file ended"):
        records.main("unpack", "p")


def test_what_is_packed_is_not_lost_where_runs_are_gone(packed, tmp_path, monkeypatch, capsys):
    before = packed.read_bytes()
    with pytest.raises(ValueError, match=r"has no p/cpu/full/seed-3 as packed; allowed: all runs"):
        records.keep(tmp_path / "none", "p", packed)
    monkeypatch.setattr(records, "archive", lambda paper: packed)
    monkeypatch.setattr(records, "resolve", lambda name: tmp_path / "none")
    with pytest.raises(SystemExit, match="error: .*has no p/cpu/full/seed-3"):
        records.main("keep", "p")
    assert packed.read_bytes() == before and len(list(packed.parent.iterdir())) == 1


def test_rows_with_other_keys_keep_their_order():
    rows = [{"step": 1, "b": None}, {"b": 2, "step": 2}, {"step": 3, "b": [4]}]
    assert [list(row.items()) for row in records.rows_of(records.columns(rows))] == [
        list(row.items()) for row in rows
    ]
    assert list(records.rows_of(records.columns([]))) == []


@pytest.mark.parametrize("variant", ["full", "other"])
def test_texts_and_rollouts_are_kept_of_the_first_seed_of_full(packed, tmp_path, variant):
    run = open_run(tmp_path / "runs", {**PARAMS, "variant": variant, "seed": 5})
    run.append("metrics", {"step": 1})
    run.append("rollouts", ROLLOUT)
    run.append("items", ITEM)
    run.finish(seconds=1)
    records.keep(tmp_path / "runs", "p", packed)
    assert records.unpack(packed, tmp_path / "new") == 2
    first, later = records.finished(tmp_path / "new" / "p" / "cpu")
    assert len(first.rows("rollouts")) == 1 and not later.rows("rollouts")
    assert first.rows("items") == [ITEM] and later.rows("items") == [SCORE]
    assert train_run(later) == later


def test_texts_are_kept_of_the_first_two_evaluations_and_the_last(tmp_path):
    run = open_run(tmp_path / "runs", PARAMS)
    run.append("metrics", {"step": 1})
    run.append("items", *({**ITEM, "step": step} for step in (0, 3, 6, 9, 9)))
    run.finish(seconds=1)
    records.keep(tmp_path / "runs", "p", tmp_path / "p.jsonl.xz")
    records.unpack(tmp_path / "p.jsonl.xz", tmp_path / "new")
    (new,) = records.finished(tmp_path / "new" / "p" / "cpu")
    assert ["text" in row for row in new.rows("items")] == [True, True, False, True, True]
    assert [row["step"] for row in new.rows("items")] == [0, 3, 6, 9, 9]


def test_what_was_measured_with_weights_is_kept_without_them(tmp_path):
    run = open_run(tmp_path / "runs", PARAMS)
    run.append("metrics", {"step": 1})
    run.append(records.CROSS_PLAY, {"step": 8, "value": 1 / 3})
    run.finish(seconds=1)
    records.keep(tmp_path / "runs", "p", tmp_path / "p.jsonl.xz")
    records.unpack(tmp_path / "p.jsonl.xz", tmp_path / "new")
    (new,) = records.finished(tmp_path / "new" / "p" / "cpu")
    assert new.rows(records.CROSS_PLAY) == [{"step": 8, "value": 1 / 3}]
    assert train_run(new) == new


def test_numbers_that_no_claim_is_computed_from_have_fewer_digits():
    names = {"low": 0.1235, "high": 0.1235, "value": 0.123456, "suite": "s", "n": 123456}
    row = {name: 0.123456 if isinstance(v, float) else v for name, v in names.items()}
    assert {name: records.short(name, value) for name, value in row.items()} == names


def test_metrics_that_no_measure_takes_have_two_digits():
    """A measure of a metric takes it of every role; a count is no float."""
    taken = {"seconds/step", "length", "method/x"}
    names = {"seconds/step": 0.123, "length/a": 0.12346, "length": 0.12346, "method/x": 0.1235}
    names |= {"seconds/update": 0.12, "method/y": 0.12, "reward/a": 0.12, "step": 123456}
    row = {name: 0.123456 if isinstance(v, float) else v for name, v in names.items()}
    assert {name: records.metric(name, value, taken) for name, value in row.items()} == names
    assert records.metric("advantage_mean/a", -3e-17, taken) == 0 != records.rounded(-3e-8, 2)


def test_of_the_times_that_of_a_step_is_kept():
    assert not records.LEFT_OUT.fullmatch("seconds/step")
    for name in ("seconds/update", "method/seconds/responding", "seconds/stepping"):
        assert records.LEFT_OUT.fullmatch(name)


def test_measures_take_the_metrics_of_their_weights():
    spell = records.measured("spell")
    assert {"entropy", "length", "method/verifier false no"} <= spell
    assert not {"loss", "accuracy"} & spell  # the second one is an evaluation's


@pytest.mark.parametrize("paper", PAPERS)
def test_no_measure_takes_what_is_left_out(paper):
    assert not [name for name in records.measured(paper) if records.LEFT_OUT.fullmatch(name)]


def test_no_figure_of_the_training_dynamics_draws_what_is_left_out():
    text = (ROOT / "spnb/reference/dynamics/curves.yaml").read_text()
    drawn = [name for one in re.findall(r"metrics: \[(.*?)\]", text) for name in one.split(", ")]
    assert {"advantage_mean", "clip_ratio", "entropy"} <= {*drawn}
    assert not [
        one for name in drawn for one in (name, f"{name}/a") if records.LEFT_OUT.fullmatch(one)
    ]


def test_the_command_says_how_it_is_used_and_what_it_did(packed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(records, "archive", lambda paper: packed)
    monkeypatch.setattr(records, "resolve", lambda name: tmp_path / name)
    records.main("keep", "p")
    assert capsys.readouterr().out == "p: 1 runs, 0.0 MB packed\n"
    shutil.rmtree(tmp_path / "runs")
    begun = open_run(tmp_path / "runs", PARAMS)
    begun.append("metrics", {"step": 7})
    records.main("unpack", "p")
    left = f"left as they are, to be gone on with or deleted:\n  {begun.folder}\n"
    assert capsys.readouterr().out == f"p: 0 runs, 0.0 MB packed\n{left}"


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_no_run_that_ships_would_be_trained_again(paper):
    """A new parameter is empty by default, so that earlier runs stay what they are."""
    with lzma.open(records.archive(paper), "rt") as file:
        runs = [run["config"] for run in json.load(file)["runs"]]
    names = sorted({run["params"]["variant"] for run in runs})
    known = make_plan(paper, "cpu", variants=names)
    today = {
        (run["params"]["variant"], run["params"]["seed"]): run["hash"]
        for run in runs
        if (run["params"]["variant"], run["params"]["seed"]) in known.runs
    }
    assert len(today) == len(runs), "the plan has every run"
    wanted = {key: known.open(*key, make=False).config_hash for key in today}
    assert today == wanted


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_committed_claims_follow_from_the_committed_records(paper, tmp_path):
    """Of the proposer study those of which reward, when."""
    name, file = ("when-claims", "claims-when.yaml") if paper == "proposer" else CLAIMS
    assert records.unpack(records.archive(paper), tmp_path)
    entries = json.loads((ROOT / "figures" / "index.json").read_text())["exhibits"]
    (entry,) = [one for one in entries if one["id"] == f"{paper}/{name}"]
    runs = records.finished(tmp_path / paper / "cpu")
    added = ADDED.get(f"{paper}/{name}", lambda frames: frames)
    made = load_claims(paper, file).content(added(gather(runs)))
    assert {run.run_id: run.config_hash for run in made.runs} == entry["runs"]
    table = made.item.to_csv(index=False, float_format="%.6g")
    assert table == (ROOT / "figures" / paper / f"{name}.csv").read_text()

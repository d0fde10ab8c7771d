"""Runs found on disk: in their order, chosen by name and seed, and what is not there is named."""

import json

import pytest

from spnb.core.params import ParamError
from spnb.train.find import find_runs
from spnb.train.runs import Run, RunError, open_run


def write_run(root, variant="full", seed=0, date="2026-01-01T00:00:00", **changes):
    """A finished run of rlvr."""
    params = {"paper": "rlvr", "scale": "cpu", "variant": variant, "seed": seed, **changes}
    run = open_run(root, params)
    run.append("metrics", {"step": 1, "grad_norm": 1.0})
    run.finish()
    facts = json.loads((run.folder / "finished.json").read_text())
    (run.folder / "finished.json").write_text(json.dumps(facts | {"date": date}))
    return run


def test_runs_come_in_their_papers_order_and_are_chosen_by_name_and_seed(tmp_path):
    for variant in ("zeta", "search", "think"):
        for seed in (1, 0):
            write_run(tmp_path, variant, seed)
    open_run(
        tmp_path, {"paper": "rlvr", "scale": "cpu", "variant": "search-random", "seed": 0}
    )  # unfinished
    everything = [(run.variant, run.seed) for run in find_runs(str(tmp_path))]
    assert everything == [
        ("think", 0),
        ("think", 1),
        ("search", 0),
        ("search", 1),
        ("zeta", 0),
        ("zeta", 1),
    ]
    chosen = find_runs(str(tmp_path), ["rlvr"], variants=["zeta", "think"], seeds=[1])
    assert [(run.variant, run.seed) for run in chosen] == [("zeta", 1), ("think", 1)]


def test_a_record_that_was_changed_is_named(tmp_path):
    run = write_run(tmp_path)
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "grad_norm": 2.0}\n')
    with pytest.raises(RunError, match="metrics.jsonl is not as it was written"):
        find_runs(str(tmp_path))


def test_of_runs_with_other_parameters_those_like_the_last_are_taken(tmp_path):
    write_run(tmp_path, seed=0, steps=1)
    write_run(tmp_path, seed=1, steps=1)
    write_run(tmp_path, seed=0, steps=2, date="2026-01-02T00:00:00")
    (only,) = find_runs(str(tmp_path))
    assert only.seed == 0 and only.params["steps"] == 2
    first = find_runs(run_dirs=[f"{tmp_path}/rlvr/cpu/*/seed-?"])
    assert [run.params["steps"] for run in first] == [1, 1]
    with pytest.raises(
        RunError,
        match="seed-0 and .*seed-0\\.[0-9a-f]{12} are both rlvr/cpu/full/seed-0; allowed: one",
    ):
        find_runs(run_dirs=[f"{tmp_path}/rlvr/cpu/*/seed-0*"])


def test_named_folders_may_be_unfinished(tmp_path):
    run = open_run(tmp_path, {"paper": "mine", "scale": "gpu", "variant": "a", "seed": 4})
    run.append("metrics", {"step": 1, "grad_norm": 1.0})
    assert find_runs(run_dirs=[str(run.folder)]) == [Run(run.folder, run.params)]


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            {"papers": ["rlvr"], "scale": "gpu"},
            RunError,
            "rlvr/gpu; run first: make reproduce PAPER=rlvr SCALE=gpu",
        ),
        (
            {"scale": "smoke"},
            RunError,
            "no finished runs in .*/<paper>/smoke; run first: make reproduce SCALE=smoke",
        ),
        ({"papers": ["go"]}, ParamError, "paper is 'go', which is unknown"),
        ({"scale": "big"}, ParamError, "scale is 'big', which is unknown"),
        (
            {"variants": ["ful"]},
            ParamError,
            "variant is 'ful', which is unknown; did you mean 'full'",
        ),
        ({"seeds": [7]}, ParamError, r"seeds is \[7\], of which there is no run; allowed: \[0\]"),
        (
            {"run_dirs": ["/nowhere/*"]},
            ParamError,
            "'/nowhere/\\*', which matches nothing; allowed: globs of run folders",
        ),
    ],
)
def test_what_is_not_there_is_named(tmp_path, asked, error, message):
    write_run(tmp_path)
    with pytest.raises(error, match=message):
        find_runs(str(tmp_path), **asked)


def test_a_glob_of_other_folders_and_a_damaged_run_are_refused(tmp_path):
    run = write_run(tmp_path)
    with pytest.raises(ParamError, match="matches something else"):
        find_runs(run_dirs=[f"{tmp_path}/rlvr/cpu/*"])
    (run.folder / "config.json").write_text("{oops")
    with pytest.raises(RunError, match="seed-0/config.json cannot be read"):
        find_runs(str(tmp_path))

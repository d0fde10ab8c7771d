"""An exhibit by its id: from runs where they are there, else the committed one."""

import re
import sys
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest
from matplotlib.figure import Figure

from spnb.core.params import ParamError
from spnb.core.paths import ROOT
from spnb.report import exhibits, notebooks, show
from spnb.report.exhibits import ExhibitError, catalogue, read_index, save_exhibit
from spnb.report.frame import KEYS, gather
from spnb.report.show import exhibit, needed_variants, regenerate
from spnb.train.plan import make_plan
from spnb.train.runs import open_run


def rlvr(root, *variants, steps=(0, 2), paper="rlvr"):
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
                    value = 0.25 + 0.25 * step * (variant == "think")
                    numbers = {"value": value, "low": 0.0, "high": 1.0, "n": 16}
                    row = {"step": step, **where, **numbers}
                    run.append("evals", {**row, "metric": "accuracy"}, {**row, "metric": "thinks"})
            run.finish(seconds=1, resumed=False)
            runs.append(run)
    own = {"figures": root / "figures", "variants": list(variants), "scale": "smoke"}
    return SimpleNamespace(all=lambda: runs, paper=paper, **own)


def committed_in(monkeypatch, folder):
    """Makes a folder the committed one of a clean commit; returns it."""
    monkeypatch.setattr(show, "COMMITTED", str(folder))
    monkeypatch.setattr("spnb.train.provenance.commit", lambda: "0123456789abcdef")
    return folder


def displayed(shown, monkeypatch):
    """What a notebook gets of an exhibit: one bundle of mime types an output."""
    outputs = []
    monkeypatch.setattr(show, "display", lambda bundle, raw: outputs.append(bundle))
    shown._ipython_display_()
    return outputs


@pytest.mark.slow
def test_a_figure_is_made_saved_and_shown_as_saved(tmp_path, monkeypatch):
    shown = exhibit("rlvr/learning-curves", rlvr(tmp_path, "think", "think-random"))
    assert isinstance(shown.item, Figure) and len(shown.item.axes) >= 2
    (record,) = read_index(tmp_path / "figures")
    assert record["variants"] == ["think", "think-random"] and record["scale"] == "smoke"
    assert "policies p, 2 steps of 4 questions" in record["protocol"]
    data = pd.read_csv(tmp_path / "figures/rlvr/learning-curves.csv")
    assert set(data["quantity"]) == {"think, sampled", "think, greedy"}
    picture, text = displayed(shown, monkeypatch)
    assert set(picture) == {"image/png", "text/plain"} and len(picture["text/plain"]) < 50
    html = text["text/html"]
    assert "<img" not in html and "<table" not in html and record["caption"] in html
    assert "policies p, 2 steps of 4 questions" in html, "the protocol stands under it"
    assert f"saved in {tmp_path}/figures/rlvr/learning-curves.png" in html
    assert "Scale smoke, 2 variants, 4 runs, seeds 0-1" in html


def test_an_exhibit_is_not_made_of_another_papers_plan(tmp_path):
    plan = make_plan("spiral", "smoke", runs=str(tmp_path))
    message = r"paper of the plan for ssp/table-4 is 'spiral', which is unknown; allowed: ssp"
    with pytest.raises(ParamError, match=message):
        exhibit("ssp/table-4", plan, folder=tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


@pytest.mark.slow
def test_tables_of_claims_and_of_own_code(tmp_path, monkeypatch):
    plan = rlvr(tmp_path, "think", "think-random")
    table = exhibit("rlvr/verdicts", plan).item
    assert "verdict" in table and len(table) > 0
    gains = exhibit("rlvr/gains", plan).item.set_index("measure (%)")
    line = gains.loc["right, held-out, sampled"]
    assert line["start"].startswith("25.0") and line["gain"].startswith("50.0")
    assert [r["id"] for r in read_index(tmp_path / "figures")] == ["rlvr/gains", "rlvr/verdicts"]
    (output,) = displayed(exhibit("rlvr/gains", plan), monkeypatch)
    assert output["text/html"].count("<tr") == len(gains) + 1
    assert len(output["text/plain"]) < 400, "the table is not there twice"


def test_no_cell_is_cut_or_read_as_markup(tmp_path):
    long = "a long answer " * 40 + "<think>\nend"
    runs = rlvr(tmp_path, "think").all()
    table = pd.DataFrame({"who": ["007"], "text": [long], "share": [1 / 3]})
    texts = {"caption": "A < B.", "protocol": "Q & A.", "folder": tmp_path}
    save_exhibit("rlvr/gains", table, runs, **texts)
    html = show.saved("rlvr/gains", tmp_path)._repr_html_()
    assert "a long answer " * 40 + "&lt;think&gt;<br>end" in html
    assert ">007<" in html and ">0.333333<" in html and "A &lt; B." in html


@pytest.mark.slow
def test_rows_that_were_not_run_are_folded_and_headline_arms_stay_open(tmp_path):
    entry = show.described("spell")["spell/table-1"]
    names = [row.name for row in entry.rows if row.run]
    table = pd.DataFrame({"policy": [f"{name} (paper: X)" for name in names] + ["not run (paper)"]})
    assert show._first("spell/table-1", table) == [True] * len(names) + [False]
    many = pd.concat([table] * 3)
    known = notebooks.params.variants("spell")
    heads = {row.name for row in entry.rows if row.run and known[row.run[0]].get("headline")}
    stays = (
        many["policy"].str.split(" (paper", regex=False).str[0][show._first("spell/table-1", many)]
    )
    assert set(stays) == heads < set(names)


def test_a_committed_exhibit_beside_runs_of_another_scale_says_so_in_colour(tmp_path, monkeypatch):
    folder = committed_in(monkeypatch, tmp_path / "committed")
    run = SimpleNamespace(seed=0, variant="full", scale="cpu", config_hash="h", params={})
    run.run_id = "spiral/cpu/full/seed-0"
    texts = {"caption": "Shown.", "protocol": "Other.", "folder": folder}
    save_exhibit("spiral/table-12", pd.DataFrame({"policy": ["start"]}), [run], **texts)
    shown = exhibit("spiral/table-12", rlvr(tmp_path, "full", paper="spiral"))
    warning, text = displayed(shown, monkeypatch)
    assert "background:" in warning["text/html"]
    for words in (warning["text/html"], warning["text/plain"]):
        assert "which are of scale smoke: the committed exhibit, of scale cpu." in words
    assert "lacks the variants" in text["text/html"]
    assert len(displayed(exhibit("spiral/table-12"), monkeypatch)) == 1, "nobody's runs"


def test_without_its_variants_the_committed_exhibit_is_shown(tmp_path, monkeypatch):
    folder = committed_in(monkeypatch, tmp_path / "committed")
    spiral = [
        SimpleNamespace(seed=s, variant="full", scale="cpu", paper="spiral", params={})
        for s in (0, 1)
    ]
    for run in spiral:
        run.run_id, run.config_hash = f"spiral/cpu/full/seed-{run.seed}", "h"
    texts = {"caption": "Shown.", "protocol": "Other."}
    table = pd.DataFrame({"policy": ["start"], "score": ["5"]})
    save_exhibit("spiral/table-12", table, spiral, folder=folder, **texts)
    needs = [name for name in needed_variants("spiral/table-12") if name != "full"]
    plan = rlvr(tmp_path, "full", paper="spiral")
    shown = exhibit("spiral/table-12", plan)
    stamp = "spiral/table-12: committed: Scale cpu, 1 variant, 2 runs, seeds 0-1"
    assert repr(shown).startswith(stamp) and shown.item is None
    assert f"this plan lacks the variants {', '.join(needs)}" in repr(shown)
    assert "lacks the variants" in shown._repr_html_() and ">start<" in shown._repr_html_()
    assert "lacks" not in repr(exhibit("spiral/table-12"))
    assert not (tmp_path / "figures").exists()
    at_cpu = ["full", "continued", "smaller", "even", "oracle", "random"]
    assert needed_variants("ssp/table-1", "cpu") == at_cpu, "the others have no run there"
    assert "search-r1" in needed_variants("ssp/table-1", "paper")
    quest = needed_variants("rlvr/quest")
    assert quest and needed_variants("rlvr/quest", "gpu") == quest, "so that a plan refuses them"
    nothing = exhibit("spiral/table-3", plan)
    assert repr(nothing).startswith("spiral/table-3: not made yet; this plan lacks the variants")
    assert "spnb exhibit spiral/table-3" in nothing._repr_html_()


@pytest.mark.slow
def test_frames_alone_make_no_exhibit_of_a_paper(tmp_path, monkeypatch):
    committed_in(monkeypatch, tmp_path / "committed")
    frames = gather(rlvr(tmp_path, "think").all())
    with pytest.raises(ParamError, match="plan is None with frames for rlvr/gains; allowed: its r"):
        exhibit("rlvr/gains", frames=frames)
    with pytest.raises(ParamError, match="option of dynamics/length is 'treshold', which is unkn"):
        exhibit("dynamics/length", frames=frames, treshold=1)


@pytest.mark.slow
def test_a_committed_exhibit_never_loses_a_variant(tmp_path, monkeypatch):
    both, one = (
        rlvr(tmp_path / name, *v) for name, v in (("a", ["think", "search"]), ("b", ["think"]))
    )
    folder = committed_in(monkeypatch, tmp_path / "committed")
    assert exhibit("rlvr/learning-curves", both, folder=folder).item
    shown = exhibit("rlvr/learning-curves", one, folder=folder)
    assert shown.item is None and "this plan lacks the variants search" in repr(shown)
    assert read_index(folder)[0]["variants"] == ["think", "search"]
    assert exhibit("rlvr/learning-curves", one).item, "elsewhere it is made of what there is"
    ran = [run for run in gather(both.all()).runs if run.variant == "think"]
    record = {
        "id": "dynamics/length",
        "files": [],
        "runs": dict.fromkeys(
            ("rlvr/smoke/think/seed-0", "rlvr/smoke/search/seed-0", "rlvr/smoke/gone/seed-0")
        ),
    }
    monkeypatch.setattr(exhibits, "read_index", lambda _: [record])
    lost = show._lost("dynamics/length", SimpleNamespace(runs=ran), folder)
    assert lost == ["rlvr/search"], "a variant that no file lists any more is not missed"


def test_a_committed_exhibit_never_loses_a_seed(tmp_path, monkeypatch):
    """Fewer seeds of a plan, or runs that were interrupted; seeds of earlier files are no loss."""
    folder = committed_in(monkeypatch, tmp_path)
    seeds = (9, 10, 11, 12, 13)  # 9 is none of today's
    record = {"id": "spell/table-1", "runs": {f"spell/cpu/full/seed-{seed}": "x" for seed in seeds}}
    record["files"] = []
    monkeypatch.setattr(exhibits, "read_index", lambda _: [record])

    def lost(*there):
        runs = [SimpleNamespace(run_id=f"spell/cpu/full/seed-{seed}") for seed in there]
        return show._lost("spell/table-1", SimpleNamespace(runs=runs), folder)

    assert lost(10, 11, 12, 13, 14) == []
    assert lost(10, 13) == ["full (seeds 11-12)"] and lost() == ["full"]


def test_what_is_neither_made_nor_committed_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="exhibit is 'spiral/table-33'.*did you mean"):
        exhibit("spiral/table-33")
    monkeypatch.setattr(show, "COMMITTED", str(tmp_path))
    with pytest.raises(ExhibitError, match="ssp/table-2 is not in .*; made by: spnb exhibit ssp/"):
        exhibit("ssp/table-2")
    with pytest.raises(ValueError, match="option of rlvr/gains is 'evaluations', which is unknown"):
        exhibit("rlvr/gains", evaluations=["x"])
    with pytest.raises(ExhibitError, match="speed/engine is not in .*; made by: make bench"):
        exhibit("speed/engine")


def changes(call):
    """Every change of the module while something is called, each once: caller and called in
    `spnb`. What a library calls back does not count, nor what `core` offers to everybody."""
    there = {}

    def look(frame, event, _):
        if event == "call" and frame.f_back is not None:
            pair = tuple(each.f_globals.get("__name__", "") for each in (frame.f_back, frame))
            inside = all(name.startswith("spnb.") for name in pair)
            if inside and pair[0] != pair[1] and not pair[1].startswith("spnb.core."):
                there[pair] = True

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(there)


def below(name, seen):
    """The modules that a module imports, at once or through others."""
    for value in vars(sys.modules[name]).values():
        other = (
            value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
        )
        if str(other).startswith("spnb.") and other not in seen:
            seen.add(other)
            below(other, seen)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rlvr/learning-curves", "rlvr/verdicts", "rlvr/gains"])
def test_an_exhibit_is_followed_through_few_modules_and_never_upwards(name, tmp_path):
    """From runs to what is shown; what an exhibit's files say of it has been read before."""
    plan = rlvr(tmp_path, "think", "think-random")
    frames = gather(plan.all())
    show.described("rlvr")
    walk = changes(lambda: exhibit(name, plan, frames)._repr_html_())
    assert len(walk) <= 16, walk
    assert not [pair for pair in walk if pair[0] in below(pair[1], set())]


@pytest.mark.slow
def test_the_folder_of_a_shared_exhibit_is_found_without_a_plan(tmp_path, monkeypatch):
    monkeypatch.setattr("spnb.train.provenance.TRIALS", str(tmp_path / "trials"))
    frames = gather(rlvr(tmp_path, "think").all())
    frames.runs[0].append("metrics", {"step": 1, "entropy": 0.5})
    walk = changes(lambda: exhibit("dynamics/entropy", frames=gather(frames.runs)))
    assert (tmp_path / "trials/dynamics/entropy.csv").is_file()
    assert "spnb.train.plan" not in {name for pair in walk for name in pair}


FRONTIER = ["learning", "learning-two", "frozen", "shuffled", "even", "curriculum"]


def test_the_variants_an_exhibit_takes():
    assert needed_variants("spiral/table-6") == [] and needed_variants("dynamics/length") == []
    assert {"full", "rlvr"} <= set(needed_variants("spiral/table-12"))
    assert needed_variants("proposer/frontier") == FRONTIER
    assert {"think", "think-random", "search"} <= set(needed_variants("rlvr/verdicts"))
    known = notebooks.params.variants("spiral")
    for info in catalogue().values():
        if info.paper == "spiral":
            assert set(needed_variants(info.id)) <= set(known), info.id


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """What `run_all` was called with; no run is trained, exhibits go to a folder of the test."""
    plans = []

    def make_plan(paper, scale, **values):
        return real(
            paper, scale, runs=str(tmp_path / "runs"), figures=str(tmp_path / "f"), **values
        )

    real, noted = show.make_plan, []
    monkeypatch.setattr(show, "make_plan", make_plan)
    monkeypatch.setattr(show, "run_all", plans.append)
    monkeypatch.setattr(notebooks, "note_times", lambda plan, rest: noted.append(plan))
    yield plans
    assert noted == plans, "how long they took is kept"


def test_one_exhibit_trains_only_what_it_takes_and_says_so_first(trained, monkeypatch, capsys):
    monkeypatch.setattr(show, "exhibit", lambda *given: show.Exhibit(given[0], "made"))
    measured = {"proposer": {"smoke": dict.fromkeys(FRONTIER, 3) | {"cores": 2}}}
    monkeypatch.setattr(notebooks, "timings", lambda: measured)
    assert regenerate("proposer/frontier", "smoke") == []
    (plan,) = trained
    assert plan.variants == FRONTIER
    runs = len(plan.runs)
    said = capsys.readouterr().out
    assert said.startswith("proposer/frontier takes these runs at scale smoke:")
    assert re.search(rf"About \d+ minutes on 2 cores for {runs} runs \(", said)
    assert said.endswith("\nproposer/frontier: made\n")


def test_values_by_seed_take_the_variants_of_the_committed_table(trained, monkeypatch):
    shown = show.Exhibit("ssp/seeds", "committed", files={"csv": ROOT / "figures/ssp/seeds.csv"})
    monkeypatch.setattr(show, "exhibit", lambda *given: shown)
    assert regenerate("ssp/seeds") == [], "what was only shown was not written"
    assert regenerate("ssp/seeds", "smoke") == []
    at_cpu, at_smoke = trained
    named = pd.read_csv(ROOT / "figures/ssp/seeds.csv")["variant"].unique()
    assert {*named} <= {*at_cpu.variants} and len(at_cpu.variants) > len(at_smoke.variants)


def test_a_static_exhibit_trains_nothing(trained, tmp_path):
    files = regenerate("spiral/table-6", "smoke")
    assert trained == [] and tmp_path / "f/spiral/table-6.csv" in files
    assert not (tmp_path / "runs").exists()


def test_what_nothing_makes_is_one_sentence(monkeypatch, capsys):
    with pytest.raises(ValueError, match="exhibit is 'table-3'.*did you mean 'ssp/table-3'"):
        regenerate("table-3")
    with pytest.raises(ExhibitError, match="speed/engine .*made by: make bench"):
        regenerate("speed/engine")
    monkeypatch.setattr(show, "find_runs", lambda scale: [])
    monkeypatch.setattr(show, "exhibit", lambda name, frames: show.Exhibit(name, "made"))
    regenerate("dynamics/length", "smoke")
    said = capsys.readouterr().out
    assert said.startswith("dynamics/length takes the 0 finished runs there are")

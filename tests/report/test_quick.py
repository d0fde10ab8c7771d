"""The first hour: what is refused before anything is loaded, documents, the table of both ends."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest

from spnb.core.params import ParamError
from spnb.evaluate import items
from spnb.report import quick as module
from spnb.report.quick import QuickError, check_machine, corpus_file, ends, quick, quick_values
from spnb.train.cards import hours, need
from spnb.train.doctor import NEEDS, Card, Machine
from spnb.train.plan import make_plan
from spnb.train.runs import open_run

PROSE = "The mill on the river grinds rye in autumn, {0}, and then the water is low. {0} " * 3
READY = Machine(
    cards=(Card("RTX 4090", 25.3, 8.9),),
    driver="580.65",
    usable=True,
    compiler="/usr/bin/gcc",
    header="/usr/include/Python.h",
    memory=64,
    disk=100,
    versions=dict.fromkeys(NEEDS["gpu"], "1"),
)


def test_a_machine_without_a_gpu_is_told_what_works_there(monkeypatch):
    monkeypatch.setattr(module, "look", lambda: Machine(driver="580.65"))
    with pytest.raises(QuickError, match=r"torch finds no GPU \(driver 580.65\); allowed: a mac"):
        quick("spiral")
    assert check_machine("gpu", READY) is READY
    bare = Machine(**vars(READY) | {"versions": {}})
    assert check_machine("gpu", bare) is bare, "which packages a run needs its plan knows"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"driver": "535.10"}, "lacks NVIDIA driver: 580 or later"),
        ({"disk": 5}, "lacks free disk: 30 GB"),
        ({"cards": (Card("T4", 15.8, 7.5),)}, "lacks GPUs: 24 GB a GPU.*; compute capability: bf"),
    ],
)
def test_what_a_machine_lacks_is_one_sentence(change, said):
    with pytest.raises(QuickError, match=said):
        check_machine("gpu", Machine(**vars(READY) | change))


def test_names_that_do_not_exist_are_answered():
    with pytest.raises(ParamError, match="paper is 'ssp', which is unknown; .*spice, spiral"):
        quick("ssp", scale="smoke")
    with pytest.raises(ParamError, match="scale is 'cpu', which is unknown; .*gpu, smoke"):
        quick("spice", scale="cpu")
    with pytest.raises(QuickError, match="documents is 'x'; allowed: with spice alone"):
        quick("spiral", "x", scale="smoke")


@pytest.mark.parametrize("paper", ["spice", "spiral"])
def test_it_fits_24_gb_and_takes_about_an_hour_by_the_estimate(paper, tmp_path):
    values = quick_values(paper, "gpu")
    values |= {"corpus": ["own.jsonl"]} if values.pop("documents", None) else {}
    plan = module.only(make_plan(paper, "gpu", **values), values["benchmarks"])
    assert plan.variants == ["full", "random-reward"]
    for params in plan.runs.values():
        assert need(params, 24) < 24 and 60 * hours(params)["all"] < 45
        assert {name: use.count for name, use in params.benchmarks.items()} == {"gsm8k": 200}
        assert params.policy == "Qwen/Qwen3-1.7B" and params.lora_rank == 32
        assert params.thinking is False
    said = module.announcement(plan, READY)
    took = " + ".join(f"{60 * hours(params)['all']:.0f}" for params in plan.runs.values())
    assert f"about {took} minutes" in said and "of 25 GB" in said and "3 GB to load" in said


# --- documents


def folder(tmp_path, **texts):
    made = tmp_path / "mine"
    (made / "inner").mkdir(parents=True)
    for name, text in texts.items():
        (made / "inner" / name.replace("_", ".")).write_text(text)
    return str(made)


def test_texts_are_read_once_each_and_the_file_is_named_by_them(tmp_path, capsys):
    texts = dict(a_md=PROSE.format("by day"), b_txt=PROSE.format("at night"), c_txt="Short.")
    source = folder(tmp_path, **texts, d_md=PROSE.format("by day"), e_csv="a,b\n" * 40)
    (tmp_path / "mine/.git").mkdir()
    (tmp_path / "mine/.git/hidden.md").write_text(PROSE.format("in secret"))
    made = corpus_file(source, tmp_path)
    rows = [json.loads(line) for line in made.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["inner/a.md", "inner/b.txt"]
    assert rows[1]["text"] == texts["b_txt"] and rows[0]["title"] == "a"
    assert "2 of 4 documents (left out: too short 1, exact duplicate 1)" in capsys.readouterr().out
    assert corpus_file(source, tmp_path) == made
    (tmp_path / "mine/inner/b.txt").write_text(PROSE.format("never"))
    assert corpus_file(source, tmp_path) != made, "another content is another corpus"


def test_a_folder_without_text_is_named(tmp_path):
    source = folder(tmp_path, a_py="x = 1\n")
    with pytest.raises(QuickError, match="has no such file; allowed: a folder with .txt or .md"):
        quick("spice", source, scale="smoke", runs=str(tmp_path))
    with pytest.raises(QuickError, match="which is no folder; allowed: a folder with .txt or .md"):
        quick("spice", str(tmp_path / "gone"), scale="smoke", runs=str(tmp_path))
    (tmp_path / "mine/blank.txt").write_text(" \n")
    with pytest.raises(QuickError, match="of 1 none is of use: empty text 1"):
        corpus_file(source, tmp_path)


def test_a_file_of_500_mb_is_refused_unread(tmp_path):
    source = folder(tmp_path, a_md=PROSE)
    with open(tmp_path / "mine/large.txt", "wb") as file:
        file.truncate(500_000_000)
    with pytest.raises(QuickError, match="large.txt has 500 MB; allowed: at most 10 MB a file"):
        corpus_file(source, tmp_path)


def test_a_hub_that_does_not_answer_names_the_folder_to_use(tmp_path):
    with pytest.raises(QuickError) as caught:
        quick("spice", "simple-wikipedia", scale="smoke", runs=str(tmp_path))
    said = str(caught.value)
    assert said.startswith("wikimedia/wikipedia does not come from the hub (") and "\n" not in said
    assert said.endswith("documents='my_folder', a folder of .txt or .md files on this machine")
    there = tmp_path / "documents/simple-wikipedia-2000.jsonl"
    there.parent.mkdir()
    there.write_text("{}\n")
    assert corpus_file("simple-wikipedia", tmp_path) == there, "it was streamed before"


# --- meanwhile and after


def test_a_step_is_a_line():
    run = SimpleNamespace(variant="full", params={"steps": 60})
    row = {"step": 20, "seconds/step": 30.0, "method/valid": 0.25}
    row |= {"reward/challenger": -0.1, "length/challenger": 211.4}
    assert module.step_line(run, row) == (
        "full step 20 of 60; challenger -0.10 (211 tokens); 25% valid; 30 s, 20 min left"
    )


def test_both_ends_are_compared_over_the_same_questions(tmp_path):
    place = {"paper": "spice", "scale": "smoke", "variant": "full", "seed": 0, "steps": 4}
    run = open_run(tmp_path, place)
    asked = {0: ["a", "b", "c"], 2: ["a", "b", "c"], 4: ["a", "b", "other"]}
    scores = {0: [0.0, 1.0, 1.0], 2: [1.0, 0.0, 0.0], 4: [1.0, 1.0, 0.0]}
    for step in (0, 2, 4):
        for item, (question, score) in enumerate(zip(asked[step], scores[step], strict=True)):
            one = items.record("start tasks", str(item), score, question=question)
            run.append("items", one | {"step": step})
            one = items.record("TicTacToe-v0", str(item), 1 - score, opponent="random")
            run.append("items", one | {"step": step})
            one = items.record("TicTacToe-v0", str(item), score, opponent="past")
            run.append("items", one | {"step": step})
    table = ends([run]).set_index("measure")
    assert list(table.index) == [
        "questions of the documents, right (%)",
        "TicTacToe-v0 against random play, score (%)",
    ]
    first, second = table.iloc[0], table.iloc[1]
    assert first["before"].startswith("66.7 [") and first["after"].startswith("66.7 [")
    assert first["n"] == 2 and first["change"].startswith("50.0 ["), "of a and b alone"
    assert second["n"] == 3 and second["change"].startswith("0.0 [")
    assert isinstance(table, pd.DataFrame) and first["seed"] == 0

"""SCOPE's exhibits: swaps of search and answer, judges side by side, texts to read."""

from itertools import product
from types import SimpleNamespace

import pandas as pd
import pytest
from fakes import CharTokenizer

from spnb.core.episodes import run
from spnb.core.method import Chat
from spnb.core.params import variants_at
from spnb.core.search import Hit, Tool, search_rollouts
from spnb.core.types import Completion, Sampling
from spnb.report import Frames, curves, gather
from spnb.report.exhibits import exhibit_info
from spnb.report.frame import RESULTS, load_measures
from spnb.report.papers import scope
from spnb.report.show import make
from spnb.report.tables import load_tables
from spnb.train.plan import make_plan
from spnb.train.runs import Run, open_run

PARAMS = {"paper": "scope", "scale": "cpu", "seed": 0}


def made(root, variant="full", seed=0):
    return open_run(root, {**PARAMS, "variant": variant, "seed": seed})


class Says:
    """An engine that searches once, then gives its name and what it has read."""

    def __init__(self, name):
        self.name, self.read = name, []

    def generate(self, requests):
        texts = []
        for request in requests:
            prompt = "".join(map(chr, request.prompt_ids))
            self.read.append(prompt)
            found = "[1]" in prompt
            texts.append(
                f"<answer> {self.name}</answer>" if found else f"<search> {self.name}</search>"
            )
        return [Completion(tuple(map(ord, t)), (-1.0,) * len(t), t, "stop") for t in texts]


class Library:
    def search(self, queries, k):
        return [[Hit("1", query, f"about {query}", 1.0)] for query in queries]


def test_an_answer_is_written_after_anothers_searches():
    engines = {name: Says(name) for name in ("first", "last")}
    chat = Chat(CharTokenizer())
    asked = [chat.request([{"role": "user", "content": "Go."}], Sampling(9), 0, "first")]
    tool = Tool(CharTokenizer(), Library(), 1, 2, 100_000)
    found = run(search_rollouts(asked, tool), engines)
    assert scope.answered(asked, found, "last", engines) == ["<answer> last</answer>"]
    assert engines["last"].read[-1].endswith("\n[1] about first\n</information>\n")
    assert scope.answered(asked, found, "first", engines) == [
        found[0].policy_text.split("</search>")[1]
    ]
    unsearched = [SimpleNamespace(mask=(1, 1), completion_ids=(65, 66))]
    scope.answered(asked, unsearched, "last", engines)
    assert engines["last"].read[-1] == "Go.", "nothing was found before the answer"


@pytest.mark.slow
def test_swaps_are_paired_by_seed(tmp_path, monkeypatch):
    runs = [made(tmp_path, seed=seed) for seed in (0, 1)]
    values = {"first": {"first": 40, "last": 50}, "last": {"first": 60, "last": 90}}

    def swapped(one):
        rows = [
            (one.seed, search, answer, kind, share * value + one.seed * 10)
            for search, answers in values.items()
            for answer, value in answers.items()
            for kind, share in (("reports", 1), ("single-hop", 0.25), ("multi-hop", 0.5))
        ]
        return pd.DataFrame(rows, columns=["seed", "search", "answer", "kind", "value"])

    monkeypatch.setattr(Run, "kept", lambda one: {24: 1, 72: 2})
    monkeypatch.setattr(scope, "swapped", swapped)
    table = scope.swaps(None, Frames(runs)).item.set_index(["search", "answer"])
    assert table["reports"].to_dict() == {
        ("first", "first"): "45.0", ("first", "last"): "55.0",
        ("last", "first"): "65.0", ("last", "last"): "95.0",
    }  # fmt: skip
    assert table.loc[("first", "first"), "reports: gain"] == "-"
    gains = table.loc[("last", "first")]
    assert gains["reports: gain"].startswith("20.0 [20.0")
    assert gains["single-hop: gain"][:3] == "5.0"
    assert gains["multi-hop minus single-hop: gain"].startswith("5.0 [5.0")
    assert (gains["a gain"], gains["larger"]) == ("supported", "supported")
    answers = table.loc[("first", "last")]  # gains 2.5 points on single-hop, 5 on multi-hop
    assert answers["claim"] == "a gain on single-hop, larger than on the other"
    assert (answers["a gain"], answers["larger"]) == ("supported", "contradicted")
    assert table["verdict"].tolist() == ["-", "contradicted", "supported", "-"]
    protocol = scope.swaps(None, Frames(runs)).protocol
    assert protocol.endswith(" 2 seeds, those whose weights are kept.")
    monkeypatch.setattr(Run, "kept", lambda one: {24: 1})
    assert scope.swaps(None, Frames(runs)) is None


@pytest.mark.slow
def test_gains_of_swaps_are_cut_at_what_is_possible(tmp_path, monkeypatch):
    """Other searches gain seed 0 nothing, seed 1 100 points on multi-hop: 50 +- 12.706 x 50."""

    def swapped(one):
        gained = {("last", "first", "multi-hop"): 100.0 * one.seed}
        ways = product(("first", "last"), ("first", "last"), ("multi-hop", "single-hop"))
        rows = [(one.seed, *way, gained.get(way, 0.0)) for way in ways]
        return pd.DataFrame(rows, columns=["seed", "search", "answer", "kind", "value"])

    monkeypatch.setattr(Run, "kept", lambda one: {24: 1, 72: 2})
    monkeypatch.setattr(scope, "swapped", swapped)
    table = scope.swaps(None, Frames([made(tmp_path, seed=seed) for seed in (0, 1)])).item
    line = table.set_index(["search", "answer"]).loc["last", "first"]
    assert line["multi-hop: gain"] == "50.0 [-100.0, 100.0]"
    assert line["multi-hop minus single-hop: gain"] == "50.0 [-200.0, 200.0]"
    assert (line["single-hop: gain"], line["smallest visible"]) == ("0.0 [0.0, 0.0]", "635.3")


@pytest.mark.slow
def test_a_swap_needs_a_gain_that_is_larger():
    """The verdict of both; the smallest visible difference is half of the difference's interval."""
    found = {
        "multi-hop": (-0.4, -2.4, 1.5, 7),
        "single-hop": (-4.5, -7.3, -1.6, 7),
        "multi-hop minus single-hop": (4.0, 1.8, 6.2, 7),
    }
    searches = scope.claimed("multi-hop", found)
    assert (searches["a gain"], searches["larger"]) == ("equal within 5", "supported")
    assert (searches["verdict"], searches["smallest visible"]) == ("not supported", "2.2")
    answers = scope.claimed("single-hop", found)
    assert (answers["a gain"], answers["larger"]) == ("contradicted", "contradicted")
    less = found | {"multi-hop minus single-hop": (-4.0, -6.2, -1.8, 7)}
    assert scope.claimed("single-hop", less)["larger"] == "supported"
    assert scope.claimed("", found) == {}


@pytest.mark.slow
def test_the_judge_and_the_oracle_accept_answers_alone(tmp_path):
    """A share of all held-out answers, by step; one half is enough."""
    base = dict.fromkeys(("opponent", "decoding", "role", "difficulty"), "")
    scores = {  # (judge, oracle)
        0: [(0.5, 0.25), (1, 1), (0.4, 0.5), (0, 0)],
        72: [(0.5, 0.49), (0.75, 0), (0.5, 0.5), (1, 0.2)],
    }
    runs = [made(tmp_path, seed=seed) for seed in (0, 1)]
    for one in runs:
        for step, pairs in scores.items():
            about = base | {"suite": "reports", "step": step}
            one_item = {"item": "0", "sample": 0, "kind": "", "score": 0.0}
            told = [about | one_item | {"item": str(i), "judge": judge, "score": oracle}
                    for i, (judge, oracle) in enumerate(pairs)]  # fmt: skip
            one.append("items", *told, about | one_item | {"suite": "single-hop"})
            mean = sum(judge for judge, _ in pairs) / len(pairs)
            number = {"metric": "judge", "value": mean, "low": mean, "high": mean, "n": len(pairs)}
            one.append("evals", about | number)
    frames = gather(runs)
    added = scope.with_acceptance(frames)
    for name, start, end in (("judge", 25, 75), ("oracle", 25, 0)):
        measure = load_measures("scope")[f"accepted by the {name} alone"]
        assert measure.of_runs(added, 0)["value"].tolist() == [start, start]
        assert measure.of_runs(added, 1)["value"].tolist() == [end, end]
    table = make(exhibit_info("scope/judge"), None, frames).item
    assert table.loc["SCOPE", "accepted by the judge alone"].startswith("75.0 [75.0")
    assert table.loc["start policy", "accepted by the oracle alone"].startswith("25.0")
    assert list(table.index) == ["start policy", "SCOPE"], "the arms that were run"
    seeds = make(exhibit_info("scope/seeds"), None, frames).item
    assert "accepted by the judge alone" in set(seeds["measure"])
    assert scope.with_acceptance(Frames()).results.empty


def test_the_judges_need_all_of_their_arms(tmp_path):
    names = ["full", "grader-oracle", "rubric-oracle", "grader-weak", "rubric-weak"]
    runs = [made(tmp_path, name, seed) for name in names for seed in (0, 1)]
    rows = [
        {"paper": "scope", "scale": "cpu", "variant": one.variant, "seed": one.seed, "step": 72,
         "suite": "reports", "metric": metric, "n": 1,
         "value": 0.1 * names.index(one.variant) + 0.05 * (metric == "judge")}
        for one in runs for metric in ("oracle", "judge", "repeated")
    ]  # fmt: skip
    results = pd.DataFrame(rows).reindex(columns=RESULTS)
    keys = ["opponent", "role", "decoding", "difficulty"]
    results[keys] = ""
    made_of = scope.figure_4(None, Frames(runs, results))
    means = made_of.data.groupby(["by", "variant"])["value"].mean()
    assert means["oracle", "rubric-oracle"] == pytest.approx(20)
    assert means["judge", "grader-oracle"] == pytest.approx(15)
    assert means["judge minus oracle", "grader-oracle"] == pytest.approx(5)
    assert means["told twice", "rubric-oracle"] == pytest.approx(20)
    assert scope.figure_4(None, Frames(runs[:8], results)) is None


def test_every_judge_stands_in_the_table_of_what_judges_get_wrong():
    judges = {name for name in variants_at("scope", "cpu") if name.startswith(("grader", "rubric"))}
    rows = {row.run[0] for row in load_tables("scope")["scope/judge"].rows}
    assert len(judges) == 4 and judges <= rows


def test_beside_the_judges_grade_stands_what_an_oracle_would_say():
    """In figures over training: the oracle's score, their difference, repetition, length."""
    known = load_measures("scope")
    beside = ["oracle", "judge minus oracle", "told twice", "tokens"]
    figures = 0
    for id_, entry in curves.load_curves("scope").items():
        shown = [panel.measure for panel in entry.panels.values()]
        if known["judge"] in shown:
            figures += 1
            assert all(known[name] in shown for name in beside), id_
    assert figures == 2


@pytest.mark.slow
def test_rubrics_are_those_of_each_judge(tmp_path):
    """One in the place of another has its own temperature, and errs."""
    plan = make_plan("scope", "cpu", variants=["full", "rubric-weak"], seeds=[10])
    runs = [open_run(tmp_path, plan.params(name).model_dump()) for name in plan.variants]
    table = scope.rubrics(plan, Frames(runs)).item
    assert table["task"].nunique() == 1
    right = table.groupby("judge", sort=False)["the oracle's too"].agg(lambda said: set(said))
    assert list(right.index) == ["judge", "weaker judge", "oracle"]
    assert right["judge"] == right["oracle"] == {"yes"}
    points = table.groupby("judge")["point"].agg(list)
    assert points["weaker judge"] != points["judge"]
    assert scope.rubrics(plan, Frames()) is None


def test_texts_are_of_the_first_and_the_last_evaluation(tmp_path):
    one = made(tmp_path)
    base = {"opponent": "", "decoding": "", "sample": 0, "kind": ""}
    found = "\n<information>\n[1] a note\n</information>\n"
    for step in (0, 24, 72):
        task = base | {"suite": "tasks", "role": "", "difficulty": "", "points": []}
        gated = "too few points" if step == 72 else ""
        for item, (level, reason) in enumerate(((2, ""), (5, ""), (6, gated), (1, ""))):
            task["item"] = str(item)
            text = f"<search> x</search>{found}<task> level {level}</task>"
            more = {"score": 1.0, "level": level, "success": 0.5, "reason": reason, "text": text}
            one.append("items", task | more | {"step": step})
        told = base | {"suite": "reports", "role": "plan", "item": "0", "difficulty": "level 3"}
        told |= {"score": 0.25, "judge": 0.75, "step": step}
        one.append("items", told)
        for said in ("first", step, "last"):  # the one in the middle is shown
            text = f"<search> y</search>{found}<answer> {said}</answer>"
            one.append("items", told | {"text": text})
    tasks = scope.tasks_written(None, Frames([one])).item
    wanted = [f"step {step}, level 5, mean grade 0.50" for step in (24, 72) for _ in range(2)]
    assert tasks["who"].tolist() == wanted
    assert tasks["found (not trained)"].tolist() == ["[1] a note", ""] * 2
    answers = scope.answers_written(None, Frames([one])).item
    assert answers["written (trained)"].tolist()[1::2] == [
        "<answer> 24</answer>",
        "<answer> 72</answer>",
    ]
    assert answers["who"][0] == "step 24, plan, level 3: oracle 0.25, judge 0.75"
    assert (
        scope.tasks_written(None, Frames()) is None
        and scope.answers_written(None, Frames()) is None
    )

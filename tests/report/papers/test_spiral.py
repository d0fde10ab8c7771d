"""SPIRAL's own exhibits, on texts by hand and on runs whose final weights are the shipped ones."""

import pandas as pd
import pytest

from spnb.games import exact
from spnb.lab import embedded_path
from spnb.report.frame import KEYS, gather, read_yaml
from spnb.report.papers import spiral
from spnb.report.tables import Row, load_own, load_tables, settings_table
from spnb.train.plan import make_plan
from spnb.train.runs import open_run

TEXTS = {
    "embedded/games": [("kuhn_poker", "\\boxed{bet}"), ("questions", "\\boxed{1}")],
    "trained": [
        ("kuhn_poker", "My card is Q. A check risks 1, a bet risks 2. \\boxed{bet}"),
        ("questions", "\\boxed{1}"),
    ],
}


@pytest.fixture
def plan(tmp_path):
    """A plan at smoke scale whose runs end with the weights that they begin with."""
    folders = {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures")}
    variants = ["full", *load_own("spiral")["spiral/table-4"].variants]
    plan = make_plan("spiral", "smoke", variants=variants, eval_games=[], **folders)
    for key in plan.runs:
        plan.open(*key).model.symlink_to(embedded_path("games"))
    return plan


@pytest.mark.slow
def test_what_a_policy_says_is_counted_and_quoted(plan, monkeypatch):
    said = lambda path, folder: TEXTS.get(path, TEXTS["trained"])  # noqa: E731
    monkeypatch.setattr(spiral, "_spoken", said)
    frames = gather(plan.all())
    made = spiral.figure_4(plan, frames)
    shares = made.data.set_index(["when", "where", "pattern"])["value"]
    assert shares["start", "kuhn_poker", "case analysis"] == 0
    assert shares["end", "kuhn_poker", "case analysis"] == 1
    ax, other = made.item.axes
    titles = [each.get_title() or each.get_title("left") for each in (ax, other)]
    assert titles == ["poker", "questions"], "the paper has both, nobody speaks elsewhere"
    drawn = [float(line[0, 1]) for line in ax.collections[-1].get_segments()]
    assert drawn == [72, 78], "the paper's marks"
    ticks = [label.get_text() for label in ax.get_xticklabels()]
    assert ticks == ["case\nanalysis", "expected\nvalue"], "no text shows the third pattern"
    table = spiral.table_2(plan, frames).item
    assert table["kuhn_poker"]["case analysis"] == TEXTS["trained"][0][1]
    assert table["questions"]["case analysis"] == "none"


def test_the_papers_shares_stand_where_it_has_the_place():
    shown = ["case analysis", "expected value"]
    assert spiral.printed_shares("kuhn_poker", shown) == dict(zip(shown, (72, 78), strict=True))
    assert spiral.printed_shares("questions", shown) == dict(zip(shown, (71, 28), strict=True))
    assert spiral.printed_shares("TicTacToe-v0", shown) == {}


@pytest.mark.slow
def test_the_settings_stand_beside_the_papers(plan):
    table = settings_table(plan, gather([])).item
    assert table.loc["Batch size"].tolist() == ["128", "18"]
    assert table.loc["top k"].tolist() == ["-1", "off"]
    assert table.loc["Learning rate"].tolist() == ["1e-06", "0.0003"]
    assert table.loc["Discount factor"].tolist() == ["1", "1"] and len(table) == 16


@pytest.mark.slow
def test_problems_are_answered_again_and_specialists_meet(plan):
    frames = gather(plan.all())
    answers = spiral.table_7(plan, frames).item
    assert list(answers.columns) == ["problem", "start", "step 2"]
    assert (answers["start"] == answers["step 2"]).all() and "question" in answers.index
    poker = answers.loc["kuhn_poker", "problem"]
    assert poker.startswith("You are playing") and poker.endswith("\\boxed{}."), "in full"
    table = spiral.table_4(plan, frames).item
    line = table.loc["specialist of poker (paper: Poker Specialist)"]
    assert line["poker (paper: Kuhn Poker)"].endswith("(paper 64.2)") and line["seeds"] == "1"
    assert line["Pig Dice"] == "- (forfeits 100 %) (paper 91.7)"
    assert spiral.table_4(plan, frames.only(["full"])) is None


def test_the_arena_is_of_the_variants_that_its_exhibit_takes():
    arena = read_yaml("spiral", "tables.yaml")["arena"]
    assert list(arena["policies"]) == load_own("spiral")["spiral/table-4"].variants


def test_arena_cells_count_the_forfeits_of_both_sides():
    """In g, a wins 3 of 4 against b and half against c; in h, each side forfeits half."""
    rows = [("g", "a", "b", 0.75, 0.0), ("g", "a", "c", 0.5, 0.0), ("g", "b", "c", 0.25, 0.1)]
    rows += [("h", *pair, 0.5, 0.5) for pair in (("a", "b"), ("a", "c"), ("b", "c"))]
    rows += [(game, b, a, 1 - won, lost) for game, a, b, won, lost in rows]
    names = ["game", "policy", "opponent", "score", "invalid"]
    both = [pd.DataFrame(rows, columns=names).assign(seed=seed) for seed in (0, 1)]
    cells = spiral.arena_cells(pd.concat(both)).set_index(["row", "column"])
    assert cells.loc[("a", "g"), "text"] == "62.5 [62.5, 62.5]", "mean of 75 and 50"
    assert cells.loc[("b", "g"), "text"] == "25.0 [25.0, 25.0]"
    assert cells.loc[("c", "h"), "text"] == "- (forfeits 100 %)" and set(cells["n"]) == {2}


@pytest.mark.slow
def test_random_play_meets_the_experts_and_its_average_is_of_three_games():
    table = load_tables("spiral")["spiral/table-5"]
    cells = spiral.random_play(table, 4)
    assert len(cells) == 4 and set(cells["row"]) == {"random play"}
    assert set(cells["column"]) <= {column.name for column in table.columns}
    means = [float(text.split()[0]) for text in cells["text"]]
    assert means[3] == pytest.approx(sum(means[:3]) / 3, abs=0.1)
    assert all(mean % 12.5 == 0 and mean <= 100 for mean in means[:3]), "of four matches"


def poker_run(root, variant, policies):
    """A run whose policy at each step says the same in each state: "pass" or "bet"."""
    params = {"paper": "spiral", "scale": "smoke", "variant": variant, "seed": 0, "steps": 4}
    run = open_run(root, params)
    for step, choice in policies.items():
        labels = {"step": step, **dict.fromkeys(KEYS, ""), "suite": "kuhn_poker"}
        for key, match in exact.kuhn_states().items():
            action = match.legal_actions()[choice == "bet"]
            one = {**labels, "item": key, "sample": 0, "score": 1.0}
            one |= {"kind": "exact", "action": action}
            run.append("items", one, {**one, "opponent": "random", "action": None})
        value = {"value": 0.5, "low": 0.0, "high": 1.0, "n": 12, "metric": "exploitability"}
        run.append("evals", {**labels, **value})
    run.append("metrics", {"step": 4, "entropy": 0.25})
    run.finish(seconds=1, resumed=False)
    return run


@pytest.mark.slow
def test_the_average_policy_is_of_the_second_half_and_may_be_nearer_to_equilibrium(
    tmp_path, monkeypatch
):
    """Pass at step 2, bet at step 4: 7/12 (`kuhn_average`'s test); bet alone: 1/3."""
    runs = [
        poker_run(tmp_path, "full", {0: "bet", 2: "pass", 4: "bet"}),
        poker_run(tmp_path, "no-rae", {0: "pass", 4: "bet"}),
    ]
    averages = [spiral.average_exploitability(spiral.poker_policies(run)) for run in runs]
    assert averages == pytest.approx([7 / 12, 1 / 3])
    entry = load_tables("spiral")["spiral/poker-equilibrium"]
    names = {"no-rae": "no baseline", "full": "self-play with RAE", "batch-mean": "not run"}
    rows = [Row(name=words, run=(name, 1)) for name, words in names.items()]
    entry = entry.model_copy(update={"rows": rows})
    monkeypatch.setattr(spiral, "load_tables", lambda paper: {"spiral/poker-equilibrium": entry})
    table = entry.content(spiral.with_averages(gather(runs))).item
    assert list(table.index) == ["no baseline", "self-play with RAE"], "in the order of the file"
    line = table.loc["self-play with RAE"]
    assert line["what it changes"].startswith("SPIRAL.") and line["steps"] == "4"
    assert line["entropy at the end (nats)"] == "0.25 (n = 1)"
    assert line["exploitability, last policy"] == "0.500 (n = 1)"
    assert line["exploitability, average policy"] == "0.583 (n = 1)"
    assert entry.content(spiral.with_averages(gather(runs[:1]))) is None


def test_over_seeds_averages_within_a_seed_first():
    table = pd.DataFrame({"seed": [0, 0, 1], "step": [5, 5, 5], "value": [1.0, 3.0, 4.0]})
    row = spiral.over_seeds(table, ["step"]).iloc[0]
    assert (row["step"], row["value"], row["n"]) == (5, 3.0, 2)
    assert (row["low"], row["high"]) == (2, 4), "of two seeds, both or one twice"

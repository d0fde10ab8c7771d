"""SPICE's own exhibits: bars, cross-play and texts counted by hand, on runs that a test writes."""

import shutil

import pytest
from matplotlib.collections import LineCollection
from spice_world import SMALL, Tokenizer, World, method

from spnb import reference
from spnb.core.episodes import run as run_episode
from spnb.core.params import validate
from spnb.core.types import Chat, Completion
from spnb.evaluate.items import play_suite, play_suites, record
from spnb.evaluate.proposals import CHALLENGES
from spnb.lab.segments import GROUPS, SUITES, read_segment, suite_tasks
from spnb.methods.spice import Params
from spnb.report import curves, load_claims, plots
from spnb.report.frame import KEYS, Frames, gather, load_measures
from spnb.report.papers import spice
from spnb.train.plan import make_plan
from spnb.train.runs import Run, open_run

PARAMS = {"paper": "spice", "scale": "smoke", "policy": "embedded/reasoner", "steps": 8}


def spice_run(root, variant="full", seed=0, right=(0.25, 0.75), general=0.0):
    """A run whose mathematical suites have these accuracies before and after 8 steps, the general
    ones so much more."""
    run = open_run(root, {**PARAMS, "variant": variant, "seed": seed})
    for step, value in zip((0, 8), right, strict=True):
        for suite, asked in SUITES.items():
            where = dict.fromkeys(KEYS, "") | {"suite": suite}
            own = value + general * (asked["group"] == "general")
            row = {"step": step, **where, "metric": "accuracy", "value": own}
            run.append("evals", {**row, "low": 0.0, "high": 1.0, "n": 4})
    return run


@pytest.mark.slow
def test_methods_are_compared_by_group_and_the_start_is_one_policy(tmp_path):
    """4 suites at 75 %, 4 at 85 %: 80 % overall."""
    runs = [spice_run(tmp_path, seed=seed, general=0.1) for seed in (0, 1)]
    runs.append(spice_run(tmp_path, "r-zero", right=(0.25, 0.5)))
    data = spice.compared(gather(runs))
    values = data.set_index(["variant", "group", "seed"])["value"].sort_index()
    assert values["full", "mathematics"].tolist() == [75, 75]
    assert values["full", "general"].tolist() == pytest.approx([85, 85])
    assert values["full", "overall"].tolist() == pytest.approx([80, 80])
    assert values["start", "overall"].tolist() == pytest.approx([30]), "not once a seed"
    assert values["r-zero"].unique().tolist() == [50] and len(data) == 3 * (2 + 1 + 1)


@pytest.mark.slow
def test_figure_1_marks_the_papers_numbers_on_the_bars_of_all_suites(tmp_path):
    runs = [spice_run(tmp_path), spice_run(tmp_path, "fixed-challenger")]
    runs += [spice_run(tmp_path, name) for name in ("random-reward", "absolute-zero")]
    made = spice.figure_1(None, gather(runs))
    methods, parts = made.item.axes
    marks = [each for each in methods.collections if isinstance(each, LineCollection)]
    drawn = {float(each.get_segments()[0][0, 1]): each.get_segments()[0][:, 0] for each in marks}
    printed = reference.table("spice", "spice/table-1")["Overall"]
    known = [f"Qwen3-4B-Base{end}" for end in ("", " + Absolute Zero", " + SPICE (ours)")]
    assert sorted(drawn) == sorted(printed[known]) == [35.8, 40.7, 44.9], "none for the control"
    bars = dict(zip(("start", "absolute-zero", "full"), methods.containers, strict=False))
    for name, value in zip(bars, (35.8, 40.7, 44.9), strict=True):
        last = bars[name].patches[2]
        assert drawn[value][0] == pytest.approx(last.get_x()), name
    assert [bar.get_height() for each in parts.containers for bar in each] == [75, 75]
    labels = [text.get_text() for text in made.item.legends[0].get_texts()]
    assert labels[:3] == ["start (n=1)", "Absolute Zero (n=1)", "SPICE (n=1)"]
    assert methods.get_ylabel() == "right (%)" and len(set(labels)) == len(labels) == 6
    assert spice.figure_1(None, gather(runs[:1])) is None, "nothing to compare with"
    plots.plt.close("all")


def test_figure_1_has_a_bar_of_ones_own_variant(tmp_path):
    made = spice.figure_1(None, gather([spice_run(tmp_path), spice_run(tmp_path, "mine")]))
    labels = [text.get_text() for text in made.item.legends[0].get_texts()]
    assert {*labels} == {"start (n=1)", "SPICE (n=1)", "mine (n=1)", "paper"}
    plots.plt.close(made.item)


def one(item, score=1.0, **others):
    return record(CHALLENGES, item, score, **others)


def test_pass_rates_are_those_of_valid_tasks(tmp_path):
    """Of four attempts three are valid; the two right ones are answered in 1/2 and 1 of cases."""
    judged = {"self_contained": 1.0, "pay": 0.0, "question": "q"}
    records = [
        one("0", success=0.5, right=1.0, level=2, **judged),
        one("1", success=0.0, right=0.0, level=4, **judged),
        one("2", success=1.0, right=1.0, level=3, **judged),
        one("3", 0.0),
    ]
    numbers = spice.counted(records)
    assert numbers == {
        **{"valid": 75, "success": 50, "level": 3, "right": pytest.approx(200 / 3)},
        **{"self_contained": 100, spice.OF_RIGHT: 75},
    }
    assert spice.counted(records[-1:]) == {"valid": 0}, "no pass rate of nothing"


def world(level, right):
    """An engine that writes tasks of a level and answers those up to another one."""
    return World(lambda index: level, lambda level, index: level <= right)


@pytest.fixture
def crossed(tmp_path, monkeypatch):
    """A run with three kept checkpoints: step 2 writes level 1 and solves level 2, step 4 writes 2
    and solves 1, step 10 writes 3 and solves all."""
    run = spice_run(tmp_path)
    engines = {2: world(1, 2), 4: world(2, 1), 10: world(3, 6)}
    for step in engines:
        (run.folder / "kept" / f"step-{step}").mkdir(parents=True)
    policies = {str(path): engines[step] for step, path in run.kept().items()}
    loaded = lambda path, params: (policies[str(path)], Chat(Tokenizer()))  # noqa: E731
    monkeypatch.setattr(spice, "load_engine", loaded)
    monkeypatch.setattr(spice, "run_params", lambda run: method().params)
    return run


def test_each_side_of_the_cross_play_has_the_early_policy_in_the_other_role(crossed):
    assert list(crossed.kept()) == [2, 4, 10], "by number, not by name"
    table = spice.crossed(crossed)
    value = table.set_index(["role", "number", "step"])["value"].sort_index()
    assert value["challenger", "success"].to_dict() == {2: 100, 4: 100, 10: 0}
    assert value["challenger", "level"].to_dict() == {2: 1, 4: 2, 10: 3}
    assert value["reasoner", "success"].to_dict() == {2: 100, 4: 100, 10: 100}
    assert value["reasoner", "level"].to_dict() == {2: 1, 4: 1, 10: 1}, "the early one's tasks"
    assert (value[:, "right"] == 100).all() and (value[:, "valid"] == 100).all()
    assert set(table["seed"]) == {0} and set(table["variant"]) == {"full"}
    early = spice.load_engine(crossed.kept()[2], None)[0]
    assert len(early.asked) == 4, "its tasks on four documents are written once, for all pairs"
    assert not crossed.finished and not crossed.rows(spice.CROSS_PLAY), "more may come"
    crossed.finish(seconds=1)
    spice.crossed(crossed)
    shutil.rmtree(crossed.folder / "kept")
    assert spice.crossed(crossed).equals(table), "kept in the run's folder"
    assert spice.with_checkpoints(gather([crossed])) == [crossed]


@pytest.mark.slow
def test_figure_3_has_both_sides_and_the_papers_ends(crossed):
    frames = gather([crossed])
    made = spice.figure_3(None, frames)
    early, later, level, _ = made.item.axes
    assert early.get_xlabel() == "challenger's training step"
    assert later.get_xlabel() == "reasoner's training step"
    assert (early.get_ylabel(), level.get_ylabel()) == ("pass rate (%)", "steps asked for")
    dashed = [line for ax in (early, later) for line in ax.lines if line.get_linewidth() == 1.5]
    ends = [list(line.get_ydata()) for line in dashed if len(line.get_ydata())]
    assert ends == [[35, 35], [55, 55], [85, 85], [55, 55]]
    assert list(level.lines[0].get_ydata()) == [1, 2, 3]
    assert {"level", "right", "success", "valid"} <= set(made.data["number"])
    plots.plt.close("all")


@pytest.mark.slow
def test_claims_take_cross_play_from_the_early_checkpoint_to_the_last(crossed):
    """The early reasoner falls from 100 to 0 %, at level 3; the last one is right as before. A run
    without checkpoints adds nothing."""
    other = spice_run(crossed.folder.parents[3], "fixed-challenger")
    frames = gather([crossed, other])
    more = spice.with_cross_play(frames)
    measures = [part.measure for claim in load_claims("spice").claims for part in claim.parts]
    later = [each for each in measures if each.suite == ["cross-play"]]
    assert [each.of_runs(more)["value"].tolist() for each in later] == [[-100], [0]]
    assert [(each.of_runs(more)["first"].item(), each.unit) for each in later] == [
        (10, "points")
    ] * 2
    assert len(more.results) == len(frames.results) + len(spice.crossed(crossed))
    assert later[0].select(frames)[1] == "no evals named success"
    overall = load_measures("spice")["overall"]
    assert overall.of_runs(more).equals(overall.of_runs(frames)), "other measures stay"


def test_figure_3_needs_two_kept_checkpoints(tmp_path):
    run = spice_run(tmp_path)
    assert spice.figure_3(None, gather([run])) is None
    (run.folder / "kept" / "step-2").mkdir(parents=True)
    assert spice.figure_3(None, gather([run])) is None


def test_suites_are_played_together_and_apart(monkeypatch):
    """Two suites in one batch have the records that each has alone."""
    made = method()
    suites = [spice.paired(made, step, 1).challenge_suite() for step in (1, 2)]
    engines = {"1": world(1, 6), "2": world(2, 6)}
    both = [records for records, _ in play_suites(suites, engines)]
    alone, _ = play_suite(suites[1], engines)
    assert [[one["level"] for one in records] for records in both] == [[1] * 4, [2] * 4]
    assert [one["item"] for one in both[1]] == [one["item"] for one in alone]
    assert made.roles["challenger"].policy == "policy", "the method itself is as it was"


def test_tasks_are_those_on_the_same_document_early_and_late(tmp_path, monkeypatch):
    run = spice_run(tmp_path)
    told = {"question": "q", "answer": "7", "success": 0.25, "level": 2}
    judged = {"right": 1.0, "self_contained": 0.0, "faithful": 1.0, "leaks": 0.0}
    run.append("items", {"step": 0, **one("0", 0.0)}, {"step": 0, **one("1", **told, **judged)})
    late = told | {"question": "longer q", "success": 1.0, "level": 0}
    run.append("items", {"step": 8, **one("0", **late)}, {"step": 8, **one("1", **late)})
    params = method().params
    monkeypatch.setattr(spice, "run_params", lambda run: params)
    monkeypatch.setattr(spice, "first_of_halves", lambda params, at: [(n, f"d{n}") for n in at])
    table = spice.figure_5(None, gather([run])).item
    assert table["document"].tolist() == ["d1", "the same"], "document 0 has no task at the start"
    assert table["policy"].tolist() == ["start", "step 8"]
    assert table["question"].tolist() == ["q", "longer q"]
    assert table["answers that agree"].tolist() == ["1 of 4", "4 of 4"]
    assert table["oracle"].tolist() == [
        "level 2, stated answer right, not self-contained, facts of the document",
        "cannot be read",
    ]


def test_documents_are_those_that_the_challenger_was_shown():
    """The suite's own prompts hold the segments that the exhibit shows."""
    made, engine = method(), world(1, 6)
    play_suite(spice.paired(made, 1, 1).challenge_suite(), {"1": engine})
    prompts = [prompt for prompt, _ in engine.asked]
    texts = [run_episode(made.challenge_context(place), {})[1].texts[0] for place in range(4)]
    assert len(prompts) == 4
    assert all(text in prompt for text, prompt in zip(texts, prompts, strict=True))
    assert len(set(texts)) == 4, "none twice"
    assert made.source.held_out == texts


@pytest.mark.slow
def test_a_document_of_each_half_the_first_that_there_is(tmp_path):
    plan = make_plan("spice", "smoke", variants=["full"], runs=str(tmp_path))
    params = plan.params("full")
    shown = dict(spice.first_of_halves(params, range(params.eval_tasks)))
    kinds = {spice.KINDS[read_segment(text)[0].family].half for text in shown.values()}
    assert len(shown) == len(kinds) == 2
    assert min(shown) == 0 and dict(spice.first_of_halves(params, [max(shown)])) != shown


class Trained(Params):
    """The parameters of a run that the exhibit reads."""

    paper: str = "spice"
    policy: str = "start"


class Solver:
    """Answers the tasks of a level or below as their gold answers are."""

    def __init__(self, tasks, level):
        self.gold = {task.question: (task.gold[0], task.info["level"]) for task in tasks}
        self.level = level

    def generate(self, requests):
        return [self.reply("".join(map(chr, one.prompt_ids))) for one in requests]

    def reply(self, prompt):
        gold, level = next(each for question, each in self.gold.items() if question in prompt)
        text = f"<answer> {gold if level <= self.level else 'nobody knows'}</answer>"
        return Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop")


def test_a_task_that_was_learned_is_shown_with_both_solutions(tmp_path, monkeypatch):
    """The start knows level 1, the end levels 1 and 2: the first question of level 2."""
    run = spice_run(tmp_path)
    run.finish()
    tasks = {half: suite_tasks(names[0], 2) for half, names in GROUPS.items()}
    every = [task for each in tasks.values() for task in each]
    policies = {"start": Solver(every, 1), str(run.model): Solver(every, 2)}
    loaded = lambda path, params: (policies[str(path)], Chat(Tokenizer()))  # noqa: E731
    monkeypatch.setattr(spice, "load_engine", loaded)
    params = validate(Trained, SMALL | {"eval_items": 2})
    monkeypatch.setattr(spice, "run_params", lambda run: params)
    table = spice.figure_6(None, gather([run])).item.set_index("from")
    for half, each in tasks.items():
        assert table.loc[half, "task"] == each[2].question and each[2].info["level"] == 2
        assert table.loc[half, "start"].endswith("nobody knows</answer>\n(wrong)")
        last = f"step {params.steps}"
        assert table.loc[half, last] == f"<answer> {each[2].gold[0]}</answer>\n(right)"
    policies[str(run.model)] = policies["start"]
    table = spice.figure_6(None, gather([run])).item
    assert table["task"].tolist() == [each[0].question for each in tasks.values()]
    monkeypatch.setattr(Run, "facts", lambda self: {"weights": False})
    assert spice.figure_6(None, Frames([run])) is None, "records that were unpacked have none"


def test_the_methods_of_figure_1_have_colours_that_differ():
    looks = curves.looks("spice", [])
    words = spice.OWN["spice/figure-1"].words
    shown = [
        name for name in {**words["methods"], **dict.fromkeys(words["parts"])} if name in looks
    ]
    assert len({looks[name].colour for name in shown}) == len(shown) == 7
    assert plots.PALETTE[6] not in {looks[name].colour for name in shown}, "the start's"


def test_the_exhibits_are_not_made_without_their_runs():
    assert [make(None, gather([])) for make in spice.MAKERS.values()] == [None] * 4

"""Open-ended benchmarks: rubrics from local rows in their schemas, answers graded by points."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import CharTokenizer

from spnb.core import prompts
from spnb.core.search import Tool
from spnb.core.types import Chat, Completion, Sampling
from spnb.corpus.targets import open_retriever
from spnb.evaluate.benchmarks import BENCHMARKS
from spnb.evaluate.by_search import BySearch, rubric_score
from spnb.evaluate.items import play_suite
from spnb.evaluate.loaders import BenchmarkError, benchmark_suite, load

TURNS = [
    {"role": "user", "content": "My knee hurts."},
    {"role": "assistant", "content": "Since when?"},
    {"role": "user", "content": "A week."},
]
ROWS = {
    "deep-research-bench": {
        "id": 51,
        "language": "en",
        "prompt": "Compare two heat pumps.",
        "dimension_weight": {
            "readability": 0.1,
            "insight": 0.4,
            "comprehensiveness": 0.3,
            "instruction_following": 0.2,
        },
        "criterions": {
            "comprehensiveness": [
                {"criterion": "Breadth", "explanation": "Both are described.", "weight": 0.75},
                {"criterion": "Data", "explanation": "Prices are given.", "weight": 0.25},
            ],
            "insight": [{"criterion": "Cause", "explanation": "Says why.", "weight": 1.0}],
            "instruction_following": [
                {"criterion": "Scope", "explanation": "Two pumps.", "weight": 1.0}
            ],
            "readability": [
                {"criterion": "Order", "explanation": "Has titles.", "weight": 1.0, "comment": "x"}
            ],
        },
    },
    "sqa-cs-v2": {
        "case_id": "c1",
        "annotator": "A, B",
        "agreement": True,
        "question": "How do models search?",
        "ingredients": [
            {"name": "0", "criterion": "Names two loops.", "weight": 0.7, "examples": ["x"]},
            {"name": "1", "criterion": "Tells of cost.", "weight": 0.3, "examples": []},
        ],
    },
    "researchqa": {
        "id": "a1",
        "general_domain": "Health",
        "subdomain": "Sleep",
        "field": "Naps",
        "query": "Do naps help memory?",
        "date": "2020-01-01",
        "rubric": [
            {"rubric_item": "Names the hippocampus.", "type": "fact"},
            {"rubric_item": "Cites a trial.", "type": "citation"},
        ],
    },
    "researchrubrics": {
        "sample_id": "b1",
        "prompt": "Compare two heat pumps.",
        "rubrics": [
            {"criterion": "Gives both prices.", "weight": 3.0, "axis": "facts"},
            {"criterion": "Sells one of them.", "weight": -2.0, "axis": "style"},
        ],
    },
    "researchplangen": {
        "Goal": "Find a cheaper optimiser.",
        "Rubric": ["States a baseline.", "Plans an ablation."],
        "Reference solution": "...",
    },
    "healthbench": {
        "prompt_id": "d1",
        "prompt": TURNS,
        "rubrics": [
            {"criterion": "Asks about a fall.", "points": 5, "tags": []},
            {"criterion": "Names a drug's dose.", "points": -8, "tags": []},
        ],
        "example_tags": [],
    },
    "wildbench": {
        "id": 7,
        "session_id": "e1",
        "conversation_input": TURNS,
        "references": {"gpt-4": "..."},
        "checklist": ["Is it short?", "Does it speak of the knee?"],
        "length": 3,
        "intent": "advice",
        "primary_tag": "Advice seeking",
        "secondary_tags": [],
    },
}
"""A row of each in the columns that its publishers gave it."""
DIMENSIONS = ROWS["deep-research-bench"]["dimension_weight"]
WEIGHTS = {
    "researchrubrics": (3, -2),
    "healthbench": (5, -8),
    "deep-research-bench": pytest.approx((0.225, 0.075, 0.4, 0.2, 0.1)),
    "sqa-cs-v2": (0.7, 0.3),
}
DIFFICULTY = {"wildbench": "Advice seeking", "deep-research-bench": "en"}
POINTS = {
    "deep-research-bench": (
        "Breadth: Both are described.",
        "Data: Prices are given.",
        "Cause: Says why.",
        "Scope: Two pumps.",
        "Order: Has titles.",
    ),
    "sqa-cs-v2": ("Names two loops.", "Tells of cost."),
    "researchqa": ("Names the hippocampus.", "Cites a trial."),
    "researchrubrics": ("Gives both prices.", "Sells one of them."),
    "researchplangen": ("States a baseline.", "Plans an ablation."),
    "healthbench": ("Asks about a fall.", "Names a drug's dose."),
    "wildbench": ("Is it short?", "Does it speak of the knee?"),
}


def test_every_benchmark_with_a_rubric_has_a_row_here():
    graded = {name for name, one in BENCHMARKS.items() if one.prompt == "report"}
    assert graded - set(ROWS) == {"arena-hard-creative"}  # which has pairs, see below


def written(folder, *rows):
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def test_a_point_without_a_text_is_none(tmp_path):
    """Its weight goes with it."""
    points = [{"criterion": "", "weight": 0.2}, {"criterion": None, "weight": 0.1}]
    rows = ROWS["sqa-cs-v2"]
    rows = rows | {"ingredients": [points[0], *rows["ingredients"], points[1]]}
    (task,) = load("sqa-cs-v2", CharTokenizer(), path=written(tmp_path, rows))
    assert task.gold == POINTS["sqa-cs-v2"]
    assert task.info["weights"] == pytest.approx((0.7, 0.3))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_becomes_a_task_with_its_points(name, tmp_path):
    (task,) = load(name, CharTokenizer(), path=written(tmp_path, ROWS[name]))
    assert task.gold == POINTS[name] and task.kind == "rubric"
    assert task.info["weights"] == WEIGHTS.get(name, (1, 1))
    content = task.messages[0]["content"]
    assert (
        content.startswith(prompts.WORDS["report"]["careful"])
        and f"Task: {task.question}" in content
    )
    chat = name in ("healthbench", "wildbench")
    assert ("user: My knee hurts.\n\nassistant: Since when?\n\nA week." in content) == chat
    assert task.difficulty == DIFFICULTY.get(name, "")
    assert BENCHMARKS[name].papers["scope"].count == 1000


def test_a_long_chat_before_an_open_ended_task_is_cut(tmp_path, tokenizer):
    chat = [{"role": "user", "content": "knee " * 400}, {"role": "user", "content": "A week."}]
    path = written(tmp_path, ROWS["healthbench"] | {"prompt": chat})
    (whole,), (cut,) = (load("healthbench", tokenizer, limit, path) for limit in (None, 600))
    chat = Chat(tokenizer)
    asked = [chat.request(task.messages, Sampling(), 0).prompt_ids for task in (whole, cut)]
    assert len(asked[0]) > 1000 and 590 < len(asked[1]) <= 600
    assert cut.messages[0]["content"].endswith("A week.")
    assert cut.question == whole.question, "the judge has all of it"


@pytest.mark.parametrize(("name", "changes", "message"), [
    ("researchrubrics", {"rubrics": [{"criterion": "x", "weight": "y"}]}, r"weights are \['y'\]"),
    ("researchrubrics", {"rubrics": [{"criterion": "x", "weight": -1}]}, "there are 1 points"),
    ("researchrubrics", {"rubrics": [{"criterion": "x", "weight": 0}]}, "there are 1 points"),
    ("researchplangen", {"Rubric": []}, "there are 0 points"),
    ("deep-research-bench", {"criterions": {"insight": []}},
     r"column 'criterions.comprehensiveness' is None; allowed: a list"),
    ("deep-research-bench", {"dimension_weight": dict.fromkeys(DIMENSIONS, "much")},
     r"weights are \['much', '0.75', '0.25'\]; allowed: numbers"),
    ("sqa-cs-v2", {"ingredients": [{"name": "0", "weight": 1.0}]}, "has no 'criterion'"),
    ("healthbench", {"prompt": [{"role": "user"}]}, "allowed: JSON, a list of role and content"),
])  # fmt: skip
def test_a_row_without_a_rubric_is_named(name, changes, message, tmp_path):
    with pytest.raises(BenchmarkError, match=f"row 1: .*{message}"):
        load(name, CharTokenizer(), path=written(tmp_path, ROWS[name] | changes))


def test_a_rubrics_score_is_the_weight_that_is_there():
    assert rubric_score([True, False], [3, -2]) == 1
    assert rubric_score([True, True], [3, -2]) == pytest.approx(1 / 3)
    assert rubric_score([False, True], [3, -2]) == pytest.approx(-2 / 3)
    assert rubric_score([True, False, True], [1, 1, 2]) == 0.75


class Writer:
    """Searches once, then writes of prices, or nothing about heat; says yes to points that name
    prices, and to neither where asked about selling."""

    def __init__(self):
        self.judged = []

    def generate(self, requests):
        texts = [self.reply("".join(map(chr, one.prompt_ids))) for one in requests]
        return [Completion(tuple(map(ord, t)), (-1.0,) * len(t), t, "stop") for t in texts]

    def reply(self, prompt):
        if prompts.WORDS["grade careful"] in prompt:
            self.judged.append(prompt)
            return "who knows" if "Sells" in prompt else "<answer> yes</answer>"
        if "Mute" in prompt:
            return "nothing"
        if "<information>\n[1]" not in prompt:
            return "<search> pumps</search>"
        return "<answer> Both prices.</answer>"


def test_answers_are_graded_point_by_point_by_the_judge(tmp_path):
    pages = tmp_path / "pages.jsonl"
    pages.write_text(json.dumps({"id": "1", "title": "Pumps", "text": "pumps cost money"}))
    tool = Tool(CharTokenizer(), open_retriever("bm25", str(pages)), 1, 4, 100_000)
    points = [("Sells ovens.", 3.0), ("Gives a price.", 1.0)]
    rubrics = [{"criterion": text, "weight": weight, "axis": "x"} for text, weight in points]
    rows = [ROWS["researchrubrics"], ROWS["researchrubrics"] | {"prompt": "Mute."}]
    rows.append({"sample_id": "b2", "prompt": "Compare ovens.", "rubrics": rubrics})
    writer = Writer()

    def judge(asked, seed):
        texts = [writer.reply(one[-1]["content"]) for one in asked]
        yield from ()
        return [prompts.verdict(text) for text in texts]

    how = {"path": written(tmp_path, *rows), "by_search": BySearch(tool, judge)}
    suite = benchmark_suite("researchrubrics", Chat(CharTokenizer()), Sampling(16), **how)
    records, _ = play_suite(suite, {"policy": writer})
    assert [one["score"] for one in records] == [1.0, 0.0, 0.25]
    assert [one["parsed"] for one in records] == [True, False, True] and len(writer.judged) == 4
    asked = "Task: Compare two heat pumps.\nResponse: Both prices.\nPoint: Gives both prices."
    assert writer.judged[0].endswith(asked)
    alone = SimpleNamespace(**{**how, "by_search": BySearch(tool)})
    with pytest.raises(ValueError, match="graded by a judge"):
        benchmark_suite("researchrubrics", Chat(CharTokenizer()), Sampling(16), **vars(alone))


# --- comparisons with another model's answer

ASKED = [
    {"uid": "u1", "category": "creative_writing", "subcategory": "x", "prompt": "Write of rain."},
    {"uid": "u2", "category": "hard_prompt", "subcategory": "y", "prompt": "Prove it."},
    {"uid": "u3", "category": "creative_writing", "subcategory": "x", "prompt": "Write of snow."},
]
THEIRS = [
    {
        "uid": uid,
        "ans_id": f"a{uid}",
        "model": "gemini-2.0-flash-001",
        "messages": [
            {"role": "user", "content": "as asked"},
            {"role": "assistant", "content": {"answer": f"Theirs {uid}."}},
        ],
        "metadata": {"token_len": 2, "first_line": "a\u2028b"},
    }
    for uid in ("u3", "u1", "u2")
]
QUESTIONS, ANSWERS = "question.jsonl", "gemini-2.0-flash-001.jsonl"


def arena(folder, questions=ASKED, answers=THEIRS):
    folder.mkdir()
    for name, rows in ((QUESTIONS, questions), (ANSWERS, answers)):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (folder / name).write_text("\n".join(lines))
    return str(folder)


def test_each_question_has_the_other_models_answer_beside_it(tmp_path):
    tasks = load("arena-hard-creative", CharTokenizer(), path=arena(tmp_path / "all"))
    assert [(one.question, one.gold, one.kind) for one in tasks] == [
        ("Write of rain.", ("Theirs u1.",), "pair"),
        ("Write of snow.", ("Theirs u3.",), "pair"),
    ]
    cut = arena(tmp_path / "cut", answers=THEIRS[:1])
    with pytest.raises(BenchmarkError, match="row 1: column 'beside' is empty"):
        load("arena-hard-creative", CharTokenizer(), path=cut)
    (tmp_path / "cut" / ANSWERS).unlink()
    with pytest.raises(BenchmarkError, match="cannot be loaded .*allowed: "):
        load("arena-hard-creative", CharTokenizer(), path=cut)
    files = "a folder} with question.jsonl and gemini-2.0-flash-001.jsonl"
    for name, answers, said in (
        ("odd", [{"id": "u1"}], "a row has no 'uid'; it has id"),
        ("short", [{"uid": "u1", "messages": []}], "has no list index out of range"),
        ("plain", [THEIRS[0] | {"messages": ["x", {"content": "x"}]}], "does not fit {messages"),
    ):
        with pytest.raises(BenchmarkError, match=f"{re.escape(said)}.*{re.escape(files)}"):
            load(
                "arena-hard-creative", CharTokenizer(), path=arena(tmp_path / name, answers=answers)
            )


def test_the_hub_has_both_files_at_one_revision(tmp_path, monkeypatch):
    import datasets
    import huggingface_hub

    folder, asked = Path(arena(tmp_path / "all")), []

    def dataset(*names, **how):
        asked.append((names, how))
        return datasets.Dataset.from_list(ASKED)

    def download(*names, **how):
        asked.append((names, how))
        return str(folder / ANSWERS)

    monkeypatch.setattr(datasets, "load_dataset", dataset)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    tasks = load("arena-hard-creative", CharTokenizer(), revision="abc", count=1)
    assert len(tasks) == 1 and tasks[0].gold[0].startswith("Theirs u")
    hub, base = "lmarena-ai/arena-hard-auto", "data/arena-hard-v2.0"
    first = {"split": "train", "revision": "abc", "data_files": f"{base}/{QUESTIONS}"}
    second = {"repo_type": "dataset", "revision": "abc"}
    assert asked == [((hub, None), first), ((hub, f"{base}/model_answer/{ANSWERS}"), second)]


@pytest.mark.parametrize(("said", "score"), [
    (("yes", "no"), 1.0), (("no", "yes"), 0.0), (("yes", "yes"), 0.5), (("", "no"), 0.75),
])  # fmt: skip
def test_an_answer_is_compared_in_both_orders(said, score, tmp_path):
    """Ours first and theirs first; the same verdict twice is a judge's liking for a place."""
    read = []

    def judge(asked, seed):
        yield from ()
        read.extend(one[-1]["content"] for one in asked)
        return [{"yes": True, "no": False}.get(one) for one in said * (len(asked) // 2)]

    class Poet:
        def generate(self, requests):
            text = "<answer> Ours.</answer>"
            done = Completion(tuple(map(ord, text)), (-1.0,) * len(text), text, "stop")
            return [done] * len(requests)

    pages = tmp_path / "pages.jsonl"
    pages.write_text(json.dumps({"id": "1", "title": "Rain", "text": "rain is wet"}))
    tool = Tool(CharTokenizer(), open_retriever("bm25", str(pages)), 1, 4, 100_000)
    how = {"path": arena(tmp_path / "all"), "by_search": BySearch(tool, judge)}
    suite = benchmark_suite("arena-hard-creative", Chat(CharTokenizer()), Sampling(16), **how)
    records, rows = play_suite(suite, {"policy": Poet()})
    assert [one["score"] for one in records] == [score, score]
    ours, theirs = "First: Ours.\nSecond: Theirs u1.", "First: Theirs u1.\nSecond: Ours."
    assert (
        read[0] == f"{prompts.WORDS['exam']['better']}\nTask: Write of rain.\n{ours}"
        and theirs in read[1]
    )

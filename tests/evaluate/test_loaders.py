"""Every published benchmark from a small file in its own columns; gold answers, cuts, errors."""

import gzip
import json
import zipfile

import pandas as pd
import pytest
from fakes import CharTokenizer

from spnb.core.grading import PARTS, RULES, grade, grade_text
from spnb.core.params import ParamError
from spnb.core.types import Chat, Completion, Sampling
from spnb.evaluate import loaders
from spnb.evaluate.benchmarks import BENCHMARKS, Use, read_uses
from spnb.evaluate.items import play_suite
from spnb.evaluate.loaders import (
    BenchmarkError,
    benchmark_suite,
    load,
    prefixed,
    run_suites,
    truncate_middle,
)
from spnb.lab.ladder import WORLDS


class Characters(CharTokenizer):
    """One token per character, with offsets."""

    def __call__(self, text, add_special_tokens, return_offsets_mapping=False):
        spans = [(place, place + 1) for place in range(len(text))]
        return {"input_ids": [ord(char) for char in text], "offset_mapping": spans}


TOKENIZER = Characters()
CHAT = Chat(TOKENIZER)

LONGBENCH = {
    "input": "Where was the founder of Vell born?",
    "context": "Passage 1:\nVell was founded by Ada Orr.\n\nPassage 2:\nAda Orr was born in Tarn.",
    "answers": ["Tarn", "the town of Tarn"],
    "length": 16,
    "dataset": "2wikimqa",
    "language": "en",
    "all_classes": None,
    "_id": "a1",
}
CONVERSATION = [
    {"role": "user", "content": "Write a poem about moss"},
    {"role": "assistant", "content": "Green and low."},
    {"role": "user", "content": "Write a poem about moss"},
    {"role": "assistant", "content": "Soft on stone."},
    {"role": "user", "content": "Prepend Xy7 to the 2nd poem about moss."},
]


def mrcr(needles):
    return {
        "prompt": json.dumps(CONVERSATION),
        "answer": "Xy7Soft on stone.",
        "random_string_to_prepend": "Xy7",
        "n_needles": needles,
        "desired_msg_index": 3,
        "total_messages": 5,
        "n_chars": 90,
    }


def choices(count):
    return [f"metal {number}" for number in range(count)]


BY_SEARCH = {
    "nq": {},
    "triviaqa": {},
    "popqa": {"prop": "author", "s_aliases": ["Reed"], "s_pop": 12},
    "hotpotqa": {"type": "bridge", "supporting_facts": {"title": ["Reed"], "sent_id": [0]}},
    "2wikimultihopqa": {"type": "compositional"},
    "musique": {"hops": 2},
    "bamboogle": None,
}
"""Further facts of a row of each set that is answered by search."""


def flashrag(name):
    row = {"id": "test_0", "question": "Who wrote Reed?", "golden_answers": ["Ada Orr", "A. Orr"]}
    facts = BY_SEARCH[name]
    return row if facts is None else row | {"metadata": facts}


ROWS = {
    "docmath": {
        "question_id": "complong-testmini-0",
        "question": "What is the change in revenue in percent?",
        "paragraphs": ["Revenue, in millions:", "| 2019 | 80.0 |\n| 2020 | 90.0 |"],
        "table_evidence": [1],
        "paragraph_evidence": [],
        "python_solution": "def solution(): return (90 - 80) / 80 * 100",
        "ground_truth": 12.5,
    },
    "frames": {
        "Unnamed: 0": 0,
        "Prompt": "Which of the two towers is older?",
        "Answer": "The Tarn Tower",
        "reasoning_types": "Tabular reasoning",
        "wiki_items": [
            {"link": "u1", "title": "Tarn Tower", "text": "Built in 1840."},
            {"link": "u2", "title": "Orr Tower", "text": "Built in 1910."},
        ],
    },
    "longbench-2wikimqa": LONGBENCH,
    "longbench-hotpotqa": LONGBENCH,
    "longbench-musique": LONGBENCH,
    "longbench-v2": {
        "_id": "b1",
        "domain": "Single-Document QA",
        "sub_domain": "Legal",
        "difficulty": "hard",
        "length": "short",
        "question": "Who pays the rent?",
        "choice_A": "Nobody",
        "choice_B": "The tenant",
        "choice_C": "The owner",
        "choice_D": "The town",
        "answer": "B",
        "context": "The tenant pays the rent by the first of the month.",
    },
    "mrcr-2needle": mrcr(2),
    "mrcr-4needle": mrcr(4),
    "mrcr-8needle": mrcr(8),
    "math500": {
        "problem": "Write the point in polar coordinates.",
        "solution": "...",
        "answer": "\\left( 3, \\frac{\\pi}{2} \\right)",
        "subject": "Precalculus",
        "level": 2,
        "unique_id": "test/precalculus/0.json",
    },
    "aime24": {
        "id": 60,
        "problem": "How many pairs are there?",
        "solution": "...",
        "answer": "073",
        "url": "u",
        "year": "2024",
    },
    "aime25": {"problem": "How many degrees?", "answer": "336^\\circ", "id": "5"},
    "amc23": {"id": 0, "answer": 27.0, "url": "u", "question": "How many miles?"},
    "gsm8k": {
        "question": "Ann has 3 boxes of 6 eggs. How many eggs does she have?",
        "answer": "She has 3*6=<<3*6=18>>18 eggs. That is #1 of 1.\n#### 1,018",
    },
    "minerva": {"problem": "What energy, in J?", "solution": "...", "answer": "4.5e-19"},
    "olympiadbench": {
        "id": 1606,
        "question": "Find the sum.",
        "solution": ["..."],
        "final_answer": ["$\\frac{3}{2}$"],
        "is_multiple_answer": False,
        "unit": None,
        "answer_type": "Numerical",
    },
    "gpqa-diamond": {
        "Question": "Which metal is heaviest?",
        "Correct Answer": "osmium\n",
        "Incorrect Answer 1": "iron",
        "Incorrect Answer 2": "tin",
        "Incorrect Answer 3": "gold",
        "Subdomain": "Chemistry",
    },
    "supergpqa": {
        "uuid": "c1",
        "question": "Which metal?",
        "options": choices(10),
        "answer": "metal 9",
        "answer_letter": "J",
        "discipline": "Science",
        "difficulty": "middle",
        "is_calculation": False,
    },
    "mmlu-pro": {
        "question_id": 70,
        "question": "Which metal?",
        "options": choices(4),
        "answer": "D",
        "answer_index": 3,
        "cot_content": "",
        "category": "chemistry",
        "src": "made up",
    },
    "bbeh": {"question": "True? (A) yes (B) no", "answer": "(B)", "task": "boolean expressions"},
    **{name: flashrag(name) for name in BY_SEARCH},
}
"""A row of each benchmark in the columns that its publishers gave it."""

ANSWERS = {
    "docmath": ("12.51", "12.53"),
    "frames": ("It is the Tarn Tower.", "the Orr Tower"),
    "longbench-2wikimqa": ("She was born in Tarn", "Vell"),
    "longbench-hotpotqa": ("Tarn.", "Orr"),
    "longbench-musique": ("The Town of Tarn", "Tarnish"),
    "longbench-v2": ("(b)", "A"),
    "mrcr-2needle": ("Xy7Soft on stone.", "Soft on stone."),
    "mrcr-4needle": ("Xy7Soft on stone.", "Xy8Soft on stone."),
    "mrcr-8needle": ("Xy7Soft on stone.", "Here it is: Xy7Soft on stone."),
    "math500": (r"(3,\pi/2)", r"(3,\pi)"),
    "aime24": ("73", "74"),
    "aime25": ("336", "335"),
    "amc23": (r"27\text{ miles}", "27.5"),
    "gsm8k": (r"\$1{,}018", "18"),
    "minerva": (r"4.5 \times 10^{-19}", r"4.5 \times 10^{-18}"),
    "olympiadbench": ("1.5", "3"),
    "supergpqa": ("J", "I"),
    "mmlu-pro": (r"\text{(D)}", "metal 3"),
    "bbeh": ("B", "A"),
    **dict.fromkeys(BY_SEARCH, ("the A. Orr.", "It is Ada Orr")),
}
"""A right and a wrong answer; of gpqa-diamond the letter is drawn."""
ABOUT_A_TEXT = {name for name, entry in BENCHMARKS.items() if entry.documents}


def written(folder, rows, name="data.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def one(name, folder, tokenizer=TOKENIZER, limit=None, **changes):
    """The task of the benchmark's row with some columns changed."""
    (task,) = load(name, tokenizer, limit, path=written(folder, [ROWS[name] | changes]))
    return task


def said(answer, tag):
    return f"\\boxed{{{answer}}}" if tag == "boxed" else f"<answer>{answer}</answer>"


def test_every_benchmark_has_a_row_here_and_a_name_of_its_own():
    reports = {name for name, entry in BENCHMARKS.items() if entry.prompt == "report"}
    assert set(ROWS) == set(BENCHMARKS) - reports == {*ANSWERS, "gpqa-diamond"}
    assert not set(BENCHMARKS) & {*WORLDS, "ladder", "held-out", "transfer"}
    for entry in BENCHMARKS.values():
        assert entry.kind in {**RULES, **PARTS}


@pytest.mark.parametrize("name", ANSWERS)
def test_right_and_wrong_answers(name, tmp_path):
    task, tag = one(name, tmp_path), BENCHMARKS[name].tag
    right, wrong = (grade_text(f"So {said(text, tag)}.", task) for text in ANSWERS[name])
    assert right == 1.0 and wrong == 0.0
    assert grade_text(ANSWERS[name][0], task) == 0.0  # outside of its tag


@pytest.mark.parametrize("name", ROWS)
def test_prompts_have_question_text_and_options(name, tmp_path):
    task = one(name, tmp_path)
    (message,) = task.messages
    content = message["content"]
    assert message["role"] == "user" and f"Question: {task.question}" in content
    assert "{" not in content.replace("\\boxed{}", "")  # no template left
    assert ("<answer>" in content) == (BENCHMARKS[name].tag == "answer")
    assert ("\\boxed{}" in content) == (BENCHMARKS[name].tag == "boxed")
    if name in ABOUT_A_TEXT:
        instruction, rest = content.split("\n", 1)
        assert rest.index("Question: ") > 20 and instruction.startswith("Read the ")


def test_texts_of_lists_and_their_templates(tmp_path):
    assert (
        "Tarn Tower\nBuilt in 1840.\n\nOrr Tower\nBuilt"
        in one("frames", tmp_path).messages[0]["content"]
    )
    report = one("docmath", tmp_path).messages[0]["content"]
    assert "Revenue, in millions:\n\n| 2019 | 80.0 |\n| 2020 | 90.0 |\nQuestion" in report
    chat = one("mrcr-2needle", tmp_path)
    assert chat.question == "Prepend Xy7 to the 2nd poem about moss."
    assert "assistant: Green and low.\n\nuser: Write" in chat.messages[0]["content"]
    assert chat.messages[0]["content"].count("Prepend") == 1


def test_a_folder_of_several_benchmarks_gives_the_one_that_is_named(tmp_path):
    """As LongBench's repository has them, in an archive or unpacked."""
    (tmp_path / "README.md").write_text("# My notes\n\n---\nconfigs: as downloaded\n")
    rows = {name: json.dumps(LONGBENCH | {"input": name}) for name in ("2wikimqa", "hotpotqa")}
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for name, row in rows.items():
            archive.writestr(f"data/{name}.jsonl", row + "\n")
    (task,) = load("longbench-2wikimqa", TOKENIZER, path=str(tmp_path))
    assert task.question == "2wikimqa"
    written(tmp_path, [LONGBENCH], "other.jsonl")
    with pytest.raises(BenchmarkError, match="several files there, and none .* musique.jsonl"):
        load("longbench-musique", TOKENIZER, path=str(tmp_path))
    written(tmp_path, [LONGBENCH | {"input": "unpacked"}], "musique.jsonl")
    (task,) = load("longbench-musique", TOKENIZER, path=str(tmp_path))
    assert task.question == "unpacked"
    (tmp_path / "data.zip").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(BenchmarkError, match="not a zip file"):
        load("longbench-2wikimqa", TOKENIZER, path=str(tmp_path))
    alone = tmp_path / "alone"
    alone.mkdir()
    written(alone, [LONGBENCH | {"input": "mine"}], "rows.jsonl")
    (task,) = load("longbench-2wikimqa", TOKENIZER, path=str(alone))
    assert task.question == "mine"


def test_of_several_configurations_the_named_one_is_read(tmp_path):
    """As a download without the repository's card leaves them: in folders, or in files."""
    row = ROWS["nq"]
    for config in ("nq", "hotpotqa"):
        (tmp_path / config).mkdir()
        written(tmp_path / config, [row | {"question": config}], "test.jsonl")
    assert [task.question for task in load("nq", TOKENIZER, path=str(tmp_path))] == ["nq"]
    files = tmp_path / "files"
    files.mkdir()
    for config in ("gpqa_diamond", "gpqa_main"):
        written(files, [ROWS["gpqa-diamond"]], f"{config}.jsonl")
    assert len(load("gpqa-diamond", TOKENIZER, path=str(files))) == 1


def test_gold_answers(tmp_path):
    assert one("gsm8k", tmp_path).gold == ("1,018",)
    assert one("longbench-musique", tmp_path).gold == ("Tarn", "the town of Tarn")
    assert one("docmath", tmp_path, ground_truth=-31.0).gold == ("-31.0",)
    assert one("supergpqa", tmp_path).gold == ("J",)
    assert one("mrcr-8needle", tmp_path).gold == ("Xy7", "Xy7Soft on stone.")


def test_the_tolerance_of_figures(tmp_path):
    task = one("docmath", tmp_path, ground_truth=100.0)
    scores = [grade_text(said(text, "answer"), task) for text in ("100.15", "100.16", "99.85")]
    assert scores == [1.0, 0.0, 1.0]


def test_difficulties_split_the_rows(tmp_path):
    names = ("math500", "longbench-v2", "mmlu-pro", "bbeh", "supergpqa", "gsm8k")
    labels = [one(name, tmp_path).difficulty for name in names]
    assert labels == ["level 2", "hard", "chemistry", "boolean expressions", "middle", ""]


def test_options_are_shuffled_for_each_row_and_gold_follows(tmp_path):
    path = written(tmp_path, [ROWS["gpqa-diamond"]] * 40)
    tasks = load("gpqa-diamond", TOKENIZER, path=path)
    for task in tasks:
        shown = dict(zip("ABCD", task.info["options"], strict=True))
        assert sorted(shown.values()) == ["gold", "iron", "osmium", "tin"]
        assert shown[task.gold[0]] == "osmium"
        assert f"- osmium ({task.gold[0]})" in task.messages[0]["content"]
        assert grade_text(said(task.gold[0], "boxed"), task) == 1.0
        assert grade_text(said("ABCD".replace(task.gold[0], "")[0], "boxed"), task) == 0.0
    assert {task.gold[0] for task in tasks} == set("ABCD")
    assert load("gpqa-diamond", TOKENIZER, path=path) == tasks


def test_a_part_is_drawn_from_all_and_keeps_order_and_options(tmp_path):
    rows = [ROWS["gpqa-diamond"] | {"Question": f"{n:02}?"} for n in range(30)]
    path = written(tmp_path, rows)
    everything = load("gpqa-diamond", TOKENIZER, path=path)
    part = load("gpqa-diamond", TOKENIZER, path=path, count=8)
    asked = [task.question for task in part]
    assert asked == sorted(asked) and len(set(asked)) == 8 and asked[-1] > "10?"
    assert all(task in everything for task in part)
    assert load("gpqa-diamond", TOKENIZER, path=path, count=8) == part
    assert len(load("gpqa-diamond", TOKENIZER, path=path, count=99)) == 30


def test_only_rows_with_the_wanted_values(tmp_path):
    path = written(tmp_path, [mrcr(2), mrcr(8), mrcr(2)])
    assert len(load("mrcr-2needle", TOKENIZER, path=path)) == 2
    with pytest.raises(BenchmarkError, match=r"0 rows with \{'n_needles': 4\}"):
        load("mrcr-4needle", TOKENIZER, path=path)


def test_likeness_behind_a_prefix():
    golds = ("Xy7", "Xy7abcd")
    assert prefixed("Xy7abcd", golds) == 1.0
    assert prefixed("Xy7abxy", golds) == pytest.approx(0.5)  # 2 * 2 of 4 + 4 characters
    assert prefixed("abcd", golds) == 0.0
    assert grade("Xy7abxy", golds, "prefixed") == pytest.approx(0.5)


# --- files


def test_files_of_every_format_and_folders(tmp_path):
    rows = [ROWS["aime25"], ROWS["aime25"] | {"answer": "7"}]
    table = pd.DataFrame(rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    table.to_parquet(tmp_path / "data.parquet")
    table.to_csv(tmp_path / "data.csv", index=False)
    table.to_csv(tmp_path / "data.tsv", index=False, sep="\t")
    (tmp_path / "data.json").write_text(json.dumps(rows))
    (tmp_path / "data.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    parts = tmp_path / "folder [1]"
    parts.mkdir()
    for number, row in enumerate(rows):
        written(parts, [row], f"part-{number}.jsonl")
    (parts / "notes.txt").write_text("no data")
    expected = load("aime25", TOKENIZER, path=written(tmp_path, rows))
    assert [task.gold for task in expected] == [("336^\\circ",), ("7",)]
    for name in ("data.parquet", "data.csv", "data.tsv", "data.json", "data.jsonl.gz", parts.name):
        assert load("aime25", TOKENIZER, path=str(tmp_path / name)) == expected, name


def test_folders_of_datasets_and_of_a_repository(tmp_path):
    import datasets

    rows = [ROWS["gsm8k"]]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    repository = tmp_path / "repository"
    repository.mkdir()
    written(repository, [ROWS["gsm8k"] | {"question": "train"}], "train.jsonl")
    written(repository, rows, "test.jsonl")
    card = "---\nconfigs:\n- config_name: main\n  data_files:\n"
    card += "".join(f"  - {{split: {split}, path: {split}.jsonl}}\n" for split in ("train", "test"))
    (repository / "README.md").write_text(f"{card}---\n")
    other = datasets.Dataset.from_list([ROWS["gsm8k"] | {"question": "train"}])
    splits = {"train": other, "test": datasets.Dataset.from_list(rows)}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "splits"))
    for folder in ("saved", "repository", "splits"):
        (task,) = load("gsm8k", TOKENIZER, path=str(tmp_path / folder))
        assert task.question == ROWS["gsm8k"]["question"]


def test_the_hub_is_asked_by_id_config_split_and_revision(monkeypatch):
    import datasets

    calls = []

    def loaded(*args, **kwargs):
        calls.append((args, kwargs))
        return datasets.Dataset.from_list([ROWS["gsm8k"] | LONGBENCH])

    monkeypatch.setattr(datasets, "load_dataset", loaded)
    load("gsm8k", TOKENIZER)
    load("gsm8k", TOKENIZER, revision="e53f048")
    load("longbench-musique", TOKENIZER)
    archive = "zip://data/musique.jsonl::hf://datasets/THUDM/LongBench/data.zip"
    assert calls == [
        (("openai/gsm8k", "main"), {"split": "test"}),
        (("openai/gsm8k", "main"), {"split": "test", "revision": "e53f048"}),
        (("json", None), {"split": "train", "data_files": archive}),
    ]


# --- long texts


@pytest.mark.parametrize(
    ("limit", "cut"),
    [
        (10, "0123456789"),
        (99, "0123456789"),
        (9, "012346789"),
        (4, "0189"),
        (5, "01289"),
        (1, "0"),
        (0, ""),
    ],
)
def test_the_middle_is_left_out(limit, cut):
    assert truncate_middle("0123456789", TOKENIZER, limit) == cut


def test_a_cut_is_between_a_real_tokenizers_tokens(tokenizer):
    text = " ".join(f"the town Arnford has {n} bridges;" for n in range(40))
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans = offsets["offset_mapping"]
    for limit in (7, 20, 101):
        cut = truncate_middle(text, tokenizer, limit)
        head, tail = spans[limit - limit // 2 - 1][1], spans[-(limit // 2)][0]
        assert cut == text[:head] + text[tail:]
        assert tail > head


def test_only_the_text_of_a_prompt_is_cut(tmp_path):
    text = "".join(chr(ord("a") + n % 26) for n in range(500))
    whole = one("longbench-v2", tmp_path, context=text).messages[0]["content"]
    rest = len(whole) - 500
    for limit in (rest + 500, rest + 499, rest + 101, rest + 1):
        task = one("longbench-v2", tmp_path, context=text, limit=limit)
        kept = limit - rest
        cut = text[: kept - kept // 2] + (text[500 - kept // 2 :] if kept > 1 else "")
        assert task.messages[0]["content"] == whole.replace(text, cut)
        assert len(task.messages[0]["content"]) == limit


def test_a_prompt_keeps_to_the_limit_in_a_real_tokenizers_tokens(tmp_path, tokenizer):
    text = " ".join(f"the town Arnford has {n} bridges;" for n in range(200))
    whole = one("longbench-musique", tmp_path, tokenizer, context=text)
    length = len(Chat(tokenizer).request(whole.messages, Sampling(), 0).prompt_ids)
    for limit in (length, length - 1, length // 2, 200):
        task = one("longbench-musique", tmp_path, tokenizer, context=text, limit=limit)
        tokens = len(Chat(tokenizer).request(task.messages, Sampling(), 0).prompt_ids)
        assert limit - 3 <= tokens <= limit
        content = task.messages[0]["content"]
        assert task.question in content and content.split("\n")[0] in whole.messages[0]["content"]
    closed = one("gsm8k", tmp_path, tokenizer, limit=3)  # no text, so nothing to cut
    assert closed == one("gsm8k", tmp_path, tokenizer)


def test_a_limit_below_instruction_and_question_is_refused(tmp_path):
    with pytest.raises(BenchmarkError, match=r"row 1: limit is 50; allowed: more than the \d+ tok"):
        one("longbench-musique", tmp_path, limit=50)


# --- errors


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gsm8k", {"answer": "It is 18."}, r"row 1: answer is \['It is 18.'\]; allowed: a text wi"),
        ("docmath", {"ground_truth": "n/a"}, r"answer is \['n/a'\]; allowed: an answer of kind nu"),
        ("mmlu-pro", {"answer": "E"}, r"answer is \['E'\]; allowed: one of the options, A to D"),
        ("supergpqa", {"options": choices(11)}, "there are 11 options; allowed: 2 to 10"),
        ("supergpqa", {"options": choices(1)}, "there are 1 options; allowed: 2 to 10"),
        ("mmlu-pro", {"options": "metal"}, "column 'options' is 'metal'; allowed: a list"),
        ("frames", {"wiki_items": [{"title": "T"}]}, "has no 'text'"),
        ("math500", {"answer": None}, "column 'answer' is empty"),
        ("longbench-musique", {"answers": []}, r"answer is \[\]; allowed: an answer of kind cover"),
        ("mrcr-2needle", {"prompt": "hello"}, "chat is 'hello'; allowed: JSON, a list of role an"),
    ],
)
def test_a_row_that_is_no_task_is_named(name, changes, message, tmp_path):
    with pytest.raises(BenchmarkError, match=message):
        one(name, tmp_path, **changes)


def test_a_missing_column_is_named_with_those_there(tmp_path):
    path = written(tmp_path, [{"problem": "?", "solution": "1"}])
    message = r"benchmark aime25 \(.*data.jsonl\) has no column 'answer'; there are: problem, solu"
    with pytest.raises(BenchmarkError, match=message):
        load("aime25", TOKENIZER, path=path)


def test_sources_that_cannot_be_loaded(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.jsonl").write_text("nonsense")
    columns = r"allowed: benchmarks: \{aime25: the path of a file .* the columns problem, answer"
    for path in ("none.jsonl", "empty", "bad.jsonl"):
        with pytest.raises(BenchmarkError, match=f"{path}.*cannot be loaded .*; {columns}"):
            load("aime25", TOKENIZER, path=str(tmp_path / path))
    with pytest.raises(BenchmarkError, match=rf"aime25 \(hub\) cannot be loaded .*; {columns}"):
        load("aime25", TOKENIZER)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(BenchmarkError, match="'gsm8', which is unknown; did you mean 'gsm8k'"):
        load("gsm8", TOKENIZER)
    with pytest.raises(ParamError, match="'gsm8', which is unknown; did you mean 'gsm8k'"):
        read_uses({"gsm8": None})


# --- suites


class Pupil:
    """Gives the texts in turn."""

    def __init__(self, *texts):
        self.texts, self.requests = texts, []

    def generate(self, requests):
        self.requests += requests
        texts = [self.texts[place % len(self.texts)] for place in range(len(requests))]
        return [Completion((0,), (0.0,), text, "stop") for text in texts]


def test_a_suite_has_accuracy_by_difficulty_and_pass_at_k(tmp_path):
    rows = [ROWS["math500"] | {"answer": "4", "level": level} for level in (1, 5)]
    suite = benchmark_suite("math500", CHAT, Sampling(8), 2, path=written(tmp_path, rows))
    pupil = Pupil(r"\boxed{4}", r"\boxed{5}", "no", "no")
    records, rows = play_suite(suite, {"policy": pupil})
    assert [one["score"] for one in records] == [1, 0, 0, 0]
    assert {one["suite"] for one in records} == {"math500"}
    assert len({request.seed for request in pupil.requests}) == 4
    values = {(one["metric"], one["difficulty"]): one["value"] for one in rows}
    assert values == {
        ("accuracy", ""): 0.25,
        ("accuracy", "level 1"): 0.5,
        ("accuracy", "level 5"): 0.0,
        ("parsed", ""): 0.5,
        ("pass@1", ""): 0.25,
        ("pass@2", ""): 0.5,
    }
    assert {one["decoding"] for one in rows} == {"sampled"}


def test_each_benchmark_has_seeds_of_its_own(tmp_path):
    pupil = Pupil("no")
    for name in ("gsm8k", "aime25"):
        path = written(tmp_path, [ROWS[name]], f"{name}.jsonl")
        play_suite(benchmark_suite(name, CHAT, Sampling(8), 2, path=path), {"policy": pupil})
    assert len({request.seed for request in pupil.requests}) == 4


def test_one_answer_has_no_pass_at_k_and_temperature_0_is_greedy(tmp_path):
    path = written(tmp_path, [ROWS["gsm8k"]])
    suite = benchmark_suite("gsm8k", CHAT, Sampling(8, 0.0), path=path)
    rows = play_suite(suite, {"policy": Pupil(r"\boxed{1018}")})[1]
    assert [(one["metric"], one["value"], one["decoding"]) for one in rows] == [
        ("accuracy", 1.0, "greedy"),
        ("parsed", 1.0, "greedy"),
    ]


@pytest.mark.parametrize("text", ["", "1\n2\n", '"abc"\n'])
def test_a_file_without_rows_or_objects_is_refused_by_name(text, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(BenchmarkError, match=r"rows\.jsonl.*cannot be loaded"):
        load("gsm8k", TOKENIZER, path=str(path))


HOW = ("path", "count", "limit", "by_search", "revision")


def test_a_run_asks_as_its_paper_does_unless_it_says_otherwise(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(loaders, "benchmark_suite", lambda *args, **how: asked.append((args, how)))
    values = {"aime24": None, "gsm8k": "data/g.jsonl", "docmath": {"samples": 2, "limit": 99}}
    values["bbeh"] = {"every": True, "count": 5, "temperature": 0.5, "revision": "v2"}
    uses = {name: Use(**use) for name, use in read_uses(values).items()}
    plain = Sampling(64, 0.6, 0.95)

    def asking(paper, end=True, room=1000):
        asked.clear()
        run_suites(uses, CHAT, paper, plain, end, None, room)
        return [(args[0], args[2], args[3], how) for args, how in asked]

    spice, hub = asking("spice"), dict.fromkeys(HOW)
    assert spice[0] == ("aime24", Sampling(64, 0.6, 0.95), 32, hub)
    assert spice[1] == ("gsm8k", Sampling(64, 0.0, 0.95), 1, hub | {"path": "data/g.jsonl"})
    assert spice[2] == ("docmath", plain, 2, hub | {"limit": 99})
    assert spice[3] == ("bbeh", Sampling(64, 0.5, 0.95), 1, hub | {"count": 5, "revision": "v2"})
    spell = asking("spell")
    assert spell[0] == ("aime24", Sampling(4096, 0.7, 0.95), 8, hub | {"limit": 16384})
    assert spell[2][1:3] == (Sampling(4096, 0.7, 0.95), 2) and spell[2][3]["limit"] == 99
    assert [one[1:3] for one in asking("rlvr")[:2]] == [(plain, 1), (plain, 1)]
    assert [one[0] for one in asking("spice", end=False)] == ["bbeh"]
    uses = {"longbench-v2": Use()}
    assert asking("rlvr")[0][3]["limit"] == 1000 - 64, "a text is cut to what the run has room for"
    # the paper's 16,384 where there is room for them, else what 4,096 tokens of an answer leave
    uses = {"longbench-hotpotqa": Use()}
    limits = [asking("spell", room=room)[0][3]["limit"] for room in (30_000, 10_000, 6_000)]
    assert limits == [16_384, 10_000 - 4096, 3_000]

    uses = {name: Use(**use) for name, use in read_uses(dict.fromkeys(BY_SEARCH)).items()}
    counts = {one[0]: one[3]["count"] for one in asking("ssp")}
    assert counts == {**dict.fromkeys(BY_SEARCH, 500), "bamboogle": None}
    assert {one[1:3] for one in asking("ssp")} == {(plain, 1)}


@pytest.mark.parametrize(
    "value", [{"gsm8k": {"path": "g.jsonl"}}, {"deep-research-bench": {}}], ids=["file", "address"]
)
def test_only_a_dataset_of_the_hub_has_a_revision(value):
    ((name, use),) = value.items()
    with pytest.raises(ParamError, match=f"benchmarks.{name}.revision is 'v2'; allowed: none"):
        read_uses({name: use | {"revision": "v2"}})


def test_uses_of_a_run_survive_their_own_dump():
    uses = {name: Use(**use) for name, use in read_uses({"gsm8k": None, "bbeh": "b"}).items()}
    assert (uses["gsm8k"].path, uses["bbeh"].path) == ("hub", "b")
    dumped = {name: use.model_dump(mode="json") for name, use in uses.items()}
    assert {name: Use(**use) for name, use in read_uses(dumped).items()} == uses


def test_a_folder_of_several_splits_gives_the_one_that_is_evaluated(tmp_path, tokenizer):
    """Without it the training's questions would be evaluated too."""
    row = ROWS["gsm8k"]
    for name in ("both", "other"):
        (tmp_path / name).mkdir()
    written(tmp_path / "both", [row | {"question": "practice"}], "train.jsonl")
    written(tmp_path / "both", [row | {"question": "exam"}], "test-00000-of-00001.jsonl")
    (task,) = load("gsm8k", tokenizer, path=tmp_path / "both")
    assert task.question == "exam"
    written(tmp_path / "other", [row], "train.jsonl")
    written(tmp_path / "other", [row], "dev.jsonl")
    with pytest.raises(BenchmarkError, match="no file of the split test there, but of dev, train"):
        load("gsm8k", tokenizer, path=tmp_path / "other")

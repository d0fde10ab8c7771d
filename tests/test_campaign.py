"""The reliability campaign in small, that it notices what is broken, and that it leaves no reader
of a policy's text out."""

import ast
import random
import shutil
import sys
from itertools import islice
from types import SimpleNamespace

import pytest

from spnb.core.params import papers
from spnb.core.paths import ROOT
from spnb.train import runs as runs_module
from tools.campaign import (
    Part,
    __main__,
    damage,
    kills,
    malformed,
    plainly,
    retriever,
    runs,
    texts,
    together,
)

ROOMS = ("core", "games", "corpus", "evaluate", "methods", "lab")
TEXT = {"text", "prediction", "reply", "answer", "call", "said", "trajectory"}
"""What a parameter is called that holds what a policy wrote."""
KINDS = {"str", "str | None", "Trajectory"}
NOT_READ = {
    "core/disk.py": "files",
    "core/documents.py": "a protocol",
    "core/formulas.py": "the graders' expressions, in a process of its own",
    "core/search.py _append_results": "tokens",
    "core/search.py _history": "calls `outside`, which `fields` calls too",
    "core/search.py _turn": "tokens",
    "core/search.py samples": "tokens",
    "core/types.py": "writes",
    "corpus/clusters.py cut": "documents",
    "corpus/clusters.py means": "says nothing",
    "corpus/clusters.py with_answer": "writes",
    "corpus/documents.py": "documents",
    "corpus/retrieval.py": "documents",
    "corpus/segments.py": "documents",
    "corpus/targets.py titled": "writes",
    "evaluate/by_search.py use_of_search": "queries, which are read before",
    "evaluate/loaders.py": "documents; `prefixed` is in the list",
    "evaluate/matches.py": "calls `grade_task`",
    "games/questions.py": "writes",
    "lab/chain.py make_task": "writes",
    "core/strict_yaml.py": "parameters, which a person wrote",
    "lab/groups.py make_task": "writes",
    "lab/ladder.py tag": "writes",
    "lab/ladder_suites.py behaviour": "queries, which are read before",
    "methods/scope.py given": "writes",
    "methods/scope.py rows": "tokens",
}
"""Files, or functions of them, that get no text of a policy in such a parameter."""


def functions_of_text():
    """Functions with a parameter for what a policy wrote, prompts left out: file and name."""
    for room in ROOMS:
        for path in sorted((ROOT / "spnb" / room).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.FunctionDef):
                    continue
                named = [one for one in node.args.args if one.arg in TEXT and one.annotation]
                kinds = {ast.unparse(one.annotation) for one in named}
                if kinds & KINDS and (
                    node.returns is None or ast.unparse(node.returns) != "Messages"
                ):
                    yield f"{room}/{path.name}", node.name


@pytest.mark.slow
def test_every_reader_of_a_policys_text_is_in_the_list():
    """Called by a reader of the campaign, or named above with a reason."""
    called = set()

    def note(frame, event, _):
        if event == "call":
            file = frame.f_code.co_filename.replace(f"{ROOT}/spnb/", "")
            called.add((file, frame.f_code.co_name))

    wanted = [*texts.valid(), *islice(malformed.mutated(texts.valid(), random.Random(0)), 60)]
    sys.setprofile(note)
    try:
        for text in wanted:
            for reader in texts.readers().values():
                reader.read(text)
    finally:
        sys.setprofile(None)
    missing = {
        (file, name)
        for file, name in functions_of_text()
        if (file, name) not in called and not {file, f"{file} {name}"} & {*NOT_READ}
    }
    assert missing == set()


def test_every_method_has_a_reader_of_proposals_or_its_own():
    known = {kind.partition("/")[0] for kind in texts.METHODS} | {"rlvr", "spiral"}
    assert known == set(papers()), "add its proposals, or what reads its answers, to `readers`"


@pytest.mark.slow
def test_the_campaign_in_small(tmp_path):
    """All parts; what nothing may break survives, and it is written down."""
    minutes = 0.3
    parts = __main__.campaign(tmp_path / "work", minutes, seed=1)
    __main__.write(tmp_path / "out", parts, minutes, 1)
    report = (tmp_path / "out" / "campaign.md").read_text()
    assert [part.name for part in parts] == list(__main__.PARTS)
    assert not any(part.bad for part in parts), report
    assert all(part.tried or part.left_out for part in parts) and "## Found\n\nNothing." in report
    assert (tmp_path / "out" / "campaign.json").is_file()


def test_a_reader_that_raises_is_lenient_or_slow_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "FAST", 0.05)
    monkeypatch.setattr(texts, "SIZES", (2_000, 10_000))

    def raising(text):
        return text.encode()

    def cubic(text):
        return sum(range(len(text) ** 3 // 200_000)) and 0.0

    known = {
        "raising": texts.Reader(raising),
        "lenient": texts.Reader(
            lambda text: 1.0,
            lambda text, found: not found or plainly.may_be_right("numeric", text, ["47"]),
        ),
        "cubic": texts.Reader(cubic),
        "fine": texts.Reader(len),
    }
    part = Part("texts", tmp_path, scale=0.005)
    monkeypatch.setattr(malformed, "REPEATED", ["5"])
    texts.texts(part, known)
    assert part.counts["traceback"] > 2 and part.counts["wrong"] > 100
    found = " ".join(part.found)
    assert "UnicodeEncodeError" in found and "by lenient" in found and "fine" not in found
    assert texts._timed(("cubic", "5"), known)[2]


def folder_of_a_run(root, rows=3):
    run = runs_module.open_run(
        root / "r", {"paper": "p", "scale": "smoke", "variant": "v", "seed": 0}
    )
    run.append("metrics", *({"step": step, "loss": 0.5} for step in range(1, rows + 1)))
    run.finish()
    (run.folder / "log.txt").write_text("")
    return run


@pytest.mark.parametrize(("rows", "log", "code", "about", "end"), [
    (3, "", 0, "killed", "survived"),
    (2, "", 0, "killed", "wrong"),
    (3, "error: no", 1, "killed", "lost"),
    (3, "error: no", 1, "damage", "survived"),
    (3, "no", 1, "damage", "lost"),
    (3, "Traceback (most recent call last)", 1, "damage", "traceback"),
    (3, "", -11, "damage", "traceback"),
])  # fmt: skip
def test_what_became_of_a_run_is_judged(tmp_path, rows, log, code, about, end):
    """A run that lost a row, said nothing, or died is noticed."""
    whole = SimpleNamespace(kind="p/v", state=runs.left_by(folder_of_a_run(tmp_path / "whole")))
    run = folder_of_a_run(tmp_path / "run", rows)
    (run.folder / "log.txt").write_text(log)
    part = Part("kills", tmp_path)
    runs.judge(part, whole, run, code, about, 2)
    assert part.counts == dict.fromkeys(part.counts, 0) | {end: 2}
    assert run.folder.exists() == (end != "survived")


def test_a_part_that_breaks_down_is_noticed(tmp_path, capsys):
    def broken(part):
        raise KeyError("x")

    parts = __main__.campaign(tmp_path, 1, 0, {"broken": (1, broken)})
    assert parts[0].counts["traceback"] == 1 and "KeyError" in parts[0].found[0]
    assert "0 s" in capsys.readouterr().out


def test_a_longer_campaign_tries_all_there_is_and_no_more():
    assert sorted(Part("x", ROOT, scale=2).some(range(5))) == [*range(5)]
    assert len(Part("x", ROOT, scale=0.5).some(range(10))) == 5


def test_only_a_whole_campaign_replaces_the_committed_report(tmp_path, monkeypatch, capsys):
    """What was tried before an interrupt is written down, and what was not is named."""

    def stopped(part):
        raise KeyboardInterrupt

    known = {"fine": (30, lambda part: part.end("survived")), "stopped": (30, stopped)}
    monkeypatch.setattr(__main__, "PARTS", known)
    monkeypatch.setattr(__main__, "ROOT", tmp_path)
    monkeypatch.setattr(__main__, "unclean", lambda: "")
    for given in ([], ["--minutes", "1"]):
        with pytest.raises(KeyboardInterrupt):
            __main__.main(given)
        report = (tmp_path / "runs/reliability/campaign.md").read_text()
        assert "| fine | 1 | 1 |" in report and "Not tried: stopped." in report
        assert not (tmp_path / "figures").exists()
    known["stopped"] = known["fine"]
    assert __main__.main([]) == 0
    assert "Not tried" not in (tmp_path / "figures/reliability/campaign.md").read_text()
    shutil.rmtree(tmp_path / "figures")
    monkeypatch.setattr(__main__, "unclean", lambda: "changed")
    assert __main__.main([]) == 0
    assert "Not tried" not in (tmp_path / "runs/reliability/campaign.md").read_text()
    assert not (tmp_path / "figures").exists()
    for minutes in ("nan", "0", "-1", "inf"):
        with pytest.raises(SystemExit):
            __main__.main(["--minutes", minutes])
        assert "allowed: above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("codes", "end"),
    [([9, 0], "survived"), ([0, 0], ""), ([1, 0], "lost"), ([9, 1, 0], "lost"), ([0, 1], "lost")],
)
def test_a_start_that_fails_is_no_end(tmp_path, monkeypatch, codes, end):
    """Before a kill or after one, whatever a later start does."""
    left = iter(codes)

    def ended(run, event=""):
        yield
        return next(left)

    def judge(part, whole, run, code, about, count):
        part.end("lost" if code else "survived", about, count)

    monkeypatch.setattr(kills, "ended", ended)
    monkeypatch.setattr(kills, "judge", judge)
    monkeypatch.setattr(kills, "AGAIN", 0)
    undisturbed = SimpleNamespace(facts=lambda: {"seconds": 1})
    whole = SimpleNamespace(kind="rlvr/think", run=undisturbed, again=lambda folder: None)
    part = Part("kills", tmp_path)
    together(part, [lambda: kills.killed_run(part, whole, 0, "row-2")])
    assert part.counts == dict.fromkeys(part.counts, 0) | ({end: 1} if end else {})
    assert bool(part.left_out) == (not end)


def test_damage_changes_what_it_says(tmp_path):
    for name, way in damage.CONTENT.items():
        assert way(b'{"a": 1.5}\n{"b": 2}\n') != b'{"a": 1.5}\n{"b": 2}\n', name


def test_the_second_reading():
    assert plainly.number("-1,234.50") == -1234.5 and plainly.number("12 %") == plainly.number(
        "3/25"
    )
    assert plainly.number("1,23") is None and plainly.number("٣") is None
    assert plainly.field("<answer>a</answer><think><answer>b</answer></think>") == "a"
    assert plainly.boxed("\\boxed{a \\{ b}") == "a \\{ b" and plainly.boxed("\\boxed{a") is None
    assert plainly.verdict("<answer> No.</answer>") is False
    assert plainly.may_be_right("exact", "the town Arnford.", ["Arnford"])
    assert not plainly.may_be_right("cover", "Arn ford is", ["Arnfords"])
    assert not plainly.may_be_right("expression", "banana", ["3/4", "12"])
    assert plainly.may_be_right("expression", "\\frac{3}{4}", ["3/4", "12"])
    assert retriever._is_valid(b'{"queries": ["a"], "topk": 1}')
    assert not retriever._is_valid(b'{"queries": 5}') and not retriever._is_valid(b"{}")
    assert not plainly.may_be_right("program", "x + 1", ["5 13"])

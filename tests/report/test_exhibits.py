"""Exhibits: what is written, what is recorded, what is refused, and that nothing is lost when
things go wrong."""

import hashlib
import io
import json
import multiprocessing
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from PIL import Image, ImageColor

from spnb.core.params import ParamError
from spnb.core.paths import ROOT
from spnb.report import exhibits
from spnb.report.exhibits import (
    ExhibitError,
    catalogue,
    check_writable,
    command_of,
    default_folder,
    exhibit_info,
    find_record,
    folder_of,
    gallery,
    made_from,
    ranges,
    read_index,
    save_exhibit,
    small_png,
    small_svg,
)
from spnb.report.plots import PALETTE
from spnb.train import provenance
from spnb.train.policies import PolicyError, policy_fingerprint

README = ROOT / "README.md"
SHARED_SINCE = "2026-11-27T11:20"
"""When items were drawn once for all seeds."""


@dataclass(frozen=True)
class FakeRun:
    """What save_exhibit reads of a run."""

    seed: int = 0
    variant: str = "full"
    scale: str = "cpu"
    paper: str = "spiral"
    commit: str | None = None

    @property
    def run_id(self) -> str:
        return f"{self.paper}/{self.scale}/{self.variant}/seed-{self.seed}"

    @property
    def config_hash(self) -> str:
        return f"hash-{self.variant}-{self.seed}"

    @property
    def params(self) -> dict:
        return {"weights": {"embedded/games": "a1", f"embedded/{self.variant}": "b2"}}


RUNS = [FakeRun(seed, variant) for variant in ("full", "no_rae") for seed in (2, 0, 1)]
TABLE = pd.DataFrame({"variant": ["full", "no_rae"], "win rate": [0.5, 0.25]})
TEXTS = {"caption": "What is shown.", "protocol": "Smaller model."}
POINTS = pd.DataFrame(
    [(v, s, x, x * 0.1 + s * 0.01) for v in ("full", "no_rae") for s in (0, 1, 2) for x in (1, 2)],
    columns=["variant", "seed", "step", "value"],
)


def save_table(
    folder: Path, exhibit_id: str = "spiral/table-3", table: pd.DataFrame = TABLE, runs=RUNS
) -> list[Path]:
    return save_exhibit(exhibit_id, table, runs, folder=folder, **TEXTS)


def drawn():
    """A new figure of POINTS."""
    figure, ax = plt.subplots()
    for name, part in POINTS.groupby("variant"):
        ax.plot(part["step"], part["value"], ".", label=name)
    plt.close(figure)
    return figure


def page(folder: Path, paper: str = "spiral") -> str:
    """A paper's page of the gallery."""
    return (folder / paper / "README.md").read_text()


def save_figure(folder: Path) -> list[Path]:
    return save_exhibit("spiral/figure-6", drawn(), RUNS, data=POINTS, folder=folder, **TEXTS)


def test_every_paper_is_listed_in_printed_order() -> None:
    five, studies = (
        ["spell", "spice", "scope", "spiral", "ssp"],
        ["rlvr", "proposer", "embedded", "speed", "shapes", "dynamics", "pass_at_k"],
    )
    assert list(dict.fromkeys(info.paper for info in catalogue().values())) == [*five, *studies]
    assert {info.kind for info in catalogue().values()} == {"table", "figure"}
    assert {info.source for info in catalogue().values()} == {
        "runs",
        "formula",
        "rollouts",
        "static",
        "shared",
    }
    names = [info.id.split("/")[1] for info in catalogue().values() if info.paper in five]
    kinds = [info.kind for info in catalogue().values() if info.paper in five]
    printed = [pair for pair in zip(names, kinds, strict=True) if re.search(r"-\d+$", pair[0])]
    texts = [("figure-15", "table"), ("figure-17", "table")]  # SCOPE prints its transcripts so
    drawn = [pair for pair in printed if pair not in texts]
    assert len(drawn) >= 60 and all(name.startswith(f"{kind}-") for name, kind in drawn)
    assert exhibit_info("spice/figure-7").source == "formula"


def test_a_table_is_two_files_with_its_numbers(tmp_path: Path) -> None:
    files = save_table(tmp_path)
    assert files == [tmp_path / "spiral" / "table-3.csv", tmp_path / "spiral" / "table-3.md"]
    assert files[0].read_text() == "variant,win rate\nfull,0.5\nno_rae,0.25\n"
    assert "| full      |        0.5 |" in files[1].read_text()
    assert find_record("spiral/table-3", tmp_path)["title"] and not find_record("x/y", tmp_path)
    third = save_table(tmp_path, table=pd.DataFrame({"share": [1 / 3]}))
    assert third[0].read_text() == "share\n0.333333\n" and "| 0.333333 |" in third[1].read_text()
    third[0].unlink()
    assert find_record("spiral/table-3", tmp_path) is None, "one of its files is gone"


def test_the_page_of_a_very_long_table_has_a_link_to_its_numbers(tmp_path: Path) -> None:
    for rows, there in ((500, True), (501, False)):
        files = save_table(tmp_path, table=pd.DataFrame({"row": [f"r{i}" for i in range(rows)]}))
        page = files[1].read_text()
        assert ("| r7 " in page) is there
        assert ("Numbers: [table-3.csv](table-3.csv)" in page) is not there
        assert f"r{rows - 1}" in files[0].read_text()


def test_every_text_file_has_title_caption_protocol_and_origin(tmp_path: Path) -> None:
    pages = [save_table(tmp_path)[1], save_figure(tmp_path)[3]]
    for page, name in zip(pages, ("table-3", "figure-6"), strict=True):
        blocks = page.read_text().strip().split("\n\n")
        title = exhibit_info(f"spiral/{name}").title
        assert blocks[:2] == [f"# spiral/{name}: {title}", TEXTS["caption"]]
        assert blocks[-2] == f"*Protocol.* {TEXTS['protocol']}"
        assert blocks[-1].startswith("Scale cpu, 2 variants, 6 runs, seeds 0-2, ")
        assert blocks[-1].endswith(f". `spnb exhibit spiral/{name} --scale cpu`.")


def test_pictures_carry_their_protocol_and_cut_no_title(tmp_path: Path) -> None:
    figure = drawn()
    narrow = figure.get_size_inches()[0] * 150
    figure.axes[0].set_title("a title that is far wider than its axes " * 4)
    texts = {"data": POINTS, "folder": tmp_path, **TEXTS}
    files = save_exhibit("spiral/figure-6", figure, RUNS, **texts)
    picture = Image.open(files[0])
    assert picture.text["Description"] == "What is shown. Protocol: Smaller model."
    assert picture.mode == "P" and picture.width > narrow
    assert "What is shown. Protocol: Smaller model." in files[1].read_text()


@pytest.mark.slow
def test_a_figure_is_four_files_with_its_numbers(tmp_path: Path) -> None:
    files = save_figure(tmp_path)
    assert [path.suffix for path in files] == [".png", ".svg", ".csv", ".md"]
    assert files[0].read_bytes().startswith(b"\x89PNG") and b"<svg" in files[1].read_bytes()
    assert "![" in files[3].read_text() and "](figure-6.png)" in files[3].read_text()
    pd.testing.assert_frame_equal(pd.read_csv(files[2]), POINTS, rtol=1e-6)
    assert "| no_rae" in files[3].read_text()
    fine = POINTS.assign(value=1.23456)
    files = save_exhibit("spiral/figure-6", drawn(), RUNS, data=fine, folder=tmp_path, **TEXTS)
    assert set(pd.read_csv(files[2])["value"]) == {1.235}
    long = pd.concat([POINTS] * 4)
    files = save_exhibit("spiral/figure-9", drawn(), RUNS, data=long, folder=tmp_path, **TEXTS)
    assert "| no_rae" not in files[3].read_text() and "figure-9.csv" in files[3].read_text()


@pytest.mark.slow
def test_same_figure_same_bytes(tmp_path: Path) -> None:
    first, second = save_figure(tmp_path / "a"), save_figure(tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_record_says_where_the_numbers_come_from(tmp_path: Path) -> None:
    save_table(tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    (record,) = index["exhibits"]
    assert record["id"] == "spiral/table-3" and record["kind"] == "table"
    assert record["title"] == exhibit_info("spiral/table-3").title
    assert record["files"] == ["spiral/table-3.csv", "spiral/table-3.md"]
    assert (
        record["runs"]["spiral/cpu/no_rae/seed-1"] == "hash-no_rae-1" and len(record["runs"]) == 6
    )
    assert (
        record["seeds"] == [0, 1, 2]
        and record["scale"] == "cpu"
        and record["variants"] == ["full", "no_rae"]
    )
    assert {"python", "spnb", "torch", "transformers", "trl", "numpy"} <= set(record["versions"])
    names = ("games", "full", "no_rae")
    assert record["policies"] == {f"embedded/{name}": "b2" for name in names} | {
        "embedded/games": "a1"
    }

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["date"])
    assert record["command"] == "spnb exhibit spiral/table-3 --scale cpu"
    assert (record["caption"], record["protocol"]) == (TEXTS["caption"], TEXTS["protocol"])


def test_the_record_says_at_which_commits_its_runs_were_trained(tmp_path: Path) -> None:
    runs = [FakeRun(seed, commit=commit) for seed, commit in enumerate(("b", "a", None, "b"))]
    save_table(tmp_path, runs=runs)
    assert read_index(tmp_path)[0]["trained_at"] == ["a", "b"]


def test_the_record_of_policies_without_runs_says_which(tmp_path: Path) -> None:
    names = ["embedded/games", "embedded/player"]
    save_exhibit("ssp/start", TABLE, [], folder=tmp_path, policies=names, **TEXTS)
    found = read_index(tmp_path)[0]["policies"]
    assert list(found) == names and found["embedded/player"] == policy_fingerprint(names[1])
    assert len(set(found.values())) == 2


def of_policies(record: dict) -> bool:
    """Whether an exhibit shows what policies do: it has runs, names them, or has a row for each."""
    (numbers,) = (name for name in record["files"] if name.endswith(".csv"))
    columns = (ROOT / "figures" / numbers).read_text().partition("\n")[0].split(",")
    named = "embedded/" in f"{record['id']} {record['caption']} {record['protocol']}"
    return bool(record["runs"]) or named or "policy" in columns


def shipped(policy: str) -> str | None:
    """The fingerprint of a policy as it is today; None if it does not ship any more."""
    try:
        return policy_fingerprint(policy)
    except PolicyError:
        return None


def test_committed_exhibits_are_of_the_policies_that_ship() -> None:
    """Each record says which."""
    records = read_index(ROOT / "figures")
    assert not [one["id"] for one in records if of_policies(one) and not one.get("policies")]
    pairs = [(one["id"], *pair) for one in records for pair in one.get("policies", {}).items()]
    assert not {exhibit for exhibit, policy, print_ in pairs if shipped(policy) != print_}


@cache
def fingerprint_at(commit: str, policy: str) -> str | None:
    """`policy_fingerprint` of an embedded policy's files as they were at a commit."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True).stdout

    for home in ("spnb/lab/weights", "spnb/testbed/weights"):
        folder = f"{home}/{policy.removeprefix('embedded/')}"
        names = git("ls-tree", "--name-only", f"{commit}:{folder}").decode().split()
        if names:
            kinds = (r".*\.safetensors", r"tokenizer.*\.json")
            files = [name for kind in kinds for name in sorted(names) if re.fullmatch(kind, name)]
            whole = b"".join(git("cat-file", "blob", f"{commit}:{folder}/{one}") for one in files)
            return hashlib.sha256(whole).hexdigest()[:12]
    return None


def test_no_exhibit_is_from_before_items_were_shared() -> None:
    """Intervals of levels were too narrow then."""
    found = set()
    for record in read_index(ROOT / "figures"):
        page = ROOT / "figures" / f"{record['id']}.md"
        text = page.read_text() if page.exists() else ""
        levels = re.search(r"\[-?[\d.]+, -?[\d.]+\]", text) and "bootstrap" in text
        if levels and record["date"] < SHARED_SINCE:
            found.add(record["id"])
    assert not found


@pytest.mark.slow
def test_recorded_fingerprints_are_of_the_weights_at_the_records_commit() -> None:
    """An exhibit is made of runs whose hash has the weights of its commit."""
    records = [one for one in read_index(ROOT / "figures") if one.get("policies")]
    known = {one["commit"] for one in records if provenance.file_at(one["commit"], README)}
    if not known:
        pytest.skip("git has none of the commits that exhibits were made at")
    for record in records:
        for policy, print_ in record["policies"].items():
            if record["commit"] in known:
                assert fingerprint_at(record["commit"], policy) == print_, (record["id"], policy)


def test_saving_again_replaces_and_the_index_is_in_printed_order(tmp_path: Path) -> None:
    for exhibit_id in ("spiral/table-11", "spiral/table-3", "spell/table-2"):
        save_table(tmp_path, exhibit_id, runs=[FakeRun(paper=exhibit_id.split("/")[0])])
    save_table(tmp_path, table=TABLE.assign(**{"win rate": 0.75}), runs=RUNS[:1])
    assert [record["id"] for record in read_index(tmp_path)] == [
        "spell/table-2",
        "spiral/table-3",
        "spiral/table-11",
    ]
    assert read_index(tmp_path)[1]["seeds"] == [2]
    assert "0.75" in (tmp_path / "spiral" / "table-3.csv").read_text()
    left = [path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".tmp"]
    assert left == []


def test_records_this_version_does_not_know_are_kept(tmp_path: Path) -> None:
    save_table(tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    index["exhibits"].append(index["exhibits"][0] | {"id": "later/table-1"})
    (tmp_path / "index.json").write_text(json.dumps(index))
    save_figure(tmp_path)
    assert [r["id"] for r in read_index(tmp_path)] == [
        "spiral/table-3",
        "spiral/figure-6",
        "later/table-1",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"exhibit_id": "spiral/table-33"}, "did you mean 'spiral/table-3'"),
        ({"runs": []}, "runs is empty"),
        ({"runs": [FakeRun(), FakeRun(1, scale="gpu")]}, "scales cpu, gpu"),
        ({"runs": [FakeRun(paper="spice")]}, "run spice/cpu/full/seed-0 is of another paper"),
        ({"caption": " "}, "caption is ' '"),
        ({"protocol": ""}, "protocol is ''"),
        ({"item": TABLE.iloc[:0]}, "its numbers are missing or empty"),
        ({"exhibit_id": "spiral/figure-6"}, "is a DataFrame; allowed: Figure"),
        ({"item": "52.1"}, "is a str; allowed: DataFrame"),
    ],
)
def test_bad_calls_are_refused_and_leave_nothing(tmp_path: Path, change: dict, said: str) -> None:
    call = {
        "exhibit_id": "spiral/table-3",
        "item": TABLE,
        "runs": RUNS,
        "folder": tmp_path,
        **TEXTS,
    } | change
    with pytest.raises(ValueError, match=re.escape(said)):
        save_exhibit(**call)
    assert list(tmp_path.iterdir()) == []


def test_a_figure_needs_its_numbers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="its numbers are missing"):
        save_exhibit("spiral/figure-6", drawn(), RUNS, folder=tmp_path, **TEXTS)


def test_a_formula_needs_no_run_and_transcripts_may_be_a_table(tmp_path: Path) -> None:
    save_exhibit("spice/figure-7", drawn(), [], data=POINTS, folder=tmp_path, **TEXTS)
    save_table(tmp_path, "spice/figure-5", runs=[FakeRun(paper="spice")])
    by_id = {record["id"]: record for record in read_index(tmp_path)}
    assert by_id["spice/figure-7"]["runs"] == {} and by_id["spice/figure-7"]["scale"] is None
    assert by_id["spice/figure-7"]["command"] == "spnb exhibit spice/figure-7 --scale cpu"
    assert by_id["spice/figure-5"]["files"] == ["spice/figure-5.csv", "spice/figure-5.md"]
    text = page(tmp_path, "spice")
    assert "No run needed, 2" in text and "None" not in text
    assert "Scale cpu, 1 variant, 1 run, seed 0, 2" in text


@pytest.mark.parametrize(
    ("exhibit_id", "command"),
    [
        ("ssp/start", "make reproduce PAPER=ssp"),
        ("scope/start", "make reproduce PAPER=scope"),
        ("speed/engine", "make bench"),
        ("embedded/games", "python -m spnb.lab.pretrain.exhibits"),
        ("ssp/table-1", "spnb exhibit ssp/table-1 --scale gpu"),
        ("proposer/search-two", "spnb search proposer/search-two --scale gpu"),
    ],
)
def test_an_exhibit_is_made_again_by_its_command(exhibit_id: str, command: str) -> None:
    assert command_of(exhibit_info(exhibit_id), "gpu") == command


@pytest.mark.parametrize("act", [check_writable, save_table])
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path, act) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExhibitError, match="figures is .*file/figures.*allowed: a writable folder"):
        act(tmp_path / "file" / "figures")


def test_a_paper_folder_in_the_way_is_an_exhibit_error(tmp_path: Path) -> None:
    (tmp_path / "spiral").write_text("in the way")
    with pytest.raises(ExhibitError, match=r"table-3\.csv cannot be written"):
        save_table(tmp_path)
    assert not (tmp_path / "index.json").exists()


@pytest.mark.parametrize(
    "text",
    ["{ half", "[]", '{"exhibits": 3}', '{"exhibits": ["x"]}', '{"exhibits": [{"id": "x"}]}'],
)
def test_a_damaged_index_is_named_and_nothing_changes(tmp_path: Path, text: str) -> None:
    save_table(tmp_path)
    (tmp_path / "index.json").write_text(text)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for act in (
        lambda: save_table(tmp_path, table=TABLE + TABLE),
        lambda: check_writable(tmp_path),
    ):
        with pytest.raises(
            ExhibitError, match=r"index\.json is damaged .*restore it from git or delete it"
        ):
            act()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_full_disk_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = [path for path in save_table(tmp_path) if path.suffix == ".csv"]
    before = old.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exhibits.os, "replace", full)
    with pytest.raises(ExhibitError, match="No space left on device"):
        save_table(tmp_path, table=TABLE + TABLE)
    assert old.read_bytes() == before and not list(tmp_path.rglob("*.tmp"))


def save_many(folder: Path, exhibit_id: str) -> None:
    for _ in range(15):
        check_writable(folder)
        save_table(folder, exhibit_id)
        save_table(folder, "spiral/table-1")


@pytest.mark.slow
def test_two_processes_keep_both_records(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=save_many, args=(tmp_path, name))
        for name in ("spiral/table-3", "spiral/table-8")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert [r["id"] for r in read_index(tmp_path)] == [
        "spiral/table-1",
        "spiral/table-3",
        "spiral/table-8",
    ]


def test_cells_are_shown_as_they_are(tmp_path: Path) -> None:
    odd = pd.DataFrame(
        {"a_b": ["x|y\nz", "<think>3*4*5", "007"], "value": ["1e5", "52.10", "role_ema"]}
    )
    text = save_table(tmp_path, table=odd)[1].read_text()
    assert r"x\|y<br>z" in text and r"&lt;think>3\*4\*5" in text
    assert all(f" {cell} " in text for cell in ("007", "1e5", "52.10", "role_ema", "a_b"))
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 5


def test_the_gallery_shows_what_is_there_and_lists_what_is_not(tmp_path: Path) -> None:
    save_table(tmp_path)
    save_figure(tmp_path)
    text = page(tmp_path)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert {"figure-6.svg", "table-3.csv", "table-3.md", "../README.md"} <= set(links)
    assert all((tmp_path / "spiral" / link).is_file() for link in links)
    thumbnail = r'<a href="(figure-6.png)"><img src="\1" alt="[^"]+" width="\d+"></a>'
    assert re.search(thumbnail, text), "a small picture leads to the full one"
    assert "| full      |        0.5 |" in text
    folded = f"<details><summary>Protocol</summary>\n\n{TEXTS['protocol']}\n\n</details>"
    assert text.count(folded) == 2
    assert "seeds 0-2" in text and "`spnb exhibit spiral/figure-6 --scale cpu`" in text
    missing = [line for line in text.splitlines() if line.startswith("*Not yet made:*")]
    assert len(missing) == 1 and "spiral/figure-9" in missing[0]
    assert not {"spiral/table-3", "spiral/table-6"} & set(re.split(r"[ ,.]+", missing[0]))


def test_the_gallery_begins_with_a_line_an_exhibit(tmp_path: Path) -> None:
    save_table(tmp_path)
    save_table(tmp_path, "spice/figure-5", runs=[FakeRun(paper="spice")])
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("# Gallery\n\n") and "interval" in text
    targets = re.findall(r"\(([^)]+)\)", text)
    assert targets == [
        "spice/README.md",
        "spice/README.md#figure-5",
        "spiral/README.md",
        "spiral/README.md#table-3",
    ]
    assert "spell" not in text, "a paper without any record is not mentioned"
    assert '<a id="figure-5"></a>' in page(tmp_path, "spice")
    assert '<a id="table-3"></a>' in page(tmp_path)


def test_the_gallery_links_long_tables(tmp_path: Path) -> None:
    save_table(tmp_path, table=pd.DataFrame({"row": [f"r{i}" for i in range(41)]}))
    assert "41 rows: [table-3.md](table-3.md)" in page(tmp_path)
    assert "| r7" not in page(tmp_path)
    save_table(tmp_path, table=pd.DataFrame({"row": [f"r{i}" for i in range(40)]}))
    assert "| r7" in page(tmp_path)


def test_a_folder_without_exhibits_gets_no_gallery(tmp_path: Path) -> None:
    with pytest.raises(ExhibitError, match="has no index.json; allowed: a folder of exhibits"):
        gallery(tmp_path)
    assert not list(tmp_path.iterdir())


def test_texts_are_shown_as_they_are(tmp_path: Path) -> None:
    """What runs and captions say is neither markup nor a link nor HTML."""
    odd = "a_ *b* <img src=x> [here](http://a.b) [c]: d | `e`\n# f [1.0, 2.0]"
    table = pd.DataFrame({"said": [odd], "other": ["x"]})
    texts = {"caption": odd, "protocol": odd, "folder": tmp_path}
    pages = [save_exhibit("spiral/table-3", table, RUNS, **texts)[1].read_text(), page(tmp_path)]
    shown = r"a\_ \*b\* &lt;img src=x> [here\](http://a.b) [c\]: d \| \`e\`<br># f [1.0, 2.0]"
    assert [text.count(shown) for text in pages] == [3, 3]
    assert not [text for text in pages if "](http" in text.replace(r"\](", "") or "<img" in text]


def test_a_drawing_is_small_and_the_same(tmp_path: Path) -> None:
    before = '<g>\n  <path d="M 1 2 \nL 30.123456 4.5 \nL 7 8 \nQ 1 2 3 4.0042 \nL 5 6 \n"/>\n'
    after = '<g>\n<path d="M 1 2 30.12 4.5 7 8 Q 1 2 3 4 L 5 6"/>\n'
    assert small_svg(before) == after and small_svg(after) == after
    use = '<use x="1.23456" y="100.5" transform="scale(0.085 -0.085)"/>'
    assert small_svg(use) == '<use x="1.23" y="100.5" transform="scale(0.085 -0.085)"/>'


def test_seeds_are_shown_as_ranges() -> None:
    assert [ranges(seeds) for seeds in ([0], [2, 0, 1], [0, 2, 3, 7])] == ["0", "0-2", "0, 2-3, 7"]
    runs = dict.fromkeys(["spiral/cpu/a/seed-0", "spiral/cpu/b/seed-0"], "")
    record = {"commit": "0123456789abc", "date": "2026-01-02T03", "scale": "cpu", "seeds": [0]}
    stamp = "Scale cpu, 2 variants, 2 runs, seed 0, 2026-01-02, commit 0123456789"
    assert made_from({**record, "runs": runs}) == stamp


def test_committed_exhibits_are_of_a_clean_commit_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spnb.train.provenance.COMMITTED", str(tmp_path / "committed"))
    monkeypatch.setattr("spnb.train.provenance.TRIALS", str(tmp_path / "trials"))
    for commit in ("0123456789abcdef-dirty", None):
        monkeypatch.setattr("spnb.train.provenance.commit", lambda commit=commit: commit)
        assert default_folder() == tmp_path / "trials"
        for act in (check_writable, save_table):
            with pytest.raises(ParamError, match="committed exhibits; allowed: another folder"):
                act(tmp_path / "committed")
        save_table(default_folder())
        stamp = "0123456789-dirty." if commit else "seeds 0-2, "
        assert stamp in page(tmp_path / "trials")
    monkeypatch.setattr("spnb.train.provenance.commit", lambda: "0123456789abcdef")
    save_table(default_folder())
    assert read_index(tmp_path / "committed")[0]["commit"] == "0123456789abcdef"


def test_exhibits_of_any_papers_runs_go_where_those_of_their_papers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spnb.train.provenance.COMMITTED", str(tmp_path / "committed"))
    monkeypatch.setattr("spnb.train.provenance.TRIALS", str(tmp_path / "trials"))
    monkeypatch.setattr("spnb.train.provenance.commit", lambda: "0123456789abcdef")
    save_table(tmp_path / "committed")
    save_table(tmp_path / "committed", "dynamics/collapse", runs=[FakeRun(paper="rlvr")])
    assert folder_of(RUNS) == tmp_path / "committed"
    assert folder_of([*RUNS, FakeRun(3)]) == tmp_path / "trials", "of another seed"
    other = SimpleNamespace(run_id=RUNS[0].run_id, config_hash="of other parameters")
    assert folder_of([other]) == tmp_path / "trials"
    assert folder_of([FakeRun(paper="rlvr")]) == tmp_path / "trials", "no exhibit of its own paper"
    monkeypatch.setattr("spnb.train.provenance.commit", lambda: "0123456789abcdef-dirty")
    assert folder_of(RUNS) == tmp_path / "trials"


def test_the_nearest_exhibit_is_one_that_can_be_made() -> None:
    for wrong, near in (
        ("table-3", "ssp/table-3"),
        ("gains", "rlvr/gains"),
        ("scope/table-33", "scope/table-3"),
    ):
        with pytest.raises(ValueError, match=f"did you mean '{near}'"):
            exhibit_info(wrong)
    with pytest.raises(ValueError) as caught:
        exhibit_info("tabel")
    assert "scope/" not in str(caught.value) and "ssp/table-3" in str(caught.value)


def test_the_committed_gallery_shows_the_committed_exhibits(tmp_path: Path) -> None:
    figures = ROOT / "figures"
    for file in figures.rglob("*.*"):
        copy = tmp_path / file.relative_to(figures)
        copy.parent.mkdir(exist_ok=True)
        if file.name != "README.md":
            copy.symlink_to(file)
    gallery(tmp_path)
    for page in figures.rglob("README.md"):
        made = tmp_path / page.relative_to(figures)
        assert page.read_text() == made.read_text(), f"{page}: run spnb gallery"


def test_the_gallery_is_the_same_made_again_and_names_lost_files(tmp_path: Path) -> None:
    lost = save_table(tmp_path)[1]
    before = page(tmp_path)
    assert gallery(tmp_path) == tmp_path / "README.md" and page(tmp_path) == before
    lost.unlink()
    (tmp_path / "speed").mkdir()
    (tmp_path / "speed" / "engine.md").write_text("measured")
    assert "- [speed/engine](speed/engine.md)" in gallery(tmp_path).read_text()
    assert "Not there any more: table-3.md" in page(tmp_path)


def test_the_commit_is_the_projects_and_says_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "core.hooksPath=/dev/null")
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    monkeypatch.setattr("spnb.train.provenance.ROOT", tmp_path)
    assert exhibits.provenance.commit() is None
    (tmp_path / "figures").mkdir()
    for name in ("code.py", "figures/index.json"):
        (tmp_path / name).write_text("1")
    git("init", "-q")
    assert exhibits.provenance.commit() is None, "no commit yet"
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "figures" / "index.json").write_text("2")
    assert exhibits.provenance.commit() == git("rev-parse", "HEAD")
    (tmp_path / "code.py").write_text("2")
    assert exhibits.provenance.commit() == git("rev-parse", "HEAD") + "-dirty"
    monkeypatch.setattr("spnb.train.provenance.ROOT", tmp_path / "figures")
    assert exhibits.provenance.commit() is None, "inside a repository of something else"


def test_a_small_picture_has_white_and_the_lines_colours_as_they_are():
    """One pixel of each line's colour among hundreds of shades."""
    picture = Image.new("RGB", (64, 64), "#FFFFFF")
    shades = ((x, y, (4 * x, 4 * y, 128)) for x in range(64) for y in range(32))
    for x, y, colour in shades:
        picture.putpixel((x, y), colour)
    lines = [ImageColor.getrgb(colour) for colour in PALETTE]
    for x, colour in enumerate(lines):
        picture.putpixel((x, 40), colour)
    whole = io.BytesIO()
    picture.save(whole, format="png")
    small = Image.open(io.BytesIO(small_png(whole.getvalue(), {"Title": "a"})))
    assert small.text == {"Title": "a"} and len(small.getcolors()) <= 32
    pixels = small.convert("RGB")
    assert [pixels.getpixel((x, 40)) for x in range(len(lines))] == lines
    assert pixels.getpixel((0, 63)) == (255, 255, 255)

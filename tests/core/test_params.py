"""Parameters: files that ship, and answers to unknown names and broken files."""

import pytest
import yaml

from spnb.core import params
from spnb.core.params import (
    ParamError,
    Settings,
    check_names,
    papers,
    scale_values,
    unknown,
    validate,
    variants,
)
from spnb.methods import method_module


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scale_values("spiral", "cpuu"), "scale is 'cpuu', .*; did you mean 'cpu'?"),
        (lambda: scale_values("alphago", "cpu"), "paper is 'alphago', .*; allowed: .*spiral"),
        (lambda: method_module("../spiral"), "paper is '../spiral', which is unknown"),
        (lambda: check_names("spirall", "cpu"), "paper is 'spirall', .*; did you mean 'spiral'?"),
        (lambda: check_names("spiral", "gpus"), "scale is 'gpus', .*; did you mean 'gpu'?"),
        (
            lambda: check_names("spiral", "cpu", ["full", "no-rea"]),
            "variant of spiral is 'no-rea', which is unknown; did you mean 'no-rae'?",
        ),
    ],
)
def test_unknown_names(call, message):
    with pytest.raises(ParamError, match=message):
        call()


def test_a_broken_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("spnb.core.params.ROOT", tmp_path)
    folder = tmp_path / "params" / "mine"
    folder.mkdir(parents=True)
    (folder / "variants.yaml").write_text("full: {about: x.}")
    assert papers() == ["mine"] and variants("mine") == {"full": {"about": "x."}}
    for text, message in (
        ("a: [1", "cpu.yaml is not valid YAML"),
        ("- a", "holds list; allowed: a mapping"),
        ("scale: gpu", "cpu.yaml: scale is another one; allowed: cpu"),
        ("seeds: [0]", "cpu.yaml: scale is another one; allowed: cpu"),
        ("steps: 1", "cpu.yaml: parameter is 'steps', which is unknown; did you mean 'seeds'?"),
        ("scale: cpu\nrun: [1]", r"cpu.yaml: run is \[1\]; allowed: parameters of a run by name"),
        ("scale: cpu\nrun: {seeds: [1]}", "cpu.yaml: run is .*; allowed: parameters of a run"),
        ("[" * 5000, "cpu.yaml is not valid YAML"),
    ):
        (folder / "cpu.yaml").write_text(text)
        with pytest.raises(ParamError, match=message):
            scale_values("mine", "cpu")
    (folder / "cpu.yaml").write_text("scale: cpu\nseeds: [3]\nrun: {steps: 1}")
    assert scale_values("mine", "cpu") == {"seeds": [3], "steps": 1}
    for text, message in (
        ("full:", "variant full is None; allowed: about, headline, set, "),
        ("full: x", "variant full is 'x'; allowed: about, headline, set, "),
        ("full: {set: [1]}", r"variant full: set is \[1\]; allowed: a valid dictionary"),
        ("full: {at: x}", "variant full: at is 'x'; allowed: a valid dictionary"),
        ("full: {at: {smoke: [1]}}", r"full: at.smoke is \[1\]; allowed: a valid dictionary"),
        ("full: {seeds: {cpuu: [1]}}", "full: seeds.cpuu.* is 'cpuu'; allowed: 'smoke', 'cpu', "),
        ("full: {headlin: true}", "full: parameter is 'headlin', .*did you mean 'headline'"),
        ("7: {}", "variant is 7; allowed: small letters"),
    ):
        (folder / "variants.yaml").write_text(text)
        with pytest.raises(ParamError, match=message):
            variants("mine")


def test_one_name_or_number_stands_for_a_list_of_one():
    class Values(Settings):
        names: list[str] = []
        numbers: list[int] = []
        word: str = ""

    one = validate(Values, {"names": "a", "numbers": 7, "word": "b"})
    assert (one.names, one.numbers, one.word) == (["a"], [7], "b")
    with pytest.raises(ParamError, match="numbers is True; allowed: a valid list"):
        validate(Values, {"numbers": True})
    with pytest.raises(ParamError, match="numbers.0 is 'a'; allowed: a valid integer"):
        validate(Values, {"numbers": "a"})


def test_unknown_without_a_near_match():
    sentence = "colour is 'q', which is unknown; allowed: blue, red"
    assert unknown("colour", "q", ["red", "blue"]) == sentence


def test_of_many_names_the_nearest_five_are_listed():
    names = [f"{letter}{number}" for letter in "abcd" for number in range(30)] + ["learning_rate"]
    sentence = unknown("parameter", "lerning_rate", names)
    assert "did you mean 'learning_rate'? allowed: 121 names, the nearest are learning_rate, " in (
        sentence
    )
    assert sentence.count(",") == 6 and len(sentence) < 200


def test_scales_of_a_variant(tmp_path, monkeypatch):
    folder = tmp_path / "params" / "own"
    folder.mkdir(parents=True)
    monkeypatch.setattr(params, "ROOT", tmp_path)
    entries = {"a": {"about": "x."}, "b": {"about": "x.", "scales": ["smoke", "cpu"]}}
    (folder / "variants.yaml").write_text(yaml.safe_dump(entries))
    assert list(params.variants_at("own", "cpu")) == ["a", "b"]
    assert list(params.variants_at("own", "gpu")) == ["a"]
    entries["b"]["scales"] = ["laptop"]
    (folder / "variants.yaml").write_text(yaml.safe_dump(entries))
    with pytest.raises(ParamError, match="variant b: scales.0 is 'laptop'; allowed: 'smoke', "):
        params.variants("own")


@pytest.mark.parametrize("name", ["../../x", "..", "", ".hidden", "Full", "a/b", "-x", 7, "a b"])
def test_a_variant_is_named_as_a_folder_may_be(name, tmp_path, monkeypatch):
    folder = tmp_path / "params" / "own"
    folder.mkdir(parents=True)
    (folder / "variants.yaml").write_text(yaml.safe_dump({name: {"about": "x."}}))
    monkeypatch.setattr(params, "ROOT", tmp_path)
    with pytest.raises(ParamError, match="variant is .*; allowed: small letters, digits"):
        params.variants("own")


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    folder = tmp_path / "params" / "mirror"
    folder.mkdir(parents=True)
    monkeypatch.setattr(params, "ROOT", tmp_path)
    with pytest.raises(ParamError, match=f"paper is 'mirror'; allowed: .*{folder}/variants.yaml"):
        scale_values("mirror", "smoke")
    (folder / "variants.yaml").write_text("full: {about: x.}")
    message = f"scale is 'smoke', and {folder}/smoke.yaml does not exist; allowed: a scale with"
    with pytest.raises(ParamError, match=message):
        scale_values("mirror", "smoke")
    (folder / "cpu.yaml").write_text("scale: cpu")
    with pytest.raises(ParamError, match="mirror/gpu.yaml does not exist; allowed: cpu$"):
        scale_values("mirror", "gpu")
    with pytest.raises(ParamError, match=r"allowed: one whose spnb/methods/mirror.py exists"):
        method_module("mirror")


def test_packaged_files_are_read_where_the_project_has_none(tmp_path, monkeypatch):
    for place, about in (("project/params", "mine."), ("package", "shipped.")):
        for name in ("spiral",) if place == "project/params" else ("spell", "spiral"):
            (tmp_path / place / name).mkdir(parents=True)
            file = tmp_path / place / name / "variants.yaml"
            file.write_text(yaml.safe_dump({"full": {"about": about}}))
    monkeypatch.setattr(params, "ROOT", tmp_path / "project")
    monkeypatch.setattr(params, "PACKAGED_PARAMS", tmp_path / "package")
    assert papers() == ["spell", "spiral"]
    assert variants("spiral")["full"]["about"] == "mine."
    assert variants("spell")["full"]["about"] == "shipped."


def test_the_names_of_all_variants_are_allowed():
    assert all(params.variants(paper) for paper in params.papers())

"""Parameters: files that ship, and answers to unknown names and broken files."""

import pytest

from spnb.core.params import ParamError, papers, scale_values, unknown, variants
from spnb.methods import method_module


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scale_values("spiral", "cpuu"), "scale is 'cpuu', .*; did you mean 'cpu'?"),
        (lambda: scale_values("alphago", "cpu"), "paper is 'alphago', .*; allowed: .*spiral"),
        (lambda: method_module("../spiral"), "paper is '../spiral', which is unknown"),
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
        ("a: 1", "cpu.yaml: scale is another one; allowed: cpu"),
        ("[" * 5000, "cpu.yaml is not valid YAML"),
    ):
        (folder / "cpu.yaml").write_text(text)
        with pytest.raises(ParamError, match=message):
            scale_values("mine", "cpu")
    for text in ("full:", "full: x", "full: {set: [1]}", "full: {at: x}"):
        (folder / "variants.yaml").write_text(text)
        with pytest.raises(ParamError, match="variant full is .*; allowed: about, set, at"):
            variants("mine")


def test_unknown_without_a_near_match():
    sentence = "colour is 'q', which is unknown; allowed: blue, red"
    assert unknown("colour", "q", ["red", "blue"]) == sentence

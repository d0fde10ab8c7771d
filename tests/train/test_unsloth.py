"""The real trainer of Unsloth under ours against TRL's own, on a CPU: `make unsloth`.

Not in the ordinary suite: its packages are in a folder of their own, which only that command puts
on the path. Where the set of a GPU is installed they are there too, and it runs.
"""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest
from unsloth_runs import SETTINGS, STEPS, by_trainer

pytestmark = pytest.mark.skipif(
    find_spec("unsloth") is None, reason="unsloth is not here: make unsloth"
)
SCRIPT = Path(__file__).with_name("unsloth_runs.py")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Metrics and classes by trainer and setting."""
    return by_trainer(SCRIPT, tmp_path_factory.mktemp)


def pairs(runs, setting):
    """The metrics of each step, of Unsloth's trainer and of TRL's."""
    return zip(runs["unsloth"][setting]["rows"], runs["stock"][setting]["rows"], strict=True)


@pytest.mark.parametrize("setting", SETTINGS)
def test_loss_and_gradient_are_trls_to_six_digits(runs, setting):
    assert "UnslothGRPOTrainer" in runs["unsloth"][setting]["classes"]
    assert not [name for name in runs["stock"][setting]["classes"] if "Unsloth" in name]
    rows = list(pairs(runs, setting))
    assert len(rows) == STEPS
    for found, expected in rows:
        assert abs(expected["loss"]) > 0.01 and expected["grad_norm"] > 0.1
        for key in ("loss", "grad_norm"):
            assert found[key] == pytest.approx(expected[key], rel=3e-6, abs=1e-6), key


@pytest.mark.parametrize("setting", SETTINGS)
def test_entropy_clipping_and_kl_are_in_the_metrics(runs, setting):
    """TRL's entropy exactly; its KL by role; Unsloth's mean KL is one over rows, not tokens."""
    held = "KL" in setting
    for found, expected in pairs(runs, setting):
        assert found.keys() - {"bad_rows"} == expected.keys()
        assert (
            found["entropy"] == pytest.approx(expected["entropy"], rel=1e-6)
            and found["entropy"] > 1
        )
        assert found.get("clip_ratio") == pytest.approx(expected.get("clip_ratio"), abs=1e-6)
        assert ("kl" in found) == ("kl/r" in found) == held
        if held:
            assert found["kl"] == pytest.approx(expected["kl"], rel=0.05, abs=1e-6)
            assert found["kl/r"] == pytest.approx(expected["kl/r"], rel=1e-4, abs=1e-6)
            assert found["step"] == 1 or found["kl/r"] > 0.001


def test_the_source_of_unsloth_has_what_its_loader_is_told():
    """256 answers at once are no wish of ours there (`policies._load_unsloth` wants 257), and both
    loaders take a policy's own files."""
    nodes = {
        name: [*ast.walk(ast.parse(Path(find_spec(name).origin).parent.joinpath(file).read_text()))]
        for name, file in (("unsloth_zoo", "vllm_utils.py"), ("unsloth", "models/loader.py"))
    }
    assigned = [node for node in nodes["unsloth_zoo"] if isinstance(node, ast.Assign)]
    (rule,) = (
        ast.unparse(node.value)
        for node in assigned
        if ast.unparse(node.targets[0]) == "explicit_max_num_seqs"
    )
    assert [eval(rule, {"max_num_seqs": n}) for n in (256, 257, 32)] == [False, True, True]
    loaders = {
        node.name: next(one for one in node.body if getattr(one, "name", "") == "from_pretrained")
        for node in nodes["unsloth"]
        if isinstance(node, ast.ClassDef) and node.name in ("FastLanguageModel", "FastModel")
    }
    for loader in loaders.values():
        assert "use_exact_model_name" in [one.arg for one in loader.args.args]
    assert len(loaders) == 2


def test_the_settings_differ(runs):
    """What a setting changes is seen in the last step, so that none is ignored by both."""
    last = {name: runs["stock"][name]["rows"][-1] for name in SETTINGS}
    seen = {(round(row["loss"], 5), round(row["grad_norm"], 5)) for row in last.values()}
    assert len(seen) == len(SETTINGS)

"""Every variant of the gpu and paper parameter files takes two steps, on a tiny Qwen3.

    make gpu-params  # all of them, a line each; `make test` has one of each kind

Quantities are those of scale `smoke`, Unsloth and vLLM leave their places to transformers and
torch, and published benchmarks, which are on a hub, are not asked. All else is the files': prompts,
roles, estimators, losses, stages, adapters or all weights, thinking, tool calls; and the dtype, but
in most cases of `make test`. Random answers train nothing, so others answer in the policy's place
(`stand_in`).
"""

import os

import pytest
import yaml
from datasets import Dataset
from safetensors.torch import load_file
from stand_in import StandIn
from tiny_qwen import make_policy

from spnb.core import paths
from spnb.core.params import papers, scale_values, variants_at
from spnb.core.paths import ROOT
from spnb.methods import method_class
from spnb.train import plan as plans
from spnb.train import run as runs
from spnb.train.engines.torch import TorchEngine
from spnb.train.plan import make_plan, run_one

QUANTITIES = {
    "spell": "clusters documents documents_read questions_per_round groups group_size"
    " static_questions eval_items eval_samples eval_documents eval_proposals",
    "spice": "documents segment_tokens documents_per_step attempts group_size answers eval_items"
    " eval_tasks",
    "scope": "documents_per_step attempts tasks_per_step answers batch_documents"
    " most_batches eval_items short_items",
    "spiral": "turns_per_step eval_matches eval_samples eval_questions",
    "ssp": "answers_per_step attempts eval_items eval_proposals",
    "rlvr": "prompts_per_step group_size eval_items",
    "proposer": "proposals trained_questions answers eval_items eval_proposals",
}
OWN = {"corpora/spell", "corpora/dclm", "corpora/nemotron-cc-math", "corpora/wiki-18"}
CHOSEN = {
    "gpu": {
        "spell": "full longpo",
        "spice": "r-zero absolute-zero",
        "scope": "curated",
        "spiral": "sft full",
        "ssp": "base",
        "rlvr": "search",
        "proposer": "learning-two report-curriculum",
    },
    "paper": {"spell": "full", "spice": "full", "scope": "full", "ssp": "full", "rlvr": "think"},
}
"""What `make test` runs, a minute of one core: whatever differs in its parts, once."""
ALL = os.environ.get("GPU_PARAMS") == "all"
IN_FILES_DTYPE = ("rlvr/search", "rlvr/think", "spell/longpo", "proposer/learning-two")
"""The cases that compute in the files' bfloat16 in `make test` too: an adapter, all weights, pairs,
two policies at once. Many CPUs take three times as long for it."""
CASES = [
    f"{scale}/{paper}/{variant}"
    for scale in CHOSEN
    for paper in papers()
    for variant in (variants_at(paper, scale) if ALL else CHOSEN[scale].get(paper, "").split())
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with policies, and corpora of pages in the place of the named ones."""
    folder = tmp_path_factory.mktemp("home")
    make_policy(folder / "chat")
    make_policy(folder / "base", base=True)
    pages = [
        {
            "id": str(n),
            "title": f"Page {n}",
            "text": f"x{n} is a thing, with {n} parts.",
            "metadata": {"cluster": n % 6},
        }
        for n in range(60)
    ]
    for name in OWN:
        Dataset.from_list(pages).save_to_disk(folder / name)
    return folder


def small_values(paper, scale):
    """A scale's file with the quantities of smoke, below what a variant changes."""
    smoke = yaml.safe_load((ROOT / "params" / paper / "smoke.yaml").read_text())["run"]
    quantities = {name: smoke[name] for name in QUANTITIES[paper].split()}
    return scale_values(paper, scale) | quantities | {"benchmarks": {}, "servers": {}}


def changes(params, home):
    """What stands above variants: where policies are, two steps of each, what needs a GPU."""
    base = "Base" in params.policy or params.policy == "Qwen/Qwen2.5-7B"
    tiny = str(home / ("base" if base else "chat"))
    own = {"policy": tiny, "backend": "transformers", "engine": "torch", "max_num_seqs": None}
    if not ALL and f"{params.paper}/{params.variant}" not in IN_FILES_DTYPE:
        own["dtype"] = "float32"
    own |= {
        "vllm_sleep": False,
        "policies": dict.fromkeys(params.policies, tiny),
        "steps": 2,
        "keep_checkpoints": [],
    }
    if params.stages:
        trained = dict.fromkeys(stage.policy for stage in params.stages)
        own["stages"] = [{"policy": policy, "steps": 2} for policy in trained]
        own["steps"] = 2 * len(trained)
    own |= {"save_every": own["steps"], "eval_every": own["steps"]}
    pieces = 1 if params.preference else 2  # an odd number of pairs
    own |= {"grpo": {"gradient_accumulation_steps": pieces}, "max_new_tokens": 256}
    own |= {
        "spiral": {"eval_games": []},
        "scope": {"filled_at_least": 0.2},
        "ssp": {"results": 2},  # as the seeker that answers has learned to read
        "proposer": {"trained_questions": 8},
    }.get(params.paper, {})
    if getattr(params, "levels", []) == [getattr(params, "highest", 0)]:
        own["levels"] = [2]  # nobody here answers the highest
    if str(getattr(params, "retriever", "")).startswith("http"):
        own["retriever"] = "bm25"
    return own


def trained_policies(run):
    """The folder of each policy's final weights."""
    return [path.parent for path in run.model.rglob("*.safetensors")]


def share_that_moved(folder, start):
    """Of an adapter's second matrices, which start as 0, or of all weights but the embedding's,
    which an adapter that was merged leaves as they are."""
    if (folder / "adapter_model.safetensors").is_file():
        weights = load_file(folder / "adapter_model.safetensors")
        moved = [value != 0 for name, value in weights.items() if "lora_B" in name]
    else:
        weights, before = (load_file(each / "model.safetensors") for each in (folder, start))
        layers = [name for name in weights if "embed" not in name]
        moved = [weights[name].float() != before[name].float() for name in layers]
    return sum(int(one.sum()) for one in moved) / sum(one.numel() for one in moved)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_steps_train_a_tiny_qwen(case, home, monkeypatch):
    scale, paper, variant = case.split("/")
    monkeypatch.setattr(plans, "scale_values", small_values)
    monkeypatch.setattr(paths, "ROOT", home)
    monkeypatch.setattr(runs, "run_suites", lambda *how: [])
    params = make_plan(paper, scale, variants=[variant]).params(variant)
    method = method_class(paper, params)
    suites = method.suites  # at the end alone
    monkeypatch.setattr(method, "suites", lambda self, step: suites(self, step) if step else [])
    own = OWN & {*params.paths.get("corpus", [])}
    programs = getattr(params, "algorithm", "") == "absolute_zero"
    in_json = getattr(params, "prompts", "") == "paper" and not programs
    stand_in = StandIn(paper, bool(own) or in_json)
    monkeypatch.setattr(TorchEngine, "generate", lambda *asked: stand_in.generate(*asked))
    exact = changes(params, home)
    plan = make_plan(paper, scale, exact, variants=[variant], seeds=[0], runs=str(home / "runs"))
    run = run_one(plan, variant, 0)
    rows = run.rows("metrics")
    assert [row["step"] for row in rows] == list(range(1, exact["steps"] + 1))
    if params.preference is None:
        assert sum(row["samples"] * row["trained"] for row in rows) > 0
    assert any(row["grad_norm"] > 0 for row in rows)
    folders = trained_policies(run)
    assert len(folders) == (len(exact.get("stages", [])) or 1 + len(params.co_trained))
    for folder in folders:
        assert share_that_moved(folder, home / exact["policy"]) > 0.05, folder

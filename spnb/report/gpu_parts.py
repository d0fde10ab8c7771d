"""The parts of `spnb selftest` by name: these train; those that ask an engine are in
`spnb.report.gpu_engines`.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from spnb.core.advantages import make_estimator
from spnb.core.disk import write_json
from spnb.core.method import POLICY, Role, SelfPlayMethod
from spnb.core.types import Sample
from spnb.report.gpu_bench import KUHN, Bench, Result, missing, room, train, trained
from spnb.report.gpu_engines import adapter, each_its_own, load, noisy, speed
from spnb.train.cards import GB, need
from spnb.train.doctor import checks, look
from spnb.train.policies import import_unsloth, load_policy, set_aside
from spnb.train.progress import kept_steps
from spnb.train.runs import Run


def machine(bench: Bench, result: Result) -> None:
    """Packages, memory, disk; on a GPU driver, compute capability, compiler."""
    found = checks(look(), "gpu" if bench.gpu else "smoke")
    result.numbers |= {check.name: check.found for check in found}
    lacking = [f"{check.name} ({check.missing})" for check in found if check.missing]
    result.bar(" and ".join(["missing", *lacking]), len(lacking), high=0)


def spiral(bench: Bench, result: Result) -> None:
    """Three steps and an evaluation, killed after the first checkpoint and started again."""
    steps = 3 if bench.gpu else 5
    values = KUHN | {"steps": steps, "save_every": 1, "eval_every": steps}
    values |= {} if bench.gpu else {"turns_per_step": 16}
    plan = bench.plan("spiral", **values)
    run = plan.open("full")
    train(run, until=lambda: kept_steps(run) >= 1)
    result.bar("steps kept when it was killed", kept_steps(run), 1, steps - 1)
    peak = train(run)
    trained(result, "spiral", run, steps)
    result.bar("spiral, went on from its checkpoint", float(run.facts()["resumed"]), 1)
    most = need(plan.params("full"), room(bench)) if bench.gpu else room(bench)
    result.bar("GB at the peak", peak, high=most)


def full(bench: Bench, result: Result) -> None:
    """All weights in float32, three steps at a rate of 1e-6: nearly all of them have moved. Then
    how the engine takes them over, and what logits need."""
    import trl

    from spnb.train.weights import trained_weights

    values = KUHN | {"steps": 3, "eval_every": 3, "lora_rank": 0, "grpo": {"learning_rate": 1e-6}}
    few = {"turns_per_step": 16, "micro_tokens": 4096}  # chunks, also with a small vocabulary
    own = {"backend": "transformers", "turns_per_step": 32, "max_length": 2048, "gpu_memory": 0.3}
    values |= own if bench.gpu else few  # for a card of 24 GB
    run = bench.plan("spiral", **values).open("full")
    peak = train(run)
    trained(result, "full weights", run, 3)
    result.numbers["GB at the peak"] = round(peak, 2)
    result.bar("share of weights that moved", moved(bench, run), 0.9)
    set_aside()
    stage = bench.stage(result, **values)
    start = trained_weights(stage.model)
    each_its_own(bench, result, stage, {POLICY: noisy(start, 0), "start": start})
    whole = logits_peak(bench, stage, trl.GRPOTrainer)
    parts = logits_peak(bench, stage, type(stage.trainer))
    result.numbers |= {"GB of logits, all at once": whole, "GB of logits, in chunks": parts}
    result.bar("chunks against all at once", parts / whole, high=0.8)


def moved(bench: Bench, run: Run) -> float:
    """The share of a run's weights that are not those it began with."""
    from spnb.train.run import run_params

    params = run_params(run)
    pair = [load_policy(source, params).model for source in (bench.policy, str(run.model))]
    weights = zip(*(model.parameters() for model in pair), strict=True)
    counts = [(int((old != new).sum()), old.numel()) for old, new in weights]
    return sum(changed for changed, _ in counts) / sum(count for _, count in counts)


def logits_peak(bench: Bench, stage: Any, kind: type) -> float:
    """GB that log-probabilities of two rows of 1,024 tokens and their gradient take at the peak, as
    a class of trainers computes them: on the GPU all that is allocated for that, on a CPU the
    largest logits alone."""
    import torch

    from spnb.train.logps import language_model

    model = stage.trainer.accelerator.prepare_model(stage.trainer.model)
    head = language_model(stage.model).get_output_embeddings()
    ids_BT = torch.tensor([bench.ids(1025, row) for row in range(2)], device=stage.model.device)
    for weights in model.parameters():
        weights.grad = torch.zeros_like(weights)  # they are there before, and do not count
    made: list[int] = []
    hook = head.register_forward_hook(lambda *call: made.append(4 * call[-1].numel()))
    if bench.gpu:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    try:
        rows = (ids_BT, torch.ones_like(ids_BT), ids_BT.shape[1] - 1)
        ask = kind._get_per_token_logps_and_entropies
        ask(stage.trainer, model, *rows, compute_entropy=True)[0].sum().backward()
    finally:
        hook.remove()
    return (torch.cuda.max_memory_allocated() - before if bench.gpu else max(made)) / GB


def papers(bench: Bench, result: Result) -> None:
    """A step of SPELL, whose draws are cut, and two of SPICE."""
    small: dict[str, dict[str, Any]] = {"spell": {"steps": 1}, "spice": {"steps": 2}}
    if bench.gpu:
        few = {"eval_items": 1, "eval_samples": 1, "eval_proposals": 4}
        small["spell"] |= few | {"questions_per_round": 12, "eval_documents": [8]}
        small["spice"] |= {"eval_items": 1, "eval_tasks": 4}
    for paper, values in small.items():
        values |= {"eval_every": values["steps"]}
        values |= {"policies": {"external": bench.policy}} if paper == "spell" else {}
        run = bench.plan(paper, **values).open("full")
        train(run)
        trained(result, paper, run, values["steps"])


def pairs(bench: Bench, result: Result) -> None:
    """LongPO with the torch engine: the policy's own answers as preference pairs. In place of a
    random policy, which writes none that could be preferred, one that ships, at smoke scale."""
    values = {"steps": 2, "eval_every": 2, "eval_items": 1, "eval_samples": 1, "eval_proposals": 4}
    values |= {"static_questions": 32}
    if Path(bench.policy).is_dir():
        bench = replace(bench, policy="embedded/reader", gpu=False)
        values |= {"max_new_tokens": 64, "max_length": 1024}
    else:
        values |= {"max_length": 2048, "eval_documents": [8]}  # for a card of 24 GB
    run = bench.plan("spell", "longpo", **values).open("longpo")
    peak = train(run)
    trained(result, "longpo", run, 2)
    result.numbers["pairs"] = len((run.folder / "pairs.jsonl").read_text().splitlines())
    result.bar("GB at the peak", peak, high=room(bench))


def loss(bench: Bench, result: Result) -> None:
    """Unsloth's gradient and TRL's own, of the same rows and the same adapter."""
    missing("unsloth")
    missing("vllm")
    norms = {}
    for backend in ("transformers", "unsloth"):
        process = get_context("spawn").Process(target=fixed_loss, args=(bench, backend))
        process.start()  # of its own: Unsloth changes TRL
        process.join()
        if process.exitcode:
            raise RuntimeError(f"{backend}: exit code {process.exitcode}; see part.log")
        norms[backend] = json.loads((bench.folder / f"{backend}.json").read_text())
    own, other = norms["unsloth"], norms["transformers"]
    result.bar("loss, difference", abs(own["loss"] - other["loss"]), 0, 1e-3)  # it is 0 where exact
    gap = abs(own["grad_norm"] - other["grad_norm"]) / max(other["grad_norm"], 1e-6)
    result.bar("grad_norm, difference", gap, 0, 0.03)


def fixed_loss(bench: Bench, backend: str) -> None:
    """Writes loss and gradient norm of one update, with rows and an adapter that are always the
    same, to `<backend>.json`."""
    folder = bench.folder / backend
    values = {"backend": backend, "engine": "vllm" if backend == "unsloth" else "torch"}
    one = {"steps": 1, "grpo": {"num_iterations": 1}}
    params = bench.plan("spiral", **KUHN | values | one).params("full")
    if backend == "unsloth":
        import_unsloth(params.vllm_sleep, folder)
    import torch

    from spnb.train.trainer import Hooks, Stage, make_trainer

    class Fixed(SelfPlayMethod):
        """Sixteen rows of plain tokens, half of them good."""

        def default_roles(self) -> dict[str, Role]:
            return {"row": Role(params.sampling, make_estimator("raw"))}

        def rollout(self, step: int) -> Any:
            yield from ()
            nan = (float("nan"),) * 32
            texts = [(bench.ids(20, row), bench.ids(32, 50 + row)) for row in range(16)]
            return [
                Sample(*text, (1,) * 32, nan, 1.0 - 2 * (row % 2), "row", row)
                for row, text in enumerate(texts)
            ]

    loaded = load_policy(bench.policy, params)
    rows: list[dict[str, float]] = []
    hooks = Hooks(on_step=lambda row, samples: rows.append(row))
    method = Fixed(params.model_copy(update={"roles": {}}), loaded.tokenizer)
    trainer = make_trainer(params, loaded, method, {}, hooks, folder, Stage(steps=1))
    for name, weights in trainer.model.named_parameters():
        if weights.requires_grad:
            draw = torch.Generator().manual_seed(len(name) + sum(map(ord, name)))
            noise = torch.randn(weights.shape, generator=draw) * 0.03
            weights.data.copy_(noise.to(weights.device, weights.dtype))
    trainer.train()
    found = {key: rows[0][key] for key in ("loss", "grad_norm")}
    write_json(bench.folder / f"{backend}.json", found)


Part = tuple[float, Callable[[Bench, Result], None]]
"""The minutes that it may take, and its function."""
PARTS: dict[str, Part] = {
    "machine": (1, machine),
    "load": (6, load),
    "adapter": (4, adapter),
    "speed": (4, speed),
    "spiral": (8, spiral),
    "full": (6, full),
    "papers": (8, papers),
    "pairs": (4, pairs),
    "loss": (4, loss),
}

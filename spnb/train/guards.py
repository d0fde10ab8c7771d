"""Guards of a training run: what would silently train something else stops it with a sentence."""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from spnb.core.method import Role
from spnb.core.types import Sample, role_label
from spnb.train.config import TrainerError, trl_names

CHUNK = 256
"""Positions whose logits over the whole vocabulary are held in memory at a time."""
ENGINE_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.05}
"""Nats a token, in the mean, that an engine may differ from the trainer, by the engine's dtype."""


@dataclass(frozen=True)
class EngineGap:
    """|engine - trainer| in nats over sampled tokens; mean and max are None without any."""

    mean: float | None
    max: float | None
    tokens: int


def token_logps(model: Any, sample: Sample, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities (T,) in nats of a sample's completion tokens under a model, float32.

    At most `CHUNK` positions have logits at a time; a longer completion takes a forward pass each.
    """
    ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]], device=model.device)
    first = len(sample.prompt_ids)
    parts = []
    for start in range(first, ids.shape[1], CHUNK):
        end = min(start + CHUNK, ids.shape[1])
        with torch.no_grad():
            output = model(input_ids=ids[:, : end - 1], logits_to_keep=end - start)
        logits_TV = output.logits[0, start - end :].float() / temperature
        chosen_T = logits_TV.gather(1, ids[0, start:end, None]).squeeze(1)
        parts.append(chosen_T - logits_TV.logsumexp(-1))
    return torch.cat(parts)


def engine_gap(
    model: Any,
    samples: Sequence[Sample],
    temperatures: float | Callable[[Sample], float] = 1.0,
    count: int = 4,
) -> EngineGap:
    """How far an engine's log-probabilities are from the model's, on `count` of the samples.

    Args:
        samples: those without log-probabilities or sampled tokens are passed over.
        temperatures: at which each was sampled: one for all, or a function of the sample (its role
            may have its own).
    """
    usable = [sample for sample in samples if sample.logps is not None and any(sample.mask)]
    gaps: list[float] = []
    for sample in usable[:: max(1, len(usable) // count)][:count]:
        temperature = temperatures(sample) if callable(temperatures) else temperatures
        trainer = token_logps(model, sample, temperature).tolist()
        rows = zip(sample.logps, trainer, sample.mask, strict=True)
        gaps += [abs(engine - logp) for engine, logp, sampled in rows if sampled]
    if not gaps:
        return EngineGap(None, None, 0)
    return EngineGap(sum(gaps) / len(gaps), max(gaps), len(gaps))


def check_engine(
    model: Any,
    samples: Sequence[Sample],
    tolerance: float,
    temperatures: float | Callable[[Sample], float] = 1.0,
) -> EngineGap:
    """The engine's gap, refused where its mean is above the tolerance (see `ENGINE_TOLERANCE`).

    A LoRA run whose engine generates without the adapter samples the base model and says nothing;
    this shows it.

    Raises:
        TrainerError: the engine does not generate with the weights in training.
    """
    gap = engine_gap(model, samples, temperatures)
    if gap.mean is not None and not gap.mean <= tolerance:
        raise TrainerError(
            f"the engine's log-probabilities differ from the trainer's by {gap.mean:.3g} nats a "
            f"token (allowed: {tolerance}): it does not generate with the weights in training"
        )
    return gap


def check_rows(samples: Sequence[Sample], pad_id: int) -> None:
    """For Unsloth, which rebuilds masks from token ids and would not train a sampled pad token.

    Raises:
        TrainerError: a prompt or completion holds the pad token.
    """
    for sample in samples:
        if pad_id in sample.completion_ids or pad_id in sample.prompt_ids:
            raise TrainerError(
                f"the pad token (id {pad_id}) is inside a row of role {role_label(sample.role)}; "
                "allowed: a pad token that no prompt and no completion has"
            )


def refuse_sharded(accelerator: Any) -> None:
    """Sharded weights cannot be read one by one, as engines and snapshots do.

    Raises:
        TrainerError: FSDP, or DeepSpeed ZeRO stage 3.
    """
    state = accelerator.state
    zero = getattr(state, "deepspeed_plugin", None)
    stage = getattr(zero, "zero_stage", 0)
    sharding = "FSDP" if getattr(state, "fsdp_plugin", None) is not None else None
    if stage == 3:
        sharding = "DeepSpeed ZeRO-3"
    if sharding:
        raise TrainerError(
            f"weights are sharded by {sharding}; allowed: DDP (accelerate launch without a plugin) "
            "or DeepSpeed ZeRO-2, which shards the optimiser and leaves the weights whole"
        )


def one_temperature(roles: Sequence[Role], default: float) -> float:
    """The one temperature of the roles that learn.

    Raises:
        TrainerError: they have several.
    """
    temperatures = {role.sampling.temperature for role in roles}
    if len(temperatures) > 1:
        raise TrainerError(
            f"roles that learn have temperatures {sorted(temperatures)}; allowed: one, because "
            "TRL's loss takes one (a role that does not learn may have its own)"
        )
    return next(iter(temperatures), default)


def check_finite(loss: float, grad_norm: float | None, step: int) -> None:
    """Stops before weights that are not numbers are sampled, evaluated and saved.

    Raises:
        TrainerError: the loss or the gradient's norm is infinite or not a number.
    """
    for name, value in (("loss", loss), ("grad_norm", grad_norm)):
        if value is not None and not math.isfinite(value):
            raise TrainerError(
                f"{name} is {float(value)} at update {step}; the last checkpoint is from before "
                "it. Lower grpo.learning_rate or grpo.max_grad_norm"
            )


def check_contract(trainer_class: type, name: str = "GRPOTrainer") -> None:
    """That TRL's trainer, as it is or rewritten by Unsloth, still has what ours stands on.

    Args:
        name: the trainer's name in TRL, under which `trl_names.yaml` lists methods that are
            overridden, with their first parameters, and attributes and keys that are used.

    Raises:
        TrainerError: methods with other parameters, or names and keys that are gone.
    """
    contract = trl_names()["contract"][name]
    faults = []
    for method, expected in contract["methods"].items():
        there = getattr(trainer_class, method, None)
        parameters = inspect.signature(there).parameters if there else {}
        first = list(parameters)[: len(expected)]
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        if first != expected and not (open_ended and first):
            faults.append(f"{method} with {first or 'nothing (gone)'}, expected {expected}")
    present = set(_names(trainer_class))
    faults += [f"{used} (gone)" for used in contract["names"] if used not in present]
    if faults:
        raise TrainerError(
            f"{trainer_class.__name__} is not the one that spnb is written for: "
            f"{'; '.join(faults)}. Install the pinned trl (and unsloth) of requirements/"
        )


def _names(cls: type) -> Iterator[str]:
    """Every attribute name and string constant in the code of a class and its bases."""
    codes: list[CodeType] = []
    for base in cls.__mro__:
        functions = [inspect.unwrap(f) for f in vars(base).values() if inspect.isfunction(f)]
        codes += [function.__code__ for function in functions]
    while codes:
        code = codes.pop()
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                codes.append(constant)
            elif isinstance(constant, str):
                yield constant
            elif isinstance(constant, tuple):
                yield from (item for item in constant if isinstance(item, str))

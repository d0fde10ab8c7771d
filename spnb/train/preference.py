"""Preference pairs in, a DPO step out: TRL's DPOTrainer with the losses of LongPO and SoLoPO.

One round, offline, as in both papers: before its first step the policy answers the method's
questions (`SelfPlayMethod.pairs`), the pairs and their log-probabilities under it are kept in the
run's `pairs.jsonl`, and every update takes the next `Preference.batch` of them, in an order drawn
anew each time all have come. Below S is the short context, L the long one, pi the policy in
training, pi_0 that at the start; a response's log-probability is the sum over its tokens.

LongPO (arXiv 2502.13922). The chosen y_S answers from S, the rejected y_L from L (eq. 6 and 7).

    lambda * -log sigmoid(beta * log pi(y_S|L)/pi_0(y_S|S) - beta * log pi(y_L|L)/pi_0(y_L|S))
    - log pi([L, y_S]) / |[L, y_S]|

The first line is eq. 12: DPO under the long context whose reference is that of the short one for
both answers, the short-to-long constraint of eq. 10. TRL computes it, with our reference. The
second is the likelihood that eq. 14 adds, over the whole sequence, documents too, as in the paper
and its code. A sample here has one question (eq. 13 adds up several about one document).

SoLoPO (arXiv 2505.11166), with DPO's reward r(x, y) = beta * log pi(y|x)/pi_0(y|x). Chosen y_w and
rejected y_l both answer from S.

    -log sigmoid(r(S, y_w) - r(S, y_l)) + alpha * |r(L, y_w) - r(S, y_w)|

The first term is preference optimisation on short contexts, computed by TRL, the second the reward
alignment of chosen responses alone, whose weight alpha is 3 with DPO. Our reading: the paper's
function s of the distance is the identity, the gradient goes through both rewards, and beta is that
of LongPO.
"""

import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset

from spnb.core.episodes import run
from spnb.core.method import Preference, SelfPlayMethod
from spnb.core.types import Engine, Pair, Sample, derive_seed
from spnb.train import guards
from spnb.train.config import RunParams, TrainerError, dpo_arguments
from spnb.train.guards import token_logps
from spnb.train.metrics import mean_of
from spnb.train.runs import CheckpointError
from spnb.train.trainer import Hooks, RunMixin, Stage, attach

UPDATE = ("loss", "grad_norm", "learning_rate", "entropy")
REPORTED = {
    "chosen": "rewards/chosen",
    "rejected": "rewards/rejected",
    "margin": "rewards/margins",
    "accuracy": "rewards/accuracies",
    "logp/chosen": "logps/chosen",
    "logp/rejected": "logps/rejected",
}
"""Our names of TRL's numbers."""
TERMS = {"longpo": "likelihood", "solopo": "alignment"}
"""What the second term of each loss is called."""
ROUNDING = 1e-4
"""Nats below which a distance of rewards is none: at the start it is 0 up to rounding, whose sign
would else give a gradient of full size."""


class PreferenceMixin(RunMixin):
    """Mixed in over `trl.DPOTrainer` by `make_preference_trainer`; see the module's docstring."""

    preference: Preference
    pairs: Sequence[Pair] = ()

    def take(self, pairs: Sequence[Pair]) -> None:
        """Takes the pairs that updates are made of; TrainerError where there are none."""
        if not pairs:
            raise TrainerError(
                "the policy's answers gave no preference pair; allowed: one at least (more "
                "questions, or more answers to each)"
            )
        rng = random.Random(derive_seed(self.args.seed, "pairs"))
        self.pairs = pairs
        self._order = []
        self._places = []
        while len(self._order) < len(self.train_dataset):
            self._order += rng.sample(range(len(pairs)), len(pairs))

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset  # token ids come from `collate`

    def _precompute_ref_logps(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset  # so does the reference

    def collate(self, slots: list[dict[str, int]]) -> dict[str, Any]:
        """The batch of some places in the order of pairs: TRL's columns, `place`, and for SoLoPO
        the chosen responses in their long contexts as `aligned`."""
        places = [self._order[slot["slot"]] for slot in slots]
        pairs = [self.pairs[place] for place in places]
        longpo = self.preference.loss == "longpo"
        rows = [_row(p, p.long_ids if longpo else p.short_ids, p.rejected_ids) for p in pairs]
        batch = self.pad(rows) | {"place": torch.tensor(places)}
        if not longpo:
            long = self.pad([_row(pair, pair.long_ids, ()) for pair in pairs])
            names = ("input_ids", "attention_mask", "completion_mask")
            batch["aligned"] = {name: long[name][: len(pairs)] for name in names}
            batch["aligned"]["reference"] = torch.tensor([pair.reference[2] for pair in pairs])
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        if not self._places:
            self._started = time.perf_counter()
        inputs = dict(inputs)
        self._places += inputs.pop("place").tolist()
        aligned = inputs.pop("aligned", None)
        loss, outputs = super()._compute_loss(model, inputs, True)
        chosen = {name: inputs[name][: len(inputs["input_ids"]) // 2] for name in inputs}
        logits_BTV = outputs.logits[: len(chosen["input_ids"])]
        if aligned is None:
            mask = chosen["attention_mask"]
            logp_B = sequence_logp(logits_BTV, chosen["input_ids"], mask)
            term = -(logp_B / mask[:, 1:].sum(dim=1)).mean()
            loss = loss + term
        else:
            asked = {name: aligned[name] for name in ("input_ids", "attention_mask")}
            logits = model(**asked, use_cache=False).logits
            long_B = sequence_logp(logits, aligned["input_ids"], aligned["completion_mask"])
            short_B = sequence_logp(logits_BTV, chosen["input_ids"], chosen["completion_mask"])
            gap_B = (long_B - aligned["reference"]) - (short_B - inputs["ref_chosen_logps"])
            gap_B = gap_B * (gap_B.abs() > ROUNDING)
            term = (self.preference.beta * gap_B).abs().mean()
            loss = loss + self.preference.weight * term
        name = TERMS[self.preference.loss]
        self._metrics["train"][name].append(self.accelerator.gather(term.detach()).mean().item())
        return (loss, outputs) if return_outputs else loss

    def updated(self, logs: dict[str, float]) -> None:
        """TRL's numbers of an update, and the step's row for the run."""
        row = self._step_row(logs)
        samples = [sample for place in self._places for sample in self._samples(place)]
        self._places = []
        self.hooks.on_step(row, samples)

    def _step_row(self, logs: dict[str, float]) -> dict[str, float]:
        """The metrics of a step, the same in every process."""
        row = {"step": self.stage.first + self.state.global_step}
        row |= {key: logs[key] for key in UPDATE if key in logs}
        names = REPORTED | {TERMS[self.preference.loss]: TERMS[self.preference.loss]}
        row |= {f"preference/{name}": logs[key] for name, key in names.items()}
        pairs = [self.pairs[place] for place in gather_object(self._places)]
        row["samples"] = 2 * len(pairs)
        for index, role in enumerate(("chosen", "rejected")):
            answers = [(pair.chosen_ids, pair.rejected_ids)[index] for pair in pairs]
            row[f"reward/{role}"] = mean_of([pair.rewards[index] for pair in pairs])
            row[f"length/{role}"] = mean_of([len(ids) for ids in answers])
        return row | {"seconds/step": time.perf_counter() - self._started}

    def _samples(self, place: int) -> list[Sample]:
        """A pair as two rows for the records."""
        pair = self.pairs[place]
        prompt = pair.long_ids if self.preference.loss == "longpo" else pair.short_ids
        rows = []
        for index, role in enumerate(("chosen", "rejected")):
            ids = (pair.chosen_ids, pair.rejected_ids)[index]
            reward = pair.rewards[index]
            mask = (1,) * len(ids)
            info = {"text": self.processing_class.decode(ids, skip_special_tokens=True)}
            rows.append(Sample(prompt, ids, mask, None, reward, role, place, info=info))
        return rows


def _row(pair: Pair, prompt: Sequence[int], rejected: Sequence[int]) -> dict[str, Any]:
    """A pair in the columns that TRL pads."""
    ids = {"prompt_ids": prompt, "chosen_ids": pair.chosen_ids, "rejected_ids": rejected}
    reference = dict(zip(("ref_chosen_logps", "ref_rejected_logps"), pair.reference, strict=False))
    return {name: list(value) for name, value in ids.items()} | reference


def sequence_logp(
    logits_BTV: torch.Tensor, ids_BT: torch.Tensor, mask_BT: torch.Tensor
) -> torch.Tensor:
    """The log-probability (B,) in nats of each row's tokens under the mask; the first token of a
    row has none."""
    from trl.trainer.utils import selective_log_softmax

    logps_BT = selective_log_softmax(logits_BTV[:, :-1], ids_BT[:, 1:])
    return (logps_BT * mask_BT[:, 1:]).sum(dim=1)


def make_preference_trainer(
    params: RunParams,
    policy: Any,
    method: SelfPlayMethod,
    hooks: Hooks,
    output_dir: Path,
    stage: Stage | None = None,
) -> Any:
    """A trainer for `params.preference`; it has to `take` its pairs before it trains.

    Args:
        policy: a `spnb.train.policies.Policy`.
        stage: default: all of the run's steps, on the policy "policy".

    Raises:
        TrainerError: a setting was changed on the way, weights are sharded, or the pairs of an
            update cannot be divided.
    """
    import trl

    preference = params.preference
    if preference is None:
        raise TrainerError("the run has no preference loss; allowed: a method's params.preference")
    guards.check_contract(trl.DPOTrainer, "DPOTrainer")
    stage = stage or Stage(steps=params.steps)
    explicit = dpo_arguments(params, preference, stage.steps, output_dir)
    trainer = type("PreferenceTrainer", (PreferenceMixin, trl.DPOTrainer), {})(
        model=policy.model,
        args=trl.DPOConfig(**explicit),
        train_dataset=Dataset.from_dict({"slot": range(stage.steps * preference.batch)}),
        processing_class=policy.tokenizer,
        peft_config=policy.peft_config,
    )
    attach(trainer, explicit, method, hooks, stage)
    trainer.preference = preference
    trainer.pad = trainer.data_collator
    trainer.data_collator = trainer.collate
    return trainer


def starting_pairs(path: Path, trainer: Any, engines: dict[str, Engine]) -> list[Pair]:
    """The pairs of a run whose policy is still as it starts: made once by all processes together,
    then read from `path`.

    Raises:
        CheckpointError: the file cannot be read.
    """
    if not path.is_file():
        model = trainer.accelerator.unwrap_model(trainer.model)
        model.eval()
        with trainer.accelerator.autocast():
            own = [with_reference(p, model) for p in run(trainer.method.pairs(), engines)]
        every = gather_object(own)
        if trainer.accelerator.is_main_process:
            temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
            temporary.write_text("".join(json.dumps(asdict(pair)) + "\n" for pair in every))
            os.replace(temporary, path)
        trainer.accelerator.wait_for_everyone()
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [Pair(**{key: tuple(value) for key, value in row.items()}) for row in rows]
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); delete it, it is made again"
        ) from None


def with_reference(pair: Pair, model: Any) -> Pair:
    """The pair with its log-probabilities under a model."""
    asked = [
        (pair.short_ids, pair.chosen_ids),
        (pair.short_ids, pair.rejected_ids),
        (pair.long_ids, pair.chosen_ids),
    ]
    rows = [Sample(prompt, ids, (1,) * len(ids), None, 0.0, "", "") for prompt, ids in asked]
    return replace(pair, reference=tuple(token_logps(model, row).sum().item() for row in rows))

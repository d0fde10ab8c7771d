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
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import AutocastKwargs, gather_object
from datasets import Dataset

from spnb.core.disk import write_lines
from spnb.core.episodes import run
from spnb.core.method import Preference, SelfPlayMethod
from spnb.core.types import Engine, Pair, Sample, derive_seed
from spnb.train import guards
from spnb.train.config import RunParams, TrainerError, dpo_arguments
from spnb.train.guards import token_logps
from spnb.train.logps import check_head, hidden_states, language_model, sequence_logps
from spnb.train.metrics import mean_of
from spnb.train.runs import RunError
from spnb.train.trainer import Hooks, RunMixin, Stage, attach

ANSWERS = ("chosen", "rejected")
"""Roles of the rows of a pair."""
ATTEMPTS = 4
"""How often all questions are asked, with new seeds, until the answers give a pair."""
ROUNDING = 1e-4
"""Nats below which a distance of rewards is none: at the start it is 0 up to rounding, whose sign
would else give a gradient of full size."""


Batch = dict[str, torch.Tensor]


class PreferenceMixin(RunMixin):
    """Mixed in over `trl.DPOTrainer` by `make_preference_trainer`; see the module's docstring."""

    trl = "DPOTrainer"
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
        while len(self._order) < len(self.train_dataset):
            self._order += rng.sample(range(len(pairs)), len(pairs))

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset  # token ids come from `collate`

    def _precompute_ref_logps(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset  # so does the reference

    def collate(self, slots: list[dict[str, int]]) -> dict[str, Any]:
        """The batch of some places in the order of pairs: TRL's columns, and for SoLoPO the chosen
        responses in their long contexts as `aligned`."""
        pairs = [self.pairs[self._order[slot["slot"]]] for slot in slots]
        longpo = self.preference.loss == "longpo"
        rows = [_row(p, p.long_ids if longpo else p.short_ids, p.rejected_ids) for p in pairs]
        batch = self.pad(rows)
        if not longpo:
            long = self.pad([_row(pair, pair.long_ids, ()) for pair in pairs])
            batch["aligned"] = _first_half(long)
            batch["aligned"]["reference"] = torch.tensor([pair.reference[2] for pair in pairs])
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        inputs = dict(inputs)
        aligned = inputs.pop("aligned", None)
        chosen = _first_half(inputs) | {"reference": inputs["ref_chosen_logps"]}
        own = language_model(self.accelerator.unwrap_model(model))
        with hidden_states(own) as states:
            result = super()._compute_loss(model, inputs, return_outputs)
            if aligned is not None:
                asked = {name: aligned[name] for name in ("input_ids", "attention_mask")}
                model(**asked, use_cache=False, logits_to_keep=1)
        loss, *outputs = result if return_outputs else (result,)
        with self.accelerator.autocast(AutocastKwargs(cache_enabled=False)):
            loss = loss + self._second_term(own.get_output_embeddings(), states, chosen, aligned)
        return (loss, *outputs) if return_outputs else loss

    def _second_term(
        self, head: Any, states: Sequence[torch.Tensor], chosen: Batch, aligned: Batch | None
    ) -> torch.Tensor:
        """What is added to DPO's loss, with its weight.

        Args:
            states: hidden states of TRL's pass and, last, of that over the `aligned` rows.
        """
        hidden_BTH = states[0][: len(chosen["input_ids"])]
        weight = 1.0
        if aligned is None:
            name = "likelihood"
            mask = chosen["attention_mask"]
            logp_B = sequence_logps(head, hidden_BTH, chosen["input_ids"], mask)
            term = -(logp_B / mask[:, 1:].sum(dim=1)).mean()
        else:
            name = "alignment"
            weight = self.preference.weight
            rows = ((states[-1], aligned), (hidden_BTH, chosen))
            long_B, short_B = (
                sequence_logps(head, hidden, row["input_ids"], row["completion_mask"])
                for hidden, row in rows
            )
            gap_B = (long_B - aligned["reference"]) - (short_B - chosen["reference"])
            gap_B = gap_B * (gap_B.abs() > ROUNDING)
            term = (self.preference.beta * gap_B).abs().mean()
        self._metrics["train"][name].append(self.accelerator.gather(term.detach()).mean().item())
        return weight * term

    def updated(self, logs: dict[str, float]) -> None:
        """TRL's numbers of an update, and the step's row and pairs for the run."""
        step = self.state.global_step
        size = self.preference.batch
        places = self._order[(step - 1) * size : step * size]
        samples = [self._sample(place, role) for place in places for role in ANSWERS]
        row = {"step": self.stage.first + step} | self.reported(logs) | {"samples": len(samples)}
        for role in ANSWERS:
            rows = [sample for sample in samples if sample.role == role]
            row[f"reward/{role}"] = mean_of([sample.reward for sample in rows])
            row[f"length/{role}"] = mean_of([len(sample.completion_ids) for sample in rows])
        self.hooks.on_step(row | {"seconds/step": time.perf_counter() - self.started}, samples)

    def _sample(self, place: int, role: str) -> Sample:
        """An answer of a pair as a row for the records."""
        pair = self.pairs[place]
        prompt = pair.long_ids if self.preference.loss == "longpo" else pair.short_ids
        ids = getattr(pair, f"{role}_ids")
        reward = pair.rewards[ANSWERS.index(role)]
        info = {"text": self.processing_class.decode(ids, skip_special_tokens=True)}
        return Sample(prompt, ids, (1,) * len(ids), None, reward, role, place, info=info)


def _first_half(batch: Batch) -> Batch:
    """What TRL's collator has of the chosen answers."""
    names = ("input_ids", "attention_mask", "completion_mask")
    return {name: batch[name][: len(batch["input_ids"]) // 2] for name in names}


def _row(pair: Pair, prompt: Sequence[int], rejected: Sequence[int]) -> dict[str, Any]:
    """A pair in the columns that TRL pads."""
    ids = {"prompt_ids": prompt, "chosen_ids": pair.chosen_ids, "rejected_ids": rejected}
    reference = dict(zip(("ref_chosen_logps", "ref_rejected_logps"), pair.reference, strict=False))
    return {name: list(value) for name, value in ids.items()} | reference


def make_preference_trainer(
    params: RunParams, policy: Any, method: SelfPlayMethod, hooks: Hooks, output_dir: Path
) -> Any:
    """A trainer for `params.preference`; it has to `take` its pairs before it trains.

    Raises:
        TrainerError: see `attach`, `check_head` and `dpo_arguments`.
    """
    import trl

    guards.check_contract(trl.DPOTrainer, "DPOTrainer")
    check_head(policy.model)
    explicit = dpo_arguments(params, output_dir)
    trainer = type("PreferenceTrainer", (PreferenceMixin, trl.DPOTrainer), {})(
        model=policy.model,
        args=trl.DPOConfig(**explicit),
        train_dataset=Dataset.from_dict({"slot": range(params.steps * params.preference.batch)}),
        processing_class=policy.tokenizer,
        peft_config=policy.peft_config,
    )
    attach(trainer, explicit, method, hooks, Stage(steps=params.steps))
    trainer.merged = policy.merged
    trainer.preference = params.preference
    trainer.pad = trainer.data_collator
    trainer.data_collator = trainer.collate
    return trainer


def starting_pairs(path: Path, trainer: Any, engines: dict[str, Engine]) -> list[Pair]:
    """The pairs of a run whose policy is still as it starts: made once by all processes together,
    then read from `path`.

    Raises:
        RunError: the file cannot be read.
    """
    if not path.is_file():
        model = trainer.accelerator.unwrap_model(trainer.model)
        model.eval()
        for attempt in range(ATTEMPTS):
            with trainer.accelerator.autocast():
                made = run(trainer.method.pairs(attempt), engines)
                every = gather_object([with_reference(pair, model) for pair in made])
            if every:
                break
            print(f"attempt {attempt + 1} of {ATTEMPTS} gave no preference pair", flush=True)
        if trainer.accelerator.is_main_process:
            write_lines(path, map(asdict, every))
        trainer.accelerator.wait_for_everyone()
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [Pair(**{key: tuple(value) for key, value in row.items()}) for row in rows]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({error}); delete it, it is made again") from None


def with_reference(pair: Pair, model: Any) -> Pair:
    """The pair with its log-probabilities under a model."""
    asked = [
        (pair.short_ids, pair.chosen_ids),
        (pair.short_ids, pair.rejected_ids),
        (pair.long_ids, pair.chosen_ids),
    ]
    rows = [Sample(prompt, ids, (1,) * len(ids), None, 0.0, "", "") for prompt, ids in asked]
    return replace(pair, reference=tuple(token_logps(model, row).sum().item() for row in rows))

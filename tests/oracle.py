"""The papers' loss in plain torch, to compare the trainer with: no TRL, padding, micro-batches."""

import copy
from itertools import accumulate

import torch

from spnb.train.guards import token_logps


def row_logps(model, row, temperature=1.0):
    """Log-probabilities (T,) of a row's completion, with gradient."""
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
    logits = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, ids[0, len(row.prompt_ids) :, None]).squeeze(1)


def batch_loss(model, reference, rows, old, params, free=(), weighted=False, tokens=None):
    """The objective over all rows: PPO's clipped surrogate, plus beta times k3 to the reference
    for the roles that are not free of it, with the row's weight where some are or if `weighted`.
    `tokens`: what a mean over tokens is divided by, default those of the rows."""
    grpo = params.grpo
    totals, weights = [], []
    for row, old_logps in zip(rows, old, strict=True):
        logps, mask = (
            row_logps(model, row, params.temperature),
            torch.tensor(row.mask, dtype=torch.float32),
        )
        ratio = (logps - old_logps).exp()
        high = grpo["epsilon_high"] or grpo["epsilon"]
        clipped = ratio.clamp(1 - grpo["epsilon"], 1 + high)
        advantage = row.advantage * row.weight
        if grpo["loss_type"] == "cispo":
            token_loss = -ratio.detach().clamp(max=high) * advantage * logps
        else:
            token_loss = -torch.min(ratio * advantage, clipped * advantage)
        if grpo["beta"] and row.role not in free:
            gap = token_logps(reference, row, params.temperature) - logps
            weight = row.weight if free or weighted else 1.0
            token_loss = token_loss + weight * grpo["beta"] * (gap.exp() - gap - 1) * ratio
        totals.append((token_loss * mask).sum())
        weights.append(mask.sum())
    if grpo["loss_type"] == "grpo":
        return torch.stack([t / w for t, w in zip(totals, weights, strict=True)]).mean()
    if grpo["loss_type"] == "dr_grpo":
        return torch.stack(totals).sum() / (len(rows) * params.max_new_tokens)
    return torch.stack(totals).sum() / (tokens or torch.stack(weights).sum())  # dapo, bnpo, cispo


def train(model, batches, params, free=(), weighted=False, sizes=None):
    """Trains a copy of `model` on the batches of rows; returns the copy and (loss, grad_norm) of
    each update. `sizes`: by batch how many of its rows, in their order, each update has; ratios are
    to the policy before the first."""
    reference, model = copy.deepcopy(model).eval(), copy.deepcopy(model).train()
    decayed = [p for p in model.parameters() if p.dim() > 1]  # no decay on norms, as transformers
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": params.grpo["weight_decay"]}, {"params": others}],
        lr=params.grpo["learning_rate"],
        betas=(params.grpo["adam_beta1"], params.grpo["adam_beta2"]),
        weight_decay=0.0,
    )
    history = []
    for index, rows in enumerate(batches):
        old = [token_logps(model, row, params.temperature) for row in rows]
        counts = sizes[index] if sizes else [len(rows)]
        parts = [slice(end - n, end) for n, end in zip(counts, accumulate(counts), strict=True)]
        tokens = sum(sum(row.mask) for row in rows) / len(parts)
        for part in parts * params.grpo["num_iterations"]:
            given = (rows[part], old[part], params, free, weighted, tokens)
            loss = batch_loss(model, reference, *given)
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), params.grpo["max_grad_norm"])
            optimizer.step()
            history.append((loss.item(), norm.item()))
    return model, history

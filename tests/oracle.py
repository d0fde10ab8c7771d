"""The loss of the papers in plain torch, for the trainer to be compared with: no TRL, no padding,
no micro-batches."""

import copy

import torch

from spnb.train.trainer import token_logps


def row_logps(model, row, temperature=1.0):
    """Log-probabilities (T,) of a row's completion, with gradient."""
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
    logits = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, ids[0, len(row.prompt_ids) :, None]).squeeze(1)


def batch_loss(model, reference, rows, old, params):
    """The objective over all rows: PPO's clipped surrogate, plus beta times k3 to the reference."""
    totals, weights = [], []
    for row, old_logps in zip(rows, old, strict=True):
        logps, mask = (
            row_logps(model, row, params.temperature),
            torch.tensor(row.mask, dtype=torch.float32),
        )
        ratio = (logps - old_logps).exp()
        clipped = ratio.clamp(1 - params.epsilon, 1 + params.epsilon)
        token_loss = -torch.min(ratio * row.advantage, clipped * row.advantage)
        if params.kl_beta:
            gap = token_logps(reference, row, params.temperature) - logps
            token_loss = token_loss + params.kl_beta * (gap.exp() - gap - 1) * ratio
        totals.append((token_loss * mask).sum())
        weights.append(mask.sum())
    if params.loss_type == "grpo":
        return torch.stack([t / w for t, w in zip(totals, weights, strict=True)]).mean()
    if params.loss_type == "dr_grpo":
        return torch.stack(totals).sum() / (len(rows) * params.max_new_tokens)
    return torch.stack(totals).sum() / torch.stack(weights).sum()  # dapo


def train(model, batches, params):
    """Trains a copy of `model` on the batches of rows; returns the copy and (loss, grad_norm) of
    each update."""
    reference, model = copy.deepcopy(model).eval(), copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=params.learning_rate,
        betas=params.adam_betas,
        weight_decay=params.weight_decay,
    )
    history = []
    for rows in batches:
        old = [token_logps(model, row, params.temperature) for row in rows]
        for _ in range(params.inner_epochs):
            loss = batch_loss(model, reference, rows, old, params)
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), params.max_grad_norm)
            optimizer.step()
            history.append((loss.item(), norm.item()))
    return model, history

"""Nine fixed rows shared by the processes there are; writes the step's metrics as JSON.

python [-m torch.distributed.run ...] tests/train/two_processes.py FOLDER FILE [MICRO_TOKENS]
"""

import copy
import json
import sys
from pathlib import Path

from test_trainer import Fixed, ragged_rows, run_params

from spnb.train.policies import load_policy
from spnb.train.trainer import Hooks, make_trainer


class Shared(Fixed):
    """Each process hands out its part of the rows."""

    def rollout(self, step):
        yield from ()
        rows = ragged_rows(1, count=9)
        for row in rows:
            row.reward = row.advantage
        return self.share.part(rows)


if __name__ == "__main__":
    folder, file = Path(sys.argv[1]), Path(sys.argv[2])
    params = run_params(1, micro_tokens=int(sys.argv[3]) if sys.argv[3:] else None)
    policy = load_policy("embedded/games", params)
    before = copy.deepcopy(policy.model)
    metrics = {}
    hooks = Hooks(on_step=lambda row, samples: metrics.update(row))
    trainer = make_trainer(params, policy, Shared([[]], params), {}, hooks, folder)
    trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model)
    pairs = zip(model.parameters(), before.parameters(), strict=True)
    metrics["moved"] = sum((a - b).abs().sum().item() for a, b in pairs)
    if trainer.accelerator.is_main_process:
        file.write_text(json.dumps(metrics))

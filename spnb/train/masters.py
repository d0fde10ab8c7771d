"""Float32 weights under DeepSpeed's ZeRO-2.

It casts a model to bfloat16 and makes the float32 copies that it trains from that. A stage with a
small learning rate changes weights by less than bfloat16's last place: without what is done here
that would be lost wherever a stage begins or ends.
"""

from typing import Any


class MastersMixin:
    """Mixed in over a trainer of transformers: its copies begin as the model's float32 weights, and
    are what is saved at the end. Checkpoints have DeepSpeed's own files of them."""

    def _prepare_for_training(self, steps: int, loader: Any, checkpoint: str | None) -> Any:
        finer = {}
        if self.is_deepspeed_enabled and checkpoint is None:
            trained = [p for p in self.model.parameters() if p.requires_grad]
            finer = {p: p.detach().cpu() for p in trained if (p != p.bfloat16()).any()}
        prepared = super()._prepare_for_training(steps, loader, checkpoint)
        for weights, value in finer.items():
            from deepspeed.utils import safe_set_full_fp32_param

            safe_set_full_fp32_param(weights, value.to(weights.device))
        return prepared

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """TRL's; where it is not a checkpoint's, with the float32 copies."""
        if _internal_call or not self.is_deepspeed_enabled:
            return super().save_model(output_dir, _internal_call)
        from deepspeed.utils import safe_get_full_fp32_param

        finer = {}
        for weights in self.model.parameters():
            if weights.requires_grad:
                whole = safe_get_full_fp32_param(weights)  # by all processes together
                finer[weights.data_ptr()] = whole.cpu() if self.args.should_save else None
        if self.args.should_save:
            found = self.model.state_dict().items()
            state = {name: finer.get(value.data_ptr(), value) for name, value in found}
            self._save(output_dir, state_dict=state)

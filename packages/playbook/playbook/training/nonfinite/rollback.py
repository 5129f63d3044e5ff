"""Returns a training to the weights and moments of its newest checkpoint, at a lower learning rate."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from playbook.checkpoints.io import first_valid, load
from playbook.errors import UserError
from playbook.optim.schedules import scale_rates
from playbook.runs.directory import is_checkpoint


def return_to_checkpoint(trainer: Trainer, factor: float) -> None:
    """Loads weights and moments from the newest valid and finite checkpoint, and lowers the current rates.

    Position and schedule do not change.

    Args:
        trainer: at the end of a batch.
        factor: factor of every learning rate.

    Raises:
        UserError: there is no such checkpoint.
    """
    checkpoint = _newest_finite(trainer)
    trainer.strategy.load_model_state_dict(checkpoint, strict=trainer.lightning_module.strict_loading)
    # only the moments come from the checkpoint: the schedule goes on from the present settings
    groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
    settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
    trainer.strategy.load_optimizer_state_dict(checkpoint)
    groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]  # loading replaces them
    for group, present in zip(groups, settings, strict=True):
        group.update(present)
    scale_rates(trainer.optimizers, [config.scheduler for config in trainer.lr_scheduler_configs], factor)


def _newest_finite(trainer: Trainer) -> dict[str, Any]:
    folder = Path(getattr(trainer.checkpoint_callback, "dirpath", None) or "none")
    candidates = [path for name in ("last", "previous") if is_checkpoint(path := folder / f"{name}.ckpt")]
    while candidates:
        path = first_valid(candidates, "policy return")
        checkpoint = load(path)
        if all(value.isfinite().all() for value in checkpoint["state_dict"].values()):
            return checkpoint
        candidates = candidates[candidates.index(path) + 1 :]
    raise UserError(f"policy: return found no finite checkpoint in {folder.as_posix()}; see --checkpoint.every_n_steps")

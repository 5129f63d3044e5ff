"""The flags that Lightning sets when it restarts from a checkpoint."""

from typing import Any

from lightning.pytorch import Trainer


def end_restart(trainer: Trainer) -> None:
    """In a hook of a batch or a validation: the checkpoint is taken up, what follows is ordinary training.

    Lightning keeps the flag for the whole resumed epoch, and then steps no plateau schedule at its end. The public
    setter would leave the flag up in a training that is limited by max_steps.
    """
    trainer.fit_loop._restarting = False


def end_restart_between_epochs(trainer: Trainer) -> None:
    """In on_train_start: a checkpoint saved between two epochs continues with the second one.

    With max_steps, Lightning would enter the epoch that is over, and find no batch in it.
    """
    loop = trainer.fit_loop
    progress: Any = loop.epoch_progress.current
    if loop.restarting and progress.ready == progress.processed:
        epoch_loop = loop.epoch_loop
        for part in (loop, epoch_loop, epoch_loop.val_loop, epoch_loop.automatic_optimization):
            part._restarting = False
        epoch_loop.reset_restart_stage()

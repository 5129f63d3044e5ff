"""Ctrl-C and SIGTERM end the training at the next step, with a checkpoint."""

import os
import signal
import threading
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from src.callbacks.checkpoint import Checkpoint


class StopOnSignal(Callback):
    """Asks the checkpoint callback to save and stop; a second signal stops at once (always on).

    Lightning's own way ends at the step's end without a checkpoint and exits 0 on SIGTERM.

    Args:
        checkpoint: is told which signal came.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._install()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._install()

    def _install(self) -> None:
        # after Lightning's own, which it takes away again when it tears down
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self.checkpoint.stop_signal is not None:
            raise KeyboardInterrupt
        self.checkpoint.stop_signal = number
        os.write(2, b"\nstopping with a checkpoint at the end of this step; again to stop at once\n")

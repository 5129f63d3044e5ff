"""Times of training steps, of Playbook's Trainer and of plain loops: the device is waited for at both ends only."""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import Dataset

from gpu_parts.measuring import Setting
from playbook.training.trainer import Trainer


@dataclass(frozen=True)
class Steps:
    """Which steps of a training are timed.

    Args:
        skipped: first steps, in which kernels are chosen and memory is taken.
        timed: steps after them.
    """

    skipped: int
    timed: int

    def plain(self, setting: Setting, batches: Iterable[Any], step: Callable[[Any], None]) -> float:
        """Seconds a step of a plain loop, which begins the batches again at their end."""
        endless = itertools.chain.from_iterable(itertools.repeat(batches))
        for batch in itertools.islice(endless, self.skipped):
            step(batch)

        def window() -> None:
            for batch in itertools.islice(endless, self.timed):
                step(batch)

        return setting.seconds(window) / self.timed

    def playbook(self, setting: Setting, model: pl.LightningModule, data: Any, **options: Any) -> float:
        """Seconds a step of Playbook's Trainer, without validation.

        Args:
            setting: the device.
            model: to train.
            data: a data module or a loader.
            options: of the Trainer.
        """
        window = _Window(setting, self)
        callbacks = [*options.pop("callbacks", ()), window]
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                run_dir=f"{folder}/run",
                max_steps=self.skipped + self.timed,
                limit_val_batches=0,
                num_sanity_val_steps=0,
                callbacks=callbacks,
                **setting.trainer_options,
                **options,
            )
            source: dict[str, Any] = (
                {"datamodule": data} if isinstance(data, pl.LightningDataModule) else {"train_dataloaders": data}
            )
            trainer.fit(model, **source)
        return window.seconds / self.timed


class _Window(pl.Callback):
    def __init__(self, setting: Setting, steps: Steps) -> None:
        self.setting, self.steps = setting, steps
        self.count = 0
        self.start = self.seconds = 0.0

    def on_train_batch_start(self, *_: Any) -> None:
        if self.count == self.steps.skipped:
            self.setting.synchronize()
            self.start = time.perf_counter()
        self.count += 1

    def on_train_batch_end(self, *_: Any) -> None:
        if self.count == self.steps.skipped + self.steps.timed:
            self.setting.synchronize()
            self.seconds = time.perf_counter() - self.start


class CutBefore(Dataset):
    """Batches that are there already, one an index; for a DataLoader with batch_size=None."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]

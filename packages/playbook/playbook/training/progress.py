"""One line of progress: a bar on a terminal, otherwise one line per epoch."""

import sys
import time
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from playbook.runs import card
from playbook.training.lightning.optimization import loss_of

PIPED_EVERY_S = 5.0
SHOWN_EVERY_S = 0.1
MOST_SHOWN = 5  # metrics, unless more are asked for by prog_bar=True


class Progress(ProgressBar):
    """Shows epoch, speed, training loss, validation metrics and the best so far (always on).

    Metrics of self.log(…, prog_bar=True) come first. Reading the loss synchronises with the device, so it is read ten
    times a second, not in every step. What a module prints on a terminal appears above the bar.

    Attributes:
        refresh_rate: as in Lightning's bars, where 0 shows nothing; other values change nothing here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refresh_rate = 1
        self._enabled = True
        self._bar: RichProgress | None = None
        self._shown_at = self._started_at = 0.0
        self._steps = self._printed_epoch = 0
        self._loss: Any = None

    @property
    def is_enabled(self) -> bool:
        return self._enabled and self.refresh_rate > 0

    @property
    def is_disabled(self) -> bool:
        return not self.is_enabled

    def disable(self) -> None:
        self._enabled = False
        self._close()

    def enable(self) -> None:
        self._enabled = True

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        bars = [callback for callback in trainer.callbacks if isinstance(callback, ProgressBar)]  # type: ignore[attr-defined]  # set by a connector
        if len(bars) > 1:  # one of the module's own, which came with its configure_callbacks
            self.disable()

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start(trainer, "predict")

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.has_dataloader_changed(dataloader_idx)  # notes it for the totals of the present loader

    on_validation_batch_start = on_test_batch_start = on_predict_batch_start

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reset_dataloader_idx_tracker()

    def on_predict_batch_end(self, trainer: Any, pl_module: LightningModule, *_: Any) -> None:
        self._steps += 1
        every = PIPED_EVERY_S if self._bar is None else SHOWN_EVERY_S
        if not self.is_enabled or not trainer.is_global_zero or time.monotonic() - self._shown_at < every:
            return
        self._shown_at = time.monotonic()
        total = sum(trainer.num_predict_batches)
        known = total != float("inf")
        rest = f"{self._steps:,}{f'/{total:,}' if known else ''} batches  {self._rate()}"
        if self._bar is None:
            print(f"predict  {rest}", flush=True)
        else:
            self._bar.update(
                self._bar.task_ids[0], completed=self._steps, total=total if known else None, rest=rest, refresh=True
            )

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reset_dataloader_idx_tracker()
        self._close()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        run = getattr(trainer, "run", None)
        if trainer.is_global_zero and run is not None:
            print(card.header(trainer, run), flush=True)
        self._start(trainer, _epoch(trainer))

    def _start(self, trainer: Trainer, description: str) -> None:
        """Starts counting, and shows a bar on a terminal."""
        self._shown_at = self._started_at = time.monotonic()
        self._steps = 0
        self._open_bar(trainer, description)

    def _open_bar(self, trainer: Trainer, description: str) -> None:
        on_terminal = sys.stdout.isatty()  # rich would take FORCE_COLOR for a terminal
        if self._bar is None and self.is_enabled and trainer.is_global_zero and on_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[rest]}"))
            self._bar = RichProgress(
                *columns, console=Console(highlight=False, soft_wrap=True), auto_refresh=False, transient=True
            )
            self._bar.add_task(description, total=None, rest="")
            self._bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._steps += 1
        loss = loss_of(outputs)
        # Lightning divides it by the number of batches that an optimizer step accumulates
        self._loss = loss.detach() * trainer.accumulate_grad_batches if isinstance(loss, torch.Tensor) else None
        if self._bar is not None and time.monotonic() - self._shown_at > SHOWN_EVERY_S:
            self._show(trainer, batch_idx + 1)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reset_dataloader_idx_tracker()
        if self._bar is not None and not trainer.sanity_checking:
            self._show(trainer, trainer.fit_loop.batch_idx + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._bar is not None:
            self._show(trainer, trainer.fit_loop.batch_idx + 1)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if time.monotonic() - self._shown_at > PIPED_EVERY_S:
            self._print(trainer)  # only now: tasks log an epoch's training metrics after the callbacks saw its end
        self._open_bar(trainer, _epoch(trainer))  # where it was enabled during the training

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._print(trainer)
        self._close()

    def _print(self, trainer: Trainer) -> None:
        """The line of the last epoch that ended, where no bar shows it."""
        quiet = self._bar is not None or self.is_disabled or not trainer.is_global_zero
        if not quiet and self._printed_epoch < trainer.current_epoch:
            self._shown_at = time.monotonic()
            self._printed_epoch = trainer.current_epoch
            print(f"{_epoch(trainer, trainer.current_epoch)}  {self._rest(trainer)}", flush=True)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self, trainer: Trainer, batches: int) -> None:
        assert self._bar is not None
        self._shown_at = time.monotonic()
        total = trainer.num_training_batches
        self._bar.update(
            self._bar.task_ids[0],
            description=_epoch(trainer),
            completed=batches,
            total=None if total == float("inf") else total,
            rest=f"{batches}/{total}  {self._rest(trainer)}",
            refresh=True,
        )

    def _rate(self) -> str:
        rate = self._steps / max(1e-9, time.monotonic() - self._started_at)
        return f"{rate:.{0 if rate >= 10 else 1 if rate >= 1 else 2}f} it/s"

    def _rest(self, trainer: Trainer) -> str:
        parts = [self._rate()]
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        shown: dict[str, Any] = dict(self.get_metrics(trainer, trainer.lightning_module))
        shown.pop("v_num", None)  # of a logger; the header names the run
        num_asked = len(shown)
        shown |= {name: value for name, value in metrics.items() if not name.startswith(("train", "test"))}
        if "train/loss" in metrics or self._loss is not None:
            loss = metrics.get("train/loss") if self._bar is None else None
            shown = {"train/loss": None} | shown | {"train/loss": float(self._loss) if loss is None else loss}
        parts += [_text(name, value) for name, value in list(shown.items())[: max(MOST_SHOWN, num_asked + 1)]]
        best = getattr(trainer.checkpoint_callback, "best", None)
        if best:
            parts.append(f"best {best['score']:.4g} (epoch {best['epoch']})")
        return "  ".join(parts)


def _text(name: str, value: Any) -> str:
    """A metric in one line, whatever its name."""
    return f"{' '.join(name.split())} {f'{value:.4g}' if isinstance(value, float | int) else value}"


def _epoch(trainer: Trainer, epoch: int | None = None) -> str:
    last = "" if trainer.max_epochs in (None, -1) else f"/{trainer.max_epochs}"
    return f"epoch {trainer.current_epoch + 1 if epoch is None else epoch}{last}"

"""Averages of the weights over training: they are evaluated, saved and deployed while the raw weights keep training."""

import sys
from copy import copy
from itertools import chain
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from playbook import UserError, ends_epoch

RAW = "current_model_state"  # the key of Lightning's own WeightAveraging


class _Average(Callback):
    """Keeps an average and swaps it in whenever weights are evaluated or saved.

    Parameters and floating-point buffers are averaged in float32 or better: in bf16 a step of 1e-3 would be lost.
    Integers, such as BatchNorm's count of batches, stay raw. The swap copies in place, so it is transparent to compiled
    graphs, optimizers and DDP. DDP's processes need no communication, as their weights are the same.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._current: list[Tensor] = []  # of the model, each once, however often it is shared
        self._average: list[Tensor] = []  # empty until the first is taken
        self._raw: list[Tensor] = []  # what trains, while the model holds the average
        self._places: dict[str, int] = {}  # names in the state dict to places in these lists
        self._loaded: dict[str, Tensor] = {}
        self._num_averaged = 0
        self._step = 0  # of the optimizer, at the end of the former batch

    def _due(self, trainer: Trainer) -> bool:
        """Whether the weights after this optimizer step enter the average."""
        raise NotImplementedError

    def _share(self) -> float:
        """The share of the current weights in the new average."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {"num_averaged": self._num_averaged}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._num_averaged = state_dict["num_averaged"]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._forget()
        averages = [type(callback).__name__ for callback in trainer.callbacks if isinstance(callback, _Average)]  # type: ignore[attr-defined]  # set by a connector
        if len(averages) > 1:
            raise UserError(f"trainer.callbacks: expected one weight average, got {', '.join(averages)}")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        entries = pl_module.state_dict(keep_vars=True)
        saved = {id(tensor) for tensor in entries.values()}
        tensors = chain(pl_module.parameters(), pl_module.buffers())
        self._current = [t for t in tensors if id(t) in saved and (t.is_floating_point() or t.is_complex())]
        if any(hasattr(tensor, "full_tensor") for tensor in self._current):
            raise UserError(f"trainer.strategy: {type(self).__name__} does not support sharded weights")
        places = {id(tensor): place for place, tensor in enumerate(self._current)}
        self._places = {name: places[id(tensor)] for name, tensor in entries.items() if id(tensor) in places}
        self._step = trainer.global_step
        if self._num_averaged:
            self._average = _copies(self._current)
            for name, place in self._places.items():
                self._average[place].copy_(self._loaded[name])
        self._loaded = {}

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step == self._step:  # gradients accumulate
            return
        if self._due(trainer):
            if self._num_averaged:
                current = [t.to(average.dtype) for t, average in zip(self._current, self._average, strict=True)]
                # private to torch, which has no public operation on a list of tensors: one kernel for all on a GPU
                torch._foreach_lerp_(self._average, current, self._share())
            else:
                self._average = _copies(self._current)
            self._num_averaged += 1
        self._step = trainer.global_step

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._swap_in()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._swap_out()  # before the Checkpoint callback, but saving minds a swap anyway

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._swap_in()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._swap_out()

    @torch.no_grad()
    def _swap_in(self) -> None:
        if self._average and not self._raw:
            self._raw = [tensor.clone() for tensor in self._current]
            torch._foreach_copy_(self._current, self._average)

    @torch.no_grad()
    def _swap_out(self) -> None:
        if self._raw:
            torch._foreach_copy_(self._current, self._raw)
            self._raw = []

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self._average:
            return
        raw, averaged = checkpoint["state_dict"], copy(checkpoint["state_dict"])  # with their metadata
        for name, place in self._places.items():
            raw[name] = (self._raw or self._current)[place].detach()
            averaged[name] = self._average[place]
        checkpoint["state_dict"], checkpoint[RAW] = averaged, raw

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit" and RAW in checkpoint:  # everywhere else the average is what is wanted
            self._loaded = checkpoint["state_dict"]
            pl_module.load_state_dict(checkpoint[RAW], strict=pl_module.strict_loading)


class EMA(_Average):
    """Exponential moving average of the weights, evaluated and saved in their place (Polyak & Juditsky 1992).

    After each optimizer step, average = d · average + (1 - d) · weights. It smooths the noise of a
    high learning rate; with a schedule that ends at 0 there is little left to gain. Buffers such as BatchNorm's are
    averaged too, so they lag behind the raw ones in the first epochs. Checkpoints hold the average as `state_dict` and
    the raw weights beside it, so that training resumes bitwise.

    On cnn-digits (seeds 1, 2, 3, 359 test images, 2 CPU cores), without and with it: test/accuracy 0.9870 and 0.9954,
    test/loss 0.054 and 0.026 at a constant rate; 0.9944 and 0.9935, 0.034 and 0.037 with the recipe's WarmupCosine.
    An update took 0.17 ms for 14 tensors with 75,978 parameters; a step took 100 ms or more on the busy machine.

    Args:
        decay: d, the share of the average that is kept at every step, in (0, 1).
        warmup: whether to use (1 + t) / (10 + t) after t steps while it is smaller than d. The average then covers
            about the last tenth of the steps so far, and forgets the random initial weights.
        every_n_steps: optimizer steps between two updates, at least 1; d is raised to this power, so that the average
            covers the same number of steps.

    Raises:
        ValueError: a value is out of range, there is a second weight average, or the model is sharded.
    """

    def __init__(self, decay: float = 0.999, warmup: bool = True, every_n_steps: int = 1) -> None:
        super().__init__()
        if not 0 < decay < 1:
            raise ValueError(f"decay: expected a share in (0, 1), got {decay}")
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps: expected at least 1, got {every_n_steps}")
        self.decay = decay
        self.warmup = warmup
        self.every_n_steps = every_n_steps

    def _due(self, trainer: Trainer) -> bool:
        return trainer.global_step // self.every_n_steps > self._step // self.every_n_steps

    def _share(self) -> float:
        t = self._num_averaged * self.every_n_steps
        decay = min(self.decay, (1 + t) / (10 + t)) if self.warmup else self.decay
        return 1 - decay**self.every_n_steps


class SWA(_Average):
    """Plain mean of the weights at the ends of the last epochs (Izmailov et al. 2018).

    From its first epoch on, the mean is evaluated and saved in place of the weights. The learning-rate schedule is the
    recipe's: averaging helps most while the rate is high, and little if the rate ends at 0. Checkpoints hold the mean
    as `state_dict` and the raw weights beside it, so that training resumes bitwise.

    BatchNorm's statistics are averaged, not computed again with the mean weights. On cnn-digits at a constant rate
    (seeds 1, 2, 3, 359 test images, 2 CPU cores) the last weights reach test/accuracy 0.9712 and test/loss 0.071 raw,
    0.9963 and 0.020 averaged, 0.9953 and 0.019 after another pass over the training data for the statistics alone.
    With best.ckpt: 0.9870 and 0.054 without SWA, 0.9898 and 0.040 with it; one of the three was saved before its start.
    With the recipe's WarmupCosine: 0.9944 and 0.034 without, 0.9944 and 0.034 with it.

    Args:
        start: share of the training after which epochs enter the mean, in [0, 1).

    Raises:
        ValueError: the share is out of range, there is a second weight average, the model is sharded, or the length of
            the training is not limited.
    """

    def __init__(self, start: float = 0.75) -> None:
        super().__init__()
        if not 0 <= start < 1:
            raise ValueError(f"start: expected a share of the training in [0, 1), got {start}")
        self.start = start
        self._total_steps = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._total_steps = trainer.estimated_stepping_batches
        if self._total_steps == float("inf"):
            raise UserError("start: needs a known end, set --trainer.max_epochs or --trainer.max_steps")

    def _due(self, trainer: Trainer) -> bool:
        # at the last batch, not in on_train_epoch_end: the validation comes between the two
        is_last = ends_epoch(trainer) or trainer.global_step == trainer.max_steps
        return is_last and trainer.global_step >= self.start * self._total_steps

    def _share(self) -> float:
        return 1 / (self._num_averaged + 1)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        if not self._num_averaged and trainer.is_global_zero:
            print("warning: SWA: training ended before its start, nothing was averaged", file=sys.stderr)


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    return [t.detach().to(torch.promote_types(t.dtype, torch.float32), copy=True) for t in tensors]

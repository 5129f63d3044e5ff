"""Units of activations that were not positive for any sample."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Hardswish, nn.Mish)  # without a gradient far below 0
FEATURES_FIRST = (
    nn.modules.conv._ConvNd,  # the base of all convolutions
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
)
FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.RMSNorm)


class Units:
    """Notes, by hooks, which units of ReLU and its kin were positive for at least one sample.

    A unit is a feature of a linear layer or a channel of a convolution, at all places together. A module that is called
    several times in a forward pass counts once for each call. Each sample is seen by its own process alone.

    Args:
        trainer: tells validations from the training.
        module: in which activations are looked for.
    """

    def __init__(self, trainer: Trainer, module: nn.Module) -> None:
        self._trainer = trainer
        self._calls: Counter[str] = Counter()
        self._positive: dict[tuple[str, int], Tensor] = {}
        self._handles: list[RemovableHandle] = []
        is_last = True
        for name, part in module.named_modules():
            if isinstance(part, FEATURES_FIRST + FEATURES_LAST):
                is_last = isinstance(part, FEATURES_LAST)
            elif isinstance(part, ACTIVATIONS):
                hook: Callable[..., None] = partial(self._look, name, is_last)
                self._handles.append(part.register_forward_hook(hook))

    @torch.no_grad()
    def _look(self, name: str, is_last: bool, module: nn.Module, args: Any, output: Any) -> None:
        if not isinstance(output, Tensor) or output.ndim < 2 or not self._trainer.training:
            return
        axis = output.ndim - 1 if is_last else 1
        others = [number for number in range(output.ndim) if number != axis]
        if any(output.shape[number] == 0 for number in others):
            return
        positive = output.amax(others) > 0  # (units,)
        key = name, self._calls[name]
        self._calls[name] += 1
        former = self._positive.get(key)
        if former is not None and former.shape == positive.shape:
            positive |= former
        self._positive[key] = positive

    def begin_forward(self) -> None:
        """Ends a forward pass: the next one calls each module for the first time again."""
        self._calls.clear()

    def close(self) -> dict[str, tuple[Tensor, int]]:
        """Removes the hooks, and returns the number of dead units and of all units of each module."""
        for handle in self._handles:
            handle.remove()
        counts: dict[str, tuple[Tensor, int]] = {}
        for (name, _), positive in self._positive.items():
            dead, total = counts.get(name, (positive.new_zeros((), dtype=torch.float32), 0))
            counts[name] = dead + (~positive).sum(), total + len(positive)
        return counts

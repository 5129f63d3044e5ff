"""The precision of float32 matrix products."""

from typing import Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class MatmulPrecision(Callback):
    """Lets the GPU multiply float32 matrices in TF32, and restores the previous setting afterwards.

    Weights, activations and sums stay float32. cuDNN's convolutions use TF32 by default. It has no effect on a CPU
    without matrix units.

    Args:
        precision: high is TF32, with 10 bits of mantissa instead of 23; medium may use bfloat16's 7 bits; highest is
            float32 throughout, torch's default.
    """

    def __init__(self, precision: Literal["highest", "high", "medium"] = "high") -> None:
        self.precision = precision
        self._former = "highest"

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._former = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.precision)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        torch.set_float32_matmul_precision(self._former)

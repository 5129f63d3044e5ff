"""Exact resume with `deterministic`: six steps at once, against three, an interruption, and three after a resume.

The interruption is in the fourth step, after its backward pass. The models are a CNN on the digits, moved at random, in
float32, and a GPT with dropout on random tokens in bf16 (float32 on a CPU). Weights at the end are compared bit by bit.
That they differ from those after three steps is measured as well: else, equal weights would show nothing.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import Callback, LightningModule, seed_everything
from torch.utils.data import TensorDataset

from gpu_parts.measuring import Setting
from playbook.data.base import Data
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.trainer import Trainer
from src.data.vision.digits import Digits
from src.nets.language.gpt import GPT
from src.nets.vision.cnn import CNN
from src.tasks.classification import Classification
from src.tasks.language_modelling import LanguageModelling

NUM_STEPS = 6
Weights = dict[str, torch.Tensor]


class RandomTokens(Data):
    """64 sequences of 32 random tokens."""

    def setup(self, stage: str) -> None:
        tokens = torch.randint(65, (64, 33), generator=torch.Generator().manual_seed(0))
        self.train_set = self.val_set = TensorDataset(tokens[:, :-1], tokens[:, 1:])

    @staticmethod
    def collate(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        tokens, target = (torch.stack(column) for column in zip(*samples, strict=True))
        return {"tokens": tokens}, target


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    low = "bf16-mixed" if setting.is_gpu else "32-true"
    cases: dict[str, tuple[Callable[[], LightningModule], Callable[[], Data], str]] = {
        "CNN": (lambda: Classification(CNN(widths=[8, 16])), lambda: Digits(batch_size=256, shift=1), "32-true"),
        "GPT": (lambda: LanguageModelling(_gpt()), lambda: RandomTokens(batch_size=16), low),
    }
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            whole = _train(setting, Path(folder, "whole"), *case)
            half = _train(setting, Path(folder, "resumed"), *case, interrupted_after=3)
            resumed = _train(setting, Path(folder, "resumed"), *case, ckpt_path="last")
        yield f"{name}, bitwise equal after a resume", _are_equal(whole, resumed)
        yield f"{name}, equal without the last three steps", _are_equal(whole, half)


def _gpt() -> GPT:
    return GPT(num_layers=2, dim=64, num_heads=2, context_length=32, dropout=0.1)


def _train(
    setting: Setting,
    folder: Path,
    make_model: Callable[[], LightningModule],
    make_data: Callable[[], Data],
    precision: str,
    ckpt_path: str | None = None,
    interrupted_after: int | None = None,
) -> Weights:
    seed_everything(1)
    model = make_model()
    trainer = Trainer(
        run_dir=folder,
        checkpoint=Checkpoint(every_n_steps=1),
        max_steps=NUM_STEPS,
        deterministic=True,
        precision=precision,
        limit_val_batches=0,
        callbacks=[] if interrupted_after is None else [_Interrupt(interrupted_after)],
        **setting.trainer_options,
    )
    with suppress(PowerCutError):
        trainer.fit(model, datamodule=make_data(), ckpt_path=ckpt_path)
    expected = interrupted_after or NUM_STEPS
    assert trainer.global_step == expected, f"expected {expected} steps, got {trainer.global_step}"
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


class PowerCutError(BaseException):
    """Ends a run without any chance to save."""


class _Interrupt(Callback):
    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps

    def on_before_optimizer_step(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.num_steps:
            raise PowerCutError


def _are_equal(weights: Weights, others: Weights) -> bool:
    return weights.keys() == others.keys() and all(torch.equal(value, others[name]) for name, value in weights.items())

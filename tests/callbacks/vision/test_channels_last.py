"""Channels innermost: in weights and inputs, with the same results, and back afterwards."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from playbook.errors import UserError
from playbook.testing.command import QUIET
from src.callbacks.channels_last import ChannelsLast
from src.data.vision.digits import Digits
from src.nets.vision.cnn import CNN
from src.tasks.classification import Classification


def is_channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


class Seen(nn.Module):
    """A CNN that remembers how its images were laid out."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = CNN(in_channels=2, widths=[4, 8], dropout=0.0)
        self.layouts: list[bool] = []

    def forward(self, image: Tensor) -> Tensor:
        two = torch.cat([image, image.flip(2)], dim=1) if image.shape[1] == 1 else image
        self.layouts.append(is_channels_last(image) or image.shape[1] == 1)
        return self.cnn(two)


class Pairs(Digits):
    """Digits with a second channel."""

    def setup(self, stage: str) -> None:
        super().setup(stage)
        for dataset in (self.train_set, self.val_set, self.test_set):
            images, targets = dataset.tensors  # type: ignore[attr-defined]
            dataset.tensors = (torch.cat([images, images.flip(2)], dim=1), targets)  # type: ignore[attr-defined]


def train(folder: Path, *callbacks: Any) -> tuple[Trainer, Classification]:
    torch.manual_seed(0)
    task = Classification(Seen())
    settings: dict[str, Any] = {**QUIET, "max_steps": 3, "limit_val_batches": 1, "enable_checkpointing": False}
    trainer = Trainer(**settings, callbacks=list(callbacks), default_root_dir=folder)
    trainer.fit(task, datamodule=Pairs(batch_size=8))
    return trainer, task


class Layouts(ChannelsLast):
    """Looks at the weights while it trains."""

    during: bool = False

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        weights = [p for p in pl_module.parameters() if p.ndim == 4 and p.shape[1] > 1]
        self.during = bool(weights) and all(is_channels_last(weight) for weight in weights)


def test_layout_in_training_and_after(tmp_path: Path) -> None:
    callback = Layouts()
    trainer, task = train(tmp_path, callback)
    seen: Any = task.net
    assert callback.during
    assert all(seen.layouts)
    assert all(parameter.is_contiguous() for parameter in task.parameters())
    assert not task.net._forward_pre_hooks
    seen.layouts.clear()
    trainer.test(task, datamodule=Pairs(batch_size=8), verbose=False)
    assert all(seen.layouts), "the test after the training"


def test_results_are_those_without(tmp_path: Path) -> None:
    _, plain = train(tmp_path)
    seen: Any = plain.net
    assert not any(seen.layouts), "the batches come channels last anyway, so this test proves nothing"
    _, laid_out = train(tmp_path, ChannelsLast())
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(
            laid_out.state_dict()[name], value, rtol=0, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_not_with_fsdp2(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.pytorch.strategies import ModelParallelStrategy

    trainer = Trainer(**QUIET)
    monkeypatch.setattr(trainer.strategy, "__class__", ModelParallelStrategy)
    with pytest.raises(UserError, match="ChannelsLast does not work with FSDP2"):
        ChannelsLast().setup(trainer, Classification(CNN()), "fit")

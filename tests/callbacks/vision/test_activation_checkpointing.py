"""Layers computed twice give bitwise the same weights, and keep less."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torchvision.models import resnet18

from playbook.testing.command import QUIET
from src.callbacks.activation_checkpointing import ActivationCheckpointing
from src.data.vision.digits import Digits
from src.nets.mlp import MLP
from src.nets.vision.cnn import CNN
from src.nets.vision.unet import UNet
from src.nets.vision.vit import ViT
from src.tasks.classification import Classification

NETS: dict[str, tuple[Any, str]] = {
    "vit": (lambda: ViT(dim=16, depth=2, dropout=0.2), "*blocks.*"),
    "cnn": (lambda: CNN(widths=[4, 8]), "*stages.*"),  # with batch norms
}


def train(folder: Path, name: str, *callbacks: ActivationCheckpointing) -> Classification:
    torch.manual_seed(0)
    task = Classification(NETS[name][0]())
    settings: dict[str, Any] = {**QUIET, "max_steps": 3, "limit_val_batches": 0, "enable_checkpointing": False}
    trainer = Trainer(**settings, callbacks=list(callbacks), default_root_dir=folder)
    torch.manual_seed(1)
    trainer.fit(task, datamodule=Digits(batch_size=8))
    return task


@pytest.mark.parametrize("name", NETS)
def test_weights_are_bitwise_those_without(tmp_path: Path, name: str) -> None:
    plain = train(tmp_path, name).state_dict()
    twice = train(tmp_path, name, ActivationCheckpointing(NETS[name][1])).state_dict()
    assert list(twice) == list(plain)
    for key, value in plain.items():
        assert torch.equal(twice[key], value), key


@pytest.mark.parametrize("name", NETS)
def test_less_is_kept_and_layers_are_left_as_they_were(name: str) -> None:
    make, layers = NETS[name]
    task: Any = Classification(make())
    callback = ActivationCheckpointing(layers)

    def kept_bytes() -> int:
        sizes: list[int] = []

        def pack(x: Tensor) -> Tensor:
            sizes.append(x.nbytes)
            return x

        with saved_tensors_hooks(pack, lambda x: x):
            task(torch.randn(64, 1, 8, 8))
        return sum(sizes)

    before, former = kept_bytes(), {name: set(vars(module)) for name, module in task.named_modules()}
    callback.on_fit_start(None, task)  # type: ignore[arg-type]
    during = kept_bytes()
    copied = copy.deepcopy(task)  # as averaged weights do
    assert during < 0.5 * before, f"{during} of {before} bytes"
    callback.teardown(None, task, "fit")  # type: ignore[arg-type]
    assert kept_bytes() == before
    assert {name: set(vars(module)) for name, module in task.named_modules()} == former
    for parameter in copied.parameters():
        parameter.data.zero_()
    assert not copied(torch.randn(2, 1, 8, 8)).any(), "the copy computes with the weights of the original"


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (ViT(dim=16, depth=2), ["blocks.0", "blocks.1"]),
        (CNN(widths=[4, 8]), ["stages.0", "stages.1"]),
        (UNet(widths=[4, 8]), ["encoder.0", "encoder.1", "decoder.0"]),
        (MLP(widths=[4]), ["hidden.0", "hidden.1", "hidden.2", "hidden.3"]),
        (resnet18(), [f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_members_of_the_outermost_lists_are_chosen_when_nothing_is_named(net: nn.Module, expected: list[str]) -> None:
    chosen = ActivationCheckpointing()._chosen(nn.ModuleDict({"net": net}))  # type: ignore[arg-type]
    assert list(chosen) == [f"net.{name}" for name in expected]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("*stage.*", r"layers: no module is named \*stage\.\*\. Nearest: \*stages\.\*"),
        ("*blocks.*", r"layers: no module is named \*blocks\.\*\. Patterns that match: \*stages\.\*, "),
    ],
)
def test_pattern_that_matches_nothing(layers: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        ActivationCheckpointing(layers).on_fit_start(None, Classification(CNN()))  # type: ignore[arg-type]

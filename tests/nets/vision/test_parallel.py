"""Nets of images on several processes: sharded by their blocks, and ViTs split by layers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from playbook.parallel import spread
from playbook.testing.parallel import Case, assert_equal_to_one_process
from src.callbacks.activation_checkpointing import ActivationCheckpointing
from src.nets.vision.cnn import CNN
from src.nets.vision.resnet import ResNet
from src.nets.vision.resnet9 import ResNet9
from src.nets.vision.unet import UNet
from src.nets.vision.vit import ViT

pytestmark = [pytest.mark.slow, pytest.mark.process]
VIT: dict[str, Any] = {"dim": 16, "depth": 2}


def classify(net: nn.Module, share: int, shares: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    image, target = torch.randn(8, 1, 8, 8, generator=generator), torch.randint(10, (8,), generator=generator)
    logits = net(image.chunk(shares)[share])
    logits = logits.mean((2, 3)) if logits.ndim == 4 else logits
    return logits, cross_entropy(logits, target.chunk(shares)[share])


def recompute(net: nn.Module) -> None:
    ActivationCheckpointing().on_fit_start(None, nn.ModuleDict({"net": net}))  # type: ignore[arg-type]


CASES = {
    "vit": Case(lambda: ViT(**VIT), classify),
    "vit recomputed": Case(lambda: ViT(**VIT), classify, prepare=recompute),
    "vit rope": Case(lambda: ViT(**VIT, position="rope"), classify),
    "vit sincos": Case(lambda: ViT(**VIT, position="sincos"), classify),
    "cnn": Case(lambda: CNN(widths=[3, 4]), classify),  # do not divide by the number of processes
    "resnet": Case(lambda: ResNet(depth=20, in_channels=1), classify),
    "resnet9": Case(lambda: ResNet9(in_channels=1, width=3), classify),
    "unet": Case(lambda: UNet(10, widths=[3, 4], in_channels=1), classify),
}
REFUSED = {
    "tensor parallel": {
        "heads": lambda mesh: spread(ViT(num_heads=3, dim=12), mesh),
        "dropout": lambda mesh: spread(ViT(dropout=0.1), mesh),
        "cnn": lambda mesh: spread(CNN(), mesh),
    }
}
SPLIT_BY_LAYER = [name for name in CASES if name.startswith("vit")]


def test_fsdp2_equals_one_process(tmp_path: Path) -> None:
    assert_equal_to_one_process(__file__, "fsdp2", CASES, tmp_path)


def test_tensor_parallel_equals_one_process(tmp_path: Path) -> None:
    for messages in assert_equal_to_one_process(__file__, "tensor parallel", SPLIT_BY_LAYER, tmp_path):
        assert messages["heads"] == "num_heads: expected a multiple of tensor_parallel_size 2, got 3"
        assert messages["dropout"] == "dropout: expected 0 with tensor_parallel_size 2, got 0.1"
        assert messages["cnn"].startswith("tensor_parallel_size: CNN has no plan for splitting its layers")


def test_fsdp2_and_tensor_parallel_equal_one_process(tmp_path: Path) -> None:
    assert_equal_to_one_process(__file__, "both", SPLIT_BY_LAYER, tmp_path)

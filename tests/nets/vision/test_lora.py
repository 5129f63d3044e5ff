"""Adapters: what is trained, what a checkpoint holds, and that merged weights are the adapted model's."""

from copy import deepcopy

import pytest
import torch

from src.nets.lora import LoRA
from src.nets.vision.cnn import CNN

pytestmark = pytest.mark.slow  # peft takes 8 s of CPU to import


def disturbed(net: LoRA) -> LoRA:
    """As after some training: at initialisation an adapter changes nothing."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return net.eval()


def test_frozen_norms_keep_their_statistics() -> None:
    net = LoRA(CNN(widths=[4, 8]), rank=2, target_modules=["head.1"]).train()
    before = {name: value.clone() for name, value in net.net.named_buffers()}
    net(torch.randn(4, 1, 8, 8))
    assert all(torch.equal(value, before[name]) for name, value in net.net.named_buffers())


def test_convolutions_can_be_adapted() -> None:
    image = torch.randn(2, 1, 8, 8)
    base = CNN(widths=[4, 8]).eval()
    net = disturbed(LoRA(deepcopy(base), rank=2, target_modules=["stages.0.0", "stages.1.0"]))
    logits = net(image)
    assert (logits - base(image)).abs().max() > 1e-3
    base.load_state_dict(net.merged().state_dict())
    torch.testing.assert_close(base(image), logits, rtol=0, atol=1e-5)

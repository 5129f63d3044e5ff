"""Channels innermost: in weights and inputs, with the same results, and back afterwards."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

from playbook.testing.command import QUIET
from src.callbacks.channels_last import ChannelsLast


def is_channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def test_inputs_by_name_and_tensors_of_other_dimensions() -> None:
    class Named(nn.Module):
        def forward(self, image: Tensor, boxes: Tensor, count: int) -> tuple[bool, bool, int]:
            return is_channels_last(image), boxes.is_contiguous(), count

    net = Named()
    task = LightningModule()
    task.net = net
    callback = ChannelsLast()
    callback.setup(Trainer(**QUIET), task, "fit")
    image, boxes = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4)
    assert net(image, boxes=boxes, count=3) == net(image=image, boxes=boxes, count=3) == (True, True, 3)

"""Adapters: what is trained, what a checkpoint holds, and that merged weights are the adapted model's."""

from copy import deepcopy

import pytest
from torch import nn

from src.nets.lora import LoRA

pytestmark = pytest.mark.slow  # peft takes 8 s of CPU to import


def test_layers_that_torch_reads_past_are_refused() -> None:
    block = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 2))
    for name in ("linear1", "out_proj"):
        with pytest.raises(ValueError, match=r"in a block of torch\.nn|expected a linear layer"):
            LoRA(deepcopy(block), target_modules=[name])

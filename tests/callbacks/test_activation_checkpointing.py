"""Layers computed twice give bitwise the same weights, and keep less."""

from typing import Any

import pytest
from torch import Tensor, nn

from src.callbacks.activation_checkpointing import ActivationCheckpointing
from src.tasks.classification import Classification


class Nested(nn.Module):
    """Blocks in blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("layers", ["*blocks.*", "*blocks*", "net.blocks.[01]"])
def test_outermost_matches_that_are_called(layers: str) -> None:
    task: Any = Classification(Nested())
    assert list(ActivationCheckpointing(layers)._chosen(task)) == ["net.blocks.0", "net.blocks.1"]


def test_a_net_without_lists_of_layers() -> None:
    with pytest.raises(ValueError, match=r"^layers: no module is in a list of layers$"):
        ActivationCheckpointing().on_fit_start(None, nn.Linear(2, 2))  # type: ignore[arg-type]


def test_forward_of_the_instance_comes_back() -> None:
    task: Any = Classification(Nested())
    own = task.net.blocks[0].forward = lambda x: 2 * x
    callback = ActivationCheckpointing()
    callback.on_fit_start(None, task)  # type: ignore[arg-type]
    callback.teardown(None, task, "fit")  # type: ignore[arg-type]
    assert task.net.blocks[0].forward is own

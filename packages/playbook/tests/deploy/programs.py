"""A small program in each format, for tests."""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn


class Two(nn.Module):
    """Two inputs and two outputs, all different."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 2)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(left - 2 * right), right.sum(dim=1)


def write_program(kind: str, file: Path) -> None:
    """Exports the net with any batch size, in a format of `load_engine`."""
    net, example = Two().eval(), (torch.randn(2, 3), torch.randn(2, 3))
    batch = torch.export.Dim("B", min=1, max=1024)
    shapes = ({0: batch}, {0: batch})
    if kind == "torchscript":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.trace(net, example).save(str(file))  # type: ignore[union-attr]  # a module
        return
    if kind == "onnx":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                net, example, input_names=["left", "right"], output_names=["logits", "sums"], dynamic_shapes=shapes
            )
        assert program is not None
        program.save(file)
        return
    exported = torch.export.export(net, example, dynamic_shapes=shapes)
    if kind == "torch_export":
        torch.export.save(exported, file)
        return
    from torch import _inductor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _inductor.aoti_compile_and_package(exported, package_path=str(file))

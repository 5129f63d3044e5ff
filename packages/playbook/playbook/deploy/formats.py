"""The formats of exported programs: how each is written, and what it needs."""

import logging
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from playbook.deploy.opsets import LOWEST_TRANSLATED
from playbook.deploy.program import Program
from playbook.errors import UserError


@dataclass(frozen=True)
class Format:
    """A format.

    Args:
        file: name of the file in the artefact.
        write: writes the program to a file.
        packages: packages that writing and checking need.
        extra: the extra that installs them, or a command.
        is_bounded: whether memory is planned ahead, so that the largest batch must be known.
    """

    file: str
    write: Callable[[Program, Path], Any]
    packages: tuple[str, ...] = ()
    extra: str = ""
    is_bounded: bool = False

    def limited(self, program: Program) -> Program:
        """The program with the limits of the format: batches as large as those of the data, if it needs a limit."""
        if not self.is_bounded:
            return program
        largest = max(len(next(iter(inputs.values()))) for inputs in program.batches)
        # XNNPACK plans memory by the size that was traced, not by the limit
        return replace(program, limits={**program.limits, "B": (1, largest)}, traced_size=max(2, largest))

    def require(self, name: str) -> None:
        """Looks whether this machine can write the format.

        Raises:
            UserError: a package or a compiler is missing.
        """
        if missing := [package for package in self.packages if find_spec(package) is None]:
            raise UserError(f"--format {name}: needs {', '.join(missing)}: {self.extra}")
        if name == "aoti" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
            raise UserError("--format aoti: needs a C++ compiler, such as g++, which was not found")


class _InOrder(nn.Module):
    """The module of a program with its inputs in order: `forward` may have others between them."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.module = program.module
        self.names = list(program.shapes)
        self.eval()  # the older ONNX exporter traces all layers in the mode of the outermost module

    def forward(self, *values: Tensor) -> Any:
        return self.module(**dict(zip(self.names, values, strict=True)))


def exported(program: Program) -> Any:
    """The program as torch.export's graph.

    Raises:
        UserError: it cannot be traced.
    """
    if layer := recurrent_layer(program.module):
        raise UserError(f"torch.export unrolls {layer} to a fixed length; expected --format onnx or torchscript")
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(
                _InOrder(program),
                tuple(program.example.values()),
                dynamic_shapes=program.dynamic_shapes(),
                strict=False,
            )
    except UserError:
        raise
    except Exception as error:  # of dozens of kinds, by what the net does
        raise UserError(f"torch.export cannot trace {type(program.module).__name__}: {first_line(error)}") from error


def _torch_export(program: Program, file: Path) -> None:
    torch.export.save(exported(program), file)


def _aoti(program: Program, file: Path) -> None:
    from torch._inductor import aoti_compile_and_package

    graph = exported(program)
    with quiet(), torch.no_grad():
        aoti_compile_and_package(graph, package_path=str(file))


def write_onnx(program: Program, file: Path, opset: int | None = None) -> None:
    """Writes a program in ONNX.

    Args:
        program: to write.
        file: to which.
        opset: version of the operators. Defaults to the exporter's choice.

    Raises:
        UserError: it cannot be traced, or not be written with these operators.
    """
    options: dict[str, Any] = {"input_names": list(program.shapes), "output_names": program.outputs}
    is_old = opset is not None and opset < LOWEST_TRANSLATED
    if is_old or recurrent_layer(program.module):  # its layers are one node each in this older exporter
        shapes = {**program.shapes, **{name: ["B"] for name in program.outputs}}
        axes = {
            name: {k: size for k, size in enumerate(shape) if isinstance(size, str)} for name, shape in shapes.items()
        }
        example = tuple(program.example.values())
        try:
            with quiet(), torch.no_grad():
                options |= {"dynamo": False, "dynamic_axes": axes, "opset_version": opset or 17}
                torch.onnx.export(_InOrder(program), example, file, **options)
        except Exception as error:  # as in `exported`
            raise UserError(f"ONNX: {type(program.module).__name__} cannot be traced: {first_line(error)}") from error
        return
    graph = exported(program)
    try:
        with quiet():
            translated = torch.onnx.export(graph, dynamo=True, verbose=False, opset_version=opset, **options)
    except Exception as error:  # as in `exported`
        raise UserError(f"ONNX: {type(program.module).__name__} cannot be translated: {first_line(error)}") from error
    assert translated is not None
    model = translated.model_proto
    _name_dimensions(model, program)
    import onnx

    onnx.save(model, file)
    onnx.checker.check_model(str(file))


def _name_dimensions(model: Any, program: Program) -> None:
    """Dimensions that vary have our names; the exporter numbers some."""
    for value in model.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, program.shapes[value.name], strict=True):
            if isinstance(size, str):
                dimension.dim_param = size


def _torchscript(program: Program, file: Path) -> None:
    if any(type(module).__module__.startswith("transformers.") for module in program.module.modules()):
        raise UserError("models of transformers 5 cannot be traced by TorchScript; expected --format onnx")
    try:
        with quiet(), torch.no_grad():
            traced = torch.jit.trace(_InOrder(program), tuple(program.example.values()), check_trace=False)
            torch.jit.save(traced, file)
    except Exception as error:  # as in `exported`
        raise UserError(f"TorchScript cannot trace {type(program.module).__name__}: {first_line(error)}") from error


def _executorch(program: Program, file: Path) -> None:
    from executorch.exir import to_edge_transform_and_lower  # type: ignore[import-not-found]  # an optional package

    partitioners = []
    try:
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import (  # type: ignore[import-not-found]  # likewise
            XnnpackPartitioner,
        )

        partitioners = [XnnpackPartitioner()]
    except ImportError:  # built without: the portable kernels run
        pass
    lowered = to_edge_transform_and_lower(exported(program), partitioner=partitioners)
    file.write_bytes(lowered.to_executorch().buffer)


def recurrent_layer(module: nn.Module) -> str | None:
    """Name of the kind of recurrent layer in a module, or None."""
    return next((type(layer).__name__ for layer in module.modules() if isinstance(layer, nn.RNNBase)), None)


def first_line(error: BaseException) -> str:
    """What an error says, in one line of reasonable length."""
    if fixed := re.search(r"You marked (\w+) as dynamic but your code specialized it", str(error)):
        return f"its code fixes the size of {fixed[1]} that it was traced with; use x.shape[…], not len(x) or int(…)"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


@contextmanager
def quiet() -> Iterator[None]:
    """Hides warnings and progress of exporters; what matters is checked afterwards."""
    former = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(former)


FORMATS: dict[str, Format] = {
    "torch_export": Format("model.pt2", _torch_export),
    "aoti": Format("model.pt2", _aoti),
    "onnx": Format("model.onnx", write_onnx, ("onnx", "onnxscript", "onnxruntime"), "uv sync --extra deploy"),
    "torchscript": Format("model.ts", _torchscript),
    "executorch": Format("model.pte", _executorch, ("executorch",), "uv pip install executorch", is_bounded=True),
}

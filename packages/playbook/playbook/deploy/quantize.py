"""Quantization of ONNX programs to 8-bit integers, by ONNX Runtime."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from playbook.deploy.formats import quiet
from playbook.deploy.program import Inputs
from playbook.errors import UserError, nearest

KINDS = ("none", "int8-dynamic", "int8-static", "int8-weight")


def require_kind(kind: str, format_name: str) -> None:
    """Looks whether a format can be quantized so.

    Raises:
        UserError: the kind is unknown, or only exists in ONNX.
    """
    if kind not in KINDS:
        raise UserError(f"--quantize {kind}: expected one of {', '.join(KINDS)}{nearest(kind, KINDS)}")
    if kind != "none" and format_name != "onnx":
        raise UserError(f"--quantize {kind}: needs --format onnx, got {format_name}")


def quantize(batches: Sequence[Inputs], file: Path, kind: str) -> None:
    """Replaces the ONNX file of a program by one of 8-bit integers.

    Args:
        batches: which calibrate static quantization.
        file: the program in ONNX.
        kind: int8-static: weights and activations, whose ranges are measured once; int8-dynamic: weights, and
            activations by the range of each batch; int8-weight: only weights, which become floats again to compute.

    Raises:
        UserError: no layer can be quantized.
    """
    with tempfile.TemporaryDirectory() as name, quiet():
        folder = Path(name)
        source, target = folder / "source.onnx", folder / "target.onnx"
        shutil.copyfile(file, source)
        WAYS[kind](batches, source, target)
        if target.stat().st_size >= 0.95 * file.stat().st_size:
            raise UserError(f"--quantize {kind}: found no layer to quantize; expected convolutions or linear layers")
        shutil.move(target, file)


def _static(batches: Sequence[Inputs], source: Path, target: Path) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = source.with_name("prepared.onnx")
    quant_pre_process(source, prepared, skip_symbolic_shape=True)  # folds norms into convolutions
    quantize_static(
        prepared,
        target,
        _Batches(batches),  # type: ignore[arg-type]  # its class would be imported with this file
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        # on CPUs with VNNI, signed activations took three times as long (benchmarks/LOG.md)
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod.MinMax,
    )


def _dynamic(batches: Sequence[Inputs], source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # without the usual pre-processing, after which ONNX Runtime refuses the result
    stacked = _products_of_stacks(source)
    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=stacked)


def _products_of_stacks(source: Path) -> list[str]:
    """Names of products with a stack of matrices, as of an ensemble, which ONNX Runtime quantizes but does not run."""
    import onnx

    graph = onnx.load(source).graph
    stacks = {tensor.name for tensor in graph.initializer if len(tensor.dims) > 2}
    return [node.name for node in graph.node if node.op_type == "MatMul" and stacks & set(node.input)]


def _weight(batches: Sequence[Inputs], source: Path, target: Path) -> None:
    """Each large matrix of weights becomes bytes and a scale per output channel, and a node that multiplies them."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(source)
    nodes: list[Any] = []
    initializers = []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.ndim < 2 or values.size < 1024:
            initializers.append(tensor)
            continue
        axis = _channel_axis(model.graph, tensor.name)
        others = tuple(place for place in range(values.ndim) if place != axis)
        scale = np.maximum(np.abs(values).max(axis=others, keepdims=True), 1e-12).astype(np.float32) / 127
        codes = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
        names = [f"{tensor.name}.codes", f"{tensor.name}.scale"]
        initializers += [numpy_helper.from_array(codes, names[0]), numpy_helper.from_array(scale.ravel(), names[1])]
        nodes.append(helper.make_node("DequantizeLinear", names, [tensor.name], axis=axis))
    del model.graph.initializer[:]
    model.graph.initializer.extend(initializers)
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])
    onnx.save(model, target)


def _channel_axis(graph: Any, name: str) -> int:
    """The axis of output channels of a weight: the last of a matrix product, the first elsewhere."""
    for node in graph.node:
        if name in node.input:
            if node.op_type == "MatMul":
                return 1
            if node.op_type == "Gemm":
                is_transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
                return 0 if is_transposed else 1
            break
    return 0


class _Batches:
    """Inputs for calibration, one batch at a time."""

    def __init__(self, batches: Sequence[Inputs]) -> None:
        self.batches = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        inputs = next(self.batches, None)
        return None if inputs is None else {name: value.numpy() for name, value in inputs.items()}


WAYS = {"int8-static": _static, "int8-dynamic": _dynamic, "int8-weight": _weight}

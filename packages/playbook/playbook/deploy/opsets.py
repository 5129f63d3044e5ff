"""Which ONNX Runtime runs an ONNX file: by the version of its operators, and by that of the file format."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from playbook.errors import UserError

# opset → the first ONNX Runtime that loads it in a file of the format that it needs; all minor versions were tried from
# 1.15 on, the first for Python 3.11, which the artefact's own runtime needs
OLDEST_RUNTIMES = {19: "1.15", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23", 25: "1.24"}
LOWEST, HIGHEST = 9, 25  # that the exporters write
LOWEST_PER_CHANNEL = 13  # in which a scale may be of each channel
LOWEST_TRANSLATED = 18  # of the exporter that reads the graph of torch.export


def require_opset(opset: int | None, format_name: str | None, quantization: str) -> None:
    """Looks at the option before anything is exported.

    Raises:
        UserError: it is out of range, or does not go with another option.
    """
    if opset is None:
        return
    if format_name not in ("onnx", "all"):
        raise UserError(f"--opset {opset}: needs --format onnx, got {format_name or 'none'}")
    if not LOWEST <= opset <= HIGHEST:
        raise UserError(f"--opset {opset}: expected a number in [{LOWEST}, {HIGHEST}]")
    if quantization != "none" and opset < LOWEST_PER_CHANNEL:
        raise UserError(f"--opset {opset}: --quantize {quantization} needs at least {LOWEST_PER_CHANNEL}")


def finish(file: Path, names: list[str], opset: int | None) -> dict[str, Any]:
    """Writes the lowest version of the format that the operators need, and the names of classes, into an ONNX file.

    Args:
        file: which is replaced.
        names: of classes.
        opset: that was asked for; None for any.

    Returns:
        What runs it: `package`, the `oldest` version, `opset` and `ir_version`.

    Raises:
        UserError: it has another opset.
    """
    import onnx

    model = onnx.load(file)
    found = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset is not None and found != opset:
        raise UserError(f"--opset {opset}: this model cannot be written so, expected {found}")
    unused = {entry.domain for entry in model.opset_import} - _domains(model.graph) - {""}
    kept = [entry for entry in model.opset_import if entry.domain not in unused or model.functions]
    del model.opset_import[:]
    model.opset_import.extend(kept)  # of domains that quantization names and does not use, some need a newer format
    model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    if names:
        entry = model.metadata_props.add()
        entry.key, entry.value = "classes", json.dumps(names, ensure_ascii=False)
    onnx.save(model, file)
    return {
        "package": "onnxruntime",
        "oldest": minor(version("onnxruntime")) if _has_unproven(model.graph) else oldest_runtime(found),
        "opset": found,
        "ir_version": model.ir_version,
    }


def _has_unproven(graph: Any) -> bool:
    """Whether an operator is missing in some runtimes that load the file: 1.15 has no ConvInteger of int8."""
    return any(node.op_type == "ConvInteger" for node in graph.node)


def _domains(graph: Any) -> set[str]:
    """The domains of the operators of a graph, and of those within its nodes."""
    domains: set[str] = set()
    for node in graph.node:
        domains.add("" if node.domain == "ai.onnx" else node.domain)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                domains |= _domains(inner)
    return domains


def oldest_runtime(opset: int) -> str:
    """The first ONNX Runtime that loads an opset; the installed one where that is not known."""
    return next((first for last, first in OLDEST_RUNTIMES.items() if opset <= last), minor(version("onnxruntime")))


def runtime_of_torch() -> dict[str, Any]:
    """What runs a program of torch for certain: the version that wrote it, or a newer one."""
    return {"package": "torch", "oldest": minor(version("torch"))}


def minor(text: str) -> str:
    """A version without its patch."""
    return ".".join(text.split(".")[:2])


def in_words(runtime: Mapping[str, Any]) -> str:
    """What runs a program, for a README."""
    if runtime["package"] != "onnxruntime":
        return f"PyTorch {runtime['oldest']} or newer"
    return (
        f"ONNX Runtime {runtime['oldest']} or newer (opset {runtime['opset']}, IR version {runtime['ir_version']}; "
        "before 1.19 with NumPy below 2)"
    )

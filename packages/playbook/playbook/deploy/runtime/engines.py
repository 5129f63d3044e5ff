"""Engines: each runs a program in one file format, as a function from arrays by name to arrays by name."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
Engine = Callable[[Arrays], dict[str, np.ndarray]]


def load_engine(
    format: str,
    file: str | Path,
    num_threads: int | None = None,
    outputs: Sequence[str] = (),
) -> Engine:
    """Loads a program. The formats of torch contain code, so load only files that you trust.

    Args:
        format: onnx, torch_export, aoti, torchscript or executorch.
        file: the program.
        num_threads: of the CPU. Defaults to the engine's own choice. The engines of torch share one number.
        outputs: names of the outputs, in the program's order.

    Returns:
        A function of the inputs by name; the formats of torch take them in the order of the dict.

    Raises:
        ValueError: the format is unknown, its package is not installed, or the file is not such a program.
    """
    if format not in ENGINES:
        raise ValueError(f"format: expected one of {', '.join(ENGINES)}, got {format}")
    load, package = ENGINES[format]
    try:
        return load(Path(file), num_threads, list(outputs))
    except ImportError as error:
        raise ValueError(f"format {format}: needs the package {package}: {error}") from error
    except Exception as error:  # each library raises its own types
        text = " ".join(str(error).split())
        raise ValueError(f"{Path(file).as_posix()}: cannot be loaded as {format}: {text}") from error


def _onnx(file: Path, num_threads: int | None, outputs: list[str]) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors; it warns of every constant that it folds
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    available = onnxruntime.get_available_providers()
    providers = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in available]
    session = onnxruntime.InferenceSession(file.as_posix(), options, providers=providers)
    names = outputs or [output.name for output in session.get_outputs()]

    def run(inputs: Arrays) -> dict[str, np.ndarray]:
        values = session.run(names, {name: np.ascontiguousarray(value) for name, value in inputs.items()})
        return dict(zip(names, map(np.asarray, values), strict=True))

    return run


def _torch_export(file: Path, num_threads: int | None, outputs: list[str]) -> Engine:
    import torch

    return _of_torch(torch.export.load(file).module(), num_threads, outputs)


def _aoti(file: Path, num_threads: int | None, outputs: list[str]) -> Engine:
    import torch._inductor

    package = torch._inductor.aoti_load_package(file.as_posix())
    device = package.get_metadata().get("AOTI_DEVICE_KEY", "cpu")  # what it was compiled for
    return _of_torch(package, num_threads, outputs, device)


def _torchscript(file: Path, num_threads: int | None, outputs: list[str]) -> Engine:
    import torch

    with warnings.catch_warnings():  # deprecated in favour of torch.export, and kept for those who need C++ without it
        warnings.filterwarnings("ignore", message=".*torch.jit.* is deprecated.*")
        module = torch.jit.load(file.as_posix(), map_location="cpu")
    return _of_torch(module.eval(), num_threads, outputs)


def _of_torch(program: Any, num_threads: int | None, outputs: list[str], device: str = "cpu") -> Engine:
    import torch

    if num_threads is not None:
        torch.set_num_threads(num_threads)

    def run(inputs: Arrays) -> dict[str, np.ndarray]:
        # copied: torch warns of arrays that are read-only
        tensors = [torch.from_numpy(np.array(value)).to(device) for value in inputs.values()]
        with torch.inference_mode():
            return _named(program(*tensors), outputs)

    return run


def _executorch(file: Path, num_threads: int | None, outputs: list[str]) -> Engine:
    import torch
    from executorch.runtime import Runtime  # type: ignore[import-not-found]  # installed where such a program runs

    method = Runtime.get().load_program(file.as_posix()).load_method("forward")

    def run(inputs: Arrays) -> dict[str, np.ndarray]:
        return _named(method.execute([torch.from_numpy(np.array(value)) for value in inputs.values()]), outputs)

    return run


def _named(values: Any, outputs: list[str]) -> dict[str, np.ndarray]:
    """The outputs of a program of torch by name: a dict, several in order, or a single one."""
    if not isinstance(values, Mapping):
        values = list(values) if isinstance(values, list | tuple) else [values]
        names = outputs or [f"output_{number}" for number in range(len(values))]
        values = dict(zip(names, values, strict=True))
    return {name: _array(values[name]) for name in outputs or values}


def _array(tensor: Any) -> np.ndarray:
    tensor = tensor.detach().cpu()
    # NumPy has no bfloat16
    return (tensor.float() if tensor.is_floating_point() and tensor.element_size() == 2 else tensor).numpy()


ENGINES: dict[str, tuple[Callable[[Path, int | None, list[str]], Engine], str]] = {
    "onnx": (_onnx, "onnxruntime"),
    "torch_export": (_torch_export, "torch"),
    "aoti": (_aoti, "torch"),
    "torchscript": (_torchscript, "torch"),
    "executorch": (_executorch, "executorch"),
}

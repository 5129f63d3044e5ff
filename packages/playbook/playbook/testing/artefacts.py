"""Writes artefacts for tests: of a program file, or of any function in its place."""

import hashlib
import io
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from playbook.deploy.runtime import Artefact, artefact

Dims = Mapping[str, Sequence[int | None]]


def write_artefact(
    folder: Path,
    inputs: Mapping[str, tuple[str, list[Any]]],
    outputs: list[str],
    dims: Dims | None = None,
    file: str = "model.bin",
    **manifest: Any,
) -> Path:
    """Writes a manifest for the files in a folder.

    Args:
        folder: that may contain the program.
        inputs: type and shape by name.
        outputs: their names.
        dims: of the shapes.
        file: the program; written if it is missing.
        manifest: further entries.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / file).exists():
        (folder / file).write_bytes(b"a program")
    content = {
        "version": 1,
        "format": "onnx",
        "file": file,
        "inputs": [{"name": name, "dtype": kind, "shape": shape} for name, (kind, shape) in inputs.items()],
        "outputs": [{"name": name} for name in outputs],
        "dims": dims or {},
        "preprocessing": None,
        "postprocessing": None,
        "files": {file: {"sha256": hashlib.sha256((folder / file).read_bytes()).hexdigest()}},
        **manifest,
    }
    (folder / "artefact.json").write_text(json.dumps(content))
    return folder


def load_py(folder: Path, *files: Path) -> list[dict[str, Any]]:
    """What an artefact's load.py answers, in this process: a new one takes seconds to import what torch needs."""
    arguments = [str(path) for path in (folder / "load.py", *files)]
    printed, path = io.StringIO(), [str(folder), *sys.path]
    with redirect_stdout(printed), patch.object(sys, "argv", arguments), patch.object(sys, "path", path):
        runpy.run_path(arguments[0])
    return json.loads(printed.getvalue())


def artefact_of(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    engine: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    inputs: Mapping[str, tuple[str, list[Any]]],
    outputs: list[str],
    dims: Dims | None = None,
    **manifest: Any,
) -> Artefact:
    """An artefact whose program is a function."""
    monkeypatch.setattr(artefact, "load_engine", lambda *_, **__: engine)
    return Artefact(write_artefact(folder, inputs, outputs, dims, **manifest))

"""Writes an artefact: the folder of an exported model, which runs without this repository."""

import io
import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import playbook
from playbook.checkpoints.files import digest, replace
from playbook.deploy import runtime
from playbook.deploy.program import Program
from playbook.deploy.runtime.artefact import MANIFEST
from playbook.deploy.runtime.vocabularies import load_vocabulary
from playbook.deploy.table_rows import decoded_rows
from playbook.errors import UserError
from playbook.facts import abridged
from playbook.runs.directory import remove

PACKAGES = ("torch", "torchvision", "lightning", "onnx", "onnxruntime", "transformers", "tokenizers", "numpy")
LOAD = '''"""Answers the example, or the files that are named: python load.py [FILE …]"""

import json
import sys
from pathlib import Path

from runtime import Artefact

model = Artefact(Path(__file__).parent)
files = sys.argv[1:] or [model.folder / model.manifest["example"]["input"]]
answers = model.predict([source for file in files for source in model.sources(file)])
print(json.dumps(answers, indent=2, ensure_ascii=False, default=lambda array: array.tolist()))
'''


def require_empty(output: Path) -> None:
    """Looks whether an artefact may be written to a place.

    Raises:
        UserError: there is a file, or a folder that is not empty.
    """
    if output.is_file():
        raise UserError(f"--output {output.as_posix()}: is a file, expected a folder that is empty or does not exist")
    if output.is_dir() and any(output.iterdir()):
        raise UserError(
            f"--output {output.as_posix()}: is not empty; expected an empty or new folder, or delete it first"
        )


class Draft:
    """An artefact that is written beside its place, and appears there once it is whole.

    Args:
        output: the place.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(f".{output.name}.unfinished")

    def __enter__(self) -> "Draft":
        remove(self.folder)
        (self.folder / "example").mkdir(parents=True)
        return self

    def __exit__(self, *_: Any) -> None:
        remove(self.folder)

    def add_runtime(self) -> None:
        """Copies what loads the artefact."""
        source = Path(runtime.__file__).parent
        shutil.copytree(source, self.folder / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / "load.py").write_text(LOAD, encoding="utf-8")

    def write_manifest(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the manifest, and returns it with the size and checksum of the program."""
        file = self.folder / manifest["file"]
        files = {manifest["file"]: {"sha256": digest(file), "bytes": file.stat().st_size}}
        content = {**manifest, "files": files}
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        (self.folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
        return content

    def finish(self) -> None:
        """Puts the artefact in its place."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        replace(self.folder, self.output)


def describe(program: Program, data: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a manifest that says what goes in and out."""
    return {
        "inputs": [
            {"name": name, "dtype": str(value.numpy().dtype), "shape": program.shapes[name]}
            for name, value in program.example.items()
        ],
        "outputs": [
            {"name": name, "dtype": dtype, "shape": shape}
            for name, (dtype, shape) in zip(program.outputs, program.describe_outputs(), strict=True)
        ],
        "dims": {name: list(limits) for name, limits in program.limits.items()},
        **describe_data(data, program.task, facts),
        "facts": {name: value for name, value in abridged(facts).items() if name != "tokenizer"},
    }


def describe_data(data: Any, task: Any, facts: Mapping[str, Any]) -> dict[str, Any]:
    """How raw inputs become tensors, and outputs answers; None for what the data or the task do not say."""
    describe_reading = getattr(data, "preprocessing", None)
    describe_answers = getattr(task, "postprocessing", None)
    return {
        "preprocessing": describe_reading() if callable(describe_reading) else None,
        "postprocessing": describe_answers(facts) if callable(describe_answers) else None,
    }


def versions() -> dict[str, str]:
    """Versions of what the artefact was made with."""
    found = {"python": platform.python_version(), "playbook": playbook.__version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # an extra that was not needed
            continue
    return found


def example_sources(manifest: Mapping[str, Any], program: Program, count: int) -> list[Any]:
    """Raw inputs made of the first validation samples: PNGs, WAVs, texts, rows of a table, or else arrays by name.

    Args:
        manifest: with the preprocessing, which is undone.
        program: with the samples.
        count: largest number of inputs.
    """
    reading = manifest["preprocessing"] or {}
    batch = {name: value.numpy() for name, value in program.batches[0].items()}
    rows = [{name: value[row] for name, value in batch.items()} for row in range(min(count, len(_first(batch))))]
    if reading.get("kind") == "image":
        return [_png(_first(row), reading) for row in rows]
    if reading.get("kind") == "audio":
        return [_wav(row["audio"][: row["length"]], reading["sample_rate"]) for row in rows]
    if reading.get("kind") == "table":
        return decoded_rows({name: value[: len(rows)] for name, value in batch.items()}, reading)
    if reading.get("tokenizer"):
        vocabulary = load_vocabulary(reading["tokenizer"])
        texts = [vocabulary.decode(_shown(row)) for row in rows]
        return [text for text in texts if text.strip()] or rows
    return rows


def save_source(source: Any, folder: Path, columns: Sequence[str]) -> str:
    """Writes an example; returns its name.

    Args:
        source: bytes of a picture or a recording, a text, a row of a table, or arrays by name.
        folder: where it is written.
        columns: names of columns of texts.
    """
    if isinstance(source, bytes):
        name, content = "input.wav" if source.startswith(b"RIFF") else "input.png", source
    elif isinstance(source, str) and "\n" in source:  # each line of a .txt would be an input
        name, content = "input.jsonl", json.dumps({columns[0]: source}, ensure_ascii=False).encode()
    elif isinstance(source, str):
        name, content = "input.txt", source.encode()
    elif not isinstance(_first(source), np.ndarray):
        name, content = "input.jsonl", json.dumps(source, ensure_ascii=False).encode()
    else:
        buffer = io.BytesIO()
        if len(source) == 1:
            np.save(buffer, _first(source), allow_pickle=False)
        else:
            np.savez(buffer, **source)
        name, content = ("input.npy" if len(source) == 1 else "input.npz"), buffer.getvalue()
    (folder / name).write_bytes(content)
    return f"{folder.name}/{name}"


def _png(image: np.ndarray, reading: Mapping[str, Any]) -> bytes:
    """A picture (C, H, W) before it was normalised and scaled to [0, 1]; some data sets skip the latter."""
    for key, undo in (("deviation", np.multiply), ("mean", np.add)):
        if reading.get(key) is not None:
            image = undo(image, np.array(reading[key], np.float32).reshape(-1, 1, 1))
    is_scaled = any(key in step for step in reading.get("steps", ()) for key in ("multiply", "divide"))
    pixels = np.clip(np.rint(image * 255 if is_scaled else image), 0, 255).astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _wav(audio: np.ndarray, sample_rate: int) -> bytes:
    """A recording (T,) of floats, as they are."""
    import soundfile  # an extra

    buffer = io.BytesIO()
    soundfile.write(buffer, audio, sample_rate, subtype="FLOAT", format="WAV")
    return buffer.getvalue()


def _shown(row: Mapping[str, np.ndarray]) -> list[int]:
    tokens, mask = row["tokens"], row.get("mask")
    return tokens[:32].tolist() if mask is None else tokens[mask.astype(bool)].tolist()


def _first(arrays: Mapping[str, Any]) -> Any:
    return next(iter(arrays.values()))

"""An artefact: the folder of an exported model, with all that is needed to answer raw inputs."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from .answers import GapFiller, box_answer, class_answers, label_answers, mask_answer, value_answers
from .audio import AudioReader
from .engines import Engine, load_engine
from .errors import InputError, Sample, shorten
from .generation import RANGES, Generator
from .images import is_picture, read_image
from .inputs import array_of, check_inputs
from .rows import RowReader
from .texts import TextReader

VERSION = 1  # of the manifest
MANIFEST = "artefact.json"
OPTIONS = {  # by kind of the postprocessing
    "classes": ("top",),
    "labels": ("top", "score"),
    "boxes": ("score",),
    "generate": (*RANGES, "stop"),
}
POSTPROCESSING = (None, "classes", "labels", "values", "mask", "boxes", "generate", "gaps")
Kind = Literal["image", "audio", "text", "prompt", "row", "tensor"]
KINDS: dict[str | None, Kind] = {  # of an input, by kind of the preprocessing
    "image": "image",
    "audio": "audio",
    "text": "text",
    "masked_text": "text",
    "prompt": "prompt",
    "chat": "prompt",
    "table": "row",
    None: "tensor",
}


class Artefact:
    """An exported model: reads raw inputs, runs the program and answers as `python -m src predict` does.

    Args:
        folder: the artefact; load only those that you trust, as programs of torch contain code.
        num_threads: of the CPU, for the engine. Defaults to the engine's own choice.
        max_pixels: most pixels of a picture that are decoded; larger files of JPEG and JPEG 2000 are decoded at a half,
            a quarter or an eighth of their sides, others are refused. Defaults to 2²⁷.

    Attributes:
        manifest: content of artefact.json.
        kind: what an input is: image, audio, text, prompt, row or tensor.

    Raises:
        ValueError: the folder is no artefact, of another version, damaged, or needs a package that is not installed.
    """

    def __init__(self, folder: str | Path, num_threads: int | None = None, max_pixels: int | None = None) -> None:
        self.folder = Path(folder)
        self.max_pixels = max_pixels
        self.manifest = _read_manifest(self.folder)
        _check_files(self.folder, self.manifest["files"])
        self._inputs = {spec["name"]: spec for spec in self.manifest["inputs"]}
        names = [spec["name"] for spec in self.manifest["outputs"]]
        self._reading: dict[str, Any] = self.manifest.get("preprocessing") or {}
        self._answering: dict[str, Any] = self.manifest.get("postprocessing") or {}
        if self._reading.get("kind") not in KINDS:
            raise ValueError(f"{self.folder.as_posix()}: unknown preprocessing {self._reading['kind']!r}")
        if self._answering.get("kind") not in POSTPROCESSING:
            raise ValueError(f"{self.folder.as_posix()}: unknown postprocessing {self._answering['kind']!r}")
        self.kind: Kind = KINDS[self._reading.get("kind")]
        self._reader: TextReader | RowReader | AudioReader | None = None
        if self.kind in ("text", "prompt"):
            self._reader = TextReader(self._reading)
        elif self.kind == "row":
            self._reader = RowReader(self._reading)
        elif self.kind == "audio":
            self._reader = AudioReader(self._reading)
        self._generator = Generator(self._answering) if self._answering.get("kind") == "generate" else None
        self._gaps = GapFiller(self._answering) if self._answering.get("kind") == "gaps" else None
        file = self.folder / self.manifest["file"]
        try:
            self._engine: Engine = load_engine(self.manifest["format"], file, num_threads, names)
        except ValueError as error:
            raise ValueError(f"{error}{_needed(self.manifest.get('runtime') or {})}") from error

    def sources(self, file: str | Path) -> list[Any]:
        """The inputs in a file, as `predict --input` finds them: rows, texts, windows of a recording, or itself.

        Raises:
            InputError: the table or list is empty or cannot be read.
        """
        return [Path(file)] if self._reader is None else self._reader.sources(Path(file))

    def read(self, source: Any) -> Sample:
        """Reads one raw input, exactly as evaluation prepares it.

        Args:
            source: path or bytes of a file; a picture of Pillow; a text; a row of a table, as a dict; or, for every
                model, the prepared inputs without the dimension B: a dict of arrays by name, or an array or nested list
                if there is one input. A str is a text for a model of texts, and a path for others.

        Raises:
            InputError: it cannot be used.
        """
        if isinstance(source, Sample):
            return source
        if self._are_arrays(source):
            return self._read_arrays(source)
        if self._reader is not None:
            sample = self._reader(source)
            if self.kind in ("row", "audio"):
                self._check({name: value[None] for name, value in sample.inputs.items()}, is_batch=False)
            return sample
        if isinstance(source, bytearray | memoryview):
            source = bytes(source)
        if not isinstance(source, str | bytes | Path) and not (self.kind == "image" and is_picture(source)):
            raise InputError(f"expected a file, its bytes or arrays, got {shorten(source)}")
        if self.kind == "image":
            sample = read_image(source, self._reading, next(iter(self._inputs)), self.max_pixels)
            self._check({name: value[None] for name, value in sample.inputs.items()}, is_batch=False)
            return sample
        return self._read_arrays(_load_arrays(source))

    def predict(self, sources: Any, **options: Any) -> list[dict[str, Any]]:
        """Answers raw inputs, as `read` takes them: one answer for each, in a list.

        Args:
            sources: one input, or a list or other iterable of them. A str, bytes, a Path, a picture of Pillow, a dict
                and a Sample are one; an array or nested list of numbers is one, or several along a dimension more.
            options: `top` of a classifier; `score` of a detector; `max_new_tokens`, `temperature`, `top_k`, `top_p`,
                `min_p`, `stop` and `seed` of a language model.

        Raises:
            InputError: an input cannot be used, or an option is unknown or out of range.
        """
        return self.answer_samples([self.read(source) for source in self._several(sources)], **options)

    def answer_samples(self, samples: Sequence[Sample], **options: Any) -> list[dict[str, Any]]:
        """Answers samples that `read` has returned, in batches as large as the program takes.

        Args:
            samples: in any number, and of different sizes.
            options: as for `predict`.

        Raises:
            InputError: a sample does not fit the program, or an option is unknown or out of range.
        """
        self._check_options(options)
        if self._generator is not None:
            return self._generate(samples, options)
        if self._gaps is not None:
            samples = [self._gaps.with_gaps(sample) for sample in samples]
        answers: list[dict[str, Any]] = [{} for _ in samples]
        for indices in self._batches(samples):
            own = [samples[index] for index in indices]
            outputs = self._run_batch(_stacked(own))
            for index, answer in zip(indices, self._answers(outputs, own, options), strict=True):
                answers[index] = answer
        return answers

    def stream(self, sample: Sample, **options: Any) -> Iterator[str]:
        """Generates text after a prompt, and yields its parts as soon as they are certain.

        Args:
            sample: returned by `read`.
            options: as for `predict`.

        Raises:
            InputError: the model generates no text, or as for `answer_samples`.
        """
        self._check_options(options)
        if self._generator is None:
            raise InputError("the model generates no text, so there is nothing to stream")
        return self._generator.stream(self._forward, sample.inputs["tokens"].tolist(), options)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs the program on a batch.

        Args:
            inputs: arrays by name, with the dimension B.

        Raises:
            InputError: a name, type, shape or value is not what the program was exported for.
        """
        return self._engine(self._check(inputs))

    def _check(self, inputs: Mapping[str, np.ndarray], is_batch: bool = True) -> dict[str, np.ndarray]:
        return check_inputs(inputs, self._inputs, self.manifest["dims"], is_batch)

    def _check_options(self, options: Mapping[str, Any]) -> None:
        known = OPTIONS.get(self._answering.get("kind", ""), ())
        for name in options:
            if name not in known:
                raise InputError(f"{name}: unknown option; expected {', '.join(known) or 'none, this model has none'}")

    # reading

    def _several(self, sources: Any) -> Iterable[Any]:
        """The inputs in what `predict` was given."""
        is_one = isinstance(sources, str | bytes | bytearray | memoryview | Path | Mapping | Sample | int | float)
        if is_one or is_picture(sources) or sources is None or hasattr(sources, "read"):
            return [sources]
        if isinstance(sources, np.ndarray | list | tuple) and len(self._inputs) == 1:
            [spec] = self._inputs.values()
            if _depth(sources) == len(spec["shape"]) - 1:
                return [sources]
        if isinstance(sources, Iterable):
            return sources
        raise InputError(f"expected an input or a list of them, got {shorten(sources)}")

    def _are_arrays(self, source: Any) -> bool:
        if isinstance(source, Mapping):
            # columns of a table may have the names of inputs, but no arrays
            single = str | int | float | None if self.kind == "row" else str
            return set(source) == set(self._inputs) and not any(isinstance(value, single) for value in source.values())
        return isinstance(source, np.ndarray | list | tuple | int | float)

    def _read_arrays(self, source: Any) -> Sample:
        if not isinstance(source, Mapping):
            if len(self._inputs) != 1:
                raise InputError(f"expected arrays by name for {', '.join(self._inputs)}, got one without a name")
            source = {next(iter(self._inputs)): source}
        arrays = {name: array_of(value, self._inputs[name]) for name, value in source.items() if name in self._inputs}
        unknown = {name: np.asarray(0) for name in source if name not in self._inputs}
        batch = self._check({name: value[None] for name, value in arrays.items()} | unknown, is_batch=False)
        return Sample({name: value[0] for name, value in batch.items()})

    # running

    def _batches(self, samples: Sequence[Sample]) -> Iterator[list[int]]:
        """Numbers of samples that run together: texts of any lengths, others of one shape."""
        groups: dict[Any, list[int]] = {}
        for index, sample in enumerate(samples):
            shapes = tuple((name, value.shape) for name, value in sample.inputs.items())
            groups.setdefault("texts" if self.kind == "text" else shapes, []).append(index)
        for indices in groups.values():
            largest = self._limits("B")[1] or len(indices)
            for start in range(0, len(indices), largest):
                yield indices[start : start + largest]

    def _limits(self, which: Literal["B", "T"]) -> tuple[int, int | None]:
        """Smallest and largest batch, or length of a row of tokens, that the program takes."""
        shape = next(iter(self._inputs.values()))["shape"]
        size = shape[0 if which == "B" else 1]
        if isinstance(size, int):
            return size, size
        low, high = self.manifest["dims"].get(size, (1, None))[:2]
        return low or 1, high

    def _run_batch(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a batch; what the program needs to have more of is added, and removed from the outputs."""
        size = len(next(iter(batch.values())))
        lacking = self._limits("B")[0] - size
        if lacking > 0:
            batch = {name: np.concatenate([value, *[value[-1:]] * lacking]) for name, value in batch.items()}
        if self.kind == "text":  # the mask tells the program which tokens are padding
            length = max(self._limits("T")[0] - batch["tokens"].shape[1], 0)
            batch = {name: np.pad(value, ((0, 0), (0, length))) for name, value in batch.items()}
        return {name: value[:size] for name, value in self.run(batch).items()}

    def _answers(
        self, outputs: Mapping[str, np.ndarray], samples: Sequence[Sample], options: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        plan, kind = self._answering, self._answering.get("kind")
        if kind == "classes":
            return class_answers(outputs["logits"], plan["names"], options.get("top", plan.get("top", 5)))
        if kind == "labels":
            score = options.get("score", plan["threshold"])
            return label_answers(outputs["logits"], plan["names"], score, options.get("top", plan["top"]))
        if kind == "values":
            return value_answers(outputs)
        if kind == "boxes":
            score = options.get("score", plan.get("score", 0.25))
            return [
                box_answer(boxes, scores, sample, plan, score)
                for boxes, scores, sample in zip(outputs["boxes"], outputs["scores"], samples, strict=True)
            ]
        if kind == "mask":
            pairs = zip(outputs["logits"], samples, strict=True)
            return [mask_answer(logits, plan["names"], sample.decoded or sample.size) for logits, sample in pairs]
        if self._gaps is not None:
            pairs = zip(outputs["logits"], samples, strict=True)
            return [self._gaps.answer(logits, sample) for logits, sample in pairs]
        return [{name: value[index] for name, value in outputs.items()} for index in range(len(samples))]

    def _generate(self, samples: Sequence[Sample], options: Mapping[str, Any]) -> list[dict[str, Any]]:
        assert self._generator is not None, "asked before"
        prompts = [sample.inputs["tokens"].tolist() for sample in samples]
        # without `documents`, the program cannot know padding from tokens
        largest = (self._limits("B")[1] or len(prompts)) if "documents" in self._inputs else 1
        answers = []
        for start in range(0, len(prompts), largest or 1):
            answers += self._generator.answers(self._forward, prompts[start : start + largest], options)
        return answers

    def _forward(self, rows: dict[str, np.ndarray]) -> np.ndarray:
        """Logits (B, T, V) of tokens (B, T); short rows are padded on the left where the program needs longer ones."""
        if "documents" in self._inputs:
            lacking = max(self._limits("T")[0] - rows["tokens"].shape[1], 0)
            fill = {"tokens": 0, "documents": -1, "positions": 0}
            rows = {
                name: np.pad(value, ((0, 0), (lacking, 0)), constant_values=fill[name]) for name, value in rows.items()
            }
        return self._run_batch({name: rows[name] for name in self._inputs if name in rows})["logits"]


def _depth(source: Any) -> int | None:
    """Number of dimensions of numbers: an array's, or that of nested lists; None of anything else."""
    if isinstance(source, np.ndarray | np.generic):
        return source.ndim
    if isinstance(source, list | tuple):
        inner = _depth(source[0]) if len(source) else None
        return None if inner is None else 1 + inner
    return 0 if isinstance(source, int | float) else None


def _stacked(samples: Sequence[Sample]) -> dict[str, np.ndarray]:
    """Inputs (B, …) of samples; rows of different lengths are padded with zeros behind them."""
    batch = {}
    for name in samples[0].inputs:
        values = [sample.inputs[name] for sample in samples]
        if values[0].ndim == 1:
            longest = max(map(len, values))
            values = [np.pad(value, (0, longest - len(value))) for value in values]
        batch[name] = np.stack(values)
    return batch


def _load_arrays(source: str | bytes | Path) -> Any:
    """Content of a .npy, a .npz or a JSON file."""
    try:
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"{Path(str(source)).as_posix()}: {error.strerror or error}") from error
    try:
        if content[:6] == b"\x93NUMPY":
            return np.load(io.BytesIO(content), allow_pickle=False)
        if content[:2] == b"PK":
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays)
        return json.loads(content)
    except (ValueError, OSError, EOFError, RecursionError, zipfile.BadZipFile, zipfile.LargeZipFile) as error:
        raise InputError(f"expected a .npy, a .npz or JSON: {error}") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    place = folder / MANIFEST
    try:
        manifest = json.loads(place.read_bytes())
    except OSError as error:
        raise ValueError(f"{place.as_posix()}: {error.strerror}; expected the folder of an exported model") from error
    except ValueError as error:
        raise ValueError(f"{place.as_posix()}: is not valid JSON: {error}") from error
    written = manifest.get("version") if isinstance(manifest, dict) else None
    if written is None:
        raise ValueError(f"{place.as_posix()}: has no version; expected the manifest of an exported model")
    if written != VERSION:
        raise ValueError(
            f"{place.as_posix()}: has version {written}, this runtime reads {VERSION}; use the runtime in "
            "the artefact's folder, or export again"
        )
    if missing := [key for key in ("format", "file", "inputs", "outputs", "dims", "files") if key not in manifest]:
        raise ValueError(f"{place.as_posix()}: lacks {', '.join(missing)}")
    if manifest["file"] not in manifest["files"]:
        raise ValueError(f"{place.as_posix()}: has no checksum of {manifest['file']}")
    return manifest


def _needed(runtime: Mapping[str, Any]) -> str:
    """What to install where an older runtime is; empty where it should do."""
    try:
        installed = version(runtime["package"])
        numbers = [tuple(map(int, text.split(".")[:2])) for text in (installed, runtime["oldest"])]
    except (KeyError, ValueError, PackageNotFoundError):
        return ""
    if numbers[0] >= numbers[1]:
        return ""
    return f"; it needs {runtime['package']} {runtime['oldest']} or newer, {installed} is installed"


def _check_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuses files that are not those of the export, before anything in them runs."""
    for name, about in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{folder.as_posix()}: {name} lies outside of the folder")
        try:
            with (folder / name).open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ValueError(f"{(folder / name).as_posix()}: {error.strerror}") from error
        if checksum != about["sha256"]:
            raise ValueError(f"{(folder / name).as_posix()}: is damaged: its SHA-256 differs from the manifest's")

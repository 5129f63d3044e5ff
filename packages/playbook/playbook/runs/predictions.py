"""Writes the results of `predict` into a readable table."""

import json
import os
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path, PurePath
from typing import Any, TextIO, cast

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from playbook.batches import num_samples
from playbook.errors import UserError, nearest
from playbook.facts import abridged
from playbook.processes import gathered, shard_of
from playbook.runs.colours import mask_image
from playbook.runs.directory import write_atomically
from playbook.runs.outputs import line_of, plain, rows_of
from playbook.runs.table import Rows, cut_to_whole_lines, write_table

PARTIAL = "partial"  # in names of files that are not finished
RESULTS = "coco-results.json"
ABOUT = "about.json"  # what was predicted, by which checkpoint, and what that knows of its data
JPEG = (".jpg", ".jpeg")


class WritePredictions(Callback):
    """Writes one table per loader, with an id and a row for every sample (always on).

    Rows are the task's answers if it has a method `answer`, otherwise the outputs of predict_step: a tensor (B,)
    becomes a column, a tensor (B, K) K columns, and a dict names them. Integer tensors (H, W), such as masks, become
    PNG files in a folder of their name, and the column contains the file names. Until the table is complete, its rows
    are kept in `predictions.partial.jsonl`, one line each.

    Args:
        folder: where `predictions.csv` is written; `predictions-1.csv` and so on for further loaders.
        kind: csv, parquet or jsonl. Defaults to CSV if every value fits into a cell, and to JSON lines otherwise.
        options: arguments of the task's method `answer`.
        draw: whether to write a picture of each answer to the folder `drawn`.
        data: data module that names the samples and reads the pictures to draw on, or None.
        request: what is predicted, in plain values; an interrupted table of the same request is continued.
        num_shown: largest number of answers to print as well.
        places: path of each sample; if a file has changed, all rows are predicted again.
    """

    def __init__(
        self,
        folder: Path,
        kind: str | None = None,
        options: Mapping[str, Any] | None = None,
        draw: bool = False,
        data: Any = None,
        request: Mapping[str, Any] | None = None,
        num_shown: int = 0,
        places: Sequence[Any] = (),
    ) -> None:
        self.folder = folder
        self.kind = kind
        self.options = dict(options or {})
        self.draw = draw
        self.data = data
        self.num_shown = num_shown
        self.places = places
        self.request = json.loads(json.dumps(dict(request or {})))
        self.files: list[Path] = []
        self.facts: dict[str, Any] = {}  # of the training data
        self._num_rows = 0
        self._lines: list[str] = []  # of the answers, if they are few
        self._file: TextIO | None = None
        self._parts: list[Path] = []  # of this process, one a loader
        self._loader = -1
        self._next = 0
        self._is_resumed = False
        self._names: Sequence[str] | None = None
        self._paths: dict[str, str] = {}  # of what belongs to a sample, by its id

    @property
    def _record(self) -> Path:
        return self.folder / f"predictions.{PARTIAL}.json"

    def resume(self) -> set[int]:
        """Samples that an interrupted `predict` of the same request has written; rows of other requests are deleted."""
        self._is_resumed = True
        try:
            same = json.loads(self._record.read_text(encoding="utf-8")) == self.request
        except (OSError, ValueError):
            same = False
        if not same or not self.request:
            self.discard()
            return set()
        parts = sorted(self.folder.glob(f"predictions*.{PARTIAL}.jsonl"))
        for part in parts:
            cut_to_whole_lines(part)
        rows = Rows(parts)
        if any(entry.get("stamp") != self._stamp(entry["index"]) for entry in rows.entries()):
            print("starting from the beginning, as files have changed", flush=True)
            self.discard()
            return set()
        return rows.indices()

    def _stamp(self, place: int) -> list[int] | None:
        """Size and time of change of a sample's file, or a checksum of its row."""
        source = self.places[place] if place < len(self.places) else None
        if isinstance(source, str | dict):
            return [zlib.crc32(json.dumps(source, default=str).encode())]
        if not isinstance(source, Path) or not source.exists():
            return None
        state = source.stat()
        return [state.st_size, state.st_mtime_ns]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.folder = trainer.strategy.broadcast(self.folder)  # only the first process may know it
        keep = getattr(trainer, "keep_facts", None)
        self.facts = keep.facts if keep else self.facts
        if stage == "predict":
            require_answer(pl_module, self.options, self.draw)
            if trainer.is_global_zero and not self._is_resumed:
                self.discard()

    def on_predict_batch_end(
        self,
        trainer: Any,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        shard, num_shards = shard_of(trainer)
        if trainer.global_rank != shard * (trainer.world_size // num_shards):
            return  # processes of a tensor-parallel group have the same outputs
        if dataloader_idx != self._loader:
            self._close()
            self._loader, self._next = dataloader_idx, 0
        loaders = getattr(trainer, "predict_dataloaders", None)
        loader = loaders[dataloader_idx] if isinstance(loaders, list | tuple) else loaders
        answers = self._answers(pl_module, outputs)
        loaded = getattr(loader, "indices", None)  # which samples, if the loader is one of Playbook's
        places = loaded.popleft() if loaded else []
        if not answers:
            return
        if self._file is None:
            self._open(trainer, loader)
        is_row_a_sample = len(answers) == (len(places) or num_samples(batch))  # or a row a batch
        if not is_row_a_sample or not places:
            places = [(self._next + i) * num_shards + shard for i in range(len(answers))]
        self._next += len(answers)
        names = [str(self._names[place]) if self._names and is_row_a_sample else place for place in places]
        results = self._results(pl_module, outputs, names)
        for number, (place, name, answer) in enumerate(zip(places, names, answers, strict=True)):
            if self.draw:
                self._draw(pl_module, loader, batch, number, place, name, answer)
            entry = {"index": place, "id": name, "row": self._about(place) | self._with_files(answer, name)}
            if self.places:
                entry["stamp"] = self._stamp(place)
            if results is not None:
                entry["results"] = results[number]
            assert self._file is not None
            self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        assert self._file is not None
        self._file.flush()  # what a kill leaves

    def _about(self, place: int) -> dict[str, Any]:
        """What the data says of an input."""
        own: Callable[[Any], dict[str, Any]] | None = getattr(self.data, "about", None)
        return own(self.places[place]) if own is not None and place < len(self.places) else {}

    def _answers(self, pl_module: Any, outputs: Any) -> list[dict[str, Any]]:
        if answers_itself(pl_module) and outputs is not None:
            return [dict(answer) for answer in pl_module.answer(outputs, self.facts, **self.options)]
        return rows_of(outputs)

    def _results(self, pl_module: Any, outputs: Any, names: list[Any]) -> list[list[dict[str, Any]]] | None:
        """Entries of the results file of public evaluation tools, if the task knows one."""
        own: Callable[..., Any] | None = getattr(pl_module, "results", None)
        return own(outputs, self.facts, [str(name) for name in names]) if callable(own) else None

    def _open(self, trainer: Any, loader: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # which samples have a row is known where one loader says which it loaded
        if trainer.is_global_zero and hasattr(getattr(trainer, "predict_dataloaders", None), "indices"):
            write_atomically(self._record, json.dumps(self.request) + "\n")
        rank = f"-rank{shard_of(trainer)[0]}" if trainer.world_size > 1 else ""
        part = self.folder / f"{self._stem(self._loader)}{rank}.{PARTIAL}.jsonl"
        self._parts.append(part)
        self._file = part.open("a", encoding="utf-8")
        dataset = getattr(loader, "samples", getattr(loader, "dataset", None))
        name_samples = getattr(self.data, "ids", None)
        self._names = getattr(dataset, "names", None)  # of `predict --input`
        if self._names is None and callable(name_samples) and hasattr(dataset, "__len__"):
            self._names = cast("Sequence[str] | None", name_samples(dataset))
        self._paths = paths_below(map(str, self._names or []))

    def _stem(self, loader: int) -> str:
        return f"predictions-{loader}" if loader else "predictions"

    def _with_files(self, answer: dict[str, Any], name: Any) -> dict[str, Any]:
        """The row of an answer, with masks in files."""
        row = {}
        for key, value in answer.items():
            if isinstance(value, Tensor) and value.ndim == 2 and not value.is_floating_point():
                folder = f"{key}-{self._loader}" if self._loader else key
                file = self.folder / folder / f"{self._file_name(name)}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                mask_image(value.cpu().numpy()).save(file)
                row[key] = file.relative_to(self.folder).as_posix()
            else:
                row[key] = plain(value)
        return row

    def _file_name(self, name: Any) -> str:
        """A path for what belongs to a sample, below the folder."""
        return f"{name:06}" if isinstance(name, int) else self._paths[name]

    def _draw(
        self, pl_module: Any, loader: Any, batch: Any, number: int, place: int, name: Any, answer: dict[str, Any]
    ) -> None:
        dataset = getattr(loader, "samples", getattr(loader, "dataset", None))
        picture = pl_module.draw(canvas(self.data, dataset, place, inputs_of(batch, number)), answer)
        suffix = PurePath(str(name)).suffix.lower()
        file = self.folder / "drawn" / f"{self._file_name(name)}{suffix if suffix in JPEG else '.png'}"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture.save(file, quality=92)

    def on_predict_end(self, trainer: Any, pl_module: LightningModule) -> None:
        self._close()
        if trainer.world_size > 1:
            gathered(trainer, self._parts)  # until all processes have written theirs
        if trainer.is_global_zero:
            self.finish()

    def finish(self) -> None:
        """Makes tables of the rows, and removes what is not needed any more."""
        parts = sorted(self.folder.glob(f"predictions*.{PARTIAL}.jsonl"))
        stems: dict[str, list[Path]] = {}
        for part in parts:
            stems.setdefault(part.name.removesuffix(f".{PARTIAL}.jsonl").partition("-rank")[0], []).append(part)
        for stem, own in sorted(stems.items(), key=lambda entry: (len(entry[0]), entry[0])):  # loader by loader
            rows = Rows(own)
            self._num_rows += len(rows)
            if self._num_rows <= self.num_shown:
                self._lines += [line_of(row) for row in rows]
            self.files.append(write_table(rows, self.folder / stem, self.kind))
            if "results" in next(rows.entries(), {}):  # all rows have them, or none
                self.files.append(_write_results(rows, self.folder / RESULTS))
        if self.request and parts:
            about = {**self.request, "rows": self._num_rows, "facts": abridged(self.facts)}
            write_atomically(self.folder / ABOUT, json.dumps(about, indent=2, ensure_ascii=False) + "\n")
        for leftover in [*parts, self._record]:
            leftover.unlink(missing_ok=True)

    def discard(self) -> None:
        """Deletes rows that cannot be added to."""
        for leftover in [*self.folder.glob(f"predictions*.{PARTIAL}.jsonl"), self._record]:
            leftover.unlink(missing_ok=True)

    def tell(self) -> None:
        """Prints a few answers, and which files there are.

        Raises:
            UserError: there was nothing to write.
        """
        if not self.files:  # nothing was left to predict
            self.finish()
        if not self.files:
            raise UserError("model: predict_step returned nothing to write")
        if self._num_rows <= self.num_shown:
            print("".join(f"{line}\n" for line in self._lines), end="")
        print("\n".join(f"predictions  {file.as_posix()}" for file in self.files))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()
        if not trainer.is_global_zero or not self._parts:
            return
        num_rows = len(Rows([part for part in self._parts if part.exists()]))
        again = "repeat the command to continue" if self.request and self._record.exists() else "they will be replaced"
        print(f"\nkept  {num_rows:,} rows in {self._parts[-1].as_posix()}; {again}", file=sys.stderr)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def canvas(data: Any, dataset: Any, place: int, inputs: Any) -> Any:
    """What `draw` paints on: the picture in the file of a sample, or else its inputs.

    Args:
        data: data module, whose `picture` reads a file.
        dataset: whose `places` or `files` list the files.
        place: number of the sample in it.
        inputs: of the sample.
    """
    source = getattr(dataset, "places", getattr(dataset, "files", ()))
    read = getattr(data, "picture", None)
    return inputs if read is None or not len(source) else read(source[place])


def inputs_of(batch: Any, number: int) -> Any:
    """The inputs of a sample; of named inputs, with what else the batch has by name, such as units."""
    inputs = batch[0] if isinstance(batch, list | tuple) else batch
    if not isinstance(inputs, Mapping):
        return inputs[number]
    about = next((part for part in batch[1:] if isinstance(part, Mapping)), {}) if inputs is not batch else {}
    return {name: value[number] for name, value in {**inputs, **about}.items()}


def _stem_of(name: str) -> str:
    """A path without its suffix."""
    path = PurePath(name)
    return (path.with_suffix("") if path.name else path).as_posix()


def paths_below(names: Iterable[str]) -> dict[str, str]:
    """A path below a folder for each id, another one for every other id, also where a file system ignores case.

    It is the id without its suffix, or with it where several ids differ in their suffix alone.
    """
    whole = {name: _inside(name) for name in names}
    stems = Counter(_stem_of(path).casefold() for path in whole.values())
    paths: dict[str, str] = {}
    taken: set[str] = set()
    for name, path in whole.items():
        stem = _stem_of(path)
        wanted = chosen = stem if stems[stem.casefold()] == 1 else path
        number = 1
        while chosen.casefold() in taken:
            number += 1
            chosen = f"{wanted}-{number}"
        taken.add(chosen.casefold())
        paths[name] = chosen
    return paths


def _inside(name: str) -> str:
    """The path of an id without what leads out of a folder."""
    path = PurePath(name)
    inner = "/".join(part for part in path.parts if part not in ("..", "/", path.anchor)) or "input"
    return inner.replace(":", "-") if os.name == "nt" else inner


def make_folder(folder: Path) -> None:
    """Makes the folder of the results.

    Raises:
        UserError: it cannot be created, or nothing can be written to it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"--output {folder.as_posix()}: cannot be written to: {error.strerror or error}") from error


def unused_folder(folder: Path, source: str) -> Path:
    """The folder, or one with a number behind its name where it holds predictions of another input.

    Args:
        folder: where they would be written.
        source: the input's absolute path.
    """
    number, wanted = 1, folder
    while True:
        records = [wanted / ABOUT, wanted / f"predictions.{PARTIAL}.json"]
        inputs = {json.loads(record.read_text(encoding="utf-8")).get("input") for record in records if record.exists()}
        if inputs <= {source} and not wanted.is_file():
            return wanted
        number += 1
        wanted = folder.with_name(f"{folder.name}-{number}")


def answers_itself(module: Any) -> bool:
    """Whether a module turns its outputs into answers."""
    return callable(getattr(module, "answer", None))


def require_answer(module: Any, options: Mapping[str, Any], draw: bool) -> None:
    """Refuses options that the task's method `answer` does not have.

    Raises:
        UserError: an option, or --draw, is not supported.
    """
    name = type(module).__name__
    parameters = list(signature(module.answer).parameters) if answers_itself(module) else []
    known = [f"--{parameter}" for parameter in parameters[2:]]  # behind outputs and facts
    for option in options:
        if f"--{option}" not in known:
            takes = f"{name}.answer takes {', '.join(known)}" if known else f"{name} has no such option"
            raise UserError(f"--{option}: {takes}{nearest(f'--{option}', known)}")
    if draw and not callable(getattr(module, "draw", None)):
        raise UserError(f"--draw: {name} has no method draw(inputs, answer) that draws a picture of an answer")


def _write_results(rows: Rows, file: Path) -> Path:
    beside = file.with_name(f".{file.name}")
    with beside.open("w", encoding="utf-8") as lines:
        lines.write("[")
        separator = ""
        for entry in rows.entries():
            for result in entry.get("results", []):
                lines.write(separator + json.dumps(result))
                separator = ",\n"
        lines.write("]\n")
    beside.replace(file)
    return file

"""Writes what `predict` returns into a table that a person can open."""

import csv
import json
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from PIL import Image
from torch import Tensor

from playbook.processes import gathered, shard_of


class WritePredictions(Callback):
    """One CSV a loader with an id and a row for every sample, or JSON lines where outputs are no columns (always on).

    A tensor (B,) becomes a column, a tensor (B, K) K columns; a dict names them. Integers (B, H, W) by name, as masks
    are, become PNG files in a folder of that name, and the column says which. The id is the sample's place in the data
    set. The file appears under its name when it is whole; what several processes wrote is put together.

    Args:
        folder: where `predictions.csv` is written; `predictions-1.csv` and so on for further loaders.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []
        self._file: TextIO | None = None
        self._loader = -1
        self._next_id = 0
        self._columns: list[str] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.folder = trainer.strategy.broadcast(self.folder)  # only the first process may know it

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        shard, num_shards = shard_of(trainer)
        if trainer.global_rank != shard * (trainer.world_size // num_shards):
            return  # processes of a tensor-parallel group have the same outputs
        first = self._next_id if dataloader_idx == self._loader else 0
        rows = _rows(
            _drawn(outputs, self.folder, f"-{dataloader_idx}" if dataloader_idx else "", first, num_shards, shard)
        )
        if not rows:
            return
        if dataloader_idx != self._loader:
            self._finish()
            self._open(
                trainer, dataloader_idx, flat=all(not isinstance(v, list | dict) for row in rows for v in row.values())
            )
        assert self._file is not None
        for outputs_of_one in rows:
            row = {"id": self._next_id * num_shards + shard} | outputs_of_one  # evaluation loaders stride over ranks
            self._next_id += 1
            if self._columns is None:
                self._file.write(json.dumps(row) + "\n")
                continue
            if not self._columns:
                self._columns = list(row)
                csv.writer(self._file).writerow(self._columns)
            csv.DictWriter(self._file, self._columns, restval="", extrasaction="ignore").writerow(row)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._finish()
        if trainer.world_size > 1:
            found = gathered(trainer, self.files)
            names = {file.with_stem(file.stem.partition("-rank")[0]) for files in found for file in files}
            self.files = sorted(names)
            if trainer.is_global_zero:
                for file in self.files:
                    _merge(
                        file, [part for files in found for part in files if part.stem.startswith(f"{file.stem}-rank")]
                    )

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink()
        for file in self.files:
            if "-rank" in file.stem:  # a part that nobody will merge
                file.unlink(missing_ok=True)

    def _open(self, trainer: Trainer, loader: int, flat: bool) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        part = (f"-{loader}" if loader else "") + (f"-rank{shard_of(trainer)[0]}" if trainer.world_size > 1 else "")
        name = f"predictions{part}" + (".csv" if flat else ".jsonl")
        self.files.append(self.folder / name)
        self._file = (self.folder / f".{name}").open("w", newline="", encoding="utf-8")
        self._loader, self._next_id, self._columns = loader, 0, [] if flat else None

    def _finish(self) -> None:
        if self._file is not None:
            self._file.close()
            Path(self._file.name).replace(self.files[-1])
            self._file = None


def _merge(target: Path, parts: list[Path]) -> None:
    """One file of the processes' own: row k of the first, row k of the second, …, as samples were dealt out."""
    beside = target.with_name(f".{target.name}")
    with ExitStack() as stack:
        files = [stack.enter_context(part.open(newline="", encoding="utf-8")) for part in parts]
        merged = stack.enter_context(beside.open("w", newline="", encoding="utf-8"))
        if target.suffix == ".csv":
            tables = [csv.reader(file) for file in files]
            headers = [next(table) for table in tables]
            writer = csv.writer(merged)
            writer.writerow(headers[0])
            writer.writerows(row for rows in zip_longest(*tables) for row in rows if row is not None)
        else:
            merged.writelines(line for lines in zip_longest(*files) for line in lines if line is not None)
    beside.replace(target)
    for part in parts:
        part.unlink()


def _drawn(outputs: Any, folder: Path, suffix: str, first: int, num_shards: int, shard: int) -> Any:
    """Puts masks into files, and the files' names in their place."""
    if not isinstance(outputs, dict):
        return outputs
    masks = {
        name: mask
        for name, mask in outputs.items()
        if isinstance(mask, Tensor) and mask.ndim == 3 and not mask.is_floating_point()
    }
    named = {}
    for name, mask in masks.items():
        kind = np.uint8 if mask.numel() == 0 or int(mask.max()) < 256 else np.uint16
        files = [f"{name}{suffix}/{(first + i) * num_shards + shard:06}.png" for i in range(len(mask))]
        for file, one in zip(files, mask.cpu().numpy().astype(kind), strict=True):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(one).save(folder / file)
        named[name] = files
    return {**outputs, **named}


def _rows(outputs: Any) -> list[dict[str, Any]]:
    """Splits a batch of outputs into a dict a sample."""
    if outputs is None:
        return []
    if hasattr(outputs, "_asdict"):
        outputs = outputs._asdict()
    if isinstance(outputs, list) and outputs and all(isinstance(output, dict) for output in outputs):
        return [{str(name): _plain(value) for name, value in output.items()} for output in outputs]
    if isinstance(outputs, tuple):
        outputs = {f"output_{i}": value for i, value in enumerate(outputs)}
    if not isinstance(outputs, dict):
        outputs = {"prediction": outputs}
    outputs = {k: torch.as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in outputs.items()}
    lengths = {len(v) for v in outputs.values() if isinstance(v, list) or (isinstance(v, Tensor) and v.ndim > 0)}
    if len(lengths) != 1:  # no common batch dimension: the whole batch is one row
        return [{name: _plain(value) for name, value in outputs.items()}]
    rows: list[dict[str, Any]] = [{} for _ in range(lengths.pop())]
    for name, value in outputs.items():
        if isinstance(value, Tensor) and value.ndim == 2:
            columns = [(f"{name}_{k}", column) for k, column in enumerate(_plain(value.T))]
        else:
            columns = [(name, _plain(value))]
        for column_name, column in columns:
            for row, cell in zip(rows, column if isinstance(column, list) else [column] * len(rows), strict=True):
                row[column_name] = cell
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Tensor):
        return value.float().tolist() if value.dtype in (torch.bfloat16, torch.float16) else value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)

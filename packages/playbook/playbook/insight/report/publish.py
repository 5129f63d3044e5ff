"""Hands the figures and tables of a report to the run's other loggers, by what each of them can take."""

import base64
import importlib.util
import io
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playbook.insight.report.blocks import Chart, Gallery, Section, Table
from playbook.runs.loggers import RunLogger

FOLDER = "report"  # begins every name


@dataclass(frozen=True)
class Content:
    """What loggers get of a report.

    Args:
        pictures: by name, the bytes of a PNG or JPEG file and what it shows, in words.
        tables: by name.
        pages: the files of the report.
        step: of the training, when it ended.
    """

    pictures: Mapping[str, tuple[bytes, str]]
    tables: Mapping[str, Table]
    pages: Sequence[Path]
    step: int


Taker = Callable[[Any, Content], None]


def taker_of(logger: Any) -> Taker | None:
    """What hands a report to a logger; None if it takes neither pictures nor tables.

    Loggers like W&B's have `log_image(key, images)` and perhaps `log_table(key, columns, data)`. Experiments like
    TensorBoard's have `add_image` and `add_text`; those like MLflow's have `log_image` and a run's id.

    Args:
        logger: of Lightning's kind.
    """
    if isinstance(logger, RunLogger):  # answers to every name, and keeps nothing
        return None
    if callable(getattr(logger, "log_image", None)):
        return _to_logger
    experiment = getattr(logger, "experiment", None)
    if callable(getattr(experiment, "add_image", None)):
        return _to_writer
    if callable(getattr(experiment, "log_image", None)) and getattr(logger, "run_id", None):
        return _to_client
    return None


def content(sections: Sequence[Section], rasters: Mapping[str, bytes], pages: Sequence[Path], step: int) -> Content:
    """The pictures and tables of a report.

    Args:
        sections: of the report.
        rasters: PNG of each chart, by its SVG.
        pages: the files of the report.
        step: of the training, when it ended.
    """
    pictures: dict[str, tuple[bytes, str]] = {}
    tables: dict[str, Table] = {}
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Chart) and block.svg in rasters:
                pictures[_name(section, block)] = rasters[block.svg], block.alt
            elif isinstance(block, Gallery):
                for number, (source, text) in enumerate(block.pictures, 1):
                    pictures[f"{_name(section, block)}/{number}"] = base64.b64decode(source.partition(",")[2]), text
            elif isinstance(block, Table):
                tables[_name(section, block)] = block
    return Content(pictures, tables, pages, step)


def publish(loggers: Sequence[Any], values: Content) -> None:
    """Hands a report to all loggers that take some of it; one that fails is told, and the run is finished anyway."""
    for logger in loggers:
        taker = taker_of(logger)
        if taker is None:
            continue
        try:
            taker(logger, values)
        except Exception as error:  # of somebody else's service
            text = str(error).partition("\n")[0]
            name = type(logger).__name__
            print(f"warning: {name} did not take the report: {type(error).__name__}: {text}", file=sys.stderr)


def _to_logger(logger: Any, values: Content) -> None:
    for name, (data, text) in values.pictures.items():
        logger.log_image(key=name, images=[_opened(data)], caption=[text])
    if callable(getattr(logger, "log_table", None)):
        for name, table in values.tables.items():
            logger.log_table(key=name, columns=table.columns, data=_entries(table))


def _to_writer(logger: Any, values: Content) -> None:
    import numpy as np

    writer = logger.experiment
    for name, (data, _) in values.pictures.items():
        writer.add_image(name, np.asarray(_opened(data)), values.step, dataformats="HWC")
    if callable(getattr(writer, "add_text", None)):
        for name, table in values.tables.items():
            writer.add_text(name, table.markdown(), values.step)
    writer.flush()


def _to_client(logger: Any, values: Content) -> None:
    client, run_id = logger.experiment, logger.run_id
    for page in values.pages:
        client.log_artifact(run_id, str(page), FOLDER)
    for name, (data, _) in values.pictures.items():
        client.log_image(run_id, _opened(data), f"{_file_name(name)}.png")
    for name, table in values.tables.items():
        entries = _entries(table)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what MLflow uses of pandas
            if importlib.util.find_spec("pandas") is None:
                rows = {"columns": table.columns, "data": entries}
                client.log_dict(run_id, rows, f"{_file_name(name)}.json")
            else:
                columns = zip(*entries, strict=True)
                rows = dict(zip(table.columns, map(list, columns), strict=True))
                client.log_table(run_id, rows, f"{_file_name(name)}.json")


def _name(section: Section, block: Chart | Gallery | Table) -> str:
    return f"{FOLDER}/{section.title}/{block.title}"


def _file_name(name: str) -> str:
    """A name with the characters that every store of files takes."""
    return "/".join(re.sub(r"[^\w.-]+", "-", part).strip("-.") or "-" for part in name.split("/"))


def _opened(data: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def _entries(table: Table) -> list[list[Any]]:
    """The rows of a table; columns of numbers and text are text, where a logger wants one type in each column."""
    numeric = {name: all(isinstance(row.get(name), int | float | None) for row in table.rows) for name in table.columns}
    return [
        [row.get(name) if numeric[name] or row.get(name) is None else str(row[name]) for name in table.columns]
        for row in table.rows
    ]

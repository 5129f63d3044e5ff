"""predict: writes a table of predictions."""

import hashlib
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playbook.command.session import Session

PASSING = {"batch_size", "num_workers", "on_error", "timeout_s"}  # options that change no row
FORM = ("header", "separator", "quotes", "encoding")  # attributes of data that reads tables
NUM_SHOWN = 10  # answers that are printed as well


class Predict(ModelVerb):
    """Writes predictions into the run's folder `predictions/`."""

    name = "predict"
    summary = "Write a table of predictions: file, class and probability, boxes or masks."
    examples = (
        "--ckpt_path best",
        "--ckpt_path best.ckpt --input photo.jpg",
        "--ckpt_path best --input photos/ --draw",
    )
    common = MappingProxyType({"--data.on_error stop|skip": "what to do if a file cannot be read [stop]"})

    def before_build(self, session: "Session") -> None:
        from playbook.runs.table import check_format

        check_format(session.options.format)

    def run(
        self,
        session: "Session",
        input: str | None = None,
        output: str | None = None,
        format: Literal["csv", "parquet", "jsonl"] | None = None,
        top: int | None = None,
        score: float | None = None,
        tile: int | None = None,
        draw: bool = False,
    ) -> None:
        """Predicts; without --input, the data's predict loader, which is by default its test loader.

        Args:
            session: the model, its data and the trainer.
            input: file, folder, glob, list (.csv, .tsv, .jsonl, .txt) of paths or texts, or - for standard input; no
                labels are needed.
            output: folder to write to. Defaults to <run>/predictions, and with --input to a subfolder named after
                the input.
            format: format of the table: csv, parquet or jsonl.
            top: number of classes in a row, the most likely first.
            score: lowest score of a box, in [0, 1].
            tile: side in pixels of the overlapping tiles into which large images are cut, at least 64.
            draw: also write a picture of every answer.
        """
        from playbook.data.inputs import Inputs
        from playbook.data.sources import Sources, find_sources
        from playbook.runs.predictions import WritePredictions, make_folder, unused_folder
        from playbook.training.prediction import write_predictions

        if tile is not None:
            set_tile(session.model, tile, bool(input))
        folder, places = session.run.predictions, []
        datamodule: Any = session.datamodule
        options = {name: value for name, value in {"top": top, "score": score}.items() if value is not None}
        request = {"checkpoint": _identity(session.checkpoint), "options": options, "tile": tile, "draw": draw}
        request |= {name: _lasting(session.values.get(name)) for name in ("model", "data")}
        if input is not None:
            kinds: Any = [getattr(datamodule, name, ()) for name in ("formats", "columns")]
            form: Any = {name: getattr(datamodule, name, None) for name in FORM}
            form = {name: value for name, value in form.items() if isinstance(value, bool | str)}
            sources = find_sources(input, *kinds, **form)
            if callable(getattr(datamodule, "expand", None)):  # divides a file of several inputs, such as series
                sources = Sources(*datamodule.expand(sources.names, sources.places))
            place = "-" if input == "-" else Path(input).absolute().as_posix()
            folder = unused_folder(folder / _folder_name(input), place)
            datamodule, places = Inputs(datamodule, sources, whole=tile is not None), sources.places
            request |= {"input": place, "sources": _digest(sources.names)}
        folder = Path(output) if output else folder
        make_folder(folder)
        writer = WritePredictions(folder, format, options, draw, session.datamodule, request, NUM_SHOWN, places)
        write_predictions(session.trainer, session.model, datamodule, session.checkpoint, writer)


def set_tile(model: Any, tile: int, has_input: bool) -> None:
    """Has the task predict in tiles.

    Raises:
        UserError: it cannot, or the tiles are too small.
    """
    from playbook.errors import UserError

    if not has_input:
        raise UserError("--tile: needs --input; test data is predicted in the image size of the training")
    if not hasattr(model, "tile"):
        raise UserError(f"--tile: only segmentation and detection support tiles, not {type(model).__name__}")
    if tile < 64:
        raise UserError(f"--tile: expected at least 64 pixels, got {tile}")
    model.tile = tile


def _folder_name(spec: str) -> str:
    """Folder of the results of an input, named after it."""
    if spec == "-":
        return "stdin"
    name = spec if any(sign in spec for sign in "*?[") else Path(spec).resolve().name
    name = "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in name).strip("._") or "input"
    return f"input-{name}" if name.startswith("predictions") else name  # as the tables are called


def _lasting(section: Any) -> Any:
    """A section of the configuration without what may change between a command and its repetition."""
    if not isinstance(section, dict):
        return section
    return {name: _lasting(value) for name, value in section.items() if name not in PASSING}


def _identity(checkpoint: Path | None) -> Any:
    if checkpoint is None:
        return None
    state = checkpoint.stat()
    return [checkpoint.absolute().as_posix(), state.st_size, state.st_mtime_ns]


def _digest(names: "Sequence[str]") -> str:
    return hashlib.sha256("\n".join(names).encode(errors="surrogateescape")).hexdigest()


VERB = Predict()
ORDER = 4

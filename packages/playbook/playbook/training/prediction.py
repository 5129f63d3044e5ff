"""Predictions that are written to files, and continued where an earlier call was interrupted."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from playbook.runs.predictions import WritePredictions
from playbook.training.trainer import Trainer


def write_predictions(
    trainer: Trainer,
    model: pl.LightningModule,
    datamodule: pl.LightningDataModule | None,
    checkpoint: Path | None,
    writer: WritePredictions,
) -> None:
    """Writes predictions with a writer, and prints the names of its files.

    Args:
        trainer: that predicts.
        model: model to use.
        datamodule: the data; None if the model has its own.
        checkpoint: weights to load first.
        writer: writes the table; rows of an interrupted call are kept.
    """
    writer.facts = trainer.keep_facts.facts
    written = writer.resume()
    data: Any = getattr(datamodule, "data", datamodule)  # behind `--input`
    if isinstance(getattr(data, "predicted", None), set):
        data.predicted = written
    elif written:
        writer.discard()
        written = set()
    if written and trainer.is_global_zero:
        print(f"continuing after {len(written):,} rows", flush=True)
    if written and len(written) == len(getattr(datamodule, "sources", ())):  # a kill while the table was made
        writer.tell()
    else:
        trainer.callbacks.append(writer)  # type: ignore[attr-defined]  # set by a connector
        trainer.predict(model, None, datamodule, False, checkpoint)
    if trainer.is_global_zero and (skipped := getattr(data, "skipped_samples", None)):
        plural = "s" if len(skipped) > 1 else ""
        print(f"skipped  {len(skipped):,} sample{plural} that could not be read")

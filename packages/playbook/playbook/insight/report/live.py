"""Writes down, at the end of a training, what its report needs of it: `report.json` and `test.csv`."""

import csv
import io
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import yaml
from lightning.pytorch import LightningModule

from playbook import charts
from playbook.insight.report import architecture, examples, publish, settings
from playbook.insight.report.blocks import Block, Chart, Table, Text, plain
from playbook.insight.report.collect import Collect
from playbook.insight.report.write import sections_of, write
from playbook.results import TestReport
from playbook.runs import card
from playbook.runs.directory import Run, write_atomically

COUNTING_S = 60.0  # trainings of this length count operations too: the imports take 3 s
MOST_CLASSES = 40  # that are drawn; a table has all


def conclude(trainer: Any, model: LightningModule, collected: Collect) -> None:
    """Writes the report of a training, and hands it to loggers that take figures.

    An error in it is told, and takes nothing from a run that is finished.

    Args:
        trainer: after the training and the test.
        model: with the weights that were tested.
        collected: by the callback that accompanied the training.
    """
    loggers = [logger for logger in trainer.loggers if publish.taker_of(logger)]
    with charts.keep_rasters() if loggers else nullcontext({}) as rasters:
        _note(trainer, model, collected)
        sections = sections_of(trainer.run)
    page = write(trainer.run, sections)
    pages = [page, page.with_suffix(".md")]
    publish.publish(loggers, publish.content(sections, rasters, pages, trainer.global_step))
    print(f"{'report':<14} {page.as_posix()}")


def _note(trainer: Any, model: LightningModule, collected: Collect) -> None:
    try:
        note(trainer, model, collected)
    except Exception as error:  # a user's `report`, `answer` or `draw` may raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        print(
            f"warning: the report is incomplete: {type(error).__name__}: {error} "
            f"({os.path.relpath(place.filename)}:{place.lineno})",
            file=sys.stderr,
        )
        if os.environ.get("PLAYBOOK_DEBUG"):
            raise


def note(trainer: Any, model: LightningModule, collected: Collect) -> None:
    """Writes `report.json`, and `test.csv` where the task has values of each test sample.

    Args:
        trainer: after the training and the test.
        model: with the weights that were tested.
        collected: by the callback that accompanied the training.
    """
    run: Run = trainer.run
    metrics = run.read_metrics()
    facts = getattr(model, "facts", None) or metrics.get("facts") or {}
    counts = metrics.get("train_seconds", 0.0) >= COUNTING_S or "torch._dynamo" in sys.modules
    report, fault = _report_of(model, collected, facts)
    values = {
        "summary": card.rows(trainer, model, metrics.get("test") or {}),
        "architecture": plain(architecture.blocks(model, collected.batch, counts)),
        "optimization": plain(_optimization(trainer, model)),
        "training": plain([*_training(collected), *_data(trainer, facts)]),
        "results": plain(_results(report, fault, trainer)),
        "settings": plain(settings.blocks(yaml.safe_load(getattr(trainer, "config", "")) or {})),
        "examples": plain(examples.blocks(trainer, model, facts, report.rankings, report.samples)),
    }
    if report.samples:
        write_atomically(run.path / "test.csv", _samples(report, trainer))
    write_atomically(run.path / "report.json", json.dumps(values, ensure_ascii=False) + "\n")


def _report_of(model: Any, collected: Collect, facts: dict[str, Any]) -> tuple[TestReport, str]:
    """The task's own part, and why there is none."""
    report: Callable[..., TestReport] | None = getattr(model, "report", None)
    if report is None:
        return TestReport(), ""
    if not collected.outputs:
        return TestReport(), collected.fault
    with charts.style():
        return report(collected.outputs, facts), ""


def _optimization(trainer: Any, model: LightningModule) -> list[Block]:
    rows = [
        ("device", card.hardware(trainer)),
        ("processes", card.devices(trainer)),
        ("precision", str(trainer.precision)),
        ("compiled", card.compiled(model)),
        ("strategy", type(trainer.strategy).__name__),
        ("accumulated batches", trainer.accumulate_grad_batches),
        ("gradient clipping", trainer.gradient_clip_val or "none"),
        ("peak memory", peak_memory(trainer.strategy.root_device)),
    ]
    return [Table("How it was computed", [{"setting": name, "value": str(value)} for name, value in rows])]


def peak_memory(device: torch.device) -> str:
    """The most memory that this process has had: on the device, and of the process."""
    try:
        import resource
    except ImportError:  # Windows
        return "unknown"
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    text = f"{kilobytes / 2**20:.2f} GiB of the process"
    if device.type == "cuda":
        return f"{torch.cuda.max_memory_allocated(device) / 2**30:.2f} GiB on the device, {text}"
    return text


def _training(collected: Collect) -> list[Block]:
    blocks: list[Block] = []
    if len(collected.rates) > 1:
        steps, rates = zip(*collected.rates, strict=True)
        svg = charts.lines({"learning rate": (steps, rates)}, "step", "learning rate")
        alt = f"The learning rate begins at {rates[0]:.3g}, is at most {max(rates):.3g} and ends at {rates[-1]:.3g}"
        blocks.append(Chart("Learning rate", svg, alt))
    if len(collected.epochs) > 1:
        epochs = list(range(1, len(collected.epochs) + 1))
        svg = charts.lines({"seconds": (epochs, collected.epochs)}, "epoch", "seconds")
        blocks.append(
            Chart("Time of each epoch, with its validation", svg, f"The slowest took {max(collected.epochs):.3g} s")
        )
    return blocks


def _data(trainer: Any, facts: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    sizes = {stage: card.num_samples_of(trainer, stage) for stage in ("train", "val", "test")}
    rows = [{"split": stage, "samples": size} for stage, size in sizes.items() if size is not None]
    if rows:
        name = type(getattr(trainer, "datamodule", None) or trainer.lightning_module).__name__
        blocks.append(Table(f"Data: {name}", rows))
    counts, names = facts.get("class_counts"), facts.get("classes")
    if isinstance(counts, list) and isinstance(names, list) and len(counts) == len(names):
        order = sorted(range(len(counts)), key=counts.__getitem__, reverse=True)
        shown = {str(names[k]): float(counts[k]) for k in order[:MOST_CLASSES]}
        least, most = min(counts), max(counts)
        alt = f"{len(counts)} classes with {least:,} to {most:,} training samples"
        title = "Training samples of each class"
        title += f" (the {MOST_CLASSES} largest of {len(counts):,})" if len(counts) > MOST_CLASSES else ""
        blocks.append(Chart(title, charts.bars(shown, "training samples"), alt))
    return blocks


def _results(report: TestReport, fault: str, trainer: Any) -> list[Block]:
    blocks: list[Block] = [Chart(title, charts.to_svg(figure), alt) for title, (figure, alt) in report.figures.items()]
    blocks += [Table(title, rows) for title, rows in report.tables.items()]
    if fault:
        blocks.append(Text(f"The test has no part for each sample: {fault}."))
    elif trainer.world_size > 1 and report.samples:
        blocks.append(Text(f"Values of test samples are those of the first of {trainer.world_size} processes."))
    return blocks


def _samples(report: TestReport, trainer: Any) -> str:
    """A table of the test samples: id and values."""
    names = examples.test_ids(trainer)
    columns = {name: values.tolist() for name, values in report.samples.items()}
    num_rows = len(next(iter(columns.values())))
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", *columns])
    for number in range(num_rows):
        name = names[number] if len(names) == num_rows else number  # of nodes, there are more than samples
        writer.writerow([name, *(f"{values[number]:.6g}" for values in columns.values())])
    return file.getvalue()

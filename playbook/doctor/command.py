"""The steps of a review that is asked for on a command line: review what is built, print, write tests."""

from pathlib import Path

import lightning.pytorch as pl

from playbook.doctor import failure, patch, written_tests
from playbook.doctor.options import set_thresholds
from playbook.doctor.render import render
from playbook.doctor.report import Report
from playbook.doctor.review import review

SETTINGS = ("max_epochs", "gradient_clip_val", "gradient_clip_algorithm", "accumulate_grad_batches")
LIMIT_S = 600.0  # of which small models take few


def examine(
    trainer: pl.Trainer,
    model: pl.LightningModule,
    data: pl.LightningDataModule | None,
    ids: frozenset[str],
    thresholds: dict[str, float] | None = None,
) -> Report:
    """Reviews a module and its data that are built already; both stay as they are.

    Args:
        trainer: whose settings the review takes over.
        model: the module.
        data: its data, unless the loaders are the module's.
        ids: of the defects to look for.
        thresholds: of probes, by «probe.name».

    Raises:
        ReviewError: there is no such threshold, or this system cannot copy a process.
    """
    set_thresholds(thresholds or {})
    settings = {name: getattr(trainer, name) for name in SETTINGS}
    return patch.with_patches(review(lambda: (model, data), settings, ids, LIMIT_S))


def show(report: Report, form: str, title: str, write_tests: str | None, command: list[str]) -> None:
    """Prints a report, and writes tests of what the review has verified.

    Args:
        report: of the review.
        form: terminal, json, markdown or sarif.
        title: what was reviewed.
        write_tests: the file for the tests, if any.
        command: what repeats the review, after the name of the Python interpreter: ["-m", "src", "doctor", …].

    Raises:
        ReviewError: the file is there already, or no Python file.
    """
    print(render(report, form, title), flush=True)
    if write_tests is not None:
        written_tests.write(Path(write_tests), report, command)


def show_failure(error: BaseException, form: str, title: str) -> None:
    """Prints the report of a program that could not be built.

    Args:
        error: what its constructor raised.
        form: terminal, json, markdown or sarif.
        title: what was to be reviewed.
    """
    finding = failure.as_finding(error).as_dict() | {"probe": "start"}
    print(render(patch.with_patches(Report(findings=[finding])), form, title), flush=True)

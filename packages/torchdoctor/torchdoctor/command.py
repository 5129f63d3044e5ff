"""The steps of a review that is asked for on a command line: review, try patches, print, write tests."""

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from torchdoctor.evidence import failure
from torchdoctor.formats import written_tests
from torchdoctor.formats.render import render
from torchdoctor.options import select_ids, set_thresholds
from torchdoctor.repairs import patch
from torchdoctor.report import Report, select_advice
from torchdoctor.review import Build, review_module

SETTINGS = ("max_epochs", "gradient_clip_val", "gradient_clip_algorithm", "accumulate_grad_batches")
LIMIT_S = 600.0  # of which small models take few


@dataclass(frozen=True)
class Options:
    """Options of a review.

    Args:
        only: ids of the defects to look for, separated by commas; all when left out.
        skip: ids of defects to skip, likewise.
        severity: lowest severity to report: critical, warning or advice.
        format: of the report: terminal, json, markdown or sarif.
        fix: whether to write each patch that a second review confirms.
        write_tests: file for tests of everything that was verified.
        thresholds: of probes, by «probe.name».
        all: whether all checks that passed are shown, and not the ten that matter most.
    """

    only: str | None = None
    skip: str | None = None
    severity: str = "advice"
    format: str = "terminal"
    fix: bool = False
    write_tests: str | None = None
    thresholds: dict[str, float] | None = None
    all: bool = False


def settings_of(trainer: pl.Trainer) -> dict[str, Any]:
    """The settings of a Trainer that a review takes over."""
    return {name: getattr(trainer, name) for name in SETTINGS}


def report_module(build: Build, settings: dict[str, Any], options: Options, title: str, command: list[str]) -> int:
    """Reviews a module and its data, and prints the report; what the program itself prints goes to standard error.

    Args:
        build: makes the module and its data.
        settings: of Lightning's Trainer.
        options: of the review.
        title: what is reviewed.
        command: what starts the review, after the name of the Python interpreter: ["-m", "torchdoctor", …].

    Returns:
        1 if a finding is critical, else 0.

    Raises:
        ReviewError: an option is wrong, or this system cannot copy a process.
    """
    if options.write_tests is not None:
        written_tests.require_new(Path(options.write_tests))
    set_thresholds(options.thresholds or {})
    ids = select_ids(options.only, options.skip, options.severity)
    with redirect_stdout(sys.stderr):
        report = patch.with_patches(review_module(build, settings, ids, LIMIT_S))
    if options.fix:
        own = ["--only", ",".join(sorted({*ids, "crash"})), "--format", "json"]
        report = patch.write_patches(report, patch.reviewer([*written_tests.repeated(command), *own]))
    report = select_advice(report, options.only, options.severity)
    print(render(report, options.format, title, shows_all=options.all), flush=True)
    if options.write_tests is not None:
        written_tests.write(Path(options.write_tests), report, command)
    return int(report.is_critical)


def show_failure(error: BaseException, form: str, title: str) -> int:
    """Prints the report of a program that could not be built.

    Args:
        error: what its constructor raised.
        form: terminal, json, markdown or sarif.
        title: what was to be reviewed.

    Returns:
        1, as the finding is critical.
    """
    finding = failure.as_finding(error).as_dict() | {"probe": "start"}
    print(render(patch.with_patches(Report(findings=[finding])), form, title), flush=True)
    return 1

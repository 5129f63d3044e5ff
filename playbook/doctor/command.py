"""The verb: which defects are looked for, with which thresholds; what is printed and written."""

from importlib import import_module
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from playbook.checkpoints.io import load
from playbook.doctor import written_tests
from playbook.doctor.findings import DEFECTS, SEVERITIES
from playbook.doctor.render import render
from playbook.doctor.review import Report, all_probes, failed, review
from playbook.errors import UserError, nearest

SETTINGS = ("max_epochs", "gradient_clip_val", "gradient_clip_algorithm", "accumulate_grad_batches")
LIMIT_S = 600.0  # of which small models take few


def examine(
    trainer: pl.Trainer,
    model: pl.LightningModule,
    data: pl.LightningDataModule | None,
    ids: frozenset[str],
    thresholds: dict[str, float] | None = None,
    checkpoint: str | None = None,
) -> Report:
    """Reviews a module and its data that are built already.

    Args:
        trainer: whose settings the review takes over.
        model: stays as it is.
        data: likewise.
        ids: of the defects to look for.
        thresholds: of probes, by «probe.name».
        checkpoint: of the run; its configuration is all that counts, but the file must be sound.
    """
    if checkpoint is not None:
        load(Path(checkpoint))
    tune(thresholds or {})
    return review(lambda: (model, data), {name: getattr(trainer, name) for name in SETTINGS}, ids, LIMIT_S)


def show(report: Report, form: str, title: str, write_tests: str | None, args: list[str]) -> None:
    """Prints a report, and writes the tests of what is good.

    Args:
        report: of the review.
        form: terminal, json, markdown or sarif.
        title: what was reviewed.
        write_tests: the file for the tests, if any.
        args: of the command, which the tests repeat.
    """
    print(render(report, form, title), flush=True)
    if write_tests is not None:
        written_tests.write(Path(write_tests), report, args)


def failure(error: Exception, form: str, title: str) -> None:
    """Prints the report of a program that could not be built."""
    print(render(Report(findings=[failed(error).as_dict() | {"probe": "start"}]), form, title), flush=True)


def chosen(only: str | None, skip: str | None, severity: str) -> frozenset[str]:
    """The ids that are left of all.

    Args:
        only: ids with commas between them; all when left out.
        skip: likewise, of those to leave out.
        severity: the least severe that is looked for.

    Raises:
        UserError: there is no such id.
    """
    ids = _listed("only", only) or frozenset(DEFECTS)
    heavy = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return frozenset(name for name in ids - _listed("skip", skip) if DEFECTS[name][0] in heavy)


def _listed(option: str, text: str | None) -> frozenset[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in DEFECTS:
            close = nearest(name, DEFECTS) or f", expected some of: {', '.join(DEFECTS)}"
            raise UserError(f"--{option} {name}: no such defect{close}")
    return frozenset(names)


def tune(thresholds: dict[str, float]) -> None:
    """Sets constants of the probes, as {"dead_units.share": 0.7}.

    Raises:
        UserError: no probe has such a constant.
    """
    known: dict[str, tuple[Any, str]] = {}
    for probe in all_probes():
        module = import_module(f"playbook.doctor.probes.{probe}")
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, int | float):
                known[f"{probe}.{name.strip('_').lower()}"] = (module, name)
    for option, value in thresholds.items():
        if option not in known:
            raise UserError(
                f"--thresholds {option}: no such threshold{nearest(option, known)}; all: {', '.join(known)}"
            )
        module, name = known[option]
        setattr(module, name, type(getattr(module, name))(value))

"""The review, done by the package torchdoctor: this file alone imports it, and not before it is used."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playbook import project
from playbook.errors import UserError

if TYPE_CHECKING:
    from lightning.pytorch import LightningDataModule, LightningModule, Trainer

LIBRARIES = [Path(__file__).parents[1]]  # Playbook is no code of the user's, also where it is installed editable


@contextmanager
def _mistakes() -> Iterator[None]:
    """Raises what is wrong with the options of a review, or a missing reviewer, as a mistake of the user."""
    if find_spec("torchdoctor") is None:
        raise UserError("torchdoctor is not installed: pip install torchdoctor, or 'lightning-playbook[review]'")
    from torchdoctor.errors import ReviewError

    try:
        yield
    except ReviewError as error:
        raise UserError(str(error)) from None


def _command() -> list[str]:
    """What starts a review, after the name of the Python interpreter."""
    return ["-m", project.current().package or "playbook", "doctor"]


def script_position(args: list[str]) -> int | None:
    """The position of a script among the arguments of `doctor`; None if it reviews a module."""
    with _mistakes():
        from torchdoctor import cli

        return cli.script_position(args)


def prepare() -> None:
    """Readies this process for a review, before torch is imported and the model is built."""
    with _mistakes():
        from torchdoctor import cli

        cli.prepare(LIBRARIES)


def review_script(args: list[str]) -> int:
    """Reviews a script in plain PyTorch, and returns the exit code.

    Args:
        args: options of the review, the script and its own arguments.
    """
    with _mistakes():
        from torchdoctor import cli

        return cli.run(args, _command(), LIBRARIES)


def review_module(
    trainer: "Trainer",
    model: "LightningModule",
    data: "LightningDataModule | None",
    options: dict[str, Any],
    title: str,
    args: list[str],
) -> int:
    """Reviews a module and its data that are built already, and returns the exit code.

    Args:
        trainer: whose settings the review uses.
        model: the module.
        data: its data, if any.
        options: of torchdoctor's `Options`.
        title: what is reviewed.
        args: of the command line, which `--fix` and written tests repeat.
    """
    with _mistakes():
        from torchdoctor import command

        settings, own = command.settings_of(trainer), command.Options(**options)
        return command.report_module(lambda: (model, data), settings, own, title, [*_command(), *args])


def review_start(trainer: "Trainer", model: "LightningModule", all_probes: bool) -> None:
    """Reviews a training that is about to begin, and prints what is found.

    Args:
        trainer: with the data.
        model: the module.
        all_probes: whether to run slow probes as well.

    Raises:
        UserError: a finding is critical.
    """
    with _mistakes():
        from torchdoctor import command, options, review_module, source
        from torchdoctor.formats import render

        source.treat_as_libraries(LIBRARIES)
        ids = options.select_ids() if all_probes else options.quick_ids()
        data, settings = getattr(trainer, "datamodule", None), command.settings_of(trainer)
        report = review_module(lambda: (model, data), settings, ids, command.LIMIT_S)
    title = type(model).__name__
    critical = [item for item in report.findings if item["severity"] == "critical"]
    if report.findings:
        print(render.render(replace(report, checked=[]), "terminal", title), flush=True)
    else:
        print(f"{title}: nothing found, {len(report.checked)} checks passed in {report.seconds:.1f} s", flush=True)
    if critical:
        names = ", ".join(sorted({item["id"] for item in critical}))
        mark = f"# doctor: ignore[{critical[0]['id']}] reason"
        raise UserError(f"--doctor: {names}, see above; add `{mark}` to the line to accept it")


def show_failure(error: BaseException, form: str, title: str) -> int | None:
    """Prints the report of a program whose constructor raised; None if no code of the user's has a part in it."""
    from torchdoctor import command, source

    return None if source.raised_at(error) is None else command.show_failure(error, form, title)

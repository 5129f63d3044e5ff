"""doctor: reviews a model and its data by running them."""

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from playbook import project
from playbook.command.verb import ModelVerb
from playbook.processes import no_collection

if TYPE_CHECKING:
    from playbook.command.arguments import Invocation
    from playbook.command.session import Session

FLAGS = ("--fix", "--debug", "--help", "-h")  # options without a value


class Doctor(ModelVerb):
    """Runs a few training steps in forked processes and prints a report; the exit code is 1 if a finding is critical.

    It reviews any LightningModule, with or without a LightningDataModule, and scripts in plain PyTorch:
    `doctor [options] train.py [the script's own arguments]`.
    """

    name = "doctor"
    summary = "Review a model and its data by running them."
    examples = (
        "--config configs/vision/cnn-digits.yaml",
        "--model my.Module --data my.Data --severity warning",
        "--severity warning train.py --epochs 2  # a script in plain PyTorch; what follows it are its own arguments",
        "--fix train.py  # write the patches that help, as a second review shows",
    )
    checkpoint = "optional"
    _code: int | None = None  # the exit code, once the report is out
    further_options = ("batch",)

    def num_own(self, args: list[str]) -> int:
        number = _script_in(args)
        return len(args) if number is None else number + 1

    def first(self, args: list[str]) -> int | list[str]:
        if _script_in(args) is None:
            return args
        self.prepare()
        from playbook.doctor.scripts import command
        from playbook.training.review import review_errors

        with review_errors():
            self._code = command.run(args, self._command, _write)
        return self._code

    @property
    def _command(self) -> list[str]:
        """What starts the verb, after the name of the Python interpreter."""
        return ["-m", project.current().package or "playbook", self.name]

    def prepare(self) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the review copies its process, which a GPU in use does not allow
        os.environ["OMP_NUM_THREADS"] = "1"  # nor do threads
        with no_collection():
            from playbook.doctor import blame
        blame.note_makers()
        atexit.register(self._leave)

    def _leave(self) -> None:
        """Ends the process once the report is out; Python would first search all objects for cycles, for 1 s."""
        if self._code is not None:
            atexit.unregister(self._leave)
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._code)

    def answer_alone(self, invocation: "Invocation") -> int | None:
        from playbook.doctor import batch
        from playbook.training.review import review_errors

        with review_errors():
            names = batch.names_in(invocation.args)
            if names:
                return batch.run(names)
        self._stdout = sys.stdout
        if any(arg.startswith("--format") for arg in invocation.args):
            sys.stdout = sys.stderr  # what the program prints stays out of a report that programs read
        return None

    def build_failed(self, session: "Session", error: Exception) -> int | None:
        from playbook.command.messages import origin
        from playbook.doctor import command, source

        if source.raised_at(error) is None:
            return None
        sys.stdout = self._stdout
        # what the user's own class raises, without what jsonargparse says of it
        command.show_failure(origin(error), session.options.format, session.title)
        return 1

    def run(
        self,
        session: "Session",
        only: str | None = None,
        skip: str | None = None,
        severity: Literal["critical", "warning", "advice"] = "advice",
        format: Literal["terminal", "json", "markdown", "sarif"] = "terminal",
        fix: bool = False,
        write_tests: str | None = None,
        thresholds: dict[str, float] | None = None,
    ) -> int:
        """Reviews the module and its data; only --fix changes the user's files.

        Args:
            session: the model, its data and the trainer, whose settings the review uses.
            only: ids of the defects to look for, separated by commas.
            skip: ids of defects to skip, separated by commas.
            severity: lowest severity to report: critical, warning or advice.
            format: format of the report: terminal, json, markdown or sarif.
            fix: write each patch after which a second review no longer finds the defect, and nothing new.
            write_tests: file for tests of everything that the review has verified.
            thresholds: thresholds of probes, as in {dead_units.most: 0.7}.
        """
        from playbook.checkpoints.io import load
        from playbook.doctor import command, options, patch, written_tests
        from playbook.training.review import review_errors

        if session.checkpoint is not None:
            load(session.checkpoint)  # its configuration is all that counts, but the file must be sound
        arguments = [*self._command, *session.invocation.given]
        with review_errors():
            if write_tests is not None:
                written_tests.require_new(Path(write_tests))
            ids = options.select_ids(only, skip, severity)
            report = command.examine(session.trainer, session.model, session.datamodule, ids, thresholds)
            if fix:
                own = ["--only", ",".join(sorted({*ids, "crash"})), "--format", "json"]
                again = patch.reviewer([*written_tests.repeated(arguments), *own])
                report = patch.write_patches(report, again, _write)
            sys.stdout = self._stdout
            command.show(report, format, session.title, write_tests, arguments)
        self._code = int(report.is_critical)
        return self._code


def _script_in(args: list[str]) -> int | None:
    """The position of the first argument that is no option, and no option's value, if it is a Python file."""
    rest = iter(enumerate(args))
    for number, arg in rest:
        if arg == "--":
            return number
        if not arg.startswith("-"):
            return number if arg.endswith(".py") else None
        if "=" not in arg and arg not in FLAGS:
            next(rest, None)
    return None


def _write(path: Path, text: str) -> None:
    """Writes a file whole or not at all; who may do what with it stays."""
    from playbook.runs.directory import write_atomically

    mode = path.stat().st_mode
    write_atomically(path, text)
    path.chmod(mode)


VERB = Doctor()
ORDER = 7

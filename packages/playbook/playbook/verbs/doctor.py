"""doctor: reviews a model and its data by running them."""

from typing import TYPE_CHECKING, Literal

from playbook.command.reports import report_on_stdout
from playbook.command.verb import ModelVerb
from playbook.insight import review
from playbook.processes import no_collection

if TYPE_CHECKING:
    from playbook.command.arguments import Invocation
    from playbook.command.session import Session


class Doctor(ModelVerb):
    """Runs a few training steps in forked processes and prints a report; the exit code is 1 if a finding is critical.

    It reviews any LightningModule, with or without a LightningDataModule, and scripts in plain PyTorch:
    `doctor [options] train.py [the script's own arguments]`. The package torchdoctor does it.
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
    reports = True

    def num_own(self, args: list[str]) -> int:
        number = review.script_position(args)
        return len(args) if number is None else number + 1

    def first(self, args: list[str]) -> int | list[str]:
        return args if review.script_position(args) is None else review.review_script(args)

    def prepare(self, invocation: "Invocation") -> None:
        with no_collection():
            review.prepare()

    def build_failed(self, session: "Session", error: Exception) -> int | None:
        from playbook.command.messages import origin

        with report_on_stdout():
            # what the user's own class raises, without what jsonargparse says of it
            return review.show_failure(origin(error), session.options.format, session.title)

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
        all: bool = False,
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
            all: show all checks that passed, not the ten that matter most.
        """
        from playbook.checkpoints.io import load
        from playbook.from_data import set_up_again

        set_up_again(session.datamodule)  # the review watches it
        if session.checkpoint is not None:
            load(session.checkpoint)  # its configuration is all that counts, but the file must be sound
        options = {
            "only": only,
            "skip": skip,
            "severity": severity,
            "format": format,
            "fix": fix,
            "write_tests": write_tests,
            "thresholds": thresholds,
            "all": all,
        }
        given = session.invocation.given
        with report_on_stdout():
            return review.review_module(
                session.trainer, session.model, session.datamodule, options, session.title, [*given]
            )


VERB = Doctor()
ORDER = 7

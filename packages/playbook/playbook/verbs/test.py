"""test: evaluates a checkpoint on the test data."""

from importlib import import_module
from typing import TYPE_CHECKING, Literal

from playbook import project
from playbook.command import discovery
from playbook.command.reports import print_json
from playbook.command.verb import ModelVerb
from playbook.errors import UserError

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from playbook.command.session import Session

BACKTEST = "Backtest"  # the project's callback of that name; the machine knows no series


class Test(ModelVerb):
    """Prints the metrics, and saves them in the run's metrics.json."""

    name = "test"
    summary = "Evaluate a checkpoint on the test data."
    examples = ("--ckpt_path best", "--ckpt_path runs/cnn-digits/<date-time>")
    uses_loggers = True
    reports = True

    def callbacks(self, session: "Session") -> "list[Callback]":
        if not session.options.backtest:
            return []
        paths = discovery.class_paths(BACKTEST)
        if not paths:
            raise UserError(f"--backtest: {project.current().package}/callbacks has no callback {BACKTEST}")
        module, _, name = paths[0].rpartition(".")
        return [getattr(import_module(module), name)()]

    def run(
        self,
        session: "Session",
        verbose: bool = False,
        backtest: bool = False,
        format: Literal["terminal", "json"] = "terminal",
    ) -> None:
        """Evaluates the checkpoint.

        Args:
            session: the model, its data and the trainer.
            verbose: print Lightning's table as well.
            backtest: forecast series from every origin of the test data, and write the errors to backtest.csv.
            format: of what is printed: terminal, or json for programs.
        """
        session.trainer.test(session.model, None, session.checkpoint, verbose, session.datamodule)
        if format == "json":
            metrics = session.run.read_metrics().get("test", {})
            print_json({"run": str(session.run), "checkpoint": str(session.checkpoint), "metrics": metrics})


VERB = Test()
ORDER = 3

"""validate: evaluates a checkpoint on the validation data."""

from typing import TYPE_CHECKING, Literal

from playbook.command.reports import print_json
from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class Validate(ModelVerb):
    """Prints the metrics, and saves them in the run's metrics.json."""

    name = "validate"
    summary = "Evaluate a checkpoint on the validation data."
    examples = ("--ckpt_path last",)
    uses_loggers = True
    reports = True

    def run(self, session: "Session", verbose: bool = False, format: Literal["terminal", "json"] = "terminal") -> None:
        """Evaluates the checkpoint.

        Args:
            session: the model, its data and the trainer.
            verbose: print Lightning's table as well.
            format: of what is printed: terminal, or json for programs.
        """
        session.trainer.validate(session.model, None, session.checkpoint, verbose, session.datamodule)
        if format == "json":
            metrics = session.run.read_metrics().get("val", {})
            print_json({"run": str(session.run), "checkpoint": str(session.checkpoint), "metrics": metrics})


VERB = Validate()
ORDER = 2

"""validate: evaluates a checkpoint on the validation data."""

from typing import TYPE_CHECKING

from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class Validate(ModelVerb):
    """Prints the metrics, and saves them in the run's metrics.json."""

    name = "validate"
    summary = "Evaluate a checkpoint on the validation data."
    examples = ("--ckpt_path last",)
    uses_loggers = True

    def run(self, session: "Session", verbose: bool = False) -> None:
        """Evaluates the checkpoint.

        Args:
            session: the model, its data and the trainer.
            verbose: print Lightning's table as well.
        """
        session.trainer.validate(session.model, None, session.checkpoint, verbose, session.datamodule)


VERB = Validate()
ORDER = 2

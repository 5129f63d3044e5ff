"""validate: measures a checkpoint on the validation data."""

from typing import TYPE_CHECKING

from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class Validate(ModelVerb):
    """Prints the metrics, and keeps them in metrics.json of the run."""

    name = "validate"
    summary = "Measure a checkpoint on the validation data."
    examples = ("--ckpt_path last",)
    uses_loggers = True

    def run(self, session: "Session", verbose: bool = False) -> None:
        """Measures.

        Args:
            session: the model, its data and the trainer.
            verbose: print Lightning's table as well.
        """
        session.trainer.validate(session.model, None, session.checkpoint, verbose, session.datamodule)


VERB = Validate()
ORDER = 2

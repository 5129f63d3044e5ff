"""test: evaluates a checkpoint on the test data."""

from typing import TYPE_CHECKING

from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class Test(ModelVerb):
    """Prints the metrics, and saves them in the run's metrics.json."""

    name = "test"
    summary = "Evaluate a checkpoint on the test data."
    examples = ("--ckpt_path best", "--ckpt_path runs/cnn-digits/<date-time>")
    uses_loggers = True

    def run(self, session: "Session", verbose: bool = False) -> None:
        """Evaluates the checkpoint.

        Args:
            session: the model, its data and the trainer.
            verbose: print Lightning's table as well.
        """
        session.trainer.test(session.model, None, session.checkpoint, verbose, session.datamodule)


VERB = Test()
ORDER = 3

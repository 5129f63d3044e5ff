"""find_batch_size: suggests a batch size."""

from typing import TYPE_CHECKING

from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class FindBatchSize(ModelVerb):
    """Trains a copy of the model for a few steps at each of several batch sizes."""

    name = "find_batch_size"
    summary = "Suggest the fastest batch size that fits into memory."
    examples = ("--config configs/vision/cnn-digits.yaml",)
    checkpoint = "optional"

    def run(self, session: "Session", max_batch_size: int = 4096, steps_per_trial: int = 10) -> None:
        """Doubles the batch size while it fits, and writes `find_batch_size.csv` to the run directory.

        Args:
            session: the model, its data and the trainer.
            max_batch_size: largest batch size to try.
            steps_per_trial: training steps at each size, at least 3; the first two are not timed.
        """
        from playbook.insight import finders, sweeps
        from playbook.training.initial import load_weights

        if session.checkpoint is not None:
            load_weights(session.model, session.checkpoint)
        trials = finders.find_batch_size(
            session.trainer, session.model, session.datamodule, max_batch_size, steps_per_trial
        )
        session.run.create()
        sweeps.write_trials(session.run.path, trials)
        print(sweeps.report(trials))


VERB = FindBatchSize()
ORDER = 6

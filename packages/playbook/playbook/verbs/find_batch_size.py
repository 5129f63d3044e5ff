"""find_batch_size: suggests a batch size."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from playbook.command.reports import print_json
from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class FindBatchSize(ModelVerb):
    """Trains a copy of the model for a few steps at each of several batch sizes."""

    name = "find_batch_size"
    summary = "Suggest the fastest batch size that fits into memory."
    examples = ("--config configs/vision/cnn-digits.yaml",)
    checkpoint = "optional"
    reports = True

    def run(
        self,
        session: "Session",
        max_batch_size: int = 4096,
        steps_per_trial: int = 10,
        format: Literal["terminal", "json"] = "terminal",
    ) -> None:
        """Doubles the batch size while it fits, and writes `find_batch_size.csv` to the run directory.

        Args:
            session: the model, its data and the trainer.
            max_batch_size: largest batch size to try.
            steps_per_trial: training steps at each size, at least 3; the first two are not timed.
            format: of what is printed: terminal, or json for programs.
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
        if format == "json":
            fastest = sweeps.fastest(trials)
            result = {"option": "--data.batch_size", "suggestion": fastest and fastest.batch_size}
            print_json({"run": str(session.run), **result, "trials": [asdict(trial) for trial in trials]})


VERB = FindBatchSize()
ORDER = 6

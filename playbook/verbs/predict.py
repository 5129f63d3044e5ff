"""predict: writes a table of predictions."""

from typing import TYPE_CHECKING

from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from playbook.command.session import Session


class Predict(ModelVerb):
    """Writes what predict_step returns into the run's folder `predictions/`."""

    name = "predict"
    summary = "Write a table of predictions: ids, labels, probabilities."
    examples = ("--ckpt_path best",)

    def callbacks(self, session: "Session") -> "list[Callback]":
        from playbook.runs.predictions import WritePredictions

        return [WritePredictions(session.run.predictions)]

    def run(self, session: "Session") -> None:
        """Predicts; the data's predict loader is its test loader unless it says otherwise."""
        session.trainer.predict(
            session.model, None, session.datamodule, return_predictions=False, ckpt_path=session.checkpoint
        )


VERB = Predict()
ORDER = 4

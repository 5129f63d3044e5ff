"""fit: trains a model, or resumes training."""

from types import MappingProxyType
from typing import TYPE_CHECKING

from playbook.command.verb import Finished, ModelVerb

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from playbook.command.session import Session


class Fit(ModelVerb):
    """Trains, then tests the best checkpoint; with --ckpt_path, resumes a run."""

    name = "fit"
    summary = "Train a model, then test its best checkpoint."
    examples = ("--config configs/vision/cnn-digits.yaml", "--config configs/vision/cnn-digits.yaml --ckpt_path last")
    common = MappingProxyType(
        {
            "--trainer.max_epochs N": "epochs in all",
            "--trainer.callbacks+ CLASS": "add a callback",
            "--model.net CLASS": "the net; --model.net.widths '[8, 16]' sets one of its arguments",
            "--model.optimizer CLASS": "optimizer; --model.optimizer.lr 1e-3 sets one of its arguments",
            "--data.batch_size N": "samples per batch",
            "--data.num_workers N": "number of loader processes",
            "--checkpoint.monitor NAME": "metric that decides which epoch is best.ckpt",
            "--checkpoint.mode min|max": "whether a smaller or larger value is better [min]",
            "--checkpoint.every_n_steps N": "steps between two saves of last.ckpt",
            "--checkpoint.every_n_minutes N": "minutes between two saves [10]",
            "--checkpoint.every_n_epochs N": "epochs between two saves [1]",
            "--init_from X": "initial weights of a new run: best, last, a run directory, a checkpoint or a state dict",
        }
    )
    checkpoint = "continued"
    uses_loggers = True

    def before_build(self, session: "Session") -> None:
        if session.checkpoint is None or session.invocation.settings.get("ckpt_path") == "best":
            return
        metrics = session.run.read_metrics()
        limits, wanted = metrics.get("limits", {}), session.options.trainer
        goes_on = any(
            wanted[name] is not None and wanted[name] != limit and (wanted[name] == -1 or 0 <= limit < wanted[name])
            for name, limit in limits.items()
        )
        if metrics.get("status") == "finished" and not goes_on:
            raise Finished(
                f"{session.run} is finished: {metrics['epoch']} epochs, {metrics['step']} steps; "
                "to continue, increase --trainer.max_epochs"
            )

    def callbacks(self, session: "Session") -> "list[Callback]":
        from playbook.training.review import Doctor

        return [Doctor()] if session.options.doctor else []

    def after_build(self, session: "Session") -> None:
        session.run.create()  # only now: a mistake before leaves no directory behind

    def run(self, session: "Session", doctor: bool = False) -> None:
        """Trains.

        Args:
            session: the model, its data and the trainer.
            doctor: review the model and data first, and stop at a critical finding.
        """
        session.trainer.fit(
            session.model, datamodule=session.datamodule, ckpt_path=session.checkpoint, init_from=session.init_from
        )


VERB = Fit()
ORDER = 1

"""fit: trains a model, or resumes training."""

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import yaml

from playbook.command.reports import print_json
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
            "--checkpoint.monitor NAME": "metric that decides which epoch is best.ckpt, null for none [auto]",
            "--checkpoint.mode min|max": "whether a smaller or larger value is better (default: as the metric says)",
            "--checkpoint.every_n_steps N": "steps between two saves of last.ckpt",
            "--checkpoint.every_n_minutes N": "minutes between two saves [10]",
            "--checkpoint.every_n_epochs N": "epochs between two saves [1]",
            "--init_from X": "initial weights of a new run: best, last, a run directory, a checkpoint or a state dict",
        }
    )
    checkpoint = "continued"
    uses_loggers = True
    reports = True

    def before_build(self, session: "Session") -> None:
        if session.checkpoint is None or session.invocation.settings.get("ckpt_path") == "best":
            return
        from playbook.training.finished import reasons_to_stop

        metrics = session.run.read_metrics()
        if metrics.get("status") != "finished":
            return
        former = yaml.safe_load(session.opened.config) if session.opened is not None else None
        if reasons := reasons_to_stop(metrics, (former or {}).get("trainer") or {}, session.values["trainer"]):
            if session.options.format == "json":
                _report(session)
            raise Finished(
                f"{session.run} is finished: {metrics['epoch']} epochs, {metrics['step']} steps; {'; '.join(reasons)}"
            )

    def callbacks(self, session: "Session") -> "list[Callback]":
        from playbook.insight.report.callback import VARIABLE, Report
        from playbook.insight.review_start import Doctor

        is_wanted = session.options.report and os.environ.get(VARIABLE) != "false"
        return [*([Doctor()] if session.options.doctor else []), *([Report()] if is_wanted else [])]

    def after_build(self, session: "Session") -> None:
        session.run.create()  # only now: a mistake before leaves no directory behind

    def run(
        self,
        session: "Session",
        doctor: bool = False,
        report: bool = True,
        format: Literal["terminal", "json"] = "terminal",
    ) -> None:
        """Trains.

        Args:
            session: the model, its data and the trainer.
            doctor: review the model and data first, and stop at a critical finding.
            report: end with report.html and report.md in the run directory.
            format: of what is printed: terminal, or json for programs: the directory of the run and its metrics.json.
        """
        trainer = session.trainer
        trainer.fit(
            session.model, datamodule=session.datamodule, ckpt_path=session.checkpoint, init_from=session.init_from
        )
        trainer.test_best(session.model, session.datamodule)
        if format == "json":
            _report(session)


def _report(session: "Session") -> None:
    print_json({"run": str(session.run), **session.run.read_metrics()})


VERB = Fit()
ORDER = 1

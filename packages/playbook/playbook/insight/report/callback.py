"""Has a training end with its report."""

import os

from lightning.pytorch import LightningModule, Trainer

from playbook.insight.report.collect import Collect

VARIABLE = "PLAYBOOK_REPORT"  # in the environment, false leaves out all reports: for tests and sweeps of short runs


class Report(Collect):
    """Writes report.html and report.md into the run directory, after `fit` and again after `test`.

    It accompanies every `fit` of the command line. In Python: `Trainer(max_epochs=5, callbacks=[Report()])`. A Trainer
    without a run directory writes none, and neither does one with PLAYBOOK_REPORT=false in the environment.
    """

    def on_run_concluded(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.batch is not None and trainer.is_global_zero and os.environ.get(VARIABLE) != "false":
            from playbook.insight.report.live import conclude  # only now: no training waits for it

            conclude(trainer, pl_module, self)

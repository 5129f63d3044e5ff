"""Reviews a run at its start."""

from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.insight.review import review_start
from playbook.processes import is_first_process


class Doctor(Callback):
    """Runs the quick probes of the review before training begins, and stops at a critical finding (`fit --doctor`).

    The review runs on the CPU in a forked process and takes a few seconds for a small model; the run starts from the
    same weights and random numbers as without it.

    Args:
        all_probes: whether to run slow probes as well, which train for many steps or read much data.
    """

    def __init__(self, all_probes: bool = False) -> None:
        self.all_probes = all_probes

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and is_first_process():
            review_start(trainer, pl_module, self.all_probes)

"""Reviews a run at its start."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.doctor.command import examine
from playbook.doctor.errors import ReviewError
from playbook.doctor.options import quick_ids, select_ids
from playbook.doctor.render import render
from playbook.errors import UserError
from playbook.processes import is_first_process


@contextmanager
def review_errors() -> Iterator[None]:
    """Raises what is wrong with the options of a review as a mistake of the user."""
    try:
        yield
    except ReviewError as error:
        raise UserError(str(error)) from None


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
        if stage != "fit" or not is_first_process():
            return
        ids = select_ids() if self.all_probes else quick_ids()
        with review_errors():
            report = examine(trainer, pl_module, getattr(trainer, "datamodule", None), ids)
        title = type(pl_module).__name__
        critical = [item for item in report.findings if item["severity"] == "critical"]
        if report.findings:
            print(render(replace(report, checked=[]), "terminal", title), flush=True)
        else:
            print(f"{title}: nothing found, {len(report.checked)} checks passed in {report.seconds:.1f} s", flush=True)
        if critical:
            names = ", ".join(sorted({item["id"] for item in critical}))
            mark = f"# doctor: ignore[{critical[0]['id']}] reason"
            raise UserError(f"--doctor: {names}, see above; add `{mark}` to the line to accept it")

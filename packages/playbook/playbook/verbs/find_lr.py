"""find_lr: suggests a learning rate."""

from typing import TYPE_CHECKING, Literal

from playbook.command.reports import print_json
from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.session import Session


class FindLR(ModelVerb):
    """Trains a copy of the model with an increasing rate, and suggests the one where the loss falls most steeply."""

    name = "find_lr"
    summary = "Suggest a learning rate from a short training with an increasing rate."
    examples = ("--config configs/vision/cnn-digits.yaml",)
    checkpoint = "optional"
    reports = True

    def run(
        self,
        session: "Session",
        min_lr: float = 1e-6,
        max_lr: float = 1.0,
        num_steps: int = 100,
        format: Literal["terminal", "json"] = "terminal",
    ) -> None:
        """Sweeps over the rates, and writes `find_lr.png` and `find_lr.csv` to the run directory.

        Args:
            session: the model, its data and the trainer.
            min_lr: first learning rate, above 0.
            max_lr: last learning rate; the sweep ends before it if the loss diverges.
            num_steps: optimizer steps, at least 10; a longer sweep suggests a lower rate.
            format: of what is printed: terminal, or json for programs.
        """
        from playbook.insight import finders
        from playbook.training.initial import load_weights

        if session.checkpoint is not None:
            load_weights(session.model, session.checkpoint)
        sweep = finders.find_lr(session.trainer, session.model, session.datamodule, min_lr, max_lr, num_steps)
        if session.trainer.is_global_zero:
            session.run.create()
            sweep.write(session.run.path)
            option = finders.rate_option(session.model)
            print(f"{sweep.verdict(option)}\n{session.run}/find_lr.png, find_lr.csv")
            if format == "json":
                result = {"option": option, "suggestion": sweep.suggestion, "diverged": sweep.diverged}
                print_json({"run": str(session.run), **result})


VERB = FindLR()
ORDER = 5

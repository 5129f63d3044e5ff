"""The confusion matrix of the test."""

import csv
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torchmetrics.classification import MulticlassConfusionMatrix

from playbook import UserError, class_name

MOST_WRITTEN = 25  # classes whose counts are written into the picture


class ConfusionMatrix(Callback):
    """Writes the test's confusion matrix to `confusion.csv` and `confusion.png` in the run directory.

    The task's test_step must return `label` and `target` (B,), as Classification's does.

    Args:
        class_names: names to show. Default to those of the data, or else numbers.
    """

    def __init__(self, class_names: list[str] | None = None) -> None:
        self.class_names = class_names
        self._counts: MulticlassConfusionMatrix | None = None

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        num_classes = getattr(pl_module, "num_classes", None)
        if num_classes is None:
            raise UserError("trainer.callbacks: ConfusionMatrix needs a task with num_classes, as Classification has")
        if self.class_names and len(self.class_names) != num_classes:
            raise UserError(f"class_names: expected {num_classes} names, one a class, got {len(self.class_names)}")
        self._counts = MulticlassConfusionMatrix(num_classes, validate_args=False).to(pl_module.device)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not isinstance(outputs, dict) or not {"label", "target"} <= outputs.keys():
            raise UserError("trainer.callbacks: ConfusionMatrix needs a test_step that returns label and target")
        assert self._counts is not None
        self._counts.update(outputs["label"], outputs["target"])

    def on_test_end(self, trainer: Any, pl_module: LightningModule) -> None:
        assert self._counts is not None
        counts = self._counts.compute().tolist()  # (K, K), rows are targets; summed over ranks
        self._counts = None
        if not trainer.is_global_zero:
            return
        folder = trainer.run.path if getattr(trainer, "run", None) else Path(trainer.default_root_dir)
        names = self.class_names or [class_name(getattr(pl_module, "facts", {}), i) for i in range(len(counts))]
        folder.mkdir(parents=True, exist_ok=True)  # of a run that only tests
        with (folder / "confusion.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(
                [["target", *names], *([name, *row] for name, row in zip(names, counts, strict=True))]
            )
        _draw(folder / "confusion.png", names, counts)


def _draw(file: Path, names: list[str], counts: list[list[int]]) -> None:
    from matplotlib.figure import Figure  # without pyplot, which would look for a screen

    shares = [[count / max(sum(row), 1) for count in row] for row in counts]
    side = max(4.0, 0.42 * min(len(names), MOST_WRITTEN) + 1.5)
    figure = Figure((side, side), layout="constrained")
    place = figure.subplots()
    place.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    place.set(xlabel="taken for", ylabel="target", title="share of each target")
    if len(names) <= MOST_WRITTEN:
        place.set_xticks(range(len(names)), names, rotation=90)
        place.set_yticks(range(len(names)), names)
        for i, row in enumerate(counts):
            for j, count in enumerate(row):
                colour = "white" if shares[i][j] > 0.5 else "black"
                if count:
                    place.text(j, i, str(count), ha="center", va="center", color=colour, fontsize=7)
    figure.savefig(file, dpi=100)

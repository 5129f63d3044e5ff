"""metrics.csv, which every run has, and the directories of the other loggers."""

import csv
import netrc
import os
import sys
import uuid
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from playbook.processes import is_first_process
from playbook.runs.directory import Run, write_atomically
from playbook.training.lightning import drop_wandb_setting


class MetricsCSV(Logger):
    """Writes a row for every step with logged values; a new metric adds a column.

    Lightning's CSVLogger deletes earlier rows when a run resumes.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._columns: list[str] = []
        self.num_rows = 0

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    @property
    def experiment(self) -> Any:
        """Takes any call and does nothing: a module that draws into TensorBoard also runs without it."""
        return DummyLogger().experiment

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """config.yaml holds them."""

    @rank_zero_only
    def continue_from(self, step: int, num_rows: int | None = None) -> None:
        """Drops rows that are about to be repeated.

        Args:
            step: that the training goes on with; rows of it and later ones go.
            num_rows: how many there were at the checkpoint; later ones go as well. One of a validation that is
                repeated has the number of an earlier step.
        """
        rows = [row for row in self.read()[:num_rows] if int(row["step"]) < step]
        self.num_rows = len(rows)
        self._columns = [name for name in (rows[0] if rows else {}) if any(row[name] for row in rows)]
        self._rewrite(rows)

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row = {"step": str(step or 0)} | {name: f"{float(value):.9g}" for name, value in metrics.items()}
        self.num_rows += 1
        if new := [name for name in row if name not in self._columns]:
            rows = self.read()
            first = [name for name in ("epoch", "step") if name in new]
            self._columns += first + [name for name in new if name not in first]
            self._rewrite(rows)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns, restval="").writerow(row)

    def read(self) -> list[dict[str, str]]:
        """All rows so far; a last line cut off by a crash is left out."""
        if not self.path.is_file():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return [row for row in rows if None not in row.values() and row["step"].isdigit()]

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        lines = [",".join(self._columns)]
        lines += [",".join(row.get(name, "") for name in self._columns) for row in rows]
        write_atomically(self.path, "\n".join(lines) + "\n" if self._columns else "")


def place_in_run(loggers: Any, run: Run) -> None:
    """Points the configured loggers at the run directory, where the user has not said otherwise.

    W&B is online if the user is logged in, else offline, and continues its own run when the training resumes.

    Args:
        loggers: what stands under `trainer.logger`: a class path with arguments, a list of them, or a boolean.
        run: whose directory it is.
    """
    for logger in loggers if isinstance(loggers, list) else [loggers]:
        arguments = getattr(logger, "init_args", None)
        if arguments is None:
            continue
        if arguments.get("save_dir", "unknown") in ("", ".", None):
            arguments["save_dir"] = str(run.path.absolute())
        if logger.class_path.endswith(".WandbLogger"):
            os.environ.setdefault("WANDB_SILENT", "true")
            arguments["offline"] = arguments["offline"] or not _wandb_logged_in()
            arguments["id"] = arguments["id"] or _wandb_id(run)
            arguments["name"] = arguments["name"] or run.label


def calm(logger: Any) -> None:
    """Takes back what makes W&B warn: Lightning names a setting that W&B no longer has."""
    if isinstance(logger, WandbLogger):
        drop_wandb_setting(logger, "anonymous")


def finish() -> None:
    """Ends a W&B run that this command began, so that all of it is on disk when the command returns."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish()


def _wandb_logged_in() -> bool:
    if os.environ.get("WANDB_MODE", "online") in ("offline", "dryrun", "disabled"):
        return False
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").rpartition("/")[2]
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _wandb_id(run: Run) -> str:
    file = run.path / "wandb" / "id"
    if not is_first_process():  # only the first one logs
        return ""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, uuid.uuid4().hex[:12])
    return file.read_text(encoding="utf-8")

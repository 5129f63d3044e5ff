"""metrics.csv, which every run has, and the directories of the other loggers."""

import csv
import io
import logging
import netrc
import os
import sqlite3
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, MLFlowLogger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from playbook.processes import is_first_process
from playbook.runs.directory import Run, write_atomically
from playbook.runs.experiment import Experiment, Ignored, TellOnce, say_nothing
from playbook.training.lightning.settings import drop_wandb_setting


class RunLogger(Logger):
    """Answers where the run's files are; a run directory is the place of one version, so names have no part in it.

    Every attribute of Lightning's CSVLogger is there. What other loggers have beyond that is taken and ignored.

    Args:
        directory: of the run; made when it is asked for.
        tell: is called with the name of a method that is ignored.
    """

    LOGGER_JOIN_CHAR = "-"

    def __init__(self, directory: Path, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._directory = directory
        self._tell = tell
        self._experiment = Experiment(self, tell)

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        if is_first_process():
            self._directory.mkdir(parents=True, exist_ok=True)
        return str(self._directory)

    root_dir = log_dir = save_dir

    @property
    def experiment(self) -> Experiment:
        """Takes any call: a module that draws into TensorBoard also runs without it."""
        return self._experiment

    def log_hyperparams(self, params: Any = None, *args: Any, **kwargs: Any) -> None:
        """config.yaml holds them."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Ignored(f"self.logger.{name}", self._tell)


class KeepsNothing(RunLogger):
    """Takes what is logged where nothing is to be recorded.

    Args:
        directory: for files that the module itself writes.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, tell=say_nothing)


class MetricsCSV(RunLogger):
    """Writes a row for every step with logged values; a new metric adds a column, whatever its name is.

    Lightning's CSVLogger deletes earlier rows when a run resumes.

    Args:
        path: the file.
        is_alone: whether no other logger records what this one cannot.
    """

    def __init__(self, path: Path, is_alone: bool = True) -> None:
        super().__init__(path.parent, TellOnce() if is_alone else say_nothing)
        self.path = path
        self.num_rows = 0
        self.epoch_names: set[str] = set()  # of the values logged in the running epoch, see Record
        self._columns: list[str] = []

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
    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        row = {name: _cell(value) for name, value in metrics.items()} | {"step": str(int(step or 0))}
        self.num_rows += 1
        self.epoch_names |= metrics.keys()
        if new := [name for name in row if name not in self._columns]:
            rows = self.read()
            first = [name for name in ("epoch", "step") if name in new]
            self._columns += first + [name for name in new if name not in first]
            self._rewrite(rows)
        with self.path.open("a", newline="", encoding="utf-8", errors="surrogateescape") as file:
            _writer(file, self._columns).writerow(row)

    def read(self) -> list[dict[str, str]]:
        """All rows so far; a last line cut off by a crash is left out."""
        if not self.path.is_file():
            return []
        with self.path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            rows = list(csv.DictReader(file))
        return [row for row in rows if None not in row.values() and row["step"].isdigit()]

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        text = io.StringIO(newline="")
        if self._columns:
            writer = _writer(text, self._columns)
            writer.writeheader()
            writer.writerows({name: row.get(name, "") for name in self._columns} for row in rows)
        write_atomically(self.path, text.getvalue())


def _writer(file: Any, columns: list[str]) -> csv.DictWriter:
    # before Python 3.13, a carriage return alone is not quoted
    quoting = csv.QUOTE_ALL if any("\r" in name for name in columns) else csv.QUOTE_MINIMAL
    return csv.DictWriter(file, columns, restval="", lineterminator="\n", quoting=quoting)


def _cell(value: Any) -> str:
    """A number with nine digits; what is none, as text."""
    try:
        return f"{float(value):.9g}"
    except (TypeError, ValueError):
        return " ".join(str(value).splitlines())


def place_in_run(loggers: Any, run: Run) -> None:
    """Points the configured loggers at the run directory, where the user has not said otherwise.

    W&B is online if the user is logged in, else offline. W&B and MLflow continue their own run when the training
    resumes.

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
        if logger.class_path.endswith(".MLFlowLogger"):
            _place_mlflow(arguments, run)


def _place_mlflow(arguments: Any, run: Run) -> None:
    """A database in the run directory where no store is named, as MLflow no longer writes plain files.

    Its one run goes on when the training resumes.
    """
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    logging.getLogger(MLFlowLogger.__module__).setLevel(logging.ERROR)  # that an experiment is new
    arguments["run_name"] = arguments["run_name"] or run.label
    if arguments["tracking_uri"]:
        return
    database = run.path.absolute() / "mlflow.db"
    arguments["tracking_uri"] = f"sqlite:///{database.as_posix()}"
    arguments["artifact_location"] = arguments["artifact_location"] or (database.parent / "mlflow").as_uri()
    if database.is_file() and is_first_process():
        with closing(sqlite3.connect(database)) as connection:
            row = connection.execute("SELECT run_uuid FROM runs ORDER BY start_time DESC").fetchone()
        arguments["run_id"] = arguments["run_id"] or (row and row[0])


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

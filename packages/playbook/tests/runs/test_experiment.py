"""A module that logs to TensorBoard, W&B or files of its own runs with metrics.csv alone, and where nothing is kept."""

import copy
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

from playbook.insight.finders import find_batch_size, find_lr
from playbook.runs.directory import Run
from playbook.runs.loggers import KeepsNothing, MetricsCSV
from playbook.testing.command import QUIET
from playbook.testing.line import Line, Points, points
from playbook.training.trainer import Trainer


class Draws(Line):
    """Uses what its logger has in every hook that user code commonly does it in."""

    def __init__(self) -> None:
        super().__init__()
        self.loggers_seen: list[Any] = []

    def use_logger(self) -> None:
        logger: Any = self.logger
        self.loggers_seen.append(logger)
        pictures = Path(logger.log_dir, "pictures")
        pictures.mkdir(exist_ok=True)
        Path(self.trainer.log_dir or "", "pictures", "0.png").touch()
        logger.experiment.add_scalar("loss", 0.5, self.global_step)
        logger.experiment.config.update({"a": 1})
        logger.experiment["curve"].append(1.0)
        logger.log_image(key="sample", images=[torch.zeros(3, 2, 2)])
        assert list(logger.experiment.runs) == []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.use_logger()
        return super().training_step(batch, batch_idx)

    def on_validation_epoch_end(self) -> None:
        self.use_logger()

    def on_test_end(self) -> None:
        self.use_logger()


class Sized(Points):
    batch_size = 4

    def train_dataloader(self) -> DataLoader:
        return points(8, self.batch_size)


def trainer_in(run: Path) -> Trainer:
    return Trainer(**QUIET, run_dir=run, max_epochs=1)


def test_fit_names_once_what_is_not_recorded(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = Draws()
    trainer_in(Path("run")).fit(module, datamodule=Points())
    assert Path("run/pictures/0.png").is_file()
    assert {type(logger) for logger in module.loggers_seen} == {MetricsCSV}
    lines = [line for line in capsys.readouterr().err.splitlines() if "not recorded" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: self.logger.experiment.add_scalar is not recorded: ")


@pytest.mark.parametrize(
    "find", [partial(find_lr, num_steps=10), partial(find_batch_size, max_batch_size=4, steps_per_trial=3)]
)
def test_finders_take_everything_and_keep_nothing(workdir: Path, find: Any, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(**QUIET, run=Run(Path("run")), max_epochs=1)
    find(trainer, Draws(), Sized())
    assert Path("run/pictures/0.png").is_file()
    assert not Path("run/metrics.csv").exists()
    assert capsys.readouterr().err == ""


def test_test_alone_takes_everything_and_keeps_nothing(workdir: Path) -> None:
    module = Draws()
    Trainer(**QUIET, run=Run(Path("run"))).test(module, datamodule=Points())
    assert Path("run/pictures/0.png").is_file()
    assert {type(logger) for logger in module.loggers_seen} == {KeepsNothing}
    assert not Path("run/metrics.csv").exists()


def test_fast_dev_run_keeps_nothing(workdir: Path) -> None:
    module = Draws()
    Trainer(**{**QUIET, "logger": True, "fast_dev_run": True}).fit(module, datamodule=Points())
    assert {type(logger) for logger in module.loggers_seen} == {KeepsNothing}


@pytest.mark.parametrize("logger_class", [MetricsCSV, KeepsNothing])
def test_every_public_attribute_of_lightnings_csv_logger(tmp_path: Path, logger_class: Any) -> None:
    run = tmp_path / "run"
    logger = logger_class(run / "metrics.csv" if logger_class is MetricsCSV else run)
    reference = CSVLogger(tmp_path / "other")
    for name in [name for name in dir(reference) if not name.startswith("_") and name != "experiment"]:
        assert callable(getattr(logger, name)) == callable(getattr(reference, name)), name
    for name in ("name", "version"):
        assert isinstance(getattr(logger, name), str), name
    for name in ("save_dir", "root_dir", "log_dir"):
        assert Path(getattr(logger, name)) == run, name
    assert run.is_dir()
    for name in ("log_dir", "dir", "logdir"):
        assert getattr(logger.experiment, name) == str(run), name
    assert logger.experiment.get_logdir() == str(run)
    logger.experiment.log_hparams({"lr": 1})
    assert logger.experiment.hparams == {"lr": 1}
    assert logger.experiment.metrics_file_path == str(run / "metrics.csv")
    logger.experiment.save()
    assert os.path.join(logger.save_dir, logger.name, f"version_{logger.version}").startswith(str(run))


def test_experiment_writes_rows_as_lightnings_does(tmp_path: Path) -> None:
    logger = MetricsCSV(tmp_path / "metrics.csv")
    logger.experiment.log_metrics({"a": 1.5}, step=3)
    assert (tmp_path / "metrics.csv").read_text() == "step,a\n3,1.5\n"


def test_another_logger_that_records_leaves_nothing_to_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MetricsCSV(tmp_path / "metrics.csv", is_alone=False).experiment.add_image("a", torch.zeros(3, 2, 2))
    assert capsys.readouterr().err == ""


def test_ignoring_objects_can_be_copied_and_pickled(tmp_path: Path) -> None:
    logger = KeepsNothing(tmp_path)
    for duplicate in (copy.deepcopy(logger), pickle.loads(pickle.dumps(logger))):
        assert duplicate.log_dir == str(tmp_path)
        with duplicate.experiment.span("a") as span:
            span["b"] = 1
        assert not hasattr(duplicate, "_private")
        assert not hasattr(duplicate.experiment, "__array__")

"""What fit prints around the training: the line before it, the card after it."""

import shlex
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from playbook.data.base import Data
from playbook.project import current
from playbook.runs import card
from playbook.runs.directory import Run
from playbook.testing.command import QUIET, UNSAVED
from playbook.testing.line import Line, Points, points
from playbook.training.trainer import Trainer


def trained(module: pl.LightningModule, path: str = "job", data: Any = None, **settings: Any) -> Trainer:
    """A Trainer that has trained for two epochs of two steps, or as told."""
    settings = {**UNSAVED, "max_epochs": 2} | settings
    trainer = Trainer(**settings, default_root_dir=path, run_dir=False, config="seed_everything: 1\n")
    trainer.fit(module, datamodule=data or Points())
    trainer.run = Run(Path(path))
    return trainer


def saved(run: Run) -> Run:
    """The same with something in it to go on from."""
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "last.ckpt").touch()
    return run


def rows(text: str) -> dict[str, str]:
    return {line[:14].strip(): line[15:] for line in text.splitlines() if line}


def test_header(workdir: Path) -> None:
    trainer = trained(Line())
    threads = torch.get_num_threads()
    assert card.header(trainer, Run(Path("job"))) == f"job · CPU, {threads} threads, fp32 · 8 train, 8 val · job"
    dated = Run(Path("runs/cnn/2026-01-01-000000"))
    assert card.header(trainer, dated).startswith("cnn · CPU, ")
    assert card.header(trainer, dated).endswith(" · runs/cnn/2026-01-01-000000")


class Endless(IterableDataset):
    """Nobody knows how many there are."""

    def __iter__(self) -> Any:
        return iter([(torch.ones(1), torch.ones(1))] * 4)


class Stream(pl.LightningDataModule):
    """Trains on a stream."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(Endless(), batch_size=2)


class Large(Points):
    """Has a test set, whose size is known before its loader is made."""

    def __init__(self) -> None:
        super().__init__()
        self.test_set = range(12_345)


def test_header_counts_what_can_be_counted(workdir: Path) -> None:
    module = Line()
    module.validation_step = None  # type: ignore[assignment]
    assert "train" not in card.header(trained(module, data=Stream()), Run(Path("job")))
    assert " · 8 train, 8 val, 12,345 test · " in card.header(trained(Line(), data=Large()), Run(Path("job")))


def test_header_names_the_precision(workdir: Path) -> None:
    trainer = trained(Line(), precision="bf16-mixed")
    assert ", bf16 mixed · " in card.header(trainer, Run(Path("job")))
    trainer = trained(Line().double(), precision="64-true", data=Doubles())
    assert ", 64-true · " in card.header(trainer, Run(Path("job")))


class Doubles(pl.LightningDataModule):
    """Points in double precision."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader([(torch.ones(1).double(), torch.ones(1).double())] * 4)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader:
        return self.train_dataloader()


def test_parameters_and_frozen_ones(workdir: Path) -> None:
    module = Line()
    module.net = nn.Sequential(nn.Linear(1, 500), nn.Linear(500, 1))  # type: ignore[assignment]
    trainer = trained(module)
    text = rows(card.summary(trainer, module, {}))["Architecture"]
    assert text == f"Sequential, {500 + 500 + 500 + 1:,} parameters"
    module.net[0].requires_grad_(False)  # type: ignore[index]
    text = rows(card.summary(trainer, module, {}))["Architecture"]
    assert text == "Sequential, 1,501 parameters, 501 of them trained"


def test_rows_and_what_to_do_next(workdir: Path) -> None:
    trainer = trained(Line())
    trainer.run = saved(Run(Path("my runs/a b")))
    lines = rows(card.summary(trainer, Line(), {}))
    assert lines["Optimization"] == f"CPU, {torch.get_num_threads()} threads, fp32, eager, 1 CPU process"
    assert lines["Training"] == "SGD, lr 0.1, 2 epochs in 0 s"
    quoted, command = shlex.quote("my runs/a b"), current().command
    assert lines["predict"] == f"{command} predict --ckpt_path {quoted}"
    assert lines["test"] == f"{command} test --ckpt_path {quoted}"
    assert lines["continue"] == f"{command} fit --run_dir {quoted} --ckpt_path last --trainer.max_epochs 4"


class Untested(Points):
    """Is a third-party data module in which `test_set` means nothing."""

    test_set = None


class Ours(Data):
    """Playbook's own loaders, which predict the test set."""

    def setup(self, stage: str) -> None:
        self.train_set = self.val_set = points().dataset
        self.test_set = None


class Predicting(Ours):
    """Predicts something else."""

    def predict_dataloader(self) -> DataLoader:
        return points()


class Stepless(Line):
    """Cannot be tested, nor predict anything but what `forward` returns."""

    test_step = predict_step = None  # type: ignore[assignment]


@pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`.*")
@pytest.mark.parametrize(
    ("module", "data", "verbs"),
    [
        (Line(), Points(), ["predict", "test"]),
        (Line(), Stream(), []),
        (Line(), Untested(), ["predict", "test"]),
        (Line(), Ours(), []),
        (Line(), Predicting(), ["predict"]),
        (Stepless(), Points(), []),
    ],
)
def test_only_commands_that_can_run_are_printed(
    workdir: Path, module: pl.LightningModule, data: Any, verbs: list[str]
) -> None:
    trainer = trained(module, data=data, limit_val_batches=0)
    saved(Run(Path("job")))
    lines = rows(card.summary(trainer, module, {}))
    assert [verb for verb in ("predict", "test") if verb in lines] == verbs
    assert "continue" in lines


def test_the_limit_that_ended_it_is_raised_to_continue(workdir: Path) -> None:
    trainer = trained(Line(), max_epochs=-1, max_steps=3)
    saved(Run(Path("job")))
    lines = rows(card.summary(trainer, Line(), {}))
    assert lines["Ended by"] == "max_steps 3"
    assert lines["continue"].endswith(" --ckpt_path last --trainer.max_steps 6")
    trainer.endings = []
    assert "continue" not in rows(card.summary(trainer, Line(), {}))


def test_compiled(workdir: Path) -> None:
    module = Line()
    trainer = trained(module)
    assert ", eager, " in card.summary(trainer, module, {})
    module.net.compile(backend="eager")
    assert ", compiled, " in card.summary(trainer, module, {})


@pytest.mark.parametrize(
    ("epochs", "steps", "seconds", "text"),
    [
        (1, 7, 59.6, "1 epoch in 60 s"),
        (2, 7, 0.0, "2 epochs in 0 s"),
        (0, 1, 1.0, "1 step in 1 s"),
        (0, 7, 599.0, "7 steps in 599 s"),
        (30, 7, 600.0, "30 epochs in 10 min"),
        (30, 7, 7260.0, "30 epochs in 121 min"),
    ],
)
def test_plural_forms_and_units_of_time(epochs: int, steps: int, seconds: float, text: str) -> None:
    trainer = pl.Trainer(**QUIET, enable_checkpointing=False)
    progress: Any = trainer.fit_loop.epoch_progress.current
    progress.processed = progress.completed = epochs
    trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed = steps
    assert (trainer.current_epoch, trainer.global_step) == (epochs, steps)
    assert card._duration(trainer, seconds) == text


class Scheduled(Line):
    """Has a schedule and says what its loss is."""

    loss_name = "squared error"

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-5)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.25, total_steps=4)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def test_optimizer_schedule_and_loss(workdir: Path) -> None:
    """The rate shown is the peak, not where the schedule has ended."""
    text = rows(card.summary(trained(Scheduled()), Scheduled(), {}))["Training"]
    assert text == "SGD, lr 0.25, OneCycleLR, squared error, 2 epochs in 0 s"


class Silent(Line):
    """Logs nothing."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._error(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        pass


def results(metrics: dict[str, Any], test: dict[str, float]) -> str:
    trainer = pl.Trainer(**QUIET, enable_checkpointing=False)
    return card._results(trainer, metrics, test)


def test_results_of_a_module_without_metrics(workdir: Path) -> None:
    trainer = trained(Silent())
    assert rows(card.summary(trainer, Silent(), {}))["Results"] == "nothing was logged"


@pytest.mark.parametrize(
    ("metrics", "test", "text"),
    [
        (
            {
                "best": {
                    "monitor": "val/acc",
                    "epoch": 3,
                    "metrics": {"train/acc": 1, "val/acc": 0.98765, "val/loss": 9},
                }
            },
            {"test/acc": 0.5, "test/loss": 7.0},
            "acc: train 1 · val 0.9877 · test 0.5   (best epoch 3)",
        ),
        ({"metrics": {"val_loss": 2.0, "val_f1": 0.5}}, {"test_f1": 0.25}, "f1: val 0.5 · test 0.25"),
        ({"metrics": {"train/loss": 2.0}}, {}, "loss: train 2"),
        ({"metrics": {"perplexity": 12.5}}, {}, "perplexity: 12.5"),
        (
            {"best": {"monitor": "score", "epoch": 1, "metrics": {"score": 3.0}}},
            {},
            "score: 3   (best epoch 1)",
        ),
        ({}, {"test/loss": 1e-9}, "loss: test 1e-09"),
        ({}, {}, "nothing was logged"),
    ],
)
def test_results(metrics: dict[str, Any], test: dict[str, float], text: str) -> None:
    assert results(metrics, test) == text


@pytest.mark.parametrize("name", ["value", "trainable_norm"])
def test_results_of_a_metric_whose_name_begins_like_a_stage(name: str) -> None:
    assert results({"metrics": {name: 0.5}}, {}).startswith(f"{name}: ")


def test_points_are_as_many_as_said() -> None:
    assert len(points().dataset) == 8  # type: ignore[arg-type]


def results_of(module: pl.LightningModule, test: dict[str, float]) -> str:
    trainer = trained(module, callbacks=[LearningRateMonitor()])
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    saved(trainer.run or Run(Path("job")))
    Run(Path("job")).update_metrics(metrics={"lr-SGD": 0.1} | metrics)
    return rows(card.summary(trainer, module, test))["Results"]


class Unusual(Line):
    """Names without a stage, and one of the training in which there is no loss."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.log("grad, norm", 1.0)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("f1", 0.25)


def test_results_are_those_of_evaluation(workdir: Path) -> None:
    """Whatever else is logged, such as learning rates."""
    text = results_of(Line(), {"test/loss": 0.5})
    assert text.startswith("loss: train ")
    assert text.endswith(" · test 0.5")


def test_results_without_a_stage_in_their_names(workdir: Path) -> None:
    assert results_of(Unusual(), {}) == "f1: 0.25"


def test_results_of_a_test_that_measures_something_else(workdir: Path) -> None:
    assert results_of(Unusual(), {"test/top\n5": 0.75}) == "f1: 0.25 · test/top 5 0.75"


def test_test_is_shown_beside_the_monitored_metric(workdir: Path) -> None:
    module = Line()
    trainer = trained(module)
    best = {"monitor": "val/loss", "epoch": 1, "metrics": {"val/loss": 0.125}}
    Run(Path("job")).path.mkdir(exist_ok=True)
    Run(Path("job")).update_metrics(best=best)
    text = rows(card.summary(trainer, module, {"accuracy": 0.75}))["Results"]
    assert text == "loss: val 0.125 · accuracy 0.75   (best epoch 1)"

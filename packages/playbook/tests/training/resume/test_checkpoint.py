"""Which epoch is the best, when last.ckpt is saved, and what a disk that fails costs."""

import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

from playbook.checkpoints.io import AtomicCheckpointIO, load
from playbook.errors import UserError
from playbook.testing.command import QUIET
from playbook.testing.line import Line, points
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.resume.exact import ExactResume


class Scripted(Line):
    """Logs the given value after each epoch, under a name of choice."""

    def __init__(self, values: list[float], name: str = "val/score", in_training: bool = False) -> None:
        super().__init__()
        self.values, self.metric, self.in_training = values, name, in_training

    def on_validation_epoch_end(self) -> None:
        if not self.in_training:
            self.log(self.metric, self.values[self.current_epoch])

    def on_train_epoch_end(self) -> None:
        if self.in_training:
            self.log(self.metric, self.values[self.current_epoch])


class Watch(pl.Callback):
    """Notes the step of every save."""

    def __init__(self) -> None:
        self.saved: list[int] = []

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Any) -> None:
        self.saved.append(trainer.global_step)


def train(folder: Path | None, callback: Checkpoint, module: Line, epochs: int, **settings: Any) -> list[int]:
    """Two steps an epoch; returns the steps at which something was saved."""
    callback.folder = folder
    watch = Watch()
    settings = {
        **QUIET,
        "callbacks": [ExactResume(callback), watch, callback],
        "plugins": [AtomicCheckpointIO()],
        **settings,
    }
    trainer = pl.Trainer(**settings, max_epochs=epochs, default_root_dir=folder)
    trainer.fit(module, points(), points(), weights_only=True)
    return watch.saved


NAN, INF = math.nan, math.inf
SCORES = [
    ("min", [3.0, 1.0, 2.0], 2),
    ("max", [1.0, 3.0, 2.0], 2),
    ("min", [1.0, 1.0, 1.0], 1),  # a draw is no improvement
    ("max", [2.0, 2.0, 1.0], 1),
    ("min", [NAN, 2.0, NAN], 2),
    ("max", [NAN, NAN, -5.0], 3),
    ("min", [2.0, -INF, 3.0], 1),
    ("max", [INF, 1.0, 2.0], 3),
    ("min", [0.0, -1.0, 0.5], 2),
]


@pytest.mark.parametrize("in_training", [False, True], ids=["validation", "training"])
@pytest.mark.parametrize(("mode", "values", "epoch"), SCORES, ids=str)
def test_best_epoch(tmp_path: Path, mode: Any, values: list[float], epoch: int, in_training: bool) -> None:
    callback = Checkpoint("val/score", mode)
    train(tmp_path, callback, Scripted(values, in_training=in_training), epochs=3)
    assert callback.best["epoch"] == epoch
    assert callback.best["score"] == values[epoch - 1]
    assert callback.best["step"] == 2 * epoch
    assert callback.best["metrics"]["val/score"] == values[epoch - 1]
    assert "train/loss" in callback.best["metrics"], "known only at the end of the epoch"
    assert load(tmp_path / "best.ckpt")["global_step"] == 2 * epoch
    assert load(tmp_path / "last.ckpt")["global_step"] == 6


def test_never_a_number(tmp_path: Path) -> None:
    callback = Checkpoint("val/score", "max")
    train(tmp_path, callback, Scripted([NAN, INF, -INF]), epochs=3)
    assert callback.best == {}
    assert not (tmp_path / "best.ckpt").exists()
    assert (tmp_path / "last.ckpt").exists()


def test_best_is_kept_over_a_continuation(tmp_path: Path) -> None:
    train(tmp_path, Checkpoint("val/score"), Scripted([1.0, 5.0]), epochs=2)
    again = Checkpoint("val/score")
    again.folder = tmp_path
    trainer = pl.Trainer(**QUIET, callbacks=[ExactResume(again), again], plugins=[AtomicCheckpointIO()], max_epochs=3)
    trainer.fit(Scripted([9.0, 9.0, 2.0]), points(), points(), ckpt_path=str(tmp_path / "last.ckpt"), weights_only=True)
    assert again.best["epoch"] == 1
    assert load(tmp_path / "best.ckpt")["global_step"] == 2
    assert load(tmp_path / "last.ckpt")["global_step"] == 6


def test_checkpoint_carries_the_configuration(tmp_path: Path) -> None:
    callback = Checkpoint()
    callback.config = "seed_everything: 1\n"
    train(tmp_path, callback, Line(), epochs=1)
    assert load(tmp_path / "last.ckpt")["config"] == "seed_everything: 1\n"


def test_paths_under_the_names_of_lightnings_own_callback(tmp_path: Path) -> None:
    callback = Checkpoint("val/score")
    assert (callback.dirpath, callback.best_model_path) == (None, "")
    train(tmp_path, callback, Scripted([1.0]), epochs=1)
    assert callback.dirpath == str(tmp_path)
    assert load(Path(callback.best_model_path))["global_step"] == 2


OFF: dict[str, Any] = {"every_n_steps": None, "every_n_minutes": None, "every_n_epochs": None}
LAST_ALONE: dict[str, Any] = OFF | {"monitor": None}
CADENCES = [
    # nothing is due: the end of training alone
    ({}, 4, [8]),
    # at the border to the next epoch, and at the end
    ({"every_n_epochs": 1}, 4, [2, 4, 6, 8]),
    ({"every_n_epochs": 3}, 4, [6, 8]),
    # steps 2, 4, 6 end an epoch: from there it is saved as the next begins
    ({"every_n_steps": 1}, 3, [1, 2, 3, 4, 5, 6]),
    ({"every_n_steps": 3}, 4, [3, 6, 8]),
    ({"every_n_minutes": 1e-9}, 2, [1, 2, 3, 4]),
    ({"every_n_minutes": 1e9}, 2, [4]),
    # both: each saves when it is due, and counts from the last save whichever that was
    ({"every_n_epochs": 2, "every_n_steps": 3}, 4, [3, 4, 7, 8]),
]


@pytest.mark.parametrize(("cadence", "epochs", "steps"), CADENCES, ids=str)
def test_cadence(tmp_path: Path, cadence: dict[str, Any], epochs: int, steps: list[int]) -> None:
    assert train(tmp_path, Checkpoint(**(LAST_ALONE | cadence)), Line(), epochs) == steps
    assert load(tmp_path / "last.ckpt")["global_step"] == steps[-1]
    assert (tmp_path / "previous.ckpt").exists() == (len(steps) > 1)
    if len(steps) > 1:
        assert load(tmp_path / "previous.ckpt")["global_step"] == steps[-2]
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".ckpt"], "a temporary file is left"


def test_no_save_while_gradients_accumulate(tmp_path: Path) -> None:
    """Eight batches in steps of two: there is a step after batches 2, 4, 6 and 8."""
    callback = Checkpoint(every_n_steps=1, every_n_minutes=None, every_n_epochs=None)
    callback.folder = tmp_path
    watch = Watch()
    trainer = pl.Trainer(
        **QUIET,
        callbacks=[ExactResume(callback), watch, callback],
        plugins=[AtomicCheckpointIO()],
        max_epochs=1,
        accumulate_grad_batches=2,
    )
    module = Line()
    module.validation_step = None  # type: ignore[assignment]
    trainer.fit(module, points(8, batch_size=1))
    assert watch.saved == [1, 2, 3, 4]
    batches = load(tmp_path / "previous.ckpt")["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
    assert batches["processed"] == 6


@pytest.mark.parametrize("name", list(OFF))
@pytest.mark.parametrize("value", [0, -1, -0.5])
def test_cadence_below_one(name: str, value: float) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"^{name}: expected more than 0, got {value}$"):
        Checkpoint(**settings)


def test_without_a_folder_nothing_is_saved_but_the_best_is_known(tmp_path: Path) -> None:
    callback = Checkpoint("val/score")
    assert train(None, callback, Scripted([3.0, 1.0]), epochs=2) == []
    assert callback.best["epoch"] == 2


def test_fast_dev_run_saves_nothing(tmp_path: Path) -> None:
    assert train(tmp_path / "new", Checkpoint(), Line(), epochs=1, fast_dev_run=True) == []
    assert not (tmp_path / "new").exists()


def test_metric_that_nothing_logs_is_told_after_the_first_epoch(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--checkpoint\.monitor val/scor: nothing logs it\. Nearest: val/score"):
        train(tmp_path, Checkpoint("val/scor"), Scripted([1.0, 2.0]), epochs=2)


def test_disk_that_fails_costs_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file stands where the folder should be, until the second epoch."""
    folder = tmp_path / "checkpoints"
    folder.touch()

    class Mended(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            failures.append(callback.failure is not None)
            if trainer.current_epoch == 2:
                folder.unlink()

    failures: list[bool] = []
    callback = Checkpoint(monitor=None)
    callback.folder = folder
    trainer = pl.Trainer(
        **QUIET, callbacks=[ExactResume(callback), Mended(), callback], plugins=[AtomicCheckpointIO()], max_epochs=4
    )
    trainer.fit(Line(), points(), points())
    err = capsys.readouterr().err
    assert failures == [False, True, True, False]
    assert callback.failure is None
    assert err.count("warning: ") == 1, "once is enough"
    assert f"{folder.as_posix()}/last.ckpt was not saved: File exists; continuing" in err
    assert load(folder / "last.ckpt")["global_step"] == 8


def test_state_goes_into_the_checkpoint_as_plain_values(tmp_path: Path) -> None:
    callback = Checkpoint("val/score")
    train(tmp_path, callback, Scripted([1.5]), epochs=1)
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    [state] = [state for name, state in content["callbacks"].items() if "Checkpoint" in name]
    assert state == {"best": callback.best}


class Own(Scripted):
    """Names its metric, as tasks do."""

    monitor, monitor_mode = "val/score", "max"


class Other(Own):
    """Names another one."""

    monitor = "val/loss"
    monitor_mode = "min"


def fitted(
    folder: Path, callback: Checkpoint, module: Line, epochs: int, path: Path | None = None, **settings: Any
) -> pl.Trainer:
    callback.folder = folder
    callbacks = [ExactResume(callback), callback]
    options = {**QUIET, "callbacks": callbacks, "plugins": [AtomicCheckpointIO()], **settings}
    trainer = pl.Trainer(**options, max_epochs=epochs)
    trainer.fit(module, points(), points(), ckpt_path=path and str(path), weights_only=True)
    return trainer


def test_metric_of_the_task_chooses_the_best(tmp_path: Path) -> None:
    callback = Checkpoint()
    trainer = fitted(tmp_path, callback, Own([1.0, 3.0, 2.0]), epochs=3)
    assert (callback.best["monitor"], callback.best["mode"], callback.best["epoch"]) == ("val/score", "max", 2)
    assert callback.choice(trainer) == "best.ckpt is epoch 2, largest val/score 3"
    assert load(tmp_path / "best.ckpt")["global_step"] == 4


def test_loss_of_a_module_that_names_no_metric_chooses_the_best(tmp_path: Path) -> None:
    callback = Checkpoint()
    trainer = fitted(tmp_path, callback, Scripted([2.0, 1.0, 3.0], "val_loss"), epochs=3)
    # the module logs val/loss as well, which comes first and falls with every epoch
    assert callback.choice(trainer).startswith("best.ckpt is epoch 3, smallest val/loss ")


class ValLoss(Line):
    """Logs its validation loss under the name that is most common."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self._error(batch))


class Unmeasured(Line):
    """Logs no validation loss."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_acc", 0.5)


def test_why_there_is_no_best(tmp_path: Path) -> None:
    last = "last.ckpt; no best.ckpt, because "
    names = "nothing logged val/loss or val_loss or valid_loss; see --checkpoint.monitor"
    cases: list[tuple[Checkpoint, Line, dict[str, Any], str]] = [
        (Checkpoint(), Unmeasured(), {}, names),
        (Checkpoint(None), ValLoss(), {}, "checkpoint.monitor is null"),
        (Checkpoint(), ValLoss(), {"limit_val_batches": 0}, "no validation ran"),
        (Checkpoint("val/score"), Scripted([NAN]), {}, "val/score was never a finite number"),
    ]
    for number, (callback, module, settings, reason) in enumerate(cases):
        trainer = fitted(tmp_path / str(number), callback, module, epochs=1, **settings)
        assert callback.choice(trainer) == last + reason
        assert not (tmp_path / str(number) / "best.ckpt").exists()


def test_choice_is_kept_on_resume_unless_the_task_names_another(tmp_path: Path) -> None:
    fitted(tmp_path, Checkpoint(), Own([5.0, 1.0]), epochs=2)
    again = Checkpoint()
    fitted(tmp_path, again, Own([9.0, 9.0, 2.0]), epochs=3, path=tmp_path / "last.ckpt")
    assert (again.best["epoch"], again.best["score"]) == (1, 5.0)
    other = Checkpoint()
    fitted(tmp_path, other, Other([9.0] * 4), epochs=4, path=tmp_path / "last.ckpt")
    assert (other.best["monitor"], other.best["epoch"]) == ("val/loss", 4)


def test_direction_that_nothing_states_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = "--checkpoint.mode: nothing states the direction of val/score, so the smallest is the best"
    fitted(tmp_path, Checkpoint("val/score"), Scripted([1.0]), epochs=1)
    assert told in capsys.readouterr().out
    for callback, module in [
        (Checkpoint("val/score", "max"), Scripted([1.0])),
        (Checkpoint("val/loss"), Scripted([1.0])),
        (Checkpoint("val/score"), Own([1.0])),
        (Checkpoint(), Scripted([1.0])),
    ]:
        fitted(tmp_path, callback, module, epochs=1)
        assert "--checkpoint.mode" not in capsys.readouterr().out

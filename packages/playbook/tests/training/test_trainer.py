"""The Trainer from Python: Lightning's own where no run is set, and the weights it starts from."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from playbook.checkpoints.io import load
from playbook.errors import UserError
from playbook.runs.directory import Run
from playbook.runs.predictions import WritePredictions
from playbook.testing.command import QUIET
from playbook.testing.line import Line, Points, line, points
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.trainer import Trainer


def both(folder: Path, **settings: Any) -> list[pl.Trainer]:
    settings = {**QUIET, "default_root_dir": folder, "enable_checkpointing": False, **settings}
    run_dir = settings.pop("run_dir", False)
    return [Trainer(**settings, run_dir=run_dir), pl.Trainer(**settings)]


def test_fit_without_a_run_is_lightnings(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = line(), line()
    for trainer, module in zip(both(workdir, max_epochs=3), (ours, theirs), strict=True):
        assert trainer.fit(module, points(), points()) is None
        assert trainer.callback_metrics.keys() == {"train/loss", "val/loss"}
    assert torch.equal(ours.net.weight, theirs.net.weight)
    assert ours.net.weight.item() > 0.5, "and it learns"
    assert "Architecture" not in capsys.readouterr().out
    assert list(workdir.iterdir()) == []


def test_checkpoints_of_the_user_come_in_addition(workdir: Path) -> None:
    saved = ModelCheckpoint(monitor="val/loss", save_top_k=1, dirpath=workdir / "mine")
    trainer = Trainer(**QUIET, max_epochs=2, callbacks=[saved], checkpoint=Checkpoint("val/loss"), run_dir="run")
    trainer.fit(line(), datamodule=Points())
    assert sorted(path.name for path in Path("run/checkpoints").iterdir()) == [
        "best.ckpt",
        "last.ckpt",
        "previous.ckpt",
    ]
    assert len(list(Path("mine").iterdir())) == 1


def test_what_evaluation_returns(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """y = 2 x + 1 against 0: the mean of (2 x + 1)² over the eight points, 1 + 4 mean(x²)."""
    expected = 1 + 4 * torch.linspace(-1, 1, 8).square().mean().item()
    ours, _ = both(workdir)
    assert ours.validate(line(), points()) == [{"val/loss": pytest.approx(expected)}]
    assert ours.test(line(), points()) == [{"test/loss": pytest.approx(expected)}]
    assert ours.test(line(2.0, 1.0), datamodule=Points()) == [{"test/loss": 0.0}]
    assert capsys.readouterr().out == ""


def test_what_prediction_returns(workdir: Path) -> None:
    ours, theirs = both(workdir)
    for trainer in (ours, theirs):
        found = trainer.predict(line(2.0, 1.0), points())
        assert found is not None
        torch.testing.assert_close(torch.cat(found), 2 * torch.linspace(-1, 1, 8) + 1)  # type: ignore[arg-type]
    assert ours.predict(line(), points(), return_predictions=False) is None


@pytest.mark.filterwarnings("ignore:.*exists and is not empty.*")
def test_checkpoint_in_lightnings_own_way(workdir: Path) -> None:
    ours, _ = both(workdir, max_epochs=2, enable_checkpointing=True)
    ours.fit(line(), datamodule=Points())
    ours.save_checkpoint("saved.ckpt")
    [again] = ours.test(line(), datamodule=Points(), ckpt_path="saved.ckpt")
    [newest] = ours.test(datamodule=Points(), ckpt_path="best")
    assert again == newest
    continued, _ = both(workdir, max_epochs=3, enable_checkpointing=True)
    continued.fit(line(), datamodule=Points(), ckpt_path="saved.ckpt")
    assert continued.global_step == 6


def test_positional_arguments_are_lightnings(workdir: Path) -> None:
    ours, theirs = both(workdir)
    module = line(2.0, 1.0)
    theirs.strategy.connect(module)
    theirs.save_checkpoint("saved.ckpt")
    assert theirs.test(line(), points(), "saved.ckpt") == [{"test/loss": 0.0}]
    assert ours.test(line(), points(), "saved.ckpt") == [{"test/loss": 0.0}]


def test_a_run_is_summed_up_and_tested_on_request(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [trainer, _] = both(workdir, max_epochs=2, run_dir="job")
    assert isinstance(trainer, Trainer)
    trainer.fit(line(), datamodule=Points())
    assert trainer.run is not None
    assert trainer.run.read_metrics()["status"] == "finished"
    assert trainer.run.read_metrics()["test"] is None, "testing is asked for"
    assert trainer.callback_metrics.keys() == {"train/loss", "val/loss"}, "as Lightning leaves them"
    assert "Architecture   Linear, 2 parameters" in capsys.readouterr().out
    trainer.test(line(), datamodule=Points())
    assert trainer.run.read_metrics()["test"].keys() == {"test/loss"}
    assert capsys.readouterr().out.startswith("test/loss ")
    trainer.validate(line(2.0, 1.0), datamodule=Points())
    assert capsys.readouterr().out == "val/loss 0\n"
    assert trainer.run.read_metrics()["val"] == {"val/loss": 0.0}
    assert trainer.run.read_metrics()["status"] == "finished"


def test_evaluation_that_logs_nothing_says_so(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Silent(Line):
        def test_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
            pass

    [trainer, _] = both(workdir)
    assert isinstance(trainer, Trainer)
    trainer.run = Run(Path("job"))
    trainer.test(Silent(), points())
    assert capsys.readouterr().out == "test: nothing was logged\n"


def test_predictions_of_a_run_are_written_not_kept(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [trainer, _] = both(workdir, callbacks=[WritePredictions(Path("job/predictions"))])
    assert isinstance(trainer, Trainer)
    trainer.run = Run(Path("job"))
    assert trainer.predict(line(2.0, 1.0), datamodule=Points(), return_predictions=False) is None
    assert capsys.readouterr().out == "predictions  job/predictions/predictions.csv\n"
    assert Path("job/predictions/predictions.csv").read_text().startswith("id,prediction\n0,-1.0\n")


class Mute(Line):
    """Predicts nothing."""

    def predict_step(self, batch: Sequence[Tensor], batch_idx: int) -> Any:
        return None


@pytest.mark.filterwarnings("ignore:.*predict returned None.*")
def test_predict_step_that_returns_nothing(workdir: Path) -> None:
    [trainer, _] = both(workdir, callbacks=[WritePredictions(Path("job/predictions"))])
    assert isinstance(trainer, Trainer)
    trainer.run = Run(Path("job"))
    with pytest.raises(UserError, match="predict_step returned nothing to write"):
        trainer.predict(Mute(), datamodule=Points())


def test_no_batch_to_predict(workdir: Path) -> None:
    [trainer, _] = both(workdir, callbacks=[WritePredictions(Path("job/predictions"))], limit_predict_batches=0)
    assert isinstance(trainer, Trainer)
    trainer.run = Run(Path("job"))
    with pytest.raises(UserError, match="predict_step returned nothing to write"):
        trainer.predict(line(), datamodule=Points())
    assert not Path("job/predictions").exists()


def test_fit_starts_from_given_weights(workdir: Path) -> None:
    torch.save(line(2.0, 1.0).net.state_dict(), "line.pt")
    module = line(lr=0.0)
    [trainer, _] = both(workdir, max_epochs=1)
    assert isinstance(trainer, Trainer)
    trainer.fit(module, points(), points(), init_from="line.pt")
    assert float(trainer.callback_metrics["val/loss"]) == 0.0


def test_from_python_it_is_calm_and_leaves_a_run(workdir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(max_epochs=2)
    trainer.fit(line(), datamodule=Points())
    assert trainer.run is not None
    assert trainer.run.path.parent == Path("runs/Linear")
    out, err = capfd.readouterr()
    assert err == ""
    header, *_ = out.splitlines()
    assert header.startswith("Linear · CPU")
    assert header.endswith(f"8 train, 8 val · {trainer.run}")
    assert "Results        loss: train" in out
    assert "python -m" not in out, "the command line could not rebuild this module"
    left = {path.relative_to(trainer.run.path).as_posix() for path in trainer.run.path.rglob("*") if path.is_file()}
    assert left >= {"metrics.csv", "metrics.json", "environment.json", "checkpoints/last.ckpt", "config.yaml"}
    assert list(workdir.iterdir()) == [workdir / "runs"]
    metrics = trainer.run.read_metrics()
    assert (metrics["status"], metrics["epoch"]) == ("finished", 2)


def test_a_run_of_python_is_continued(workdir: Path) -> None:
    Trainer(max_epochs=4, run_dir="whole").fit(line(), datamodule=Points())
    Trainer(max_epochs=2, run_dir="job").fit(line(), datamodule=Points())
    continued = line()
    trainer = Trainer(max_epochs=4, run_dir="job")
    trainer.fit(continued, datamodule=Points(), ckpt_path="last")
    expected = load(Path("whole/checkpoints/last.ckpt"))["state_dict"]
    assert torch.equal(continued.net.weight, expected["net.weight"])
    [tested] = trainer.test(line(), datamodule=Points(), ckpt_path="last")
    assert tested["test/loss"] == pytest.approx(trainer.run.read_metrics()["test"]["test/loss"])  # type: ignore[union-attr]  # a run was made


class Interrupted(Line):
    """Gets Ctrl-C in its third step."""

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        if self.global_step == 2:
            signal.raise_signal(signal.SIGINT)
        return super().training_step(batch, batch_idx)


def test_ctrl_c_in_python_saves_and_is_a_keyboard_interrupt(workdir: Path) -> None:
    trainer = Trainer(max_epochs=5, run_dir="job")
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(Interrupted(), datamodule=Points())
    assert load(Path("job/checkpoints/last.ckpt"))["global_step"] == 3
    assert Run(Path("job")).read_metrics()["status"] == "interrupted"
    Trainer(max_epochs=2, run_dir="job").fit(line(), datamodule=Points(), ckpt_path="last")


def test_two_trainers_in_one_process_have_a_run_each(workdir: Path) -> None:
    for _ in range(2):
        Trainer(max_steps=1).fit(line(), datamodule=Points())
    assert len(list(Path("runs/Linear").iterdir())) == 2


@pytest.mark.parametrize("settings", [{"run_dir": False}, {"fast_dev_run": True}])
def test_no_run_where_none_is_wanted(workdir: Path, settings: dict[str, Any]) -> None:
    options: dict[str, Any] = {"max_epochs": 1} | settings
    Trainer(**options).fit(line(), datamodule=Points())
    assert list(workdir.iterdir()) == []


def test_runs_lie_below_the_default_root_dir(workdir: Path) -> None:
    trainer = Trainer(max_steps=1, default_root_dir="out")
    trainer.fit(line(), datamodule=Points())
    assert trainer.run is not None
    assert trainer.run.path.parent == Path("out/runs/Linear")
    assert trainer.run.title == "Linear"
    assert [path.name for path in workdir.iterdir()] == ["out"]


@pytest.mark.parametrize("unit", ["epochs", "steps"])
def test_a_minimum_above_the_maximum_is_refused(unit: str) -> None:
    limits: dict[str, Any] = {f"min_{unit}": 9, f"max_{unit}": 2}
    with pytest.raises(
        ValueError, match=f"--trainer.min_{unit}: expected at most --trainer.max_{unit}, which is 2, got 9"
    ):
        Trainer(run_dir=False, **limits)


def test_optimizers_look_for_gpus_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    Trainer(logger=False, run_dir=False, accelerator="cpu")
    assert os.environ.pop("CUDA_VISIBLE_DEVICES") == ""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    Trainer(logger=False, run_dir=False, accelerator="cpu")
    assert "CUDA_VISIBLE_DEVICES" not in os.environ

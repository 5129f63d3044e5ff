"""What a training leaves of its speed, and the causes of trainings made slow on purpose."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from torch.utils.data import DataLoader, TensorDataset, default_collate

from playbook import Trainer
from playbook.insight.report.write import write
from playbook.runs.directory import Run
from playbook.testing.line import Line
from playbook.training import speed as speeds
from playbook.training.speed import measured
from playbook.training.timing import Timing


class Slow:
    """Data that waits for its samples, and longer for every tenth."""

    def __init__(self, seconds: float, burst: float = 0.0) -> None:
        self.seconds, self.burst = seconds, burst

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.burst if self.burst and index % 10 == 9 else self.seconds)
        return torch.ones(1), torch.ones(1)


class Waits(Callback):
    """Sleeps in one hook."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, lambda *args, **kwargs: time.sleep(0.02))


class SavesEachStep(Callback):
    """Saves more often than anybody should."""

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / "each.ckpt")


class SlowStep(Line):
    """Sleeps in its steps and its hooks."""

    def __init__(self, training: float = 0.0, validation: float = 0.0, hook: float = 0.0) -> None:
        super().__init__()
        self.waits = training, validation, hook

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        time.sleep(self.waits[0])
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        time.sleep(self.waits[1])
        super().validation_step(batch, batch_idx)

    def on_train_batch_end(self, *args: Any) -> None:
        time.sleep(self.waits[2])


class Reads(SlowStep):
    """Reads its loss in every step, and keeps outputs with their graph."""

    def __init__(self) -> None:
        super().__init__(training=0.02)
        self.kept: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        assert loss.item() >= 0
        self.kept.append(self.net(batch[0]).expand(2**20, 1) * 2)  # 4 MiB
        return loss


def slow_collate(samples: Any) -> Any:
    time.sleep(0.03)
    return default_collate(samples)


def loader(seconds: float = 0.0, batch_size: int = 1, **options: Any) -> DataLoader:
    return DataLoader(Slow(seconds, options.pop("burst", 0.0)), batch_size=batch_size, **options)  # type: ignore[arg-type]


def fit(folder: Path, model: Line, train: Any, val: Any = None, callbacks: Any = (), epochs: int = 2) -> dict[str, Any]:
    torch.manual_seed(0)
    trainer = Trainer(
        run_dir=folder / "run",
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=list(callbacks),
        enable_progress_bar=False,
    )
    trainer.fit(model, train, val or loader(batch_size=30))
    return json.loads((folder / "run/metrics.json").read_text())["speed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bound", "advice", "model", "train", "val", "callbacks"),
    [
        ("data", "waits for the loader with 0 workers", SlowStep(), loader(0.03), None, []),
        ("data in bursts", "the median", SlowStep(), loader(burst=0.3), None, []),
        (
            "collate",
            "mostly for collate",
            SlowStep(),
            loader(collate_fn=slow_collate),
            None,
            [],
        ),
        ("validation", "--trainer.check_val_every_n_epoch", SlowStep(0.01, 0.05), loader(), loader(), []),
        ("callbacks", "Waits alone", SlowStep(), loader(), None, [Waits("on_train_batch_end")]),
        ("hooks", "SlowStep.on_train_batch_end alone", SlowStep(hook=0.03), loader(), None, []),
        ("checkpoints", "save less often", SlowStep(), loader(), None, [Waits("on_save_checkpoint"), SavesEachStep()]),
        ("computation", "forward ", SlowStep(0.05), loader(), None, []),
    ],
    ids=["data", "bursts", "collate", "validation", "callbacks", "hooks", "checkpoints", "computation"],
)
def test_what_was_made_slow_is_named(
    tmp_path: Path, bound: str, advice: str, model: Line, train: Any, val: Any, callbacks: list[Any]
) -> None:
    speed = fit(tmp_path, model, train, val, callbacks)
    assert speed["bound_by"] == bound, speed
    assert advice in speed["advice"]
    assert sum(speed["shares"].values()) == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_two_planted_causes_reach_the_summary_and_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playbook.training.step_watch._has_compiled", lambda: False)  # another test may have
    speed = fit(tmp_path, Reads(), loader(0.05), epochs=5)
    out = capsys.readouterr().out
    assert speed["bound_by"] == "data"
    memory, reads = speed["notes"]
    assert memory.startswith("growing memory: 4")
    assert "item() at " in reads
    assert f"bound by data: {speed['advice']}\nNote           growing memory" in out
    text = write(Run(tmp_path / "run")).read_text()
    assert "Bound by data" in text
    assert "Growing memory: 4" in text
    assert "Memory of the process from" in text


def test_a_short_training_has_no_verdict(tmp_path: Path) -> None:
    trainer = Trainer(run_dir=tmp_path / "run", accelerator="cpu", max_epochs=1, enable_progress_bar=False)
    trainer.fit(Line(), DataLoader(TensorDataset(torch.ones(10, 1), torch.ones(10, 1))), loader(batch_size=30))
    assert trainer.speed == {}
    assert json.loads((tmp_path / "run/metrics.json").read_text())["speed"] is None
    assert "item" not in vars(torch.Tensor), "what counts calls has ended with the training"


def test_another_profiler_stays() -> None:
    trainer = Trainer(run_dir=False, accelerator="cpu", max_epochs=1, profiler="simple", enable_progress_bar=False)
    assert measured(trainer) == {}


def test_a_training_that_fails_leaves_the_methods_of_tensors(tmp_path: Path) -> None:
    class Fails(Line):
        """Fails while calls are counted."""

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if batch_idx == 7:
                raise RuntimeError("on purpose")
            return super().training_step(batch, batch_idx)

    trainer = Trainer(run_dir=False, accelerator="cpu", max_epochs=1, enable_progress_bar=False)
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer.fit(Fails(), loader(), loader(batch_size=30))
    assert isinstance(trainer.profiler, Timing)  # type: ignore[attr-defined]
    assert "item" not in vars(torch.Tensor)


class Trained:
    """What a Trainer knows after a training."""

    strategy: Any = SimpleNamespace(root_device=torch.device("cuda"))
    world_size = 1
    train_dataloader = None

    def __init__(self, profiler: Timing) -> None:
        self.profiler = profiler


class Events:
    """Seconds of a GPU."""

    def finish(self) -> dict[str, float]:
        return {"forward": 3.0, "backward": 6.0}


def test_series_and_quantiles() -> None:
    profiler = Timing()
    profiler.seconds = {"[Strategy]S.training_step": 10.0}
    profiler.num_steps = 1000
    for step in range(1000):
        profiler.durations.add(step, step / 1e3)
        profiler.waits.add(step, 0.001)
        profiler.memory.add(step, (2**20 * (100 + step), 2**30))
    profiler.device = Events()  # type: ignore[assignment]
    speed = measured(Trained(profiler))
    assert speed["bound_by"] == "computation"
    assert speed["advice"].startswith("forward 30%, backward 60%")
    assert speed["device_shares"] == {"forward": 0.3, "backward": 0.6}
    assert speed["step_ms"] == {"median": 500, "p95": 950, "p99": 990}
    assert speed["wait_ms"] == {"median": 1, "p95": 1, "p99": 1}
    assert len(speed["durations_ms"]) == speeds.MOST_DRAWN
    assert speed["durations_ms"][:2] == [[0, 0], [5, 5]]
    assert speed["memory_mib"]["process"][:2] == [[0, 100], [5, 105]]
    assert {value for _, value in speed["memory_mib"]["device"]} == {1024}
    assert speed["notes"][0].startswith("growing memory: 1 MiB a step")


class Gathered(Trained):
    """As one of two processes, which have told each other their times."""

    world_size = 2
    strategy = type("FSDPStrategy", (), {"root_device": torch.device("cpu")})()


def test_times_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"data": 0.03, "forward": 0.01}
    monkeypatch.setattr(speeds.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(speeds, "gathered", lambda trainer, value: [value, other])
    profiler = Timing()
    profiler.seconds = {"[Strategy]S.training_step": 10.0}
    profiler.num_steps = 1000
    profiler.durations.add(0, 0.01)
    profiler.watch.reads[str(Path.cwd() / "task.py"), 7, "item"] = 1
    speed = measured(Gathered(profiler))
    assert speed["ranks_ms"] == [{"forward": 10.0}, {"data": 30.0, "forward": 10.0}]
    assert speed["bound_by"] == "a slow rank"
    assert "rank 1 takes 30 ms" in speed["advice"], "the forward pass of shards does not count"
    assert "item() at task.py:7" in speed["notes"][0]
    assert speed["wait_ms"] == {}
    profiler.num_steps = 19
    assert measured(Gathered(profiler)) == {}


STRAGGLER = """
import time
import torch
from torch.utils.data import DataLoader, TensorDataset
from playbook import Trainer
from playbook.testing.line import Line

class Straggler(Line):
    def training_step(self, batch, batch_idx):
        time.sleep(0.1 * self.global_rank)
        return super().training_step(batch, batch_idx)

if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.ones(60, 1), torch.ones(60, 1)))
    trainer = Trainer(run_dir="run", accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, limit_val_batches=0)
    trainer.fit(Straggler(), data)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts a group of processes")
def test_the_rank_that_the_other_waits_for_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STRAGGLER)
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    speed = json.loads((tmp_path / "run/metrics.json").read_text())["speed"]
    assert speed["bound_by"] == "a slow rank", speed
    assert "rank 1 takes" in speed["advice"]
    assert "most of that is forward" in speed["advice"]
    assert [rank["forward"] > 90 for rank in speed["ranks_ms"]] == [False, True]
    assert "Milliseconds of a step in each process" in write(Run(tmp_path / "run")).read_text()

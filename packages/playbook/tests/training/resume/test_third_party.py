"""A stranger's module and plain DataLoader, cut off and continued."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from playbook.testing.command import Cli, Result
from playbook.testing.processes import values_logged
from playbook.testing.resume import PowerCutError
from playbook.training.resume import third_party

STRANGER = '''
import random

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, WeightedRandomSampler


class Net(LightningModule):
    """Dropout, batch norm, and every way of logging."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)
        )

    def on_train_epoch_start(self):
        self.layers[3].bias.data += 0.01 * torch.rand(())

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x)[:, 0], y)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("sum", loss, on_step=False, on_epoch=True, reduce_fx="sum")
        self.log("largest", loss, on_step=False, on_epoch=True, reduce_fx="max")
        return loss + random.random() * 0.01 * loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.log("late", outputs["loss"].detach(), on_step=False, on_epoch=True)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layers(x)[:, 0], y) * torch.rand(()))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "train_loss_epoch"}}


class Noisy(Dataset):
    """Draws from all three generators at every sample."""

    def __init__(self):
        self.x = torch.randn(38, 3, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return 38

    def __getitem__(self, index):
        x = self.x[index] + 0.1 * torch.randn(3) + 0.1 * random.random() + 0.1 * np.random.rand()
        return x.float(), self.x[index].sum()


class Stream(IterableDataset):
    def __iter__(self):
        noisy = Noisy()
        yield from (noisy[index] for index in range(len(noisy)))


class Batches:
    """No DataLoader at all."""

    def __iter__(self):
        return iter([(Noisy().x[:8], torch.zeros(8))] * 5)

    def __len__(self):
        return 5


class GlobalSampler(Sampler):
    """Draws its order from the global generator."""

    def __iter__(self):
        return iter(torch.randperm(38).tolist())

    def __len__(self):
        return 38


class Plain(LightningDataModule):
    def __init__(self, kind: str = "shuffle", num_workers: int = 0):
        super().__init__()
        self.kind, self.num_workers = kind, num_workers

    def train_dataloader(self):
        settings = {"batch_size": 8, "num_workers": self.num_workers}
        if self.kind == "stream":
            return DataLoader(Stream(), **settings)
        if self.kind == "weighted":
            return DataLoader(Noisy(), sampler=WeightedRandomSampler([1.0, 2.0] * 19, 38), **settings)
        if self.kind == "global":
            return DataLoader(Noisy(), sampler=GlobalSampler(), **settings)
        if self.kind == "persistent":
            return DataLoader(Noisy(), shuffle=True, persistent_workers=True, **settings)
        if self.kind == "batches":
            return Batches()
        return DataLoader(Noisy(), shuffle=True, **settings)

    def val_dataloader(self):
        return DataLoader(Noisy(), batch_size=8, num_workers=self.num_workers)
'''

BATCHES = 5  # of 38 samples in batches of 8


def fit(cli: Cli, run: str, kind: str, workers: int, *args: str) -> Result:
    return cli(
        "fit", "--model", "stranger.Net", "--data", "stranger.Plain", "--data.kind", kind, "--data.num_workers",
        str(workers), "--run_dir", run, "--ckpt_path", "last", "--trainer.max_epochs", "3", "--seed_everything", "1",
        "--trainer.log_every_n_steps", "1", "--checkpoint.every_n_steps", "1", *args,
    )  # fmt: skip


def cut_and_continue(cli: Cli, run: str, kind: str, workers: int, step: int) -> Result:
    cut = ("--trainer.callbacks+=playbook.testing.resume.CutAt", f"--trainer.callbacks.step={step}")
    with pytest.raises(PowerCutError):
        fit(cli, run, kind, workers, *cut)
    done = fit(cli, run, kind, workers, "--trainer.callbacks", "null")
    assert done.code == 0, done.err
    return done


def same(run: str, reference: str) -> bool:
    ours, theirs = (
        torch.load(Path(name) / "checkpoints/last.ckpt", weights_only=True)["state_dict"] for name in (run, reference)
    )
    return all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize(("kind", "workers"), [("shuffle", 0), pytest.param("global", 2, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_plain_loader_continues_exactly(cli: Cli, workdir: Path, kind: str, workers: int) -> None:
    (workdir / "stranger.py").write_text(STRANGER)
    assert fit(cli, "whole", kind, workers).code == 0
    for step in (3, BATCHES + 1) if workers == 0 else (BATCHES + 3,):
        done = cut_and_continue(cli, f"cut-{step}", kind, workers, step)
        assert "not exactly" not in done.out
        assert same(f"cut-{step}", "whole"), f"cut at {step}"
        assert values_logged(Path(f"cut-{step}")) == values_logged(Path("whole"))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "workers"), [("weighted", 0), ("global", 0), ("shuffle", 2)])
def test_every_step(cli: Cli, workdir: Path, kind: str, workers: int) -> None:
    (workdir / "stranger.py").write_text(STRANGER)
    assert fit(cli, "whole", kind, workers).code == 0
    for step in range(2, 3 * BATCHES + 1, 1 if workers == 0 else 3):
        cut_and_continue(cli, f"cut-{step}", kind, workers, step)
        assert same(f"cut-{step}", "whole"), f"cut at {step}"
        assert values_logged(Path(f"cut-{step}")) == values_logged(Path("whole"))


@pytest.mark.parametrize(
    ("kind", "workers", "why"),
    [
        ("stream", 0, "Stream has its own order"),
        ("persistent", 2, "persistent workers draw different random numbers"),
        ("batches", 0, "a Batches cannot start at a given batch"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_exact_is_said(cli: Cli, workdir: Path, kind: str, workers: int, why: str) -> None:
    (workdir / "stranger.py").write_text(STRANGER)
    done = cut_and_continue(cli, "cut", kind, workers, BATCHES + 3)
    assert done.out.count("resuming within an epoch, but not exactly: ") == 1
    assert why in done.out
    with open("cut/metrics.csv") as file:
        assert max(int(row["step"]) for row in csv.DictReader(file)) == 3 * BATCHES - 1


def test_between_epochs_nothing_needs_saying(cli: Cli, workdir: Path) -> None:
    (workdir / "stranger.py").write_text(STRANGER)
    assert "not exactly" not in cut_and_continue(cli, "cut", "stream", 0, BATCHES + 1).out


@pytest.mark.parametrize("shuffle", [True, False])
def test_rows_cut_at_once_are_those_of_the_loader(monkeypatch: pytest.MonkeyPatch, shuffle: bool) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "3")
    data = TensorDataset(torch.rand(23, 4), torch.arange(23))
    trainer: Any = SimpleNamespace(current_epoch=2, global_rank=0, world_size=1)
    epochs = []
    for is_cut in (True, False):
        if not is_cut:
            monkeypatch.setattr(third_party, "_is_cut_at_once", lambda _: False)
        loader = DataLoader(data, batch_size=5, shuffle=shuffle)
        loader.__class__ = type("Loader", (third_party._Replayable, DataLoader), {})
        loader.__dict__["_replay"] = (trainer, {2: 1})
        epochs.append(list(loader))
    cut, fetched = epochs
    assert len(cut) == len(fetched) == 4
    assert all(
        torch.equal(a, b) for one, other in zip(cut, fetched, strict=True) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("options", [{"collate_fn": list}, {"num_workers": 1}, {"batch_size": None}])
def test_other_loaders_fetch_by_themselves(options: dict[str, Any]) -> None:
    data = TensorDataset(torch.rand(23, 4))
    assert third_party._is_cut_at_once(DataLoader(data))
    assert not third_party._is_cut_at_once(DataLoader(data, **options))

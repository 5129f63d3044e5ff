"""A LightningModule and LightningDataModule that know nothing of Playbook work with every verb."""

import csv
import json
from pathlib import Path

import pytest
import torch

from playbook.testing.command import Cli
from running import CNN_DIGITS

STRANGER = '''
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader, TensorDataset


class Stranger(LightningModule):
    """Own arguments, own metric names, no save_hyperparameters, a dict as batch."""

    def __init__(self, hidden: int = 4, lr: float = 0.1):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1))
        self.lr = lr

    def _loss(self, batch):
        return torch.nn.functional.mse_loss(self.layers(batch["x"])[:, 0], batch["y"])

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch), prog_bar=True)

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self._loss(batch))

    def predict_step(self, batch, batch_idx):
        return self.layers(batch["x"])[:, 0]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Saving(Stranger):
    """The usual habit."""

    def __init__(self, hidden: int = 4, lr: float = 0.1):
        super().__init__(hidden, lr)
        self.save_hyperparameters()


class Manual(Stranger):
    """Manual optimization."""

    def __init__(self, hidden: int = 4):
        super().__init__(hidden)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self._loss(batch))
        optimizer.step()


class Drawing(Stranger):
    """Uses what Lightning's loggers and checkpoints have; optimises nothing."""

    def on_train_start(self):
        self.logger.experiment.add_text("note", "hello")
        assert self.trainer.checkpoint_callback.dirpath.endswith("checkpoints")
        assert self.trainer.checkpoint_callback.best_model_path == ""

    def configure_optimizers(self):
        return None


class OwnLoaders(Stranger):
    """Brings its own training data, validates nothing, tests nothing."""

    validation_step = None
    test_step = None

    def train_dataloader(self):
        return rows()


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(40, 3, generator=generator)
        self.y = self.x.sum(1)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.y[index]}


def rows(**settings):
    return DataLoader(Rows(), batch_size=8, **settings)


class StrangersData(LightningDataModule):
    def __init__(self, shuffle: bool = True):
        super().__init__()
        self.shuffle = shuffle

    def train_dataloader(self):
        return rows(shuffle=self.shuffle)

    def val_dataloader(self):
        return rows()

    def test_dataloader(self):
        return rows()

    def predict_dataloader(self):
        return rows()
'''


@pytest.fixture(autouse=True)
def stranger(workdir: Path) -> None:
    (workdir / "stranger.py").write_text(STRANGER)


RECIPE = ("--data", "stranger.StrangersData", "--trainer.max_epochs", "2", "--run_dir", "run")


@pytest.mark.parametrize("name", ["Stranger", "Saving", "Manual"])
@pytest.mark.slow
def test_every_verb(cli: Cli, name: str) -> None:
    trained = cli(
        "fit", "--model", f"stranger.{name}", "--model.hidden", "5", *RECIPE, "--checkpoint.monitor", "val_loss"
    )
    assert trained.code == 0, trained.err
    assert "40 train, 40 val" in trained.out
    assert "loss: " in trained.out
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["status"] == "finished"
    assert metrics["best"]["monitor"] == "val_loss"
    expected = metrics["test"]["test_loss"]
    for verb in ("test", "validate"):
        done = cli(verb, "--ckpt_path", "run")
        assert done.code == 0, done.err
        assert f"loss {expected:.4g}" in done.out
    assert cli("predict", "--ckpt_path", "run/checkpoints/best.ckpt").code == 0
    with Path("run/predictions/predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [str(i) for i in range(40)]
    target = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).sum(1)
    error = torch.tensor([float(row["prediction"]) for row in rows]) - target
    assert (error**2).mean().item() == pytest.approx(expected, rel=1e-4)
    more = cli("fit", "--ckpt_path", "last", "--run_dir", "run", "--trainer.max_epochs", "3")
    assert more.code == 0, more.err
    assert "epoch 3/3" in more.out


@pytest.mark.filterwarnings("ignore:.*returned `None`.*")
def test_module_that_uses_logger_and_checkpoint_and_has_no_optimizer(cli: Cli) -> None:
    done = cli("fit", "--model", "stranger.Drawing", *RECIPE)
    assert done.code == 0, done.err


def test_module_with_its_own_loader_and_nothing_else(cli: Cli) -> None:
    done = cli("fit", "--model", "stranger.OwnLoaders", "--trainer.max_epochs", "2", "--run_dir", "run")
    assert done.code == 0, done.err
    assert Path("run/checkpoints/last.ckpt").is_file()
    assert not Path("run/checkpoints/best.ckpt").exists()
    assert cli("fit", "--ckpt_path", "run", "--trainer.max_epochs", "3").code == 0
    assert "does not log" not in done.err


def test_a_verb_that_the_module_lacks_is_one_line(cli: Cli) -> None:
    assert cli("fit", "--model", "stranger.OwnLoaders", "--trainer.max_epochs", "1", "--run_dir", "run").code == 0
    done = cli("test", "--ckpt_path", "run")
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1
    assert "test_step" in done.err


def test_monitor_typo_in_a_foreign_module(cli: Cli) -> None:
    for monitor, nearest in [("val_los", "val_loss"), ("train_los", "train_loss")]:
        done = cli("fit", "--model", "stranger.Stranger", *RECIPE, "--checkpoint.monitor", monitor)
        assert done.code == 2
        assert done.err == f"error: --checkpoint.monitor {monitor}: nothing logs it. Nearest: {nearest}" + (
            ", train_loss\n" if monitor == "val_los" and ", train_loss" in done.err else "\n"
        )
        assert not list(Path("run").glob("checkpoints/*"))


@pytest.mark.filterwarnings("ignore:.*have no `validation_step`.*")
def test_foreign_task_on_our_data(cli: Cli, workdir: Path) -> None:
    (workdir / "mixed.py").write_text(
        "import torch\n"
        "from lightning.pytorch import LightningModule\n"
        "class Probe(LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.w = torch.nn.Linear(64, 10)\n"
        "    def training_step(self, batch, i):\n"
        "        return torch.nn.functional.cross_entropy(self.w(batch[0].flatten(1)), batch[1])\n"
        "    def configure_optimizers(self):\n"
        "        return torch.optim.Adam(self.parameters())\n"
    )
    done = cli("fit", "--model", "mixed.Probe", "--data", "Digits", "--trainer.max_epochs", "1", "--run_dir", "run")
    assert done.code == 0, done.err


def test_checkpoint_of_plain_lightning(cli: Cli, workdir: Path) -> None:
    """Made by Lightning's own Trainer, without our configuration in it."""
    import lightning.pytorch as pl
    import stranger  # type: ignore[import-not-found]

    module = stranger.Saving(hidden=6)
    trainer = pl.Trainer(
        max_epochs=1, logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=workdir
    )
    trainer.fit(module, stranger.StrangersData())
    trainer.save_checkpoint("plain.ckpt")
    expected = trainer.test(module, stranger.StrangersData(), verbose=False)[0]["test_loss"]
    model = ("--model", "stranger.Saving", "--model.hidden", "6", "--data", "stranger.StrangersData")
    done = cli("test", "--ckpt_path", "plain.ckpt", *model)
    assert done.code == 0, done.err
    assert f"test_loss {expected:.4g}" in done.out
    started = cli("fit", "--init_from", "plain.ckpt", *model, "--trainer.max_epochs", "1", "--run_dir", "run")
    assert started.code == 0, started.err
    assert "init_from plain.ckpt: 4 of 4 entries loaded" in started.out


@pytest.mark.slow
def test_recipe_with_a_foreign_net(cli: Cli, workdir: Path) -> None:
    (workdir / "mynet.py").write_text(
        "import torch\n"
        "class Flat(torch.nn.Module):\n"
        "    def __init__(self, num_classes: int = 10):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(64, num_classes)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x.flatten(1))\n"
    )
    args = ("--model.net", "mynet.Flat", "--trainer.max_epochs", "1", "--run_dir", "run")
    assert cli("fit", "--config", CNN_DIGITS, *args).code == 0
    assert cli("test", "--ckpt_path", "run").code == 0

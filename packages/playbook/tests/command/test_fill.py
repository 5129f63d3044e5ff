"""Options of the model that the command line takes from the data, and links to it."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from playbook.command.rebuild import load_run
from playbook.testing.command import Cli

OWN = """
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from playbook import Data

class Points(Data):
    def setup(self, stage):
        x = torch.linspace(-1, 1, 48).view(16, 3)
        self.train_set = self.val_set = self.test_set = TensorDataset(x, (x.sum(1) > 0).long())
        self.facts |= {"classes": ["low", "high"], "num_features": 3}

class Single(Points):
    def setup(self, stage):
        super().setup(stage)
        self.facts["classes"] = ["low"]

class Broken(Points):
    def setup(self, stage):
        raise ValueError("a fault of my own")

class Plain(pl.LightningDataModule):
    num_things = 2
    adj = None
    def __init__(self, size: int = 16):
        super().__init__()
        self.size = size
    def setup(self, stage=None):
        self.adj, self.scale = torch.eye(3), 2.5
    def loader(self):
        x = torch.linspace(-1, 1, 3 * self.size).view(-1, 3)
        return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), 8)
    train_dataloader = val_dataloader = test_dataloader = loader
    @property
    def num_labels(self):
        return min(len(self.adj), 2)
    @property
    def broken(self):
        return self.nothing

class Linear(nn.Sequential):
    def __init__(self, num_classes: int, num_features: int, bias: bool = True):
        super().__init__(nn.Linear(num_features, num_classes, bias))

class Hidden(nn.Sequential):
    def __init__(self, num_classes: int, hidden: int):
        super().__init__(nn.Linear(hidden, num_classes))

class Typed(Linear):
    def __init__(self, classes: int, **options):
        super().__init__(**options)

class Model(pl.LightningModule):
    def __init__(self, num_classes: int, adj: torch.Tensor | None = None, scale: float = 1.0, file: str = "data.txt"):
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(3, num_classes)
        self.scale, self.file = scale, file
        self.register_buffer("adj", torch.eye(3) if adj is None else adj)
    def forward(self, x):
        return self.layer(x @ self.adj)
    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.training_step(batch, batch_idx))
    def test_step(self, batch, batch_idx):
        self.log("test_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
"""
QUICK = ("--trainer.max_epochs", "1", "--trainer.accelerator", "cpu")
TASK = ("--model", "Classification", "--data", "fill_own.Points")
LINKED = ("--model", "fill_own.Model", "--data", "fill_own.Plain", "--model.num_classes", "data.num_things")


@pytest.fixture(autouse=True)
def own(workdir: Path) -> None:
    (workdir / "fill_own.py").write_text(OWN)


def configured(run: str = "run") -> dict:
    return yaml.safe_load(Path(run, "config.yaml").read_text())["model"]["init_args"]


def test_what_is_left_out_follows_from_the_data(cli: Cli) -> None:
    done = cli("fit", *TASK, "--model.net", "fill_own.Linear", "--run_dir", "run", *QUICK)
    assert done.code == 0, done.err
    assert done.out.startswith("from the data: num_classes 2, num_features 3\n")
    assert configured()["num_classes"] == 2
    assert configured()["net"]["init_args"] == {"num_classes": 2, "num_features": 3, "bias": True}
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 0, tested.err
    assert "from the data" not in tested.out
    assert load_run("run").module(torch.zeros(1, 3)).shape == (1, 2)
    again = cli("fit", "--ckpt_path", "last", "--run_dir", "run", "--trainer.max_epochs", "2")
    assert again.code == 0, again.err


def test_what_contradicts_the_data_is_one_line(cli: Cli) -> None:
    done = cli("fit", *TASK, "--model.net", "fill_own.Linear", "--model.net.num_classes", "3", "--run_dir", "run")
    assert done.code == 2
    assert done.err == "error: --model.net.num_classes: expected 2, as in the data (low, high), got 3\n"
    assert not Path("run").exists()


def test_a_checkpoint_of_other_data_fills_another_net(cli: Cli) -> None:
    assert cli("fit", *TASK, "--model.net", "fill_own.Linear", "--run_dir", "run", *QUICK).code == 0
    done = cli("test", "--ckpt_path", "run", "--model.net", "fill_own.Linear", "--model.net.bias", "true")
    assert done.code == 0, done.err


def test_a_value_of_the_data_that_is_refused(cli: Cli) -> None:
    done = cli("fit", "--model", "Classification", "--data", "fill_own.Single", "--model.net", "fill_own.Linear")
    assert done.err == "error: --model.num_classes: expected at least 2, got 1, which follows from the data\n"


def test_what_nothing_sets_is_named(cli: Cli) -> None:
    done = cli("fit", *TASK, "--model.net", "fill_own.Hidden")
    assert done.err == "error: --model.net: Hidden needs hidden\n"


def test_third_party_data_fills_nothing(cli: Cli) -> None:
    done = cli("fit", "--model", "Classification", "--model.net", "fill_own.Linear", "--data", "fill_own.Plain")
    assert done.code == 2
    assert re.search("arguments are required: num_classes, num_features|needs num_classes, num_features", done.err)


def test_an_error_in_the_setup_keeps_its_words(cli: Cli) -> None:
    with pytest.raises(ValueError, match="a fault of my own"):
        cli("fit", "--model", "Classification", "--model.net", "fill_own.Linear", "--data", "fill_own.Broken")


def test_options_are_linked_to_attributes_of_any_data(cli: Cli) -> None:
    Path("recipe.yaml").write_text(
        "model: {class_path: fill_own.Model, init_args: {num_classes: data.num_things, adj: data.adj}}\n"
        "data: fill_own.Plain\n"
    )
    done = cli("fit", "--config", "recipe.yaml", "--model.scale", "data.scale", "--run_dir", "run", *QUICK)
    assert done.code == 0, done.err
    assert done.out.startswith("from the data: num_classes 2, adj Tensor (3, 3), scale 2.5\n")
    assert configured() == {"num_classes": 2, "adj": "data.adj", "scale": 2.5, "file": "data.txt"}
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 0, tested.err
    module: Any = load_run("run").module
    assert module.adj.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert (module.scale, module.file) == (2.5, "data.txt")


def test_a_link_to_nothing_is_one_line(cli: Cli) -> None:
    done = cli("fit", *LINKED, "--model.adj", "data.adjj")
    assert done.err == "error: --model.adj data.adjj: Plain has no fact or attribute adjj. Nearest: adj\n"
    assert "num_classes" in cli("fit", *LINKED, "--model.num_classes", "data.nothing").err


def test_a_link_to_a_property_that_needs_the_setup(cli: Cli) -> None:
    """Lightning-AI/pytorch-lightning#17275."""
    done = cli("fit", *LINKED, "--model.num_classes", "data.num_labels", *QUICK)
    assert done.out.startswith("from the data: num_classes 2\n"), done.err


def test_an_error_in_a_linked_property_keeps_its_words(cli: Cli) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cli("fit", *LINKED, "--model.adj", "data.broken")


def test_a_fact_of_another_type_fills_nothing(cli: Cli) -> None:
    assert cli("fit", *TASK, "--model.net", "fill_own.Typed").err == "error: --model.net: Typed needs classes\n"


def test_a_link_without_data_is_one_line(cli: Cli) -> None:
    done = cli("fit", "--model", "fill_own.Model", "--model.num_classes", "data.classes")
    assert done.err == "error: --model.num_classes data.classes: there is no --data to take it from\n"


def test_options_may_stand_before_their_class(cli: Cli) -> None:
    done = cli(
        "fit", "--model.net.bias", "false", "--data.batch_size", "4", "--model.optimizer.lr=0.5", "--data",
        "fill_own.Points", "--model.net", "fill_own.Linear", "--model.optimizer", "SGD", "--model", "Classification",
        "--run_dir", "run", *QUICK,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert configured()["net"]["init_args"]["bias"] is False
    assert configured()["optimizer"]["init_args"]["lr"] == 0.5


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--model.optimizer.lr", "--model.optimizer.lr: nothing says which class; add --model.optimizer AdamW"),
        ("--model.net.bias", "--model.net.bias: nothing says which class; add --model.net CLASS"),
    ],
)
def test_an_option_without_its_class(cli: Cli, option: str, message: str) -> None:
    assert cli("fit", *TASK, option, "1").err == f"error: {message}\n"


def test_an_option_of_the_class_that_a_checkpoint_leaves_open(cli: Cli) -> None:
    assert cli("fit", *TASK, "--model.net", "fill_own.Linear", "--run_dir", "run", *QUICK).code == 0
    done = cli("fit", "--run_dir", "run", "--ckpt_path", "last", "--model.optimizer.lr", "0.5")
    assert done.err == "error: --model.optimizer.lr: nothing says which class; add --model.optimizer AdamW\n"

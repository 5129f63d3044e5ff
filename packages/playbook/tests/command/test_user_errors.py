"""What the user's own code raises while it runs keeps its words and its traceback, whatever the words are."""

import errno
import traceback
from argparse import ArgumentError
from pathlib import Path

import pytest
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from playbook.testing.command import Cli

OWN = """
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from playbook import UserError

ERROR, PLACE = None, ""

def fail(place):
    if place == PLACE:
        raise ERROR

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        fail("forward")
        return self.layer(x)

class Model(pl.LightningModule):
    def __init__(self, lr: float = 0.1):
        super().__init__()
        self.model, self.lr = Net(), lr
        fail("__init__")

    def on_fit_start(self):
        fail("on_fit_start")

    def training_step(self, batch, batch_idx):
        fail("training_step")
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        fail("validation_step")

    def test_step(self, batch, batch_idx):
        fail("test_step")

    def predict_step(self, batch, batch_idx):
        fail("predict_step")
        return self.model(batch[0])

    def configure_optimizers(self):
        fail("configure_optimizers")
        return torch.optim.SGD(self.parameters(), self.lr)

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        fail("__getitem__")
        return torch.randn(4), index % 2

class Data(pl.LightningDataModule):
    def setup(self, stage):
        fail("setup")

    def train_dataloader(self):
        fail("train_dataloader")
        return DataLoader(Samples(), 4)

    val_dataloader = test_dataloader = predict_dataloader = lambda self: DataLoader(Samples(), 4)

class Watch(pl.Callback):
    def on_train_batch_end(self, *_):
        fail("on_train_batch_end")
"""
ERRORS = [
    ValueError("lr: expected a rate above 0, got -1"),
    ValueError("max_epochs: seven"),
    TypeError("argument after ** must be a mapping, not int"),
    RuntimeError("Error(s) in loading state_dict for Net: size mismatch for layer.weight"),
    RuntimeError("Given groups=1, expected input[4, 1, 8, 8] to have 3 channels, but got 1 channels instead"),
    RuntimeError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group"),
    RuntimeError("Connection closed by peer [127.0.0.1]:4711"),
    OSError(errno.ENOSPC, "No space left on device", "mine.bin"),
    FileNotFoundError(errno.ENOENT, "No such file or directory", "mine.csv"),
    ImportError("No module named 'tensorboard'"),
    ModuleNotFoundError("No module named 'pycocotools'"),
    ModuleNotFoundError("Requirement 'mlflow>=1.0.0' not met. HINT: Try running `pip install -U 'mlflow>=1.0.0'`"),
    MisconfigurationException("`Trainer(strategy='ddp')` is not what I want"),
    ArgumentError(None, "unrecognized arguments: --model.lr"),
    KeyError("max_epochs"),
    AttributeError("callback of type `Watch`: Found more than one stateful callback"),
    AssertionError("the trainer.devices are not mine"),
]
ONE_LINE = """
def fail(place):
    if place == PLACE: raise ERROR
"""
CHAINED = """
def fail(place):
    if place == PLACE:
        try:
            int(str(ERROR))
        except ValueError as error:
            raise ERROR from error
"""
PLACES = [
    "forward", "on_fit_start", "training_step", "validation_step", "configure_optimizers", "setup", "train_dataloader",
    "__getitem__", "on_train_batch_end",
]  # fmt: skip
FIT = ("fit", "--model", "own.Model", "--data", "own.Data", "--trainer.max_epochs", "1", "--run_dir", "run")
WATCHED = ("--trainer.callbacks+", "own.Watch", "--trainer.accelerator", "cpu")


@pytest.fixture
def own(workdir: Path) -> Path:
    (workdir / "own.py").write_text(OWN)
    return workdir


def raised(cli: Cli, place: str, error: Exception, *command: str) -> BaseException:
    import own  # type: ignore[import-not-found]  # written by the fixture

    own.PLACE, own.ERROR = place, error
    with pytest.raises(type(error)) as caught:
        cli(*command)
    return caught.value


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}-{str(error)[:16]}")
def test_keeps_its_words_and_its_traceback(cli: Cli, error: Exception) -> None:
    place = PLACES[ERRORS.index(error) % len(PLACES)]
    caught = raised(cli, place, error, *FIT, *WATCHED)
    assert caught is error
    frames = traceback.extract_tb(caught.__traceback__)
    assert (Path(frames[-1].filename).name, frames[-1].name) == ("own.py", "fail")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("place", PLACES)
def test_wherever_it_is_raised(cli: Cli, place: str) -> None:
    error = ERRORS[PLACES.index(place) % 2]
    assert raised(cli, place, error, *FIT, *WATCHED) is error


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("verb", ["test", "predict", "validate"])
def test_in_every_verb(cli: Cli, verb: str) -> None:
    assert cli(*FIT, *WATCHED).code == 0
    error = ValueError("lr: expected a rate above 0, got -1")
    step = {"validate": "validation_step"}.get(verb, f"{verb}_step")
    assert raised(cli, step, error, verb, "--ckpt_path", "run", "--model", "own.Model", "--data", "own.Data") is error


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "error", [AttributeError("no such thing"), TypeError("lr: unsupported operand"), KeyError("lr")]
)
def test_a_bug_in_a_constructor_keeps_its_traceback(cli: Cli, error: Exception) -> None:
    assert raised(cli, "__init__", error, *FIT, *WATCHED) is error


@pytest.mark.usefixtures("own")
def test_a_value_that_a_constructor_refuses_is_a_line(cli: Cli) -> None:
    import own  # type: ignore[import-not-found]  # written by the fixture

    own.PLACE, own.ERROR = "__init__", ValueError("lr: expected a rate above 0, got -1.0")
    done = cli(*FIT, *WATCHED, "--model.lr", "-1")
    assert (done.code, done.err) == (2, "error: --model.lr: expected a rate above 0, got -1.0\n")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("place", ["training_step", "setup", "on_train_batch_end"])
def test_what_it_says_of_an_option_is_a_line(cli: Cli, place: str) -> None:
    import own  # type: ignore[import-not-found]  # written by the fixture

    own.PLACE, own.ERROR = place, own.UserError("lr: expected a rate for these data, got 0.1")
    done = cli(*FIT, *WATCHED)
    assert (done.code, done.err.strip()) == (2, "error: --model.lr: expected a rate for these data, got 0.1")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("error", [RuntimeError("out of memory, says my hook"), ValueError("lr: mine")], ids=repr)
def test_a_raise_behind_a_condition_on_its_line(cli: Cli, workdir: Path, error: Exception) -> None:
    (workdir / "own.py").write_text(OWN + ONE_LINE)
    assert raised(cli, "validation_step", error, *FIT) is error


@pytest.mark.usefixtures("own")
def test_what_it_raises_from_another_keeps_both(cli: Cli, workdir: Path) -> None:
    (workdir / "own.py").write_text(OWN + CHAINED)
    error = RuntimeError("mine")
    assert raised(cli, "setup", error, *FIT) is error
    assert str(error.__cause__) == "invalid literal for int() with base 10: 'mine'"


@pytest.mark.usefixtures("own")
def test_its_last_words_are_printed(cli: Cli) -> None:
    import own  # type: ignore[import-not-found]  # written by the fixture

    own.PLACE, own.ERROR = "setup", SystemExit("nothing to train")
    with pytest.raises(SystemExit, match="nothing to train"):
        cli(*FIT)


@pytest.mark.usefixtures("own")
def test_a_review_says_what_a_constructor_raises(cli: Cli) -> None:
    import own  # type: ignore[import-not-found]  # written by the fixture

    own.PLACE, own.ERROR = "__init__", KeyError("width")
    done = cli("doctor", "--model", "own.Model", "--data", "own.Data")
    assert done.code == 1
    assert "KeyError: 'width'\n" in done.out


@pytest.mark.usefixtures("own")
def test_an_iterator_at_its_end_is_no_end_of_the_training(cli: Cli) -> None:
    error = StopIteration("mine")
    assert raised(cli, "training_step", error, *FIT) is error

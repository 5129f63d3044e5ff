"""Hyperparameters that are no plain values have plain equivalents, or are named before the first step."""

import argparse
import collections
import dataclasses
import datetime
import enum
import threading
import types
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from playbook.checkpoints.plain import pack_hyperparameters, plain_values
from playbook.errors import UserError
from playbook.testing.command import QUIET
from playbook.testing.line import Line, Points
from playbook.training.trainer import Trainer


class Mode(enum.Enum):
    FAST = "fast"


class Text(str, enum.Enum):  # noqa: UP042  # as older code has it
    A = "a"


@dataclasses.dataclass
class Options:
    lr: float = 0.1
    where: Path = Path("x")


class Pair(NamedTuple):
    low: int
    high: int


class Word(str):
    __slots__ = ()


class Named:
    @classmethod
    def make(cls) -> None:
        """A constructor."""


CASES: list[tuple[Any, Any]] = [
    (None, None),
    (1.5, 1.5),
    (b"a", b"a"),
    ((0.9, Path("a")), (0.9, "a")),
    (Path("a/b"), "a/b"),
    (Mode.FAST, "FAST"),
    (Text.A, "A"),
    (Word("a"), "a"),
    (np.float32(0.5), 0.5),
    (np.int64(3), 3),
    (np.bool_(True), True),
    (np.array([1, 2]), [1, 2]),
    (torch.tensor(2), 2),
    (torch.float32, "torch.float32"),
    (torch.device("cpu"), "cpu"),
    (torch.Size([2, 3]), [2, 3]),
    (datetime.date(2026, 1, 2), "2026-01-02"),
    (datetime.datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),  # without a time zone, as users have it
    (datetime.timedelta(hours=1), "1:00:00"),
    ({"b", "a"}, ["a", "b"]),
    (range(2), [0, 1]),
    (collections.deque([1]), [1]),
    ([{"a": [Path("b")]}], [{"a": ["b"]}]),
    ({Mode.FAST: 1, 2: {"x": np.float64(1.0)}}, {"FAST": 1, 2: {"x": 1.0}}),
    (collections.OrderedDict(a=1), {"a": 1}),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (argparse.Namespace(a=Mode.FAST), {"a": "FAST"}),
    (types.SimpleNamespace(a=1), {"a": 1}),
    (Options(), {"lr": 0.1, "where": "x"}),
    (Pair(1, 2), {"low": 1, "high": 2}),
    (nn.functional.gelu, "torch._C._nn.gelu"),
    (torch.relu, None),  # whatever its path, it is text
    (nn.ReLU, "torch.nn.modules.activation.ReLU"),
    (Named.make, f"{__name__}.Named.make"),
    (len, "builtins.len"),
    (partial(torch.optim.Adam, lr=0.1), {"class_path": "torch.optim.adam.Adam", "init_args": {"lr": 0.1}}),
    (partial(len, [1]), {"class_path": "builtins.len", "init_args": {}, "args": ([1],)}),
]


def test_containers_that_a_library_declares_safe_are_looked_into() -> None:
    with torch.serialization.safe_globals([list, dict]):
        assert plain_values({"x": [{"a": Path("b")}]}, "model") == {"x": [{"a": "b"}]}


@pytest.mark.parametrize(("value", "expected"), CASES, ids=lambda value: type(value).__name__)
def test_plain_equivalent(tmp_path: Path, value: Any, expected: Any) -> None:
    checkpoint = {"hyper_parameters": {"x": value}, "hparams_type": Options}
    pack_hyperparameters(checkpoint)
    torch.save(checkpoint, tmp_path / "a.ckpt")
    loaded = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert loaded == checkpoint
    plain = loaded["hyper_parameters"]["x"]
    if expected is None and value is not None:
        assert isinstance(plain, str)
    else:
        assert plain == expected
        assert type(plain) is type(expected)


def test_a_tensor_stays_one() -> None:
    assert plain_values({"weights": nn.Parameter(torch.ones(2))}, "model")["weights"].tolist() == [1, 1]


def test_a_container_of_omegaconf_is_a_dict() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    config = omegaconf.OmegaConf.create({"a": {"b": [1, 2]}, "c": "${a.b}"})
    assert plain_values(config, "model") == {"a": {"b": [1, 2]}, "c": [1, 2]}


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (threading.Lock(), "x"),
        ([{"a": threading.Lock()}], "x[0].a"),
        (lambda: None, "x"),
        (Named().__repr__, "x"),
        (torch.Generator(), "x"),
    ],
)
def test_what_has_no_equivalent_is_named(value: Any, key: str) -> None:
    with pytest.raises(UserError) as refusal:
        plain_values({"lr": 1, "x": value}, "data")
    assert str(refusal.value).startswith(f"--data: hyperparameter {key}: a checkpoint cannot hold a ")
    assert str(refusal.value).endswith('save_hyperparameters(ignore=["x"])')
    assert "\n" not in str(refusal.value)


class Keeps(Line):
    def __init__(self, where: Any = "", net: Any = None, lr: float = 0.1) -> None:
        super().__init__(lr)
        self.where = where
        self.save_hyperparameters()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        assert isinstance(self.hparams["where"], Path), "the running module keeps what it was given"
        return super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:Attribute 'net' is an instance of")
def test_a_run_is_saved_and_loads_again(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """rbalestr-lab/stable-pretraining#388: a path in the hyperparameters lost the run after its first epoch."""
    Trainer(**QUIET, run_dir=Path("run"), max_epochs=1).fit(Keeps(Path("a"), nn.ReLU()), datamodule=Points())
    assert "left out of checkpoints, as they are modules: net\n" in capsys.readouterr().out
    module = Keeps.load_from_checkpoint("run/checkpoints/last.ckpt", weights_only=True)
    assert module.where == "a"


def test_refused_before_the_first_step(workdir: Path) -> None:
    with pytest.raises(UserError, match="--model: hyperparameter where: "):
        Trainer(**QUIET, run_dir=Path("run"), max_epochs=1).fit(Keeps(Named()), datamodule=Points())

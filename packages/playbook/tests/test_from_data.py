"""Options that follow from the data: their values, what contradicts them, and modules built with them."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
import torch
from example.data.digits import Digits
from example.nets.cnn import CNN
from example.nets.mlp import MLP
from example.tasks.classification import Classification
from lightning.pytorch import LightningDataModule
from torch import nn

from playbook.errors import UserError
from playbook.from_data import build, contradiction, in_words, option_values, set_up, set_up_again
from playbook.testing.command import QUIET
from playbook.training.trainer import Trainer


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"classes": ["a", "b", "c"]}, {"num_classes": 3}),
        ({"image_shape": [3, 8, 8]}, {"in_channels": 3, "image_size": 8, "num_features": 192}),
        ({"image_shape": [1, 4, 6]}, {"in_channels": 1, "image_size": [4, 6], "num_features": 24}),
        ({"context_length": 64}, {"max_length": 64}),
        ({"classes": ["a", "b"], "num_classes": 5}, {"num_classes": 5}),  # what the data says itself counts
        ({}, {}),
    ],
)
def test_values_that_follow_from_facts(facts: dict[str, Any], expected: dict[str, Any]) -> None:
    assert option_values(facts) == facts | expected


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("num_classes", 3, 3), ("num_classes", 0, 3), ("num_classes", 1, 2), ("num_classes", None, 3),
        ("vocab_size", 100, 65), ("context_length", 128, 64), ("image_size", (4, 6), [4, 6]),
        ("in_channels", 3, 1), ("ignore_index", 255, None), ("flag", True, 3), ("name", "x", "y"), ("rate", 0.1, 2),
    ],
)  # fmt: skip
def test_values_that_agree(name: str, value: Any, fact: Any) -> None:
    assert contradiction(name, value, {name: fact, "classes": ["a", "b", "c"]}) is None


@pytest.mark.parametrize(
    ("name", "value", "fact", "text"),
    [
        ("num_classes", 5, 3, "expected 3, as in the data (a, b, c), got 5"),
        ("num_classes", 1, 3, "expected 3, as in the data (a, b, c), got 1"),
        ("vocab_size", 60, 65, "expected at least 65, as in the data, got 60"),
        ("ignore_index", 0, 255, "expected 255, as in the data, got 0"),
        ("image_size", [8, 8], [4, 6], "expected [4, 6], as in the data, got [8, 8]"),
    ],
)
def test_values_that_contradict(name: str, value: Any, fact: Any, text: str) -> None:
    assert contradiction(name, value, {"classes": ["a", "b", "c"], name: fact}) == text


class Counting(Digits):
    """Digits with facts, which count how often they are prepared and set up."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def prepare_data(self) -> None:
        self.calls.append("prepare")

    def setup(self, stage: str) -> None:
        self.calls.append(stage)
        torch.rand(3)
        super().setup(stage)
        self.facts |= {"classes": [str(digit) for digit in range(10)], "image_shape": [1, 8, 8]}


def test_data_is_set_up_once_for_a_stage() -> None:
    data = Counting()
    state = torch.get_rng_state()
    assert set_up(data)["classes"][:2] == ["0", "1"]
    assert torch.equal(torch.get_rng_state(), state), "the model is initialised with the same numbers"
    assert set_up(data) == data.facts
    assert data.calls == ["prepare", "fit"]
    data.setup("fit")  # the Trainer's
    assert data.calls == ["prepare", "fit"]
    data.setup("test")
    data.setup("fit")
    assert data.calls == ["prepare", "fit", "test", "fit"]


def test_a_review_sets_the_data_up_again() -> None:
    data = Counting()
    set_up(data)
    set_up_again(data)
    set_up_again(None)
    data.setup("fit")
    assert data.calls == ["prepare", "fit", "fit"]


def test_another_stage_is_set_up() -> None:
    data = Counting()
    set_up(data)
    data.setup("test")
    assert data.calls == ["prepare", "fit", "test"]


def test_data_without_facts() -> None:
    data = LightningDataModule()
    assert set_up(data) == {}


def test_build_trains_with_the_sizes_of_the_data() -> None:
    data = Counting()
    task = build(Classification, data, net=partial(CNN, widths=[2]))
    assert task.num_classes == 10
    assert task.net(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    Trainer(run_dir=False, fast_dev_run=True, **QUIET).fit(task, datamodule=data)
    assert data.calls[:2] == ["prepare", "fit"]
    assert data.calls.count("fit") == 1


def test_build_keeps_what_is_given() -> None:
    net = CNN(widths=[2])
    task = build(partial(Classification, label_smoothing=0.1), Counting(), net=net)
    assert task.net is net
    assert task.label_smoothing == 0.1
    with pytest.raises(UserError, match=r"^num_classes: expected 10, as in the data \(0, 1, 2, 3, 4 and .*\), got 3$"):
        build(Classification, Counting(), net=CNN, num_classes=3)
    with pytest.raises(UserError, match="num_classes: expected 10"):
        build(Classification, Counting(), net=partial(MLP, num_classes=4))


def test_a_class_is_no_net() -> None:
    with pytest.raises(
        ValueError, match=r"net: expected a module, got .*CNN.*; .* build\(Classification, data, net=…\)"
    ):
        Classification(CNN)  # type: ignore[arg-type]


def test_two_numbers_never_replace_one() -> None:
    class Square(nn.Module):
        def __init__(self, image_size: int = 4) -> None:
            super().__init__()
            self.image_size = image_size

    data = Digits()
    data.facts["image_shape"] = [1, 4, 6]
    assert build(Square, data).image_size == 4


class Wide(MLP):
    """A net that hands its options on to its base."""

    def __init__(self, scale: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.scale = scale


class Typed(nn.Module):
    """A net whose options are named like facts and mean something else."""

    def __init__(
        self,
        classes: int = 2,
        tokenizer: str | None = None,
        mean: "float | None" = None,
        kind: Literal["grey", "colour"] = "grey",
        columns: Sequence[str] = (),
        size=8,
    ) -> None:
        super().__init__()
        self.options = [classes, tokenizer, mean, kind, columns, size]


class Late(nn.Module):
    """A net with a type that only type checkers know."""

    def __init__(self, num_classes: int = 2, size: "Unknown" = 8) -> None:  # type: ignore[name-defined]  # noqa: F821
        super().__init__()
        self.options = [num_classes, size]


def test_types_that_are_not_known() -> None:
    data: Any = LightningDataModule()
    data.facts = {"num_classes": 5, "size": [1, 2]}
    assert build(Late, data).options == [5, 8]


def test_options_of_a_base_are_filled() -> None:
    net = build(Classification, Counting(), net=Wide).net.eval()
    assert net(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_a_value_of_another_type_is_left_out() -> None:
    data: Any = LightningDataModule()
    data.facts = {"classes": ["a"], "tokenizer": {"kind": "bytes"}, "mean": [0.5], "kind": "x", "size": [1, 2]}
    assert build(Typed, data).options == [2, None, None, "grey", (), 8]
    data.facts = {"tokenizer": "bytes", "mean": 0, "kind": "colour", "columns": ["x"], "size": 4}
    assert build(Typed, data).options == [2, "bytes", 0, "colour", ["x"], 4]


@pytest.mark.parametrize(
    ("task", "data", "message"),
    [
        (Classification, Digits, "data: expected a data module, got <class '.*Digits'>"),
        (Classification, "images", "data: expected a data module, got 'images'"),
        (nn.Linear(1, 1), Digits(), "task: expected a class, got an object of Linear"),
    ],
)
def test_build_names_what_is_mixed_up(task: Any, data: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(task, data, net=CNN)


def test_values_in_words() -> None:
    assert in_words(3) == "3"
    assert in_words([4, 6]) == "[4, 6]"
    assert in_words(torch.zeros(4, 4)) == "Tensor (4, 4)"
    assert in_words(np.zeros(3)) == "ndarray (3,)"
    assert in_words(list(range(100))) == "list"

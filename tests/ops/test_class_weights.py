"""Weights of classes against sums by hand."""

import pytest
import torch

from playbook.errors import UserError
from src.ops.class_weights import check_weights, inverse_frequency, weights_by_name, weights_of


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([60, 30, 10], [100 / 180, 100 / 90, 100 / 30]), ([5, 5], [1.0, 1.0]), ([8, 0, 2], [10 / 16, 0.0, 10 / 4])],
)
def test_inverse_frequency(counts: list[int], expected: list[float]) -> None:
    weights = inverse_frequency(counts)
    assert weights == pytest.approx(expected)
    of_classes = [weight * count for weight, count in zip(weights, counts, strict=True)]
    assert sum(of_classes) / sum(counts) == pytest.approx(1), "the mean weight of a sample"
    assert len({round(total, 9) for total in of_classes if total}) == 1, "all classes together weigh the same"


def test_weights_by_name_follow_the_order_of_the_classes() -> None:
    assert weights_by_name({"owl": 3, "cat": 0.0}, ["cat", "dog", "owl"]) == [0.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"dig": 2.0}, "class_weights: no class is called dig, expected cat, dog, owl. Nearest: dog"),
        ({"zebra": 2.0}, "class_weights: no class is called zebra, expected cat, dog, owl"),
        ({"cat": 0, "dog": 0, "owl": 0}, "class_weights: every class weighs 0, expected at least one weight above 0"),
    ],
)
def test_names_that_cannot_be_used(weights: dict[str, float], message: str) -> None:
    with pytest.raises(UserError) as error:
        weights_by_name(weights, ["cat", "dog", "owl"])
    assert str(error.value) == message


def test_of_many_classes_a_few_are_named() -> None:
    with pytest.raises(UserError, match=r"expected 0, 1, 2, 3, 4 and 95 more$"):
        weights_by_name({"cat": 1.0}, [str(k) for k in range(100)])


@pytest.mark.parametrize("weight", [-0.5, float("inf"), float("nan")])
def test_weights_out_of_range(weight: float) -> None:
    with pytest.raises(ValueError, match=f"class_weights: expected finite weights of at least 0, got {weight} for dog"):
        check_weights({"cat": 1.0, "dog": weight})


def test_weights_of_targets() -> None:
    weight = torch.tensor([0.5, 2.0, 4.0])
    assert weights_of(torch.tensor([2, 0, 0]), weight).tolist() == [4.0, 0.5, 0.5]
    assert weights_of(torch.tensor([[2, 255], [1, 0]]), weight, 255).tolist() == [[4.0, 0.0], [2.0, 0.5]]
    assert weights_of(torch.tensor([[2, 1]]), weight, 1).tolist() == [[4.0, 0.0]]
    mixed = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    assert weights_of(mixed, weight).tolist() == [1.25, 4.0]


def test_sums_of_half_precision_are_in_float32() -> None:
    weight = torch.ones(2, dtype=torch.bfloat16)
    assert weights_of(torch.zeros(1001, dtype=torch.int64), weight).sum() == 1001

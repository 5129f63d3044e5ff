"""Embeddings of numbers against their formulas in float64, ties and outliers, and the vector of unseen categories."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from src.ops.table_embeddings import (
    FARTHEST,
    CategoryEmbedding,
    LinearEmbedding,
    PeriodicEmbedding,
    PiecewiseEmbedding,
    TableEmbedding,
)

OPTIONS: dict[str, Any] = {
    "num_features": 2,
    "cardinalities": [3, 4],
    "embedding": "piecewise",
    "embedding_dim": 5,
    "num_bins": 4,
    "num_frequencies": 6,
    "frequency_scale": 1.0,
    "category_dim": 3,
    "category_dropout": 0.0,
}
TIED = [0.0, 0.0, 0.0, 1.0, 1.0, 3.0, 3.0]  # 6 bins: 0, 0, 1, 0, 2 and 0 wide


def table(**options: Any) -> TableEmbedding:
    torch.manual_seed(0)
    return TableEmbedding(**{**OPTIONS, **options})


def piecewise(quantiles: list[list[float]], num_bins: int, dim: int = 5) -> PiecewiseEmbedding:
    torch.manual_seed(0)
    embedding = PiecewiseEmbedding(len(quantiles), dim, num_bins).double()
    embedding.use_quantiles(quantiles)
    nn.init.normal_(embedding.weight)
    return embedding


def by_definition(number: float, edges: list[float]) -> list[float]:
    """Gorishniy et al. 2022, equation 1, for edges without ties, one bin at a time."""
    weights = []
    for t, (left, right) in enumerate(itertools.pairwise(edges)):
        if number < left and t > 0:
            weights.append(0.0)
        elif number >= right and t < len(edges) - 2:
            weights.append(1.0)
        else:
            weights.append((number - left) / (right - left))
    return weights


def test_linear_embeddings_are_a_vector_and_a_bias_per_column() -> None:
    torch.manual_seed(0)
    embedding, numbers = LinearEmbedding(3, 4).double(), torch.randn(6, 3, dtype=torch.float64)
    for column in range(3):
        expected = torch.outer(numbers[:, column], embedding.embedding[column]) + embedding.bias[column]
        torch.testing.assert_close(embedding(numbers)[:, column], expected)


def test_piecewise_embeddings_are_those_of_the_equation() -> None:
    quantiles = [[-2.0, -0.5, 0.0, 0.25, 4.0], [0.0, 1.0, 10.0, 11.0, 12.0]]
    embedding = piecewise(quantiles, num_bins=4)
    numbers = torch.tensor([[-3.0, -7.0], [-2.0, 0.0], [-0.1, 5.0], [0.25, 11.5], [9.0, 20.0]], dtype=torch.float64)
    result = embedding(numbers)
    for b in range(5):
        for column, edges in enumerate(quantiles):
            number = numbers[b, column]
            weights = torch.tensor(by_definition(number.item(), edges), dtype=torch.float64)
            linear = number * embedding.linear.embedding[column] + embedding.linear.bias[column]
            torch.testing.assert_close(result[b, column], linear + weights @ embedding.weight[column])


def test_bins_of_no_width_contribute_nothing() -> None:
    """As if the equal edges were one: the weights of the two bins that remain are those of the equation."""
    embedding = piecewise([TIED], num_bins=6)
    numbers = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.5, 3.0, 5.0], dtype=torch.float64)
    weights = embedding.positions(numbers[:, None])[:, 0]  # (B, T)
    expected = torch.tensor([by_definition(number, [0.0, 1.0, 3.0]) for number in numbers.tolist()])
    torch.testing.assert_close(weights[:, [2, 4]], expected.double())
    assert not weights[:, [0, 1, 3, 5]].any(), weights


def test_a_constant_column_keeps_its_linear_embedding_alone() -> None:
    embedding = piecewise([[0.7] * 9], num_bins=4)
    numbers = torch.tensor([[0.7], [-1.0], [2.0]], dtype=torch.float64)
    assert torch.equal(embedding(numbers), embedding.linear(numbers))


def test_one_bin_scales_by_its_ends() -> None:
    weights = piecewise([[1.0, 2.0, 5.0]], num_bins=1).positions(torch.tensor([[-3.0], [2.0], [9.0]]).double())
    torch.testing.assert_close(weights.flatten(), torch.tensor([-1.0, 0.25, 2.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_ties_and_outliers_are_finite_in_every_precision(dtype: torch.dtype) -> None:
    """The second column's edges differ by less than float16 can tell, and its last bin by little more."""
    narrow = [0.0, 1e-9, 2e-9, 1.0, 1.0, 1.0, 1.0 + 1e-6]
    embedding = piecewise([TIED, narrow], num_bins=6).to(dtype)
    numbers = torch.tensor([[-100.0, -100.0], [0.0, 0.0], [1.0, 1.0], [100.0, 100.0]], dtype=dtype)
    numbers.requires_grad_()
    result = embedding(numbers)
    result.float().sum().backward()
    positions = embedding.positions(numbers)
    assert result.dtype == dtype
    assert result.isfinite().all(), result
    assert positions.abs().max() <= FARTHEST, positions
    for name, value in {"numbers": numbers, "weight": embedding.weight}.items():
        assert value.grad is not None
        assert value.grad.isfinite().all(), name


def test_training_begins_with_a_linear_embedding() -> None:
    """Gorishniy et al. 2025: the weights of the bins start at zero, and get a gradient."""
    torch.manual_seed(0)
    embedding, numbers = PiecewiseEmbedding(3, 4, 5), torch.randn(64, 3)
    result = embedding(numbers)
    assert torch.equal(result, embedding.linear(numbers))
    result.square().sum().backward()
    assert embedding.weight.grad is not None
    assert (embedding.weight.grad != 0).all(), "a bin without gradient"


def test_default_edges_have_equal_shares_of_the_normal_distribution() -> None:
    edges = PiecewiseEmbedding(2, 3, 8).edges
    shares = (1 + torch.erf(edges / math.sqrt(2))) / 2
    torch.testing.assert_close(shares[:, 1:-1], (torch.arange(1, 8) / 8).repeat(2, 1))
    assert edges[:, [0, -1]].tolist() == [[-3, 3], [-3, 3]]


@pytest.mark.parametrize("num_bins", [3, 4, 128, 200])
def test_edges_are_quantiles_of_the_training_data(num_bins: int) -> None:
    """129 quantiles say what all rows say, between them by linear interpolation over shares."""
    data = np.random.default_rng(0).normal(size=(129, 2))  # quantiles of 129 rows at 1 / 128 are the rows
    quantiles = np.quantile(data, np.linspace(0, 1, 129), axis=0).T
    edges = piecewise(quantiles.tolist(), num_bins).edges
    expected = np.quantile(data, np.linspace(0, 1, num_bins + 1), axis=0).T
    torch.testing.assert_close(edges, torch.from_numpy(expected))


def test_edges_are_saved_with_the_weights() -> None:
    embedding, restored = piecewise([TIED], 6), PiecewiseEmbedding(1, 5, 6).double()
    restored.load_state_dict(embedding.state_dict())
    assert torch.equal(restored.edges, embedding.edges)


@pytest.mark.parametrize(
    ("quantiles", "message"),
    [
        ([[0.0, 1.0]], "number_quantiles: expected 2 columns, got 1"),
        ([[0.0, 1.0], [1.0]], "expected at least 2 finite, ascending numbers for column 1"),
        ([[0.0, 1.0], [1.0, 0.0]], "expected at least 2 finite, ascending numbers for column 1"),
        ([[0.0, math.nan], [0.0, 1.0]], "expected at least 2 finite, ascending numbers for column 0"),
        ([[0.0, math.inf], [0.0, 1.0]], "expected at least 2 finite, ascending numbers for column 0"),
    ],
)
def test_quantiles_of_other_columns_or_out_of_order(quantiles: list[list[float]], message: str) -> None:
    embedding = table()
    before = embedding.get_submodule("numbers").get_buffer("edges").clone()
    with pytest.raises(ValueError, match=message):
        embedding.use_facts({"number_quantiles": quantiles})
    assert torch.equal(embedding.get_submodule("numbers").get_buffer("edges"), before)


@pytest.mark.parametrize("embedding", ["none", "linear", "periodic", "piecewise"])
def test_facts_without_quantiles_and_embeddings_without_bins_change_nothing(embedding: str) -> None:
    columns = table(embedding=embedding)
    before = {name: value.clone() for name, value in columns.state_dict().items()}
    columns.use_facts({"num_features": 2})
    if embedding != "piecewise":
        columns.use_facts({"number_quantiles": [[0.0, 1.0]] * 2})
    assert all(torch.equal(value, before[name]) for name, value in columns.state_dict().items())


def test_periodic_embeddings_are_those_of_the_equations() -> None:
    """Gorishniy et al. 2022, section 3.3, one column, frequency and feature at a time."""
    torch.manual_seed(0)
    embedding, numbers = PeriodicEmbedding(2, 3, 4, 1.5).double(), torch.randn(5, 2, dtype=torch.float64)
    expected = torch.zeros(5, 2, 3, dtype=torch.float64)
    for n in range(2):
        for f in range(4):
            angle = 2 * math.pi * embedding.embedding_frequencies[n, f] * numbers[:, n, None]
            expected[:, n] += angle.cos() * embedding.weight[n, f] + angle.sin() * embedding.weight[n, 4 + f]
        expected[:, n] += embedding.bias[n]
    torch.testing.assert_close(embedding(numbers), expected.clamp(min=0))


def test_frequencies_begin_with_their_scale() -> None:
    torch.manual_seed(0)
    frequencies = PeriodicEmbedding(20, 2, 500, frequency_scale=8.0).embedding_frequencies
    assert frequencies.std().item() == pytest.approx(8, rel=0.05)
    assert abs(frequencies.mean().item()) < 0.3


def test_each_column_has_its_own_categories() -> None:
    embedding = CategoryEmbedding([3, 4], 2, 0.0)
    nn.init.normal_(embedding.table.weight)
    categories = torch.tensor([[0, 0], [2, 3], [1, 1]])
    rows = embedding.table.weight
    expected = torch.stack([rows[[0, 3]], rows[[2, 6]], rows[[1, 4]]])
    assert torch.equal(embedding(categories), expected)


def test_codes_out_of_range_are_unseen_categories() -> None:
    embedding = CategoryEmbedding([3, 4], 2, 0.0)
    unseen = embedding(torch.zeros(1, 2, dtype=torch.int64))
    for codes in ([3, 4], [-1, -1], [10**12, -(10**12)]):
        assert torch.equal(embedding(torch.tensor([codes])), unseen), codes


def test_the_vector_of_unseen_categories_is_trained_by_dropout() -> None:
    """A code 0 gets a gradient in training although it occurs in no row, with the share of the option."""
    torch.manual_seed(0)
    embedding, categories = CategoryEmbedding([3, 4], 2, 0.2).train(), torch.ones(5000, 2, dtype=torch.int64)
    embedding(categories).sum().backward()
    assert embedding.table.weight.grad is not None
    shares = embedding.table.weight.grad[:, 0] / 5000  # a row's gradient counts how often it was read
    torch.testing.assert_close(shares, torch.tensor([0.2, 0.8, 0, 0.2, 0.8, 0, 0]), rtol=0, atol=0.02)


def test_evaluation_replaces_no_category() -> None:
    embedding, categories = CategoryEmbedding([3], 2, 0.9).eval(), torch.ones(100, 1, dtype=torch.int64)
    assert torch.equal(embedding(categories), embedding.table.weight[1].expand(100, 1, 2))


@pytest.mark.parametrize(("embedding", "dim"), [("none", 1), ("linear", 5), ("piecewise", 5), ("periodic", 5)])
def test_shapes_and_dims(embedding: str, dim: int) -> None:
    numbers, categories = torch.randn(6, 2), torch.zeros(6, 2, dtype=torch.int64)
    columns = table(embedding=embedding)
    parts = columns(numbers, categories)
    assert [tuple(part.shape) for part in parts] == [(6, 2, dim), (6, 2, 3)]
    assert columns.dims == [dim, dim, 3, 3]
    for part, more in zip(parts, columns(numbers[:, None], categories[:, None]), strict=True):
        torch.testing.assert_close(more, part[:, None])


def test_columns_of_one_kind_alone() -> None:
    (numbers,) = table(cardinalities=[])(torch.randn(6, 2), None)
    assert numbers.shape == (6, 2, 5)
    (categories,) = table(num_features=0)(None, torch.zeros(6, 2, dtype=torch.int64))
    assert categories.shape == (6, 2, 3)


@pytest.mark.parametrize(
    ("numbers", "categories", "message"),
    [
        (None, torch.zeros(1, 2, dtype=torch.int64), "num_features: expected 2 columns of numbers, got 0"),
        (torch.zeros(1, 3), torch.zeros(1, 2, dtype=torch.int64), "num_features: expected 2 columns of numbers, got 3"),
        (torch.zeros(1, 2), None, "cardinalities: expected 2 columns of categories, got 0"),
    ],
)
def test_inputs_with_other_columns(numbers: Tensor | None, categories: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table()(numbers, categories)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_features": 0, "cardinalities": []},
            r"num_features, cardinalities: expected at least one column of numbers or categories, got 0, \[\]",
        ),
        ({"num_features": -1}, "expected at least one column of numbers or categories, got -1"),
        ({"embedding": "sine"}, "embedding: expected one of none, linear, piecewise, periodic, got sine"),
        ({"embedding_dim": 0}, "embedding_dim: expected at least 1, got 0"),
        ({"num_bins": 0}, "num_bins: expected at least 1, got 0"),
        ({"num_frequencies": 0}, "num_frequencies: expected at least 1, got 0"),
        ({"category_dim": 0}, "category_dim: expected at least 1, got 0"),
        ({"frequency_scale": 0.0}, r"frequency_scale: expected a positive number, got 0.0"),
        ({"cardinalities": [3, 0]}, r"cardinalities: expected counts of at least 1, got \[3, 0\]"),
        ({"category_dropout": 1.0}, r"category_dropout: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table(**options)

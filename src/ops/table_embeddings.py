"""Embeddings of the numbers and categories of tables."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

FARTHEST = 1000.0  # widths of a bin that a number may lie outside of all bins: float16 stays finite
KINDS = ("none", "linear", "piecewise", "periodic")


class TableEmbedding(nn.Module):
    """Embeds each column of a table: the numbers with one of several embeddings, the categories with learnt vectors.

    One-hot categories, as in Gorishniy et al. 2025, are a special case of learnt vectors. Here they would make the
    input as wide as all categories together, which for TabM is held once per member.

    Args:
        num_features: number columns N.
        cardinalities: codes of each of the M category columns, including 0 for unseen categories.
        embedding: of the numbers: none, linear, piecewise or periodic.
        embedding_dim: features of an embedded number, D. With none it is 1.
        num_bins: bins of a piecewise-linear embedding, T.
        num_frequencies: frequencies of a periodic embedding, F.
        frequency_scale: standard deviation of the initial frequencies.
        category_dim: features of an embedded category, C.
        category_dropout: probability of replacing a category by code 0 in training, in [0, 1).

    Shapes:
        numbers (…, N) and categories (…, M) → a list of (…, N, D) and (…, M, C), without those that have no columns.

    Raises:
        ValueError: an argument is out of range, or an input has another number of columns.
    """

    def __init__(
        self,
        num_features: int,
        cardinalities: Sequence[int],
        embedding: str,
        embedding_dim: int,
        num_bins: int,
        num_frequencies: int,
        frequency_scale: float,
        category_dim: int,
        category_dropout: float,
    ) -> None:
        super().__init__()
        if num_features < 0 or not (num_features or cardinalities):
            raise ValueError(
                "num_features, cardinalities: expected at least one column of numbers or categories, "
                f"got {num_features}, {list(cardinalities)}"
            )
        if embedding not in KINDS:
            raise ValueError(f"embedding: expected one of {', '.join(KINDS)}, got {embedding}")
        counts = {
            "embedding_dim": embedding_dim,
            "num_bins": num_bins,
            "num_frequencies": num_frequencies,
            "category_dim": category_dim,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if min(cardinalities, default=1) < 1:
            raise ValueError(f"cardinalities: expected counts of at least 1, got {list(cardinalities)}")
        if not 0 <= category_dropout < 1:
            raise ValueError(f"category_dropout: expected a probability in [0, 1), got {category_dropout}")
        if frequency_scale <= 0:
            raise ValueError(f"frequency_scale: expected a positive number, got {frequency_scale}")
        self.num_features = num_features
        self.num_categories = len(cardinalities)
        self.numbers: nn.Module | None = None
        if num_features and embedding == "linear":
            self.numbers = LinearEmbedding(num_features, embedding_dim)
        elif num_features and embedding == "piecewise":
            self.numbers = PiecewiseEmbedding(num_features, embedding_dim, num_bins)
        elif num_features and embedding == "periodic":
            self.numbers = PeriodicEmbedding(num_features, embedding_dim, num_frequencies, frequency_scale)
        self.categories = CategoryEmbedding(cardinalities, category_dim, category_dropout) if cardinalities else None
        self.dims = [1 if self.numbers is None else embedding_dim] * num_features + [category_dim] * len(cardinalities)

    def use_facts(self, facts: Mapping[str, Any]) -> None:
        """Sets the bins of a piecewise-linear embedding to quantiles of the training data; the machine calls it.

        Args:
            facts: `number_quantiles` has for each number column its ascending quantiles at equal shares from 0 to 1.
                Without it, the bins stay those of the standard normal distribution.

        Raises:
            ValueError: another number of columns, or quantiles that are not finite and ascending.
        """
        if isinstance(self.numbers, PiecewiseEmbedding) and (quantiles := facts.get("number_quantiles")) is not None:
            self.numbers.use_quantiles(quantiles)

    def forward(self, numbers: Tensor | None, categories: Tensor | None) -> list[Tensor]:
        for option, columns, count in (
            ("num_features", numbers, self.num_features),
            ("cardinalities", categories, self.num_categories),
        ):
            got = 0 if columns is None else columns.shape[-1]
            if got != count:
                name = "numbers" if option == "num_features" else "categories"
                raise ValueError(f"{option}: expected {count} columns of {name}, got {got}")
        parts = []
        if numbers is not None and self.num_features:
            parts.append(numbers[..., None] if self.numbers is None else self.numbers(numbers))  # (…, N, D)
        if categories is not None and self.categories is not None:
            parts.append(self.categories(categories))  # (…, M, C)
        return parts


class LinearEmbedding(nn.Module):
    """A vector and a bias for each number column, as the tokens of Gorishniy et al. 2021.

    Args:
        num_features: number columns N.
        dim: features D.

    Shapes:
        (…, N) → (…, N, D).
    """

    def __init__(self, num_features: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(num_features, dim))
        self.bias = nn.Parameter(torch.empty(num_features, dim))
        for parameter in (self.embedding, self.bias):  # Gorishniy et al. 2021
            nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5)

    def forward(self, numbers: Tensor) -> Tensor:
        return torch.addcmul(self.bias, self.embedding, numbers[..., None])  # (…, N, D)


class PiecewiseEmbedding(nn.Module):
    """Piecewise-linear embedding (Gorishniy et al. 2022), in the form that they use with TabM (2025).

    The sum of a linear embedding and of a learnt vector for each bin, weighted by 1 for bins below the number, 0 for
    bins above it, and for its own bin by the position in it, from 0 to 1. Outside of all bins, the position in the
    first or the last one goes on below 0 or above 1.

    Args:
        num_features: number columns N.
        dim: features D.
        num_bins: bins T. Their edges are quantiles of the standard normal distribution until `use_quantiles`.

    Shapes:
        (…, N) → (…, N, D).
    """

    edges: Tensor

    def __init__(self, num_features: int, dim: int, num_bins: int) -> None:
        super().__init__()
        edges = torch.special.ndtri(torch.linspace(0, 1, num_bins + 1)).clamp(-3, 3)  # (T + 1,)
        self.register_buffer("edges", edges.repeat(num_features, 1))  # (N, T + 1)
        self.linear = LinearEmbedding(num_features, dim)
        # Gorishniy et al. 2025: begins as a linear embedding
        self.weight = nn.Parameter(torch.zeros(num_features, num_bins, dim))

    def use_quantiles(self, quantiles: Sequence[Sequence[float]]) -> None:
        """Sets the edges to the quantiles of equal shares of the training data, interpolated linearly.

        Args:
            quantiles: of each column, ascending, at equal shares from 0 to 1. Equal ones make bins of width 0, which
                contribute nothing.

        Raises:
            ValueError: another number of columns, or quantiles that are not finite and ascending.
        """
        num_features, num_edges = self.edges.shape
        if len(quantiles) != num_features:
            raise ValueError(f"number_quantiles: expected {num_features} columns, got {len(quantiles)}")
        shares, edges = np.linspace(0, 1, num_edges), []
        for column, values in enumerate(quantiles):
            if len(values) < 2 or not np.isfinite(values).all() or (np.diff(values) < 0).any():
                raise ValueError(
                    f"number_quantiles: expected at least 2 finite, ascending numbers for column {column}, got {values}"
                )
            edges.append(np.interp(shares, np.linspace(0, 1, len(values)), values))
        self.edges.copy_(torch.from_numpy(np.stack(edges)))

    def forward(self, numbers: Tensor) -> Tensor:
        bins = torch.einsum("...nt,ntd->...nd", self.positions(numbers), self.weight)  # (…, N, D)
        return self.linear(numbers) + bins

    def positions(self, numbers: Tensor) -> Tensor:
        """Weight of each bin, (…, N, T)."""
        width = self.edges.diff()  # (N, T)
        is_bin = width > 0  # not known in advance: edges may become equal by conversion to a lower precision
        rank = is_bin.cumsum(dim=-1)  # (N, T)
        is_first, is_last = is_bin & (rank == 1), is_bin & (rank == rank[:, -1:])
        lowest = -FARTHEST * is_first.to(width.dtype)  # (N, T)
        highest = torch.where(is_last, FARTHEST, is_bin.to(width.dtype))  # (N, T)
        position = (numbers[..., None] - self.edges[:, :-1]) / torch.where(is_bin, width, 1.0)  # (…, N, T)
        return torch.clamp(position, lowest, highest)


class PeriodicEmbedding(nn.Module):
    """Periodic embedding (Gorishniy et al. 2022): sines and cosines, then a linear layer per column, and ReLU.

    Args:
        num_features: number columns N.
        dim: features D.
        num_frequencies: frequencies F of each column, trained.
        frequency_scale: standard deviation of the initial frequencies.

    Shapes:
        (…, N) → (…, N, D).
    """

    def __init__(self, num_features: int, dim: int, num_frequencies: int, frequency_scale: float) -> None:
        super().__init__()
        self.embedding_frequencies = nn.Parameter(torch.empty(num_features, num_frequencies))
        self.weight = nn.Parameter(torch.empty(num_features, 2 * num_frequencies, dim))
        self.bias = nn.Parameter(torch.empty(num_features, dim))
        nn.init.normal_(self.embedding_frequencies, std=frequency_scale)  # Gorishniy et al. 2022
        bound = (2 * num_frequencies) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, numbers: Tensor) -> Tensor:
        angle = 2 * math.pi * self.embedding_frequencies * numbers[..., None]  # (…, N, F)
        waves = torch.cat([angle.cos(), angle.sin()], dim=-1)  # (…, N, 2 F)
        return (torch.einsum("...nf,nfd->...nd", waves, self.weight) + self.bias).relu()  # (…, N, D)


class CategoryEmbedding(nn.Module):
    """A learnt vector for each category of each column.

    Code 0 stands for categories that training has not seen. Its vector is trained on categories that are replaced at
    random. Codes out of range count as code 0.

    Args:
        cardinalities: codes of each column, including 0.
        dim: features C.
        dropout: probability of replacing a category by code 0 in training, in [0, 1).

    Shapes:
        (…, M) → (…, M, C).
    """

    cardinalities: Tensor
    offsets: Tensor

    def __init__(self, cardinalities: Sequence[int], dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        counts = torch.tensor(cardinalities)  # (M,)
        # one table for all columns, so that one lookup is enough
        self.table = nn.Embedding(int(counts.sum()), dim)
        self.register_buffer("cardinalities", counts, persistent=False)
        self.register_buffer("offsets", counts.cumsum(0) - counts, persistent=False)
        nn.init.uniform_(self.table.weight, -(dim**-0.5), dim**-0.5)  # Gorishniy et al. 2021

    def forward(self, categories: Tensor) -> Tensor:
        is_unseen = (categories < 0) | (categories >= self.cardinalities)  # else a row of the next column
        if self.training and self.dropout:
            is_unseen = is_unseen | (torch.rand(categories.shape, device=categories.device) < self.dropout)
        return self.table(categories.masked_fill(is_unseen, 0) + self.offsets)  # (…, M, C)

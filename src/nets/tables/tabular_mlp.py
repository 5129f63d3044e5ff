"""A multi-layer perceptron on the embedded columns of a table (Gorishniy et al. 2022)."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from src.ops.table_embeddings import TableEmbedding


class TabularMLP(nn.Module):
    """Embeds numbers and categories, then applies linear layers with ReLU and dropout (Gorishniy et al. 2022).

    Args:
        num_classes: number of outputs K: classes; 1 for regression, or the number of quantiles.
        num_features: number columns N; 0 for a table of categories alone.
        cardinalities: codes of each of the M category columns, including code 0 for categories unseen in training.
        embedding: of the numbers: none, piecewise-linear or periodic.
        embedding_dim: features of an embedded number.
        num_bins: bins of a piecewise-linear embedding; `use_facts` sets them to quantiles of the training data.
        num_frequencies: frequencies of a periodic embedding.
        frequency_scale: standard deviation of the initial frequencies; tune it first, from 0.01 to 10.
        category_dim: features of an embedded category.
        category_dropout: probability of replacing a category by code 0 in training, in [0, 1).
        width: units of a hidden layer.
        depth: number of hidden layers.
        dropout: probability of dropping a hidden unit, in [0, 1).

    Shapes:
        numbers (B, N), scaled and without NaN, and categories (B, M), codes → outputs (B, K).

    Raises:
        ValueError: an argument is out of range, or an input has another number of columns.
    """

    def __init__(
        self,
        num_classes: int = 1,
        num_features: int = 8,
        cardinalities: Sequence[int] = (),
        embedding: Literal["none", "piecewise", "periodic"] = "piecewise",
        embedding_dim: int = 16,
        num_bins: int = 48,
        num_frequencies: int = 48,
        frequency_scale: float = 0.1,
        category_dim: int = 16,
        category_dropout: float = 0.01,
        width: int = 256,
        depth: int = 3,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        for name, count in {"num_classes": num_classes, "width": width, "depth": depth}.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.embedding = TableEmbedding(
            num_features,
            cardinalities,
            embedding,
            embedding_dim,
            num_bins,
            num_frequencies,
            frequency_scale,
            category_dim,
            category_dropout,
        )
        inputs = [sum(self.embedding.dims)] + [width] * (depth - 1)
        self.blocks = nn.Sequential(
            *[nn.Sequential(nn.Linear(d_in, width), nn.ReLU(), nn.Dropout(dropout)) for d_in in inputs]
        )
        self.head = nn.Linear(width, num_classes)
        for module in self.modules():  # as in the experiments of Gorishniy et al. 2022
            if isinstance(module, nn.Linear):
                bound = module.in_features**-0.5
                nn.init.uniform_(module.weight, -bound, bound)
                nn.init.uniform_(module.bias, -bound, bound)

    def forward(self, numbers: Tensor | None = None, categories: Tensor | None = None) -> Tensor:
        parts = self.embedding(numbers, categories)  # (B, N, D), (B, M, C)
        x = torch.cat([part.flatten(1) for part in parts], dim=1)  # (B, N D + M C)
        return self.head(self.blocks(x))  # (B, K)

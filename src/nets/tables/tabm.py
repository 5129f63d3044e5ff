"""TabM (Gorishniy et al. 2025): an ensemble of perceptrons that share most of their weights."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from src.ops.table_embeddings import TableEmbedding

ADAPTERS = ("mini", "full")
AVERAGES = ("auto", "probabilities", "values")


class TabM(nn.Module):
    """An ensemble of k perceptrons with shared matrices and adapters of their own (Gorishniy et al. 2025).

    In training, each member has its own outputs, and the loss is the mean of the members' losses. In evaluation, the
    outputs are averaged.

    Args:
        num_classes: number of outputs K: classes; 1 for regression, or the number of quantiles.
        num_features: number columns N; 0 for a table of categories alone.
        cardinalities: codes of each of the M category columns, including code 0 for categories unseen in training.
        members: size of the ensemble, k.
        adapters: mini scales the inputs of the first layer per member, TabM-mini; full scales inputs and outputs of
            every hidden layer and has biases per member, TabM. Heads are never shared.
        average: what is averaged in evaluation: values, the outputs; probabilities, the softmax of each member, whose
            logarithm is returned; auto, probabilities if there are 2 or more outputs. Set values for quantiles.
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
        numbers (B, N), scaled and without NaN, and categories (B, M), codes; or (B, k, N) and (B, k, M), rows for each
        member → outputs (B, k, K) in training, (B, K) in evaluation.

    Raises:
        ValueError: an argument is out of range, or an input has another number of columns or members.
    """

    def __init__(
        self,
        num_classes: int = 1,
        num_features: int = 8,
        cardinalities: Sequence[int] = (),
        members: int = 32,
        adapters: Literal["mini", "full"] = "mini",
        average: Literal["auto", "probabilities", "values"] = "auto",
        embedding: Literal["none", "piecewise", "periodic"] = "piecewise",
        embedding_dim: int = 16,
        num_bins: int = 48,
        num_frequencies: int = 48,
        frequency_scale: float = 0.1,
        category_dim: int = 16,
        category_dropout: float = 0.01,
        width: int = 512,
        depth: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        counts = {"num_classes": num_classes, "members": members, "width": width, "depth": depth}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        for name, choice, choices in (("adapters", adapters, ADAPTERS), ("average", average, AVERAGES)):
            if choice not in choices:
                raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {choice}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.members = members
        self.average = average if average != "auto" else "probabilities" if num_classes > 1 else "values"
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
        is_mini = adapters == "mini"
        self.adapter = nn.Parameter(torch.empty(members, 1, inputs[0])) if is_mini else None
        layers = [nn.Linear(d, width) if is_mini else _MemberLinear(d, width, members) for d in inputs]
        self.blocks = nn.Sequential(*[nn.Sequential(layer, nn.ReLU(), nn.Dropout(dropout)) for layer in layers])
        self.head = _MemberHeads(width, num_classes, members)
        self._initialise()

    def _initialise(self) -> None:
        """As Gorishniy et al. 2025: members differ at first in the scales of the first layer's inputs, and the heads.

        The scales are normal after embeddings of numbers, signs without; one for each column.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear | _MemberLinear | _MemberHeads):
                bound = module.in_features**-0.5
                nn.init.uniform_(module.weight, -bound, bound)
                nn.init.uniform_(module.bias, -bound, bound)
            if isinstance(module, _MemberLinear):
                nn.init.ones_(module.scale_in)
                nn.init.ones_(module.scale_out)
                with torch.no_grad():  # one for all members
                    module.bias.copy_(module.bias[:1].clone())
        dims = torch.tensor(self.embedding.dims)  # (N + M,)
        scale = torch.randn(self.members, 1, len(dims))  # (k, 1, N + M)
        if self.embedding.numbers is None:
            scale = torch.where(scale < 0, -1.0, 1.0)
        adapter = self.adapter if self.adapter is not None else self.blocks.get_parameter("0.0.scale_in")
        with torch.no_grad():
            adapter.copy_(scale.repeat_interleave(dims, dim=2))  # (k, 1, N D + M C)

    def forward(self, numbers: Tensor | None = None, categories: Tensor | None = None) -> Tensor:
        for name, columns in (("numbers", numbers), ("categories", categories)):
            if columns is not None and columns.ndim != 2 and (columns.ndim != 3 or columns.shape[1] != self.members):
                raise ValueError(
                    f"{name}: expected two dimensions, or three for {self.members} members, got {tuple(columns.shape)}"
                )
        if numbers is not None and categories is not None and numbers.ndim != categories.ndim:
            raise ValueError(
                "numbers, categories: expected rows for each member in both or in neither, "
                f"got {tuple(numbers.shape)}, {tuple(categories.shape)}"
            )
        parts = self.embedding(numbers, categories)  # (B, …, N, D), (B, …, M, C)
        x = torch.cat([part.flatten(-2) for part in parts], dim=-1)  # (B, …, N D + M C)
        x = x[None] if x.ndim == 2 else x.transpose(0, 1)  # (1 or k, B, N D + M C)
        if self.adapter is not None:
            x = x * self.adapter  # (k, B, N D + M C)
        x = self.head(self.blocks(x)).transpose(0, 1)  # (B, k, K)
        if self.training:
            return x
        if self.average == "values":
            return x.mean(dim=1)  # (B, K)
        return x.log_softmax(dim=-1).logsumexp(dim=1) - math.log(self.members)  # (B, K)


class _MemberLinear(nn.Module):
    """A linear layer of BatchEnsemble (Wen et al. 2020): one matrix; scales and a bias for each member.

    Shapes:
        (1 or k, B, in) → (k, B, out).
    """

    def __init__(self, in_features: int, out_features: int, members: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        # three dimensions, as Muon takes those with two for matrices of a layer
        self.scale_in = nn.Parameter(torch.empty(members, 1, in_features))
        self.scale_out = nn.Parameter(torch.empty(members, 1, out_features))
        self.bias = nn.Parameter(torch.empty(members, 1, out_features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, linear(x * self.scale_in, self.weight), self.scale_out)  # (k, B, out)


class _MemberHeads(nn.Module):
    """A linear layer for each member: (k, B, in) → (k, B, out)."""

    def __init__(self, in_features: int, out_features: int, members: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.weight = nn.Parameter(torch.empty(members, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(members, 1, out_features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)

"""The FT-Transformer (Gorishniy et al. 2021)."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from src.ops.table_embeddings import TableEmbedding

EMBEDDINGS = ("linear", "piecewise", "periodic")


class FTTransformer(nn.Module):
    """Attention over the columns of a table and a class token (Gorishniy et al. 2021).

    Layer norms come before attention and MLP, but for the attention of the first block. The MLP is gated, ReGLU. The
    last block computes the class token alone.

    Args:
        num_classes: number of outputs K: classes; 1 for regression, or the number of quantiles.
        num_features: number columns N; 0 for a table of categories alone.
        cardinalities: codes of each of the M category columns, including code 0 for categories unseen in training.
        embedding: of the numbers: linear, as in the paper, piecewise-linear or periodic.
        num_bins: bins of a piecewise-linear embedding; `use_facts` sets them to quantiles of the training data.
        num_frequencies: frequencies of a periodic embedding.
        frequency_scale: standard deviation of the initial frequencies; tune it first, from 0.01 to 10.
        category_dropout: probability of replacing a category by code 0 in training, in [0, 1).
        dim: features of a token, D; a multiple of num_heads.
        depth: number of blocks, at least 1.
        num_heads: attention heads H; a head has D / H features.
        mlp_ratio: hidden units of a block's MLP, as a multiple of D.
        dropout: probability of dropping a hidden unit of an MLP, in [0, 1).
        attention_dropout: probability of dropping a weight of the attention, in [0, 1).

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
        embedding: Literal["linear", "piecewise", "periodic"] = "linear",
        num_bins: int = 48,
        num_frequencies: int = 48,
        frequency_scale: float = 0.1,
        category_dropout: float = 0.01,
        dim: int = 192,
        depth: int = 3,
        num_heads: int = 8,
        mlp_ratio: float = 4 / 3,
        dropout: float = 0.1,
        attention_dropout: float = 0.2,
    ) -> None:
        super().__init__()
        for name, count in {"num_classes": num_classes, "dim": dim, "depth": depth, "num_heads": num_heads}.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if embedding not in EMBEDDINGS:
            raise ValueError(f"embedding: expected one of {', '.join(EMBEDDINGS)}, got {embedding}")
        if dim % num_heads:
            raise ValueError(f"dim: expected a multiple of num_heads {num_heads}, got {dim}")
        if int(mlp_ratio * dim) < 1:
            raise ValueError(f"mlp_ratio: expected at least 1 / dim, got {mlp_ratio}")
        for name, share in {"dropout": dropout, "attention_dropout": attention_dropout}.items():
            if not 0 <= share < 1:
                raise ValueError(f"{name}: expected a probability in [0, 1), got {share}")
        self.embedding = TableEmbedding(
            num_features,
            cardinalities,
            embedding,
            dim,
            num_bins,
            num_frequencies,
            frequency_scale,
            dim,
            category_dropout,
        )
        self.token = nn.Parameter(torch.empty(1, 1, dim))
        self.blocks = nn.ModuleList(
            _Block(dim, num_heads, int(mlp_ratio * dim), dropout, attention_dropout, number == 0, number == depth - 1)
            for number in range(depth)
        )
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.ReLU(), nn.Linear(dim, num_classes))
        nn.init.uniform_(self.token, -(dim**-0.5), dim**-0.5)
        for module in self.modules():  # as the authors' code, but for the biases, which are not zero in its MLPs
            if isinstance(module, nn.Linear):
                nn.init.uniform_(module.weight, -(module.in_features**-0.5), module.in_features**-0.5)
                nn.init.zeros_(module.bias)

    def forward(self, numbers: Tensor | None = None, categories: Tensor | None = None) -> Tensor:
        x = torch.cat(self.embedding(numbers, categories), dim=1)  # (B, N + M, D)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)  # (B, 1 + N + M, D)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])  # (B, K)


class _Block(nn.Module):
    """Attention among the tokens, then a gated MLP on each of them, both with a shortcut; the last on the first token.

    Shapes:
        (B, T, D) → (B, T, D), or (B, 1, D) for the last.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        hidden: int,
        dropout: float,
        attention_dropout: float,
        is_first: bool,
        is_last: bool,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.is_last = is_last
        self.attention_norm = nn.Identity() if is_first else nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * hidden), _ReGLU(), nn.Dropout(dropout), nn.Linear(hidden, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = (x[:, :1] if self.is_last else x) + self._attention(self.attention_norm(x))  # (B, 1 or T, D)
        return x + self.mlp(self.mlp_norm(x))

    def _attention(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # (B, T, 3, H, D / H)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()  # (B, H, T, D / H) each
        q = q[:, :, :1] if self.is_last else q
        x = scaled_dot_product_attention(q, k, v, dropout_p=self.attention_dropout if self.training else 0.0)
        return self.out(x.transpose(1, 2).flatten(2))  # (B, 1 or T, D)


class _ReGLU(nn.Module):
    """Shazeer 2020: the first half of the features, times ReLU of the second."""

    def forward(self, x: Tensor) -> Tensor:
        value, gate = x.chunk(2, dim=-1)
        return value * gate.relu()

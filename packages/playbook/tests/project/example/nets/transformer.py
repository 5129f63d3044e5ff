"""A Transformer over the rows of an image."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Transformer(nn.Module):
    """Attention among the rows of a square image, and the mean of their features.

    Args:
        num_classes: number of classes K.
        image_size: height and width of the image, S: the number of rows and the values in each.
        dim: features of a row, D; a multiple of num_heads.
        depth: number of blocks.
        num_heads: attention heads H.

    Shapes:
        image (B, 1, S, S) → logits (B, K).
    """

    tensor_parallel: ClassVar[dict[str, str]] = {
        "blocks.*.qkv": "colwise",
        "blocks.*.out": "rowwise",
        "blocks.*.mlp.0": "colwise",
        "blocks.*.mlp.2": "rowwise",
    }

    def __init__(
        self, num_classes: int = 10, image_size: int = 8, dim: int = 64, depth: int = 4, num_heads: int = 4
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.rows = _Rows(image_size, dim)
        self.blocks = nn.ModuleList(_Block(dim, num_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.rows(image)  # (B, S, D)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))  # (B, K)


class _Rows(nn.Module):
    """A token for each row, with its position."""

    def __init__(self, image_size: int, dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(image_size, dim)
        self.position = nn.Parameter(0.02 * torch.randn(image_size, dim))

    def forward(self, image: Tensor) -> Tensor:
        return self.projection(image.squeeze(1)) + self.position  # (B, S, D)


class _Block(nn.Module):
    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.head_dim = dim // num_heads
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim)])
        self.qkv = nn.Linear(dim, 3 * dim)  # by head, so that a slice holds whole heads
        self.out = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (-1, 3, self.head_dim))  # (B, S, H, 3, D / H)
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind()  # (B, H, S, D / H) each
        x = x + self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # (B, S, D)
        return x + self.mlp(self.norms[1](x))

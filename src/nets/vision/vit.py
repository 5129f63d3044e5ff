"""The Vision Transformer (Dosovitskiy et al. 2021)."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

EPS = 1e-6  # of the layer norms, as in the published weights


class ViT(nn.Module):
    """Attention over the square patches of an image and a class token (Dosovitskiy et al. 2021).

    Layer norms come before attention and MLP. With learned positions, outputs equal those of torchvision's
    VisionTransformer.

    Args:
        num_classes: number of classes K, at least 1.
        image_size: height and width of the image in pixels, S.
        patch_size: height and width of a patch in pixels, P; it divides S. An image has N = (S / P)² patches.
        in_channels: 1 for grey images, 3 for RGB.
        dim: features of a token, D; a multiple of num_heads.
        depth: number of blocks, at least 1.
        num_heads: attention heads H; a head has D / H features.
        mlp_ratio: hidden units of a block's MLP, as a multiple of D.
        dropout: probability of dropping a feature after the positions, after attention and in the MLP, in [0, 1).
        position: learned, a trained vector per patch; sincos, the fixed two-dimensional embedding of Chen et al. 2021;
            rope, queries and keys rotated by row and column (Heo et al. 2024), so that attention depends on distances.

    Shapes:
        image (B, in_channels, S, S) → logits (B, K).

    Raises:
        ValueError: an argument is out of range, or an image has another shape.
    """

    tensor_parallel: ClassVar[dict[str, str]] = {
        "blocks.*.qkv": "colwise",
        "blocks.*.out": "rowwise",
        "blocks.*.mlp.0": "colwise",
        "blocks.*.mlp.3": "rowwise",
    }

    def __init__(
        self,
        num_classes: int = 10,
        image_size: int = 8,
        patch_size: int = 2,
        in_channels: int = 1,
        dim: int = 64,
        depth: int = 6,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        dropout: float = 0.0,
        position: Literal["learned", "sincos", "rope"] = "learned",
    ) -> None:
        super().__init__()
        counts = {
            "num_classes": num_classes,
            "image_size": image_size,
            "patch_size": patch_size,
            "in_channels": in_channels,
            "dim": dim,
            "depth": depth,
            "num_heads": num_heads,
            "mlp_ratio": mlp_ratio,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if image_size % patch_size:
            raise ValueError(f"image_size: expected a multiple of patch_size {patch_size}, got {image_size}")
        if dim % num_heads:
            raise ValueError(f"dim: expected a multiple of num_heads {num_heads}, got {dim}")
        # a sine and a cosine, for rows and for columns: of every token, or of every head
        waves = {"learned": 1, "sincos": 4, "rope": 4 * num_heads}
        if position not in waves:
            raise ValueError(f"position: expected one of {', '.join(waves)}, got {position}")
        if dim % waves[position]:
            raise ValueError(f"dim: expected a multiple of {waves[position]} for position {position}, got {dim}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.num_heads = num_heads  # divisible by the devices that split them
        grid = image_size // patch_size
        self.patches = _Patches((in_channels, image_size, image_size), patch_size, dim, dropout, position)
        self.blocks = nn.ModuleList(_Block(dim, num_heads, mlp_ratio, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, EPS)
        self.head = nn.Linear(dim, num_classes)
        rotation = _rotation(grid, dim // num_heads) if position == "rope" else None
        self.register_buffer("rotation", rotation, persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        """As Dosovitskiy et al. 2021: Glorot & Bengio 2010 with zero biases, deviation 0.02 for the positions.

        Head and token differ, which are zero in the paper: a zero head gives the layers below no gradient in the first
        step, and with rope a zero token has no position that sets it apart.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for block in self.blocks:
            assert isinstance(block, _Block)
            nn.init.xavier_uniform_(block.qkv.weight, gain=2**0.5)  # by the fans of the three D × D in it: 2 D, not 4 D
        nn.init.normal_(self.patches.token, std=0.02)
        if isinstance(self.patches.position, nn.Parameter):
            nn.init.normal_(self.patches.position, std=0.02)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image)  # (B, 1 + N, D)
        for block in self.blocks:
            x = block(x, self.rotation)
        return self.head(self.norm(x[:, 0]))  # (B, K)


class _Patches(nn.Module):
    """Maps an image (B, C, S, S) to the class token and a token per patch, with positions: (B, 1 + N, D)."""

    def __init__(self, shape: tuple[int, int, int], size: int, dim: int, dropout: float, position: str) -> None:
        super().__init__()
        self.shape, self.size = shape, size
        grid = shape[1] // size
        # not a strided convolution: forward and backward take 0.90 of its time for 8 × 3 × 224² in patches of 16, 0.57
        # for 64 × 1 × 8² in patches of 2 (medians of 7 alternating rounds, one CPU thread)
        self.projection = nn.Linear(shape[0] * size * size, dim)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        if position == "learned":
            self.position = nn.Parameter(torch.zeros(1, 1 + grid * grid, dim))
        else:
            self.register_buffer("position", _waves(grid, dim) if position == "sincos" else None, persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, image: Tensor) -> Tensor:
        if image.shape[1:] != self.shape:
            raise ValueError(f"image_size, in_channels: expected {self.shape} an image, got {tuple(image.shape[1:])}")
        batch_size, p = image.shape[0], self.size  # len would fix the size of an export
        x = image.unflatten(2, (-1, p)).unflatten(4, (-1, p))  # (B, C, S / P, P, S / P, P)
        x = x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, N, C P P)
        x = torch.cat([self.token.expand(batch_size, -1, -1), self.projection(x)], dim=1)  # (B, 1 + N, D)
        return self.dropout(x if self.position is None else x + self.position)


class _Block(nn.Module):
    """Attention among the tokens, then an MLP on each of them, both with a shortcut."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: int, dropout: float) -> None:
        super().__init__()
        self.head_dim = dim // num_heads
        self.attention_norm = nn.LayerNorm(dim, EPS)
        self.qkv = nn.Linear(dim, 3 * dim)  # rows by head, then q, k, v: a slice of them is a number of whole heads
        self.out = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.mlp_norm = nn.LayerNorm(dim, EPS)
        hidden = mlp_ratio * dim
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        x = x + self.dropout(self._attention(self.attention_norm(x), rotation))
        return x + self.mlp(self.mlp_norm(x))

    def _attention(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (-1, 3, self.head_dim))  # (B, T, H, 3, D / H), H of this rank
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind()  # (B, H, T, D / H) each
        if rotation is not None:
            q, k = _rotate(q, rotation), _rotate(k, rotation)
        x = scaled_dot_product_attention(q, k, v)  # (B, H, T, D / H)
        return self.out(x.transpose(1, 2).flatten(2))  # (B, T, D)


def _angles(grid: int, num: int, base: float) -> tuple[Tensor, Tensor]:
    """Position × frequency of the rows and of the columns of a square grid, (N, num) each."""
    frequency = base ** -(torch.arange(num) / num)  # (num,)
    row, column = torch.meshgrid(torch.arange(grid), torch.arange(grid), indexing="ij")  # (grid, grid)
    return row.reshape(-1, 1) * frequency, column.reshape(-1, 1) * frequency


def _waves(grid: int, dim: int) -> Tensor:
    """Chen et al. 2021 (MoCo v3): sines and cosines of the row, then of the column; the class token has none."""
    row, column = _angles(grid, dim // 4, base=10_000)
    table = torch.cat([row.sin(), row.cos(), column.sin(), column.cos()], dim=1)  # (N, D)
    return torch.cat([torch.zeros(1, dim), table])[None]  # (1, 1 + N, D)


def _rotation(grid: int, head_dim: int) -> Tensor:
    """Cosines and sines of each token's angles, base 100 as Heo et al. 2024; the class token stays as it is."""
    angle = torch.cat(_angles(grid, head_dim // 4, base=100), dim=1)  # (N, D / 2 H)
    angle = torch.cat([torch.zeros(1, head_dim // 2), angle])  # (1 + N, D / 2 H)
    return torch.stack([angle.cos(), angle.sin()])  # (2, 1 + N, D / 2 H)


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turns the pairs (i, i + D / 2 H) of (B, H, T, D / H) by their angles, in the precision of the angles."""
    cos, sin = rotation
    a, b = x.chunk(2, dim=-1)  # (B, H, T, D / 2 H) each
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)  # (B, H, T, D / H)

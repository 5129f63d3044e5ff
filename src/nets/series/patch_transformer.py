"""The patch Transformer for series (PatchTST, Nie et al. 2023)."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from src.ops.covariates import CovariateMap
from src.ops.reversible_norm import ReversibleNorm
from src.ops.series_inputs import check_inputs, input_shapes


class PatchTransformer(nn.Module):
    """Attention over patches of a series, each channel by itself with the same weights (PatchTST, Nie et al. 2023).

    Batch norms follow attention and MLP, as in the paper; attention scores are not passed on to the next block, as the
    authors' code does. Covariates add a linear regression to the forecast: each step on its known covariates, the
    static features, and weighted sums of the past covariates over the look-back.

    Args:
        look_back: number of past steps, L.
        horizon: number of steps to forecast, H.
        num_channels: number of series that are forecast together, C.
        num_past_covariates: number of covariates over the look-back, P.
        num_known_covariates: number of covariates over the horizon, F.
        num_static: number of features that do not change over time, S.
        num_quantiles: values for each step and channel, Q; above 1 for the quantile loss.
        normalise: none; last, subtracts the last value; revin, standardises each window. Undone in the forecast,
            effects of covariates included.
        patch_size: steps of a patch, at most L.
        stride: steps from the start of a patch to that of the next one. The last value is repeated stride times at
            the end, so a window has N = (L - patch_size) // stride + 2 patches.
        dim: features of a patch, D; a multiple of num_heads.
        depth: number of blocks, at least 1.
        num_heads: attention heads; a head has D / num_heads features.
        hidden: units of a block's MLP.
        dropout: probability of dropping a feature after the positions, after attention and in the MLP, in [0, 1).

    Shapes:
        past (B, L, C), past_covariates (B, L, P), known_covariates (B, H, F), static (B, S) → (B, H, C), or
        (B, H, C, Q) for Q above 1.

    Raises:
        ValueError: an argument is out of range, or an input is missing, superfluous or of another shape.
    """

    def __init__(
        self,
        look_back: int = 96,
        horizon: int = 24,
        num_channels: int = 1,
        num_past_covariates: int = 0,
        num_known_covariates: int = 0,
        num_static: int = 0,
        num_quantiles: int = 1,
        normalise: Literal["none", "last", "revin"] = "revin",
        patch_size: int = 16,
        stride: int = 8,
        dim: int = 16,
        depth: int = 3,
        num_heads: int = 4,
        hidden: int = 128,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        counts = {
            "num_quantiles": num_quantiles,
            "patch_size": patch_size,
            "stride": stride,
            "dim": dim,
            "depth": depth,
            "num_heads": num_heads,
            "hidden": hidden,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        covariates = (num_past_covariates, num_known_covariates, num_static)
        self.shapes = input_shapes(look_back, horizon, num_channels, *covariates)
        if patch_size > look_back:
            raise ValueError(f"patch_size: expected at most look_back {look_back}, got {patch_size}")
        if dim % num_heads:
            raise ValueError(f"dim: expected a multiple of num_heads {num_heads}, got {dim}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.patch_size, self.stride = patch_size, stride
        self.size = (horizon, num_quantiles)
        num_patches = (look_back - patch_size) // stride + 2
        self.norm = ReversibleNorm(num_channels, normalise)
        self.projection = nn.Linear(patch_size, dim)
        self.position = nn.Parameter(torch.zeros(num_patches, dim))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[_Block(dim, num_heads, hidden, dropout) for _ in range(depth)])
        self.head = nn.Linear(num_patches * dim, horizon * num_quantiles)
        self._initialise()
        num_outputs = num_channels * num_quantiles  # below: the map of covariates starts at zero
        self.covariates = CovariateMap(look_back, horizon, *covariates, num_outputs) if any(covariates) else None

    def _initialise(self) -> None:
        """Glorot & Bengio 2010 with zero biases; positions uniform up to 0.02, as Nie et al. 2023."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.blocks:
            assert isinstance(block, _Block)
            nn.init.xavier_uniform_(block.qkv.weight, gain=2**0.5)  # by the fans of the three D × D in it: 2 D, not 4 D
        nn.init.uniform_(self.position, -0.02, 0.02)

    def forward(
        self,
        past: Tensor,
        past_covariates: Tensor | None = None,
        known_covariates: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        given = {"past_covariates": past_covariates, "known_covariates": known_covariates, "static": static}
        check_inputs(self.shapes, past=past, **given)
        x, level, scale = self.norm(past)  # (B, L, C)
        x = self.patches(x).flatten(0, 1)  # (B C, N, patch_size)
        x = self.dropout(self.projection(x) + self.position)  # (B C, N, D)
        y = self.head(self.blocks(x).flatten(1))  # (B C, H Q)
        y = y.unflatten(0, (-1, past.shape[2])).unflatten(-1, self.size).transpose(1, 2)  # (B, H, C, Q)
        if self.covariates is not None:
            y = y + self.covariates(**given).unflatten(-1, y.shape[2:])
        y = self.norm.restore(y, level, scale)
        return y.squeeze(-1) if self.size[1] == 1 else y

    def patches(self, x: Tensor) -> Tensor:
        """Cuts windows (B, L, C) into patches (B, C, N, patch_size)."""
        x = pad(x.transpose(1, 2), (0, self.stride), mode="replicate")  # (B, C, L + stride)
        return x.unfold(-1, self.patch_size, self.stride)


class _Block(nn.Module):
    """Attention among the patches, then an MLP on each of them, both with a shortcut and a batch norm after it."""

    def __init__(self, dim: int, num_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.head_dim = dim // num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim, bias=False)  # the norm would subtract a bias
        self.dropout = nn.Dropout(dropout)
        self.attention_norm = nn.BatchNorm1d(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, dim, bias=False),
            nn.Dropout(dropout),
        )
        self.mlp_norm = nn.BatchNorm1d(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = _normed(self.attention_norm, x + self.dropout(self._attention(x)))
        return _normed(self.mlp_norm, x + self.mlp(x))  # (B C, N, D)

    def _attention(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, -1, self.head_dim))  # (B C, N, 3, num_heads, D / num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()  # (B C, num_heads, N, D / num_heads) each
        x = scaled_dot_product_attention(q, k, v)
        return self.out(x.transpose(1, 2).flatten(2))  # (B C, N, D)


def _normed(norm: nn.Module, x: Tensor) -> Tensor:
    return norm(x.transpose(1, 2)).transpose(1, 2)  # batch norm expects features (B C, D, N)

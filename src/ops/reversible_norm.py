"""Reversible normalisation: removes the level and scale of each window before a net, and restores them after it."""

from typing import Literal

import torch
from torch import Tensor, nn

EPS = 1e-5  # added to the variance, as Kim et al. 2022 do


class ReversibleNorm(nn.Module):
    """Removes the level of a window, or level and scale (RevIN, Kim et al. 2022), so that a net sees no shift of them.

    Args:
        num_channels: number of channels C.
        kind: none; last, subtracts the last value of each channel (Zeng et al. 2023); revin, subtracts the mean over
            the window, divides by the standard deviation, and applies a learnt scale and offset per channel.

    Raises:
        ValueError: the kind is unknown.
    """

    def __init__(self, num_channels: int, kind: Literal["none", "last", "revin"]) -> None:
        super().__init__()
        if kind not in ("none", "last", "revin"):
            raise ValueError(f"normalise: expected none, last or revin, got {kind}")
        self.kind = kind
        if kind == "revin":
            self.weight = nn.Parameter(torch.ones(num_channels))
            self.bias = nn.Parameter(torch.zeros(num_channels))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalises windows.

        Args:
            x: (B, L, C).

        Returns:
            The windows (B, L, C), and the level and scale for `restore`, (B, 1, C) each. No gradient flows through
            level and scale.
        """
        if self.kind == "none":
            return x, x.new_zeros(1, 1, 1), x.new_ones(1, 1, 1)
        if self.kind == "last":
            level = x[:, -1:].detach()  # (B, 1, C)
            return x - level, level, torch.ones_like(level)
        level = x.mean(dim=1, keepdim=True).detach()  # (B, 1, C)
        scale = (x.var(dim=1, correction=0, keepdim=True) + EPS).sqrt().detach()  # (B, 1, C)
        return (x - level) / scale * self.weight + self.bias, level, scale

    def restore(self, y: Tensor, level: Tensor, scale: Tensor) -> Tensor:
        """Undoes the normalisation for a forecast.

        Args:
            y: (B, H, C, Q), Q values for each step and channel.
            level: returned by `forward`.
            scale: returned by `forward`.
        """
        if self.kind == "revin":
            weight = self.weight + EPS**2  # not zero where a weight is
            y = (y - self.bias.unsqueeze(-1)) / weight.unsqueeze(-1)
        return y * scale.unsqueeze(-1) + level.unsqueeze(-1)

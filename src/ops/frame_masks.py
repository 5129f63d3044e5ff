"""Frames of recordings of different lengths: which are padding, norms over the others, and masks for training."""

import torch
from torch import Tensor, nn


def frames_within(length: Tensor, num_frames: int) -> Tensor:
    """Whether each frame lies within its recording.

    Args:
        length: frames of each recording (B,).
        num_frames: frames of the padded batch, N.

    Returns:
        (B, N).
    """
    return torch.arange(num_frames, device=length.device) < length[:, None]


class MaskedBatchNorm(nn.BatchNorm1d):
    """Batch norm (Ioffe & Szegedy 2015) whose statistics leave out padding, and which sets padding to zero.

    Shapes:
        x (B, C, …, N) and mask (B, N) → (B, C, …, N).
    """

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        counts = mask[(slice(None), *[None] * (x.ndim - 2))].to(x.dtype)  # (B, 1, …, N)
        shape = (1, -1, *[1] * (x.ndim - 2))
        if self.training:
            dims = [dim for dim in range(x.ndim) if dim != 1]
            size = (counts.sum() * (x[0, 0].numel() // x.shape[-1])).clamp(min=1)  # values of a channel
            mean = (x * counts).sum(dims) / size  # (C,)
            variance = ((x - mean.view(shape)).square() * counts).sum(dims) / size  # (C,)
            self._update(mean.detach(), (variance * size / (size - 1).clamp(min=1)).detach())
        else:
            assert self.running_mean is not None, "it tracks its statistics"
            assert self.running_var is not None, "it tracks its statistics"
            mean, variance = self.running_mean, self.running_var
        scale = self.weight * torch.rsqrt(variance + self.eps)  # (C,)
        return (x * scale.view(shape) + (self.bias - mean * scale).view(shape)) * counts

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        assert self.num_batches_tracked is not None, "it tracks its statistics"
        assert self.momentum is not None, "its average is exponential"
        self.num_batches_tracked += 1
        for running, value in ((self.running_mean, mean), (self.running_var, variance)):
            assert running is not None, "it tracks its statistics"
            running.lerp_(value.to(running.dtype), self.momentum)


def mask_bands(
    x: Tensor, length: Tensor, num_times: int, num_bands: int, time_share: float, band_share: float
) -> Tensor:
    """Sets random stretches of time and bands of frequency to zero, the mean of a normalised spectrogram.

    SpecAugment (Park et al. 2019) without warping. The random numbers are those of torch's global generator.

    Args:
        x: spectrograms (B, M, N).
        length: frames of each recording (B,).
        num_times: stretches of time of each recording.
        num_bands: bands of frequency of each recording.
        time_share: largest share of a recording's frames in a stretch.
        band_share: largest share of the M bands in a band.
    """
    num_mels = torch.full_like(length, x.shape[1])
    hidden = _spans(length, num_times, time_share, x.shape[2])[:, None]  # (B, 1, N)
    hidden = hidden | _spans(num_mels, num_bands, band_share, x.shape[1])[:, :, None]  # (B, M, N)
    return x.masked_fill(hidden, 0.0)


def _spans(size: Tensor, number: int, share: float, num_places: int) -> Tensor:
    """Places (B, num_places) in any of some random spans, each of up to a share of a size (B,)."""
    draws = torch.rand(2, len(size), number, 1, device=size.device)
    width = (draws[0] * (size[:, None, None] * share + 1)).floor()  # (B, number, 1)
    start = (draws[1] * (size[:, None, None] - width + 1)).floor()
    places = torch.arange(num_places, device=size.device)
    return ((places >= start) & (places < start + width)).any(dim=1)

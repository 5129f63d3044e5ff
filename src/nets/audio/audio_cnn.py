"""A small convolutional network for recordings of different lengths."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from src.ops.frame_masks import MaskedBatchNorm, frames_within, mask_bands
from src.ops.mel import LogMel


class AudioCNN(nn.Module):
    """3×3 convolutions over a log-mel spectrogram, then the mean over frequencies and frames.

    The spectrogram is the first layer, so that an exported model takes samples. Every stage but the last halves the
    number of frames and of bands. Frames of padding enter neither the convolutions nor the statistics of the norms.

    Args:
        num_classes: number of classes K.
        sample_rate: samples per second.
        num_mels: bands of the spectrogram M.
        widths: channels of each stage, one stage an entry.
        window_s: length in seconds of a frame of the spectrogram.
        hop_s: seconds from a frame to the next.
        time_masks: stretches of time of each recording that training hides (SpecAugment, Park et al. 2019).
        band_masks: bands of frequency of each recording that training hides.
        mask_share: largest share of the frames, or of the bands, that one of them hides, in [0, 1].
        dropout: probability of dropping a feature before the classifier, in [0, 1).

    Shapes:
        audio (B, T) and length (B,), the samples of each recording, after which there is padding → logits (B, K).

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        num_classes: int = 10,
        sample_rate: int = 16_000,
        num_mels: int = 40,
        widths: Sequence[int] = (32, 32, 64, 64),
        window_s: float = 0.025,
        hop_s: float = 0.01,
        time_masks: int = 2,
        band_masks: int = 2,
        mask_share: float = 0.15,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_options(num_classes, num_mels, time_masks, band_masks, mask_share, dropout)
        if not widths or min(widths) < 1:
            raise ValueError(f"widths: expected at least one stage of at least 1 channel, got {list(widths)}")
        self.masks = (time_masks, band_masks, mask_share, mask_share)
        self.spectrogram = LogMel(sample_rate, num_mels, window_s, hop_s)
        self.norm = MaskedBatchNorm(num_mels)
        inputs = [1, *widths[:-1]]
        self.strides = [2] * (len(widths) - 1) + [1]
        # no bias: the norm subtracts it again
        self.convs = nn.ModuleList(
            nn.Conv2d(c_in, c_out, 3, stride, padding=1, bias=False)
            for c_in, c_out, stride in zip(inputs, widths, self.strides, strict=True)
        )
        self.norms = nn.ModuleList(MaskedBatchNorm(width) for width in widths)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(widths[-1], num_classes)
        for conv in self.convs:  # He et al. 2015: keeps the variance through ReLU
            assert isinstance(conv, nn.Conv2d)
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, audio: Tensor, length: Tensor) -> Tensor:
        length = length.clamp(max=audio.shape[1])
        audio = audio.masked_fill(~frames_within(length, audio.shape[1]), 0.0)  # whatever the padding was
        if torch.compiler.is_exporting():  # which would refuse recordings of which a stage has a single frame
            audio = nn.functional.pad(audio, (0, self.spectrogram.hop * 2 ** (len(self.convs) - 1)))
        x = self.spectrogram(audio).to(self.head.weight.dtype)  # (B, M, N)
        frames = self.spectrogram.num_frames(length)  # (B,)
        mask = frames_within(frames, x.shape[-1])  # (B, N)
        x = self.norm(x, mask)
        if self.training:
            x = mask_bands(x, frames, *self.masks)
        x = x[:, None]  # (B, 1, M, N)
        for conv, norm, stride in zip(self.convs, self.norms, self.strides, strict=True):
            x = conv(x)  # (B, C, M / 2, N / 2), but for the last stage
            frames = (frames + stride - 1) // stride
            mask = frames_within(frames, x.shape[-1])
            x = norm(x, mask).relu()
        # an empty recording has no frame, and zeros
        x = x.mean(dim=2).sum(dim=2) / frames.clamp(min=1)[:, None]  # (B, C)
        return self.head(self.dropout(x))  # (B, K)


def check_options(
    num_classes: int, num_mels: int, time_masks: int, band_masks: int, mask_share: float, dropout: float
) -> None:
    """Checks the options that the nets of this folder share.

    Raises:
        ValueError: one is out of range.
    """
    for name, count, least in (
        ("num_classes", num_classes, 1),
        ("num_mels", num_mels, 1),
        ("time_masks", time_masks, 0),
        ("band_masks", band_masks, 0),
    ):
        if count < least:
            raise ValueError(f"{name}: expected at least {least}, got {count}")
    if not 0 <= mask_share <= 1:
        raise ValueError(f"mask_share: expected a share in [0, 1], got {mask_share}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")

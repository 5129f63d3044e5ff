"""A net for recordings without batch norm and dropout."""

from torch import Tensor, nn

from src.ops.frame_masks import frames_within
from src.ops.mel import LogMel
from src.ops.text_pooling import pool_text


class Plain(nn.Module):
    """An MLP over each frame of a log-mel spectrogram, then the mean over frames.

    Args:
        num_classes: number of classes K.
        sample_rate: samples per second.
    """

    def __init__(self, num_classes: int = 5, sample_rate: int = 8000) -> None:
        super().__init__()
        self.spectrogram = LogMel(sample_rate, 16)
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, num_classes))

    def forward(self, audio: Tensor, length: Tensor) -> Tensor:
        x = self.layers(self.spectrogram(audio).transpose(1, 2) / 10)  # (B, N, K)
        mask = frames_within(self.spectrogram.num_frames(length), x.shape[1])
        return pool_text(x, mask, "mean")

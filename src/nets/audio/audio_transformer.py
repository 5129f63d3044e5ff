"""A Transformer (Vaswani et al. 2017) over the frames of a recording."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from src.nets.audio.audio_cnn import check_options
from src.ops.attention import attend, rotate, rotation
from src.ops.frame_masks import MaskedBatchNorm, frames_within, mask_bands
from src.ops.mel import LogMel
from src.ops.text_pooling import pool_text

THETA = 10_000.0  # slowest wavelength of rotary positions, in places / 2π


class AudioTransformer(nn.Module):
    """Joins the frames of a log-mel spectrogram into patches, lets them attend to each other, and takes their mean.

    The spectrogram is the first layer, so that an exported model takes samples. Positions are rotary (Su et al. 2021),
    so that recordings may have any length. Frames of padding have no effect.

    Args:
        num_classes: number of classes K.
        sample_rate: samples per second.
        num_mels: bands of the spectrogram M.
        patch: frames from a patch to the next; a patch has 2 patch - 1 of them.
        dim: features of a patch, D; a multiple of 2 num_heads.
        depth: number of blocks.
        num_heads: attention heads H.
        window_s: length in seconds of a frame of the spectrogram.
        hop_s: seconds from a frame to the next.
        time_masks: stretches of time of each recording that training hides (SpecAugment, Park et al. 2019).
        band_masks: bands of frequency of each recording that training hides.
        mask_share: largest share of the frames, or of the bands, that one of them hides, in [0, 1].
        dropout: probability of dropping a feature after attention, in the MLP and before the classifier, in [0, 1).

    Shapes:
        audio (B, T) and length (B,), the samples of each recording, after which there is padding → logits (B, K).

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        num_classes: int = 10,
        sample_rate: int = 16_000,
        num_mels: int = 64,
        patch: int = 4,
        dim: int = 96,
        depth: int = 3,
        num_heads: int = 4,
        window_s: float = 0.025,
        hop_s: float = 0.01,
        time_masks: int = 2,
        band_masks: int = 2,
        mask_share: float = 0.15,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_options(num_classes, num_mels, time_masks, band_masks, mask_share, dropout)
        for name, count in {"patch": patch, "dim": dim, "depth": depth, "num_heads": num_heads}.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if dim % (2 * num_heads):
            raise ValueError(f"dim: expected a multiple of {2 * num_heads} for {num_heads} heads, got {dim}")
        self.masks = (time_masks, band_masks, mask_share, mask_share)
        self.patch, self.rotary_dim = patch, dim // num_heads
        self.spectrogram = LogMel(sample_rate, num_mels, window_s, hop_s)
        self.input_norm = MaskedBatchNorm(num_mels)
        self.patches = nn.Conv1d(num_mels, dim, 2 * patch - 1, stride=patch, padding=patch - 1)
        self.blocks = nn.ModuleList(_Block(dim, num_heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, num_classes)
        for module in self.modules():  # Glorot & Bengio 2010, and 0.02 for the head, as Dosovitskiy et al. 2021
            if isinstance(module, nn.Linear | nn.Conv1d):
                nn.init.xavier_uniform_(module.weight)
                assert module.bias is not None, "all of them have one"
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, audio: Tensor, length: Tensor) -> Tensor:
        length = length.clamp(max=audio.shape[1])
        audio = audio.masked_fill(~frames_within(length, audio.shape[1]), 0.0)  # whatever the padding was
        if torch.compiler.is_exporting():  # which would refuse recordings of a single patch
            audio = nn.functional.pad(audio, (0, self.spectrogram.hop * self.patch))
        x = self.spectrogram(audio).to(self.head.weight.dtype)  # (B, M, N)
        frames = self.spectrogram.num_frames(length)  # (B,)
        x = self.input_norm(x, frames_within(frames, x.shape[-1]))
        if self.training:
            x = mask_bands(x, frames, *self.masks)
        x = self.patches(x).transpose(1, 2)  # (B, P, D), P = ⌈N / patch⌉
        is_patch = frames_within((frames + self.patch - 1) // self.patch, x.shape[1])  # (B, P)
        visible = (is_patch | ~is_patch.any(dim=1, keepdim=True))[:, None, None]  # (B, 1, 1, P); no row is all hidden
        places = torch.arange(x.shape[1], device=x.device)
        turns = rotation(places, self.rotary_dim, THETA, torch.promote_types(x.dtype, torch.float32))
        for block in self.blocks:
            x = block(x, visible, turns)
        x = pool_text(self.norm(x), is_patch, "mean")  # (B, D)
        return self.head(self.dropout(x))  # (B, K)


class _Block(nn.Module):
    """Attention among the patches, then an MLP on each of them, both with a shortcut around a layer norm before it."""

    def __init__(self, dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.head_dim = dim // num_heads
        self.attention_norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.mlp_norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, visible: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.dropout(self._attention(self.attention_norm(x), visible, turns))
        hidden = self.dropout(gelu(self.up(self.mlp_norm(x))))  # (B, P, 4 D)
        return x + self.dropout(self.down(hidden))

    def _attention(self, x: Tensor, visible: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        linears = (self.query, self.key, self.value)
        q, k, v = (linear(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for linear in linears)  # (B, H, P, D/H)
        q, k = (rotate(part, *turns).to(v.dtype) for part in (q, k))
        x = attend(q, k, v, visible)
        return self.out(x.transpose(1, 2).flatten(2))  # (B, P, D)

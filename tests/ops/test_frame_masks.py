"""Norms that leave out padding, against torch's norm over the frames within; masks of SpecAugment."""

import pytest
import torch
from torch import nn

from src.ops.frame_masks import MaskedBatchNorm, frames_within, mask_bands

LENGTHS = torch.tensor([5, 2, 7])


def test_frames_within() -> None:
    assert frames_within(torch.tensor([0, 2]), 3).tolist() == [[False] * 3, [True, True, False]]


@pytest.mark.parametrize("shape", [(3, 4, 7), (3, 4, 6, 7)])
def test_norm_of_the_frames_within(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    ours, reference = MaskedBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    reference.load_state_dict(ours.state_dict())
    mask = frames_within(LENGTHS, 7)
    for _ in range(3):
        x = torch.randn(shape, dtype=torch.float64) * 3 + 1
        frames = x.movedim(-1, 1)[mask].flatten(2) if x.ndim == 4 else x.movedim(-1, 1)[mask]  # (frames within, C, …)
        expected = torch.zeros_like(x).movedim(-1, 1)
        expected[mask] = reference(frames).view(expected[mask].shape)
        torch.testing.assert_close(ours(x, mask), expected.movedim(1, -1))
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, msg=lambda text, at=name: f"{at}: {text}")
    ours.eval()
    reference.eval()
    expected = torch.zeros_like(x).movedim(-1, 1)
    expected[mask] = reference(frames).view(expected[mask].shape)
    torch.testing.assert_close(ours(x, mask), expected.movedim(1, -1))


def test_padding_alone_has_finite_values() -> None:
    norm = MaskedBatchNorm(2)
    x = norm(torch.randn(1, 2, 3), torch.zeros(1, 3, dtype=torch.bool))
    assert torch.equal(x, torch.zeros(1, 2, 3))
    assert all(value.isfinite().all() for value in norm.state_dict().values())


def test_masks_hide_few_and_contiguous_places() -> None:
    torch.manual_seed(0)
    num_hidden = []
    for _ in range(100):
        x = mask_bands(torch.ones(1, 10, 20), torch.tensor([16]), 1, 1, time_share=0.25, band_share=0.3)[0]
        frames, bands = (x == 0).all(dim=0), (x == 0).all(dim=1)
        assert frames.sum() <= 4
        assert bands.sum() <= 3
        assert not frames[16:].any(), "padding is not masked"
        assert torch.equal(x == 0, frames[None] | bands[:, None])
        for places in (frames, bands):
            assert places.long().diff().abs().sum() <= 2, "in one piece"
        num_hidden.append((int(frames.sum()), int(bands.sum())))
    for widths, longest in zip(zip(*num_hidden, strict=True), (4, 3), strict=True):
        assert set(widths) == set(range(longest + 1))


def test_each_recording_has_masks_of_its_own() -> None:
    torch.manual_seed(0)
    x = mask_bands(torch.ones(6, 12, 40), torch.full((6,), 40), 2, 0, time_share=0.3, band_share=0.0)
    assert len({tuple(row[0].tolist()) for row in x}) == 6


def test_no_masks_change_nothing() -> None:
    x = torch.randn(2, 4, 5)
    assert torch.equal(mask_bands(x, torch.tensor([5, 3]), 0, 0, 0.5, 0.5), x)

"""What every net must satisfy is in test_nets.py; here, what is particular to recordings of different lengths."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d

from src.nets.audio.audio_cnn import AudioCNN
from tests.nets.audio.recordings import RATE, assert_padding_has_no_effect, recordings

SIZE: dict[str, Any] = {"num_classes": 5, "sample_rate": RATE, "num_mels": 8, "widths": [4, 6, 6]}


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return recordings(batch_size), SIZE


def test_padding_has_no_effect() -> None:
    torch.manual_seed(0)
    assert_padding_has_no_effect(AudioCNN(**SIZE, dropout=0.0, time_masks=0), recordings)


def test_reference_logits() -> None:
    """Without padding, it is a usual CNN with batch norms."""
    torch.manual_seed(0)
    net = AudioCNN(**SIZE).double()
    inputs = recordings(3, torch.float64)
    for _ in range(2):
        net.train()(**inputs)
    net.eval()
    audio = inputs["audio"][:1, :1200]  # a multiple of the hop, so that the last frame lies behind the end
    x = net.spectrogram(audio)[..., :-1]  # (1, M, N)
    x = batch_norm(x, net.norm.running_mean, net.norm.running_var, net.norm.weight, net.norm.bias)[:, None]
    for number, (conv, norm) in enumerate(zip(net.convs, net.norms, strict=True)):
        x = conv2d(x, conv.weight, stride=2 if number < 2 else 1, padding=1)  # type: ignore[arg-type]
        x = batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias).relu()  # type: ignore[arg-type]
    torch.testing.assert_close(net(audio, torch.tensor([1200])), net.head(x.mean(dim=(2, 3))))


def test_masks_are_for_training_alone() -> None:
    torch.manual_seed(0)
    net, inputs = AudioCNN(**SIZE, dropout=0.0), recordings(4)
    first, second = net.train()(**inputs), net(**inputs)
    assert not torch.equal(first, second)
    unmasked = AudioCNN(**SIZE, dropout=0.0, time_masks=0, band_masks=0).train()
    assert torch.equal(unmasked(**inputs), unmasked(**inputs))


def test_an_empty_recording_and_silence_have_finite_logits() -> None:
    net = AudioCNN(**SIZE).eval()
    assert net(torch.zeros(2, 100), torch.tensor([0, 100])).isfinite().all()


def test_size_of_the_default() -> None:
    num_parameters = sum(parameter.numel() for parameter in AudioCNN().parameters())
    assert num_parameters == 9 * (32 + 32 * 32 + 32 * 64 + 64 * 64) + 2 * (40 + 32 + 32 + 64 + 64) + 650


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("widths", [], r"widths: expected at least one stage of at least 1 channel, got \[\]"),
        ("num_classes", 0, "num_classes: expected at least 1, got 0"),
        ("num_mels", 0, "num_mels: expected at least 1, got 0"),
        ("time_masks", -1, "time_masks: expected at least 0, got -1"),
        ("mask_share", 1.5, r"mask_share: expected a share in \[0, 1\], got 1.5"),
        ("dropout", 1.0, r"dropout: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_options_out_of_range(option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AudioCNN(**{**SIZE, option: value})

"""What every net must satisfy is in test_nets.py; here, the Transformer against torch's, and lengths."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.nets.audio import audio_transformer
from src.nets.audio.audio_transformer import AudioTransformer
from tests.nets.audio.recordings import RATE, assert_padding_has_no_effect, recordings

SIZE: dict[str, Any] = {"num_classes": 5, "sample_rate": RATE, "num_mels": 8, "dim": 16, "depth": 2, "num_heads": 2}


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return recordings(batch_size), SIZE


def test_padding_has_no_effect() -> None:
    torch.manual_seed(0)
    assert_padding_has_no_effect(AudioTransformer(**SIZE, dropout=0.0, time_masks=0), recordings)


def test_blocks_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without positions, the same as TransformerEncoder with norm_first."""
    torch.manual_seed(0)
    net = AudioTransformer(**SIZE).double().eval()
    layer = nn.TransformerEncoderLayer(16, 2, 64, activation="gelu", batch_first=True, norm_first=True)
    reference = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False).double().eval()
    for own, block in zip(reference.layers, net.blocks, strict=True):
        parts = (block.query, block.key, block.value)
        own.self_attn.in_proj_weight.data = torch.cat([part.weight for part in parts]).data  # type: ignore[union-attr]
        own.self_attn.in_proj_bias.data = torch.cat([part.bias for part in parts]).data  # type: ignore[union-attr]
        pairs = {
            "self_attn.out_proj": block.out,
            "linear1": block.up,
            "linear2": block.down,
            "norm1": block.attention_norm,
            "norm2": block.mlp_norm,
        }
        for name, module in pairs.items():
            own.get_submodule(name).load_state_dict(module.state_dict())  # type: ignore[union-attr]
    monkeypatch.setattr(audio_transformer, "rotate", lambda x, cos, sin: x)
    audio = recordings(1, torch.float64)["audio"]
    x = net.input_norm(net.spectrogram(audio), (torch.arange(76) < 75)[None])
    x = reference(net.patches(x).transpose(1, 2)[:, :19])  # of the 75 frames within, in patches of 4
    torch.testing.assert_close(net(audio, torch.tensor([1500])), net.head(x.mean(dim=1)))


def test_the_order_of_sounds_counts() -> None:
    torch.manual_seed(0)
    net, audio = AudioTransformer(**SIZE).eval(), torch.randn(1, 1600)
    nn.init.normal_(net.head.weight)
    turned = torch.cat([audio[:, 800:], audio[:, :800]], dim=1)
    length = torch.tensor([1600])
    assert (net(audio, length) - net(turned, length)).abs().max() > 1e-3


def test_an_empty_recording_and_silence_have_finite_logits() -> None:
    net = AudioTransformer(**SIZE).eval()
    assert net(torch.zeros(2, 100), torch.tensor([0, 100])).isfinite().all()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("dim", 18, "dim: expected a multiple of 4 for 2 heads, got 18"),
        ("patch", 0, "patch: expected at least 1, got 0"),
        ("band_masks", -1, "band_masks: expected at least 0, got -1"),
    ],
)
def test_options_out_of_range(option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AudioTransformer(**{**SIZE, option: value})

"""Synthesized tones: the same in every run, and of the kinds that their targets say."""

from typing import Any

import pytest
import torch

from src.data.audio.tones import KINDS, RATE, Tones, synthesize


def test_one_kind_each() -> None:
    data: Any = Tones(num_each=20)
    data.setup("fit")
    assert data.facts["classes"] == sorted(KINDS)
    assert (data.facts["sample_rate"], data.facts["multilabel"]) == (RATE, False)
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [60, 20, 20]
    assert len(data.test_dataloader()) == 1
    names = data.ids(data.test_set)
    again: Any = Tones(num_each=20)
    again.setup("fit")
    assert again.ids(again.test_set) == names
    assert torch.equal(again.test_set[7][0]["audio"], data.test_set[7][0]["audio"])
    assert [data.facts["classes"][data.test_set.targets[i]] for i in range(20)] == [
        KINDS[int(name.partition(":")[2]) % 5] for name in names
    ]


def test_several_kinds() -> None:
    data: Any = Tones(num_each=20, multilabel=True)
    data.setup("fit")
    assert data.facts["multilabel"]
    assert set(data.train_set.targets.sum(dim=1).tolist()) == {1.0, 2.0, 3.0}


@pytest.mark.parametrize("kind", ["sine", "square", "sawtooth"])
def test_a_tone_repeats(kind: str) -> None:
    """Its spectrum has the fundamental, and overtones but for a sine."""
    audio = synthesize(kind, RATE, torch.Generator().manual_seed(1))
    power = torch.fft.rfft(audio * torch.hann_window(RATE)).abs().square()
    fundamental = int(power.argmax())
    assert 200 <= fundamental <= 800
    first = power[fundamental - 3 : fundamental + 4].sum() / power.sum()
    expected = {"sine": 1.0, "square": 8 / torch.pi**2, "sawtooth": 6 / torch.pi**2}[kind]
    assert float(first) == pytest.approx(expected, abs=0.02)


def test_a_chirp_rises_fourfold() -> None:
    audio = synthesize("chirp", RATE, torch.Generator().manual_seed(1))
    pieces = audio.unfold(0, RATE // 16, RATE // 16) * torch.hann_window(RATE // 16)
    peaks = torch.fft.rfft(pieces, RATE).abs().argmax(dim=1)
    assert float(peaks[-1] / peaks[0]) == pytest.approx((1 + 3 * 15.5 / 16) / (1 + 3 * 0.5 / 16), rel=0.05)


def test_too_few() -> None:
    with pytest.raises(ValueError, match="num_each: expected at least 5 recordings, got 4"):
        Tones(num_each=4)

"""Windows of one series in two data sets."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from torchdoctor.evidence.overlapping_windows import count_overlapping_windows

LENGTH, NUM = 20, 300


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all windows, also on a busy machine."""
    monkeypatch.setattr("torchdoctor.evidence.overlapping_windows._SECONDS", 60.0)


def windows(stride: int = 1) -> Tensor:
    """(NUM, LENGTH, 2) of one series."""
    series = torch.randn(stride * NUM + LENGTH, 2, generator=torch.Generator().manual_seed(0))
    return torch.stack([series[stride * number : stride * number + LENGTH] for number in range(NUM)])


def at_random(samples: Tensor) -> tuple[TensorDataset, TensorDataset]:
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))
    return TensorDataset(samples[order[:200]]), TensorDataset(samples[order[200:]])


@pytest.mark.parametrize("stride", [1, 5])
@pytest.mark.parametrize("channels_first", [False, True])
def test_a_random_split_of_overlapping_windows(stride: int, channels_first: bool) -> None:
    samples = windows(stride)
    number, of = count_overlapping_windows(*at_random(samples.transpose(1, 2) if channels_first else samples))
    assert of == 64
    assert number >= 0.8 * of


def test_one_value_a_step() -> None:
    assert count_overlapping_windows(*at_random(windows()[..., 0]))[0] == 64


def test_a_split_by_time_shares_the_border_alone() -> None:
    samples = windows()
    number, of = count_overlapping_windows(TensorDataset(samples[:200]), TensorDataset(samples[200:]))
    assert number / of < 0.2


def test_windows_that_follow_each_other_share_nothing() -> None:
    assert count_overlapping_windows(*at_random(windows(LENGTH)))[0] == 0


def test_places_that_all_samples_have_are_no_windows() -> None:
    places = torch.linspace(0, 1, 2 * LENGTH).reshape(LENGTH, 2).expand(NUM, -1, -1)
    assert count_overlapping_windows(*at_random(places))[0] == 0


def test_tokens() -> None:
    stream = torch.randint(50, (NUM + 40,), generator=torch.Generator().manual_seed(0))
    assert count_overlapping_windows(*at_random(stream.unfold(0, 40, 1)[:NUM]))[0] == 64


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8])
def test_whole_numbers_may_be_the_same_by_chance(dtype: torch.dtype) -> None:
    tokens = torch.randint(5, (NUM, 2 * LENGTH), generator=torch.Generator().manual_seed(0))
    assert count_overlapping_windows(*at_random(tokens.to(dtype)))[0] <= 3


@pytest.mark.parametrize("is_split", [True, False])
def test_forecasts_from_what_was_trained_on(is_split: bool) -> None:
    """Many series, of each the last 6 steps to be forecast: those before them are known, and may be trained on."""
    series = torch.randn(40, 60, generator=torch.Generator().manual_seed(0)).cumsum(1)
    starts = range(29 if is_split else 34)
    pairs = [(series[:, s : s + LENGTH], series[:, s + LENGTH : s + LENGTH + 6]) for s in starts]
    train = TensorDataset(*(torch.cat(parts) for parts in zip(*pairs, strict=True)))
    val = TensorDataset(series[:, -6 - LENGTH : -6], series[:, -6:])
    assert count_overlapping_windows(train, val) == ((0 if is_split else 40), 40)

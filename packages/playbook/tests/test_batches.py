"""The samples of a batch, and the batch in parts."""

from typing import Any

import pytest
import torch

from playbook.batches import num_samples, split


class Graph:
    """Nobody but its model knows what is in it."""


@pytest.mark.parametrize(
    ("batch", "size"),
    [(torch.zeros(3, 2), 3), (torch.zeros(()), 0), ([torch.zeros(2), torch.zeros(2, 5)], 2), (Graph(), 0), (None, 0),
     (({"a": torch.zeros(4)},), 4), (([torch.zeros(3, 8, 8)] * 2, [{}] * 2), 2), ({"text": ["a", "b"]}, 2)],
)  # fmt: skip
def test_size_of_a_batch(batch: Any, size: int) -> None:
    assert num_samples(batch) == size


def test_three_images_of_three_channels_are_three_samples() -> None:
    images, targets = [torch.full((3, 4, 4), i) for i in range(3)], [{"labels": torch.zeros(3)} for _ in range(3)]
    shares, parts = zip(*split((images, targets), 2), strict=True)
    assert shares == (1 / 3, 2 / 3)
    assert [[image[0, 0, 0].item() for image in part[0]] for part in parts] == [[0], [1, 2]]
    assert all(image.shape == (3, 4, 4) for part in parts for image in part[0])
    assert [len(part[1]) for part in parts] == [1, 2]

"""Views of an image are averaged in test and prediction, and in what is exported, and nowhere else."""

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook.testing.command import UNSAVED
from src.callbacks.average_views import AverageViews
from src.tasks.classification import Classification

K = 3
IMAGE = torch.arange(25.0).view(1, 5, 5)  # 5 to 9 in the second row


class Corner(nn.Module):
    """The first three pixels of the second row as logits, of which no two views agree."""

    def forward(self, image: Tensor) -> Tensor:
        return image[:, 0, 1, :3]


class Pixels(nn.Module):
    """Twice each pixel, and its negative: logits (B, 2, H, W)."""

    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([2 * image, -image], dim=1)


def loader(samples: list[Any]) -> DataLoader:
    return DataLoader(samples)  # type: ignore[arg-type]  # a list is a data set


def logits_of(*callbacks: AverageViews) -> Tensor:
    """What a prediction was made from, less the first of the logits."""
    task = Classification(Corner(), K)
    batches: Any = Trainer(**UNSAVED, callbacks=list(callbacks)).predict(task, loader([(IMAGE, 0)]))
    assert isinstance(task.net, Corner), "the net is back"
    logits = batches[0]["probability"].log().flatten()
    return logits - logits[0]


def test_views_are_averaged_by_their_weights() -> None:
    image, mirrored = torch.tensor([5.0, 6.0, 7.0]), torch.tensor([7.0, 7.0, 7.0])
    # moved down and right, 1 0 1 … come in from row 0; up and left, 11 12 13 … from row 2
    moved = (torch.tensor([1.0, 0.0, 1.0]) + torch.tensor([3.0, 2.0, 1.0])) / 2
    moved += (torch.tensor([11.0, 12.0, 13.0]) + torch.tensor([13.0, 14.0, 13.0])) / 2
    for callbacks, expected in (
        ([], image),
        ([AverageViews(2)], mirrored),
        ([AverageViews(6)], mirrored / 2 + moved / 4),
    ):
        torch.testing.assert_close(logits_of(*callbacks), expected - expected[0], rtol=0, atol=1e-5)


def test_validation_and_training_see_one_view() -> None:
    task = Classification(Corner(), K)
    trainer = Trainer(**UNSAVED, callbacks=[AverageViews(6)])
    [plain] = trainer.validate(task, loader([(IMAGE, 0)]), verbose=False)
    [averaged] = trainer.test(task, loader([(IMAGE, 0)]), verbose=False)
    assert plain["val/loss"] == pytest.approx(torch.tensor([5.0, 6.0, 7.0]).logsumexp(0).item() - 5)
    assert averaged["test/loss"] != pytest.approx(plain["val/loss"])


def test_masks_are_mirrored_back() -> None:
    """A net that looks at each pixel alone gives the same with every view."""
    net, image = Pixels(), torch.randn(2, 1, 4, 6)
    torch.testing.assert_close(AverageViews(2).evaluation_net(net)(image), net(image))
    with pytest.raises(ValueError, match="num_views: expected 2 for outputs"):
        AverageViews(6).evaluation_net(net)(image)


def test_other_inputs_are_refused() -> None:
    samples = [(torch.randn(4), 0)]
    with pytest.raises(ValueError, match="num_views: expected images"):
        Trainer(**UNSAVED, callbacks=[AverageViews()]).test(Classification(nn.Linear(4, K), K), loader(samples))
    with pytest.raises(ValueError, match="num_views: expected 2 or 6, got 3"):
        AverageViews(3)

"""Pictures of batches: what is drawn is what the model took, whatever the targets are."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from playbook.errors import UserError
from src.callbacks.browse import Browse


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is saved."""
    saved: list[Figure] = []
    original = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: saved.append(self) or original(self, *a, **k))
    return saved


def draw(batch: Any, tmp_path: Path, data: Any = None, **options: Any) -> None:
    trainer: Any = SimpleNamespace(is_global_zero=True, default_root_dir=str(tmp_path), datamodule=data)
    browse = Browse(**options)
    for _ in range(2):
        browse.on_train_batch_end(trainer, None, None, batch, 0)  # type: ignore[arg-type]
    browse.on_train_end(trainer, None)  # type: ignore[arg-type]


def test_images_and_names(tmp_path: Path, figures: list[Figure]) -> None:
    image = torch.rand(5, 3, 6, 4)
    draw([image, torch.tensor([0, 1, 1, 0, 2])], tmp_path, num_images=5, class_names=["cat", "dog"])
    [figure] = figures
    assert [axes.get_title() for axes in figure.axes] == ["cat", "dog", "dog", "cat", "2"]
    for axes, one in zip(figure.axes, image, strict=True):
        expected = (one - one.min()) / (one.max() - one.min())
        assert np.allclose(np.asarray(axes.images[0].get_array()), expected.permute(1, 2, 0).numpy(), atol=1e-6)


def test_boxes(tmp_path: Path, figures: list[Figure]) -> None:
    boxes = torch.tensor([[1.0, 2.0, 5.0, 7.0], [0.0, 0.0, 3.0, 3.0]])
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 0])}, {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0)}]
    draw(([torch.rand(1, 8, 8), torch.rand(1, 9, 8)], targets), tmp_path, num_images=2, class_names=["cat", "dog"])
    axes = figures[0].axes[0]
    found: list[Any] = list(axes.patches)
    assert [patch.get_bbox().extents.tolist() for patch in found] == [[0.5, 1.5, 4.5, 6.5], [-0.5, -0.5, 2.5, 2.5]]
    assert [text.get_text() for text in axes.texts] == ["dog", "cat"]
    assert not figures[0].axes[1].patches


def test_names_are_those_of_the_data_unless_given(tmp_path: Path, figures: list[Figure]) -> None:
    batch = [torch.rand(1, 3, 6, 4), torch.tensor([1])]
    for names, given in ((["cat", "dog"], None), (["cat", "dog"], ["a", "b"]), ([], None)):
        draw(batch, tmp_path, SimpleNamespace(facts={"classes": names}), num_images=1, class_names=given)
    assert [figure.axes[0].get_title() for figure in figures] == ["dog", "b", "1"]


def test_masks(tmp_path: Path, figures: list[Figure]) -> None:
    mask = torch.zeros(2, 8, 8, dtype=torch.long)
    mask[0, 2:4, 3:6] = 5
    draw([torch.rand(2, 1, 8, 8), mask], tmp_path, num_images=2)
    overlay = figures[0].axes[0].images[1]
    assert np.array_equal(np.asarray(overlay.get_array()), mask[0].numpy())
    assert np.array_equal(np.asarray(overlay.get_alpha()) > 0, (mask[0] > 0).numpy()), "the background shows the image"


def test_a_mask_names_its_largest_classes(tmp_path: Path, figures: list[Figure]) -> None:
    masks = torch.tensor([[[1, 1, 0, 1]], [[0, 0, 2, 2]], [[3, 1, 2, 0]]])
    draw([torch.rand(3, 3, 1, 4), masks], tmp_path, num_images=3, class_names=["ground", "pet", "border"])
    assert [axes.get_title() for axes in figures[0].axes] == ["pet, ground", "ground, border", "ground, pet, border, …"]


def test_a_mask_without_a_background(tmp_path: Path, figures: list[Figure]) -> None:
    draw([torch.rand(1, 1, 8, 8), torch.ones(1, 8, 8, dtype=torch.long)], tmp_path, num_images=1)
    assert (np.asarray(figures[0].axes[0].images[1].get_alpha()) == 0.5).all()


def test_fewer_images_than_asked_for(tmp_path: Path, figures: list[Figure]) -> None:
    draw([torch.rand(3, 1, 8, 8), torch.zeros(3)], tmp_path, num_images=50)
    assert sum(len(axes.images) for axes in figures[0].axes) == 6


@pytest.mark.parametrize(
    "batch",
    [torch.rand(3, 1, 8, 8), [torch.rand(3, 4), torch.zeros(3)], {"image": torch.rand(3, 1, 8, 8)}, [[], []]],
    ids=["no targets", "vectors", "named", "empty"],
)
def test_batches_without_images(tmp_path: Path, batch: Any) -> None:
    with pytest.raises(UserError, match="Browse needs batches of images"):
        draw(batch, tmp_path)


def test_number_out_of_range() -> None:
    with pytest.raises(ValueError, match="num_images: expected at least 1, got 0"):
        Browse(0)

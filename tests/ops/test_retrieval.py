"""Recall of retrieval against a loop over sorted candidates."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from src.ops import retrieval
from src.ops.retrieval import RetrievalRecall, retrieval_ranks


def recall_by_sorting(queries: Tensor, candidates: Tensor, right: list[set[int]], k: int) -> float:
    hits = 0
    for query, wanted in zip(queries, right, strict=True):
        order = sorted(range(len(candidates)), key=lambda j: -float(query @ candidates[j]))
        hits += bool(wanted & set(order[:k]))
    return hits / len(queries)


def samples() -> tuple[Tensor, Tensor, list[int], list[int]]:
    """12 samples of 9 images, one of which has three captions and one two; captions of samples 0 and 11 are equal."""
    generator = torch.Generator().manual_seed(3)
    images = [0, 0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    captions = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 10]
    of_image = normalize(torch.randn(9, 8, generator=generator), dim=1)
    of_caption = normalize(torch.randn(21, 8, generator=generator), dim=1)
    image = of_image[images]
    text = normalize(0.5 * image + of_caption[captions], dim=1)
    text[11] = text[0]
    return image, text, images, captions


@pytest.mark.parametrize("most_compared", [2**24, 30])
def test_recall_equals_that_of_sorting(monkeypatch: pytest.MonkeyPatch, most_compared: int) -> None:
    monkeypatch.setattr(retrieval, "MOST_COMPARED", most_compared)
    image, text, images, captions = samples()
    metric = RetrievalRecall(ks=(1, 2, 5))
    numbers = torch.tensor([images, captions]).T
    for start in (0, 5):
        part = slice(start, 5 if start == 0 else None)
        metric.update(image[part], text[part], numbers[part])
    result = metric.compute()
    different = sorted(set(images))
    own = {i: {c for n, c in zip(images, captions, strict=True) if n == i} for i in different}
    right_texts = [{j for j, c in enumerate(captions) if c in own[i]} for i in different]
    right_images = [{i for i in different if c in own[i]} for c in captions]
    pictures = torch.stack([image[images.index(i)] for i in different])
    for k in (1, 2, 5):
        assert result[f"image_to_text_recall@{k}"].item() == pytest.approx(
            recall_by_sorting(pictures, text, right_texts, k)
        )
        assert result[f"text_to_image_recall@{k}"].item() == pytest.approx(
            recall_by_sorting(text, pictures, right_images, k)
        )
    assert 0.2 < result["image_to_text_recall@1"] < 1, "neither none nor all, or nothing would be tested"


def test_an_equal_caption_counts_as_right() -> None:
    """Both images have the caption 7, and each is nearest to the other's."""
    metric = RetrievalRecall(ks=(1,))
    image = torch.eye(2)
    metric.update(image, image.flip(0), torch.tensor([[0, 7], [1, 7]]))
    assert metric.compute()["image_to_text_recall@1"] == 1
    metric.reset()
    metric.update(image, image.flip(0), torch.tensor([[0, 7], [1, 8]]))
    assert metric.compute()["image_to_text_recall@1"] == 0


def test_equal_features_have_no_recall() -> None:
    metric = RetrievalRecall(ks=(1, 5))
    metric.update(torch.ones(6, 1), torch.ones(6, 1), torch.arange(6)[:, None].expand(-1, 2))
    result = metric.compute()
    assert result["image_to_text_recall@1"] == 0
    assert result["text_to_image_recall@5"] == 0


def test_features_that_are_not_finite_have_no_recall() -> None:
    features = torch.eye(4)
    ranks = retrieval_ranks(torch.full((4, 4), torch.nan), features, torch.arange(4)[:, None].expand(-1, 2))
    assert ranks["image_to_text"].tolist() == ranks["text_to_image"].tolist() == [3.0] * 4

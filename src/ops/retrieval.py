"""Recall of retrieval between images and texts, over a whole data set."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

KS = (1, 5, 10)  # of recall@k
MOST_COMPARED = 2**24  # pairs at a time, 64 MiB of similarities


class RetrievalRecall(Metric):
    """Share of queries with a right candidate among the k most similar ones, in both directions.

    Images are compared with the captions of all samples, and captions with all images. Every image with several
    captions is one query and one candidate. A caption is right for an image if it equals one of the image's captions,
    whichever image it was written for: without this, equal captions count as mistakes (Faghri et al. 2018). Wrong
    candidates as similar as the best right one count as more similar, so a net with equal outputs has no recall.

    Args:
        ks: numbers of candidates k.
    """

    higher_is_better = True
    full_state_update = False
    image: list[Tensor]
    text: list[Tensor]
    numbers: list[Tensor]

    def __init__(self, ks: Sequence[int] = KS) -> None:
        super().__init__()
        self.ks = list(ks)
        for name in ("image", "text", "numbers"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, image: Tensor, text: Tensor, numbers: Tensor) -> None:
        """Adds a batch.

        Args:
            image: normalised features (B, D).
            text: normalised features (B, D).
            numbers: number of the image and of the caption of each sample (B, 2); equal ones have equal numbers.
        """
        self.image.append(image.detach().float())
        self.text.append(text.detach().float())
        self.numbers.append(numbers)

    def compute(self) -> dict[str, Tensor]:
        """Returns: image_to_text_recall@1 and so on, a scalar each."""
        ranks = retrieval_ranks(*(dim_zero_cat(state) for state in (self.image, self.text, self.numbers)))
        return {
            f"{direction}_recall@{k}": (column[column.isfinite()] < k).float().mean()
            for direction, column in ranks.items()
            for k in self.ks
        }


def retrieval_ranks(image: Tensor, text: Tensor, numbers: Tensor) -> dict[str, Tensor]:
    """Numbers of wrong candidates at least as similar as the best right one, for each sample.

    Args:
        image: normalised features (N, D).
        text: normalised features (N, D).
        numbers: number of the image and of the caption of each sample (N, 2); equal ones have equal numbers.

    Returns:
        image_to_text and text_to_image (N,); the first is NaN where the image has occurred before.
    """
    image_of, first = _different(numbers[:, 0])  # (N,), (I,)
    caption_of, _ = _different(numbers[:, 1])  # (N,)
    image = image[first]  # (I, D)
    pairs = _Pairs(image_of, caption_of)
    own = torch.arange(len(image), device=image.device)
    of_images = [
        _ranks(image[part] @ text.T, pairs.include(own[part, None], caption_of)) for part in _parts(image, text)
    ]
    of_texts = [
        _ranks(text[part] @ image.T, pairs.include(own, caption_of[part, None])) for part in _parts(text, image)
    ]
    of_first = torch.full((len(text),), torch.nan, device=text.device)
    of_first[first] = torch.cat(of_images).float()
    return {"image_to_text": of_first, "text_to_image": torch.cat(of_texts).float()}


class _Pairs:
    """Which image has which caption; a table of all of them would not fit into memory."""

    def __init__(self, image_of: Tensor, caption_of: Tensor) -> None:
        self.num_captions = int(caption_of.max()) + 1
        self.keys = (image_of * self.num_captions + caption_of).unique()  # sorted

    def include(self, image: Tensor, caption: Tensor) -> Tensor:
        """Whether images have captions; the shapes broadcast to (Q, N)."""
        key = image * self.num_captions + caption  # (Q, N)
        place = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return self.keys[place] == key


def _parts(queries: Tensor, candidates: Tensor) -> list[slice]:
    size = max(MOST_COMPARED // len(candidates), 1)
    return [slice(start, start + size) for start in range(0, len(queries), size)]


def _ranks(similarity: Tensor, is_right: Tensor) -> Tensor:
    """Number of wrong candidates at least as similar as the best right one, (Q,), of (Q, N); NaN is never right."""
    best = similarity.masked_fill(~is_right, -torch.inf).amax(dim=1, keepdim=True)  # (Q, 1)
    return (~(similarity < best) & ~is_right).sum(dim=1)


def _different(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """For each of N numbers its place among the different ones, (N,), and where each of these occurs first."""
    values, places = numbers.unique(return_inverse=True)
    order = torch.arange(len(numbers), device=numbers.device)
    return places, torch.full_like(values, len(numbers)).scatter_reduce_(0, places, order, "amin")

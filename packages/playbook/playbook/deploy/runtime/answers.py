"""Turns a program's outputs into answers: classes, labels, numbers, masks, boxes and filled gaps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .boxes import detections
from .errors import InputError, Sample
from .vocabularies import Vocabulary, load_vocabulary

Arrays = Mapping[str, np.ndarray]
ROWS = 64  # of an image, interpolated at a time
SIDES = ("left", "top", "right", "bottom")


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis, in single precision."""
    shifted = np.exp(logits.astype(np.float32) - logits.max(axis=-1, keepdims=True).astype(np.float32))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def class_answers(logits: np.ndarray, names: Sequence[str], top: int) -> list[dict[str, Any]]:
    """The most likely classes: `class` and `probability`, then `class_2`, ….

    Args:
        logits: (B, K).
        names: of the K classes.
        top: number of classes in an answer.

    Raises:
        InputError: top is not a number of at least 1.
    """
    _require_top(top)
    return [_likeliest("class", shares, names, top) for shares in softmax(logits)]


def label_answers(logits: np.ndarray, names: Sequence[str], score: float, top: int) -> list[dict[str, Any]]:
    """Names of the `labels` that are likely enough; then the most likely ones: `label`, `probability`, `label_2`, ….

    Args:
        logits: (B, K).
        names: of the K labels.
        score: probability from which on a label is named.
        top: number of the most likely labels in an answer.

    Raises:
        InputError: top is not a number of at least 1, or score none in [0, 1].
    """
    _require_top(top)
    _require_score(score)
    answers = []
    for shares in 1 / (1 + np.exp(-logits.astype(np.float32))):
        named = ", ".join(names[number] for number in np.flatnonzero(shares >= score).tolist())
        answers.append({"labels": named, **_likeliest("label", shares, names, top)})
    return answers


def _likeliest(key: str, shares: np.ndarray, names: Sequence[str], top: int) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for place, number in enumerate(np.argsort(-shares, kind="stable")[:top].tolist()):
        end = f"_{place + 1}" if place else ""
        name = names[number] if number < len(names) else str(number)
        answer |= {f"{key}{end}": name, f"probability{end}": float(shares[number])}
    return answer


def _require_top(top: Any) -> None:
    if not isinstance(top, int) or isinstance(top, bool) or top < 1:
        raise InputError(f"top: expected at least 1 class, got {top!r:.40}")


def _require_score(score: Any) -> None:
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise InputError(f"score: expected a number in [0, 1], got {score!r:.40}")


def value_answers(outputs: Arrays) -> list[dict[str, Any]]:
    """The numbers of each sample, by the names of the outputs (B,)."""
    rows = zip(*(values.tolist() for values in outputs.values()), strict=True)
    return [dict(zip(outputs, row, strict=True)) for row in rows]


def mask_answer(logits: np.ndarray, names: Sequence[str], size: tuple[int, int] | None) -> dict[str, Any]:
    """The most likely class of each pixel, `mask` (H, W), and `area`, the share of each class.

    Args:
        logits: (K, H, W).
        names: of the K classes.
        size: height and width of the picture, to which logits are interpolated; None keeps their own.
    """
    num_classes = len(logits)
    mask = likeliest_at(logits.astype(np.float32), size or (logits.shape[1], logits.shape[2]))
    counts = np.bincount(mask.reshape(-1), minlength=num_classes)
    shares = (counts / max(mask.size, 1)).tolist()
    kind = np.uint8 if num_classes <= 256 else np.int32
    return {"mask": mask.astype(kind), "area": dict(zip(names, shares, strict=True))}


def likeliest_at(logits: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The most likely class (H', W') of each pixel of another size, by bilinear interpolation of logits (K, H, W)."""
    height, width = size
    if logits.shape[1:] == (height, width):
        return logits.argmax(axis=0)
    left, right, share = _between(logits.shape[2], width)
    wide = logits[:, :, left] * (1 - share) + logits[:, :, right] * share  # (K, H, W')
    above, below, share = _between(logits.shape[1], height)
    strips = []
    for start in range(0, height, ROWS):  # all rows at once may take gigabytes
        rows = slice(start, start + ROWS)
        part = share[rows, None]
        strips.append((wide[:, above[rows]] * (1 - part) + wide[:, below[rows]] * part).argmax(axis=0))
    return np.concatenate(strips)


def _between(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each new pixel, the two old ones around its centre, and the share of the second."""
    centres = np.arange(new, dtype=np.float32) + np.float32(0.5)
    place = (centres * np.float32(old) / np.float32(new) - np.float32(0.5)).clip(0, old - 1)
    first = np.floor(place).astype(np.int64)
    return first, np.minimum(first + 1, old - 1), place - first.astype(np.float32)


def box_answer(
    boxes: np.ndarray, scores: np.ndarray, sample: Sample, plan: Mapping[str, Any], score: float
) -> dict[str, Any]:
    """The objects in an image, surest first: `boxes`, each with class, score and sides in pixels of the file.

    Args:
        boxes: (N, 4) in pixels of the program's input.
        scores: (N, K).
        sample: the image, which gives the size of input and file.
        plan: the manifest's `postprocessing`.
        score: lowest score of a box in the answer.

    Raises:
        InputError: score is not a number in [0, 1].
    """
    _require_score(score)
    [image] = sample.inputs.values()
    height, width = image.shape[1:]
    corners, labels, certainties = detections(boxes, scores, (height, width), plan)
    if sample.size is not None:
        scale = np.array([sample.size[1] / width, sample.size[0] / height] * 2, dtype=np.float32)
        corners = corners * scale
    names = plan["names"]
    return {
        "boxes": [
            {
                "class": names[label] if label < len(names) else str(label),
                "score": certainty,
                **dict(zip(SIDES, sides, strict=True)),
            }
            for sides, label, certainty in zip(corners.tolist(), labels.tolist(), certainties.tolist(), strict=True)
            if certainty >= score
        ]
    }


class GapFiller:
    """Fills gaps in texts, or in a text without any, hides words as validation does and fills those.

    Args:
        plan: the manifest's `postprocessing`: `tokenizer`, `mask_token`, `mask_share`, `num_choices`.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.vocabulary: Vocabulary = load_vocabulary(plan["tokenizer"])
        is_special = np.zeros(self.vocabulary.size, dtype=bool)
        is_special[list(self.vocabulary.special.values())] = True
        self.is_ordinary = ~is_special
        self.ordinary = np.flatnonzero(self.is_ordinary)

    def with_gaps(self, sample: Sample) -> Sample:
        """The sample with gaps in its tokens (T,)."""
        tokens, mask = sample.inputs["tokens"], sample.inputs["mask"]
        if (tokens == self.plan["mask_token"]).any():
            return sample
        can_be_hidden = self.is_ordinary[tokens] & mask
        number = int(can_be_hidden.sum())
        count = min(max(int(np.round(np.float32(self.plan["mask_share"]) * np.float32(number))), 1), number)
        draws = np.where(can_be_hidden, draws_of(tokens, mask), np.float32(2))
        tokens = tokens.copy()
        tokens[draws.argsort(kind="stable")[:count]] = self.plan["mask_token"]
        return Sample({**sample.inputs, "tokens": tokens})

    def answer(self, logits: np.ndarray, sample: Sample) -> dict[str, Any]:
        """The text with its gaps filled, and the most likely words for each gap.

        Args:
            logits: (T, V).
            sample: returned by `with_gaps`.
        """
        tokens = sample.inputs["tokens"]
        gaps = np.flatnonzero(tokens == self.plan["mask_token"])
        shares = softmax(logits[gaps])[:, self.ordinary]
        best = np.argsort(-shares, axis=-1, kind="stable")[:, : self.plan["num_choices"]]
        filled = tokens.tolist()
        words = []
        for place, row, share in zip(gaps.tolist(), best, shares, strict=True):
            choices = self.ordinary[row].tolist()
            filled[place] = choices[0]
            certainties = share[row].tolist()
            texts = [self.vocabulary.decode([choice]).strip() for choice in choices]
            words.append(
                ", ".join(f"{text} {certainty:.2f}" for text, certainty in zip(texts, certainties, strict=True))
            )
        return {"text": self.vocabulary.decode(filled), "choices": " | ".join(words)}


def draws_of(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A number in [0, 1) for each token (T,), as a function of its text and position."""
    places = np.arange(1, len(tokens) + 1, dtype=np.int64)
    text = np.where(mask, _mixed(tokens * 0x9E3779B1 + places), 0).sum()
    return (_mixed(_mixed(text) + places * 0xC2B2AE35) >> 8).astype(np.float32) / np.float32(2**24)


def _mixed(x: np.ndarray) -> np.ndarray:
    """Scrambles the lower 32 bits of each number (Mueller 2012)."""
    for _ in range(2):
        x = x & 0xFFFFFFFF
        x = (x ^ (x >> 16)) * 0x45D9F3B
    x = x & 0xFFFFFFFF
    return x ^ (x >> 16)

"""Matches the rows of a classifier by class name when a training starts from other weights."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from playbook.errors import UserError
from playbook.facts import named

BOX = 4  # rows of a class in `bbox_pred`, for the sides of its boxes


def match_rows(
    weights: dict[str, Tensor], own: Mapping[str, Tensor], known: Sequence[str], classes: Sequence[str]
) -> str:
    """Moves the rows of each class to the model's number of that class; new classes keep the model's rows.

    Args:
        weights: weights of the file, by the model's names; changed in place.
        own: weights of the model.
        known: classes of the file by number.
        classes: classes of the data by number.

    Returns:
        A description of the changes; empty if the classes are the same.

    Raises:
        UserError: the classes differ, and no weight of the model is known to have a row for each class.
    """
    if list(known) == list(classes):
        return ""
    pairs = [(known.index(label), number) for number, label in enumerate(classes) if label in known]
    matched = []
    for name in _heads(own):
        if name not in weights or weights[name].shape[1:] != own[name].shape[1:]:
            continue
        old = _rows_by_class(name, len(weights[name]), len(known))
        new = _rows_by_class(name, len(own[name]), len(classes))
        if old is None or new is None or old.shape[1] != new.shape[1]:
            continue
        rows = own[name].clone()
        first = int(new.min())  # the rows before are of the background
        rows[:first] = weights[name][:first].to(rows)
        for source, target in pairs:
            rows[new[target]] = weights[name][old[source]].to(rows)
        weights[name] = rows
        matched.append(name)
    if not matched:
        is_whole = all(name in weights and weights[name].shape == value.shape for name, value in own.items())
        if len(known) != len(classes) and not is_whole:
            return ""  # of another shape, and left at their initialisation
        raise UserError(
            f"--init_from: its classes are {named(known)}, those of the data {named(classes)}; expected the same "
            "in the same order, as no layer of this net is known to have a row for each class of the data"
        )
    added = [label for label in classes if label not in known]
    text = f"classes matched by name in {', '.join(matched)}: {len(pairs)} loaded"
    return text + (f", {len(added)} new ({named(added)})" if added else "")


def _heads(own: Mapping[str, Tensor]) -> list[str]:
    """Weights and biases of the layers that detectors classify with; of other nets, those of the last layer."""
    names = [name for name, value in own.items() if name.startswith("net.") and value.ndim]
    heads = [name for name in names if _layer(name) in LAYOUTS]
    return heads or [name for name in names if name.rpartition(".")[0] == names[-1].rpartition(".")[0]]


def _layer(name: str) -> str:
    return name.split(".")[-2]


def _rows_by_class(name: str, num_rows: int, num_classes: int) -> Tensor | None:
    """Numbers of each class's rows (K, R); None if the layer has not as many."""
    of_class = LAYOUTS.get(_layer(name), _one_each)(num_rows, num_classes)
    return of_class if of_class is not None and len(of_class) == num_classes else None


def _one_each(num_rows: int, num_classes: int) -> Tensor | None:
    return torch.arange(num_classes)[:, None] if num_rows == num_classes else None


def _of_anchors(num_rows: int, num_classes: int) -> Tensor | None:
    """All classes for each anchor in turn."""
    return torch.arange(num_rows).view(-1, num_classes).T if num_rows % num_classes == 0 else None


def _behind_background(num_rows: int, num_classes: int) -> Tensor | None:
    return 1 + torch.arange(num_classes)[:, None] if num_rows == num_classes + 1 else None


def _boxes(num_rows: int, num_classes: int) -> Tensor | None:
    return torch.arange(num_rows).view(-1, BOX)[1:] if num_rows == BOX * (num_classes + 1) else None


# by the name of the layer: YOLO's, RetinaNet's, and the two of Faster R-CNN
LAYOUTS = {"labels": _one_each, "cls_logits": _of_anchors, "cls_score": _behind_background, "bbox_pred": _boxes}

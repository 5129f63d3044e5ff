"""The rows of a classifier by the names of their classes, where a training starts from another one's weights."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from playbook.errors import UserError
from playbook.facts import named

HEADS = {"head", "heads", "classifier", "fc", "cls_logits", "cls_score", "classes", "logits", "last", "out"}


def match_rows(
    weights: dict[str, Tensor], own: Mapping[str, Tensor], known: Sequence[str], classes: Sequence[str]
) -> str:
    """Puts each class's rows of the file where the model has that class; rows of new classes are the model's own.

    Args:
        weights: of the file under the model's names; changed in place.
        own: the model's.
        known: classes of the file by number.
        classes: classes of the data by number.

    Returns:
        What was done, in words; empty where the classes are the same.

    Raises:
        UserError: the classes differ, and no weight of the model is known to have a row for each.
    """
    if list(known) == list(classes):
        return ""
    heads = [name for name in own if name in weights and _is_head(name, own)]
    counts = {name: _rows_of_a_class(weights[name], own[name], len(known), len(classes)) for name in heads}
    matched = {name: count for name, count in counts.items() if count}
    if not matched:
        if len(known) != len(classes):
            return ""  # of another shape, and left at their initialisation
        raise UserError(
            f"--init_from: its classes are {named(known)}, those of the data {named(classes)}; expected the same "
            "order, as no layer of this net is known to have a row for each class"
        )
    for name, (repeats, offset) in matched.items():
        rows = own[name].clone()
        for number, label in enumerate(classes):
            if label in known:
                for repeat in range(repeats):  # as for the anchors of a detector
                    to = offset + repeat * len(classes) + number
                    rows[to] = weights[name][offset + repeat * len(known) + known.index(label)].to(rows)
        if offset:
            rows[:offset] = weights[name][:offset].to(rows)  # of the background
        weights[name] = rows
    common = [label for label in classes if label in known]
    new = [label for label in classes if label not in known]
    text = f"classes matched by name in {', '.join(matched)}: {len(common)} taken"
    return text + (f", {len(new)} new ({named(new)})" if new else "")


def _is_head(name: str, own: Mapping[str, Tensor]) -> bool:
    """Whether a weight belongs to a layer that is named as a head, or to the net's last layer."""
    of_net = [entry for entry, value in own.items() if entry.startswith("net.") and value.ndim]
    last = of_net[-1].rpartition(".")[0] if of_net else ""
    return name.rpartition(".")[0] == last or bool(HEADS & set(name.split(".")))


def _rows_of_a_class(weight: Tensor, own: Tensor, known: int, classes: int) -> tuple[int, int] | None:
    """How many times the classes repeat along the first dimension, and how many rows stand before them."""
    if not weight.ndim or weight.shape[1:] != own.shape[1:]:
        return None
    for offset in (0, 1):
        old, new = weight.shape[0] - offset, own.shape[0] - offset
        if old >= known and old % known == 0 and new == old // known * classes and (offset == 0 or old == known):
            return old // known, offset
    return None

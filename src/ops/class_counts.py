"""Compares the number of classes of a task with the data's."""

import sys
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from playbook import UserError

MOST_LISTED = 20  # names in a message


def require_class_count(num_classes: int, facts: dict[str, Any]) -> None:
    """Checks that a task has an output for every class of the data; warns of outputs that none of them needs.

    Args:
        num_classes: number of classes of the task, K.
        facts: with the names of `classes`; without them, nothing is checked.

    Raises:
        UserError: the data has more classes.
    """
    names = facts.get("classes") or []
    if not names or len(names) == num_classes:
        return
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    listed = f"the data has {len(names)} classes: {', '.join(names[:MOST_LISTED])}{more}"
    if len(names) > num_classes:
        raise UserError(
            f"--model.num_classes: expected {len(names)}, got {num_classes}; {listed}; set the net's num_classes, too"
        )
    _warn(f"num_classes is {num_classes}, but {listed}")


@rank_zero_only
def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)

"""Facts: plain values learnt from the training data, saved together with the weights."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from playbook.errors import UserError, nearest

VERSION = 1  # of the form below; a checkpoint of a later one is refused
KEY = "facts"  # in a checkpoint
MOST_NAMED = 5  # classes in a message
MOST_WRITTEN = 50_000  # characters of a value in files that people read; a vocabulary may have more


def pack(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a checkpoint: plain values, with the version of their format.

    Args:
        facts: plain values by name; tuples, arrays and tensors become lists.

    Raises:
        UserError: a value is not plain, or a class name occurs twice.
    """
    return {"version": VERSION, "values": plain_facts(facts)}


def unpack(checkpoint: Mapping[str, Any], place: str) -> dict[str, Any] | None:
    """The facts in a checkpoint, or None if it has none.

    Args:
        checkpoint: content of the checkpoint.
        place: its name in messages.

    Raises:
        UserError: they are damaged, or were written by a later version.
    """
    entry = checkpoint.get(KEY)
    if entry is None:
        return None
    if isinstance(entry, str):  # the metadata of safetensors is text
        try:
            entry = json.loads(entry)
        except ValueError as error:
            raise UserError(f"{place}: its facts are not valid JSON: {error}") from error
    version = entry.get("version") if isinstance(entry, Mapping) else None
    if not isinstance(version, int) or not isinstance(entry.get("values"), Mapping):
        raise UserError(f"{place}: its facts are damaged: expected a version and values")
    if version > VERSION:
        raise UserError(
            f"{place}: its facts have version {version}, this Playbook reads up to {VERSION}; update Playbook"
        )
    return plain_facts(entry["values"], place)


def plain_facts(facts: Mapping[str, Any], place: str = "--data") -> dict[str, Any]:
    """The same facts as lists, dicts, text, numbers and booleans.

    Raises:
        UserError: a value is none of these, or a class name occurs twice.
    """
    values = {str(name): _plain(value, f"{place}: facts: {name}") for name, value in facts.items()}
    classes = values.get("classes", [])
    if not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
        raise UserError(f"{place}: facts: classes: expected a list of names, got {classes!r:.80}")
    if repeated := [name for name, count in Counter(classes).items() if count > 1]:
        raise UserError(f"{place}: class {repeated[0]!r} occurs twice, expected different names")
    return values


def facts_of(data: Any) -> dict[str, Any]:
    """The plain facts of a data module; empty for one without `facts`, as not every user's has them, and for None.

    Raises:
        UserError: a value is not plain, or a class name occurs twice.
    """
    facts = getattr(data, "facts", None)
    return plain_facts(facts) if isinstance(facts, dict) else {}


def abridged(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts for files that people read: long texts or lists, such as vocabularies, are replaced by their length."""
    return {name: _abridged(value) for name, value in facts.items()}


def _abridged(value: Any) -> Any:
    if isinstance(value, Mapping):
        return abridged(value)
    if isinstance(value, str | list) and len(json.dumps(value)) > MOST_WRITTEN:
        return f"{len(value):,} {'characters' if isinstance(value, str) else 'values'}, saved in the checkpoint"
    return value


def _plain(value: Any, place: str) -> Any:
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, place) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, place) for entry in value]
    if isinstance(value, str | int | float | bool | None):
        return value
    raise UserError(f"{place}: expected text, numbers, lists and dicts of these, got {type(value).__name__}")


def require_same_classes(data: Mapping[str, Any], model: Mapping[str, Any], name: str) -> None:
    """Refuses data whose class numbers differ from the model's.

    Args:
        data: facts of the data.
        model: facts saved with the weights.
        name: name of the data in messages.

    Raises:
        UserError: a class is unknown to the model, or has a different number.
    """
    own, known = data.get("classes"), model.get("classes")
    if not own or not known or own == known:
        return
    if unknown := [label for label in own if label not in known]:
        raise UserError(f"--data: {unknown_classes(unknown, known, name)}")
    raise UserError(
        f"--data: {name} numbers its classes {named(own)}, the checkpoint {named(known)}; expected the checkpoint's "
        "order: in `setup`, use self.facts['classes'] if it is set"
    )


def unknown_classes(unknown: Sequence[str], known: Sequence[str], name: str) -> str:
    """The sentence about classes that the checkpoint lacks."""
    near = nearest(unknown[0], known) if len(unknown) == 1 else ""
    plural = "es" if len(unknown) > 1 else ""
    return f"{name} has the class{plural} {named(unknown)}, but the checkpoint has {named(known)}{near}"


def named(classes: Sequence[str]) -> str:
    """The first few names."""
    more = f" and {len(classes) - MOST_NAMED} more" if len(classes) > MOST_NAMED else ""
    return ", ".join(classes[:MOST_NAMED]) + more


def class_name(facts: Mapping[str, Any], number: int) -> str:
    """Name of a class, or its number as text if the facts have no name for it."""
    classes = facts.get("classes") or []
    return classes[number] if 0 <= number < len(classes) else str(number)


def require_room(net: Any, facts: Mapping[str, Any]) -> None:
    """Checks that a net with a `vocab_size` or `context_length` takes the tokens and lengths of the data's texts.

    Args:
        net: any module.
        facts: with `vocab_size` and `context_length`; what is missing is not checked.

    Raises:
        UserError: the vocabulary of the data is larger, or its texts may be longer.
    """
    expectations = {
        "context_length": "the data's texts have up to {fact:,} tokens, the net reads at most {own:,}",
        "vocab_size": "the data has {fact:,} tokens, the net only {own:,}; expected --model.net.vocab_size {fact}",
    }
    for name, text in expectations.items():
        own, fact = getattr(net, name, None), facts.get(name)
        if isinstance(own, int) and isinstance(fact, int) and own < fact:
            raise UserError(f"{name}: {text.format(own=own, fact=fact)}")

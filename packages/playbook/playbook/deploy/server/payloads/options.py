"""Options of a request."""

from collections.abc import Mapping
from typing import Any

from playbook.deploy.server.limits import Limits
from playbook.deploy.server.payloads.body import refuse
from playbook.errors import nearest


def typed(texts: Mapping[str, str], known: Mapping[str, type]) -> dict[str, Any]:
    """Options that came as text, with the types that they should have; what is not of its type stays text."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = known.get(name, str)(text)
        except ValueError:
            values[name] = text
    return values


def checked_options(options: Mapping[str, Any], known: Mapping[str, type], limits: Limits) -> dict[str, Any]:
    """Options with the right names and types; their ranges are known to the model.

    Raises:
        RefusalError: one is unknown, or of another type.
    """
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            names = f"expected one of {', '.join(known)}" if known else "this model has no options"
            refuse(422, f"{name[:80]}: {names}{nearest(name[:80], known)}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**31
        if not is_number or (known[name] is int and value != int(value)):
            kind = "a whole number" if known[name] is int else "a finite number"
            refuse(422, f"{name}: expected {kind}, got {value!r:.40}")
        values[name] = known[name](value)
    if values.get("max_new_tokens", 1) > limits.max_new_tokens:
        refuse(422, f"max_new_tokens: expected at most {limits.max_new_tokens}, got {values['max_new_tokens']}")
    return values

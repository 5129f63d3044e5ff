"""Environment variables and the home directory in values.

`${oc.env:NAME}`, `${oc.env:NAME,default}` and `${NAME}` stand for the variable, as does `$NAME` at the start of a path,
and `~/` for the home directory. Everything else stays as it is written, such as a $ within a text.
"""

import os
import re
from typing import Any

import yaml

from playbook.errors import UserError

REFERENCE = re.compile(
    r"\$\{oc\.env:\s*(?P<named>\w+)\s*(?:,\s*(?P<default>[^}]*))?\}|\$\{(?P<braced>[A-Za-z_]\w*)\}|\A\$(?P<first>[A-Za-z_]\w*)(?=/|\Z)"
)


def expanded(text: str, option: str = "") -> str:
    """A value with what its references stand for.

    Args:
        text: the value.
        option: where it stands, for messages.

    Raises:
        UserError: a variable is not set and has no default.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match["named"] or match["braced"] or match["first"]
        value = os.environ.get(name, match["default"])
        if value is None:
            raise UserError(f"{option}{': ' if option else ''}{text}: the environment variable {name} is not set")
        return value

    if "$" in text:
        text = REFERENCE.sub(value_of, text)
    return os.path.expanduser(text) if text.startswith("~/") else text


def expand_node(node: yaml.Node, place: str, path: str = "") -> None:
    """Expands the values of a config's syntax tree.

    Args:
        node: of the tree.
        place: name of the file, for messages.
        path: dotted name of the option that the node belongs to.

    Raises:
        UserError: a variable is not set.
    """
    if isinstance(node, yaml.ScalarNode):
        node.value = expanded(node.value, f"{place}:{node.start_mark.line + 1}: {path}")
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            expand_node(value, place, f"{path}.{key.value}".lstrip("."))
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            expand_node(value, place, path)


def expand_values(content: Any) -> Any:
    """The same as loaded values."""
    if isinstance(content, str):
        return expanded(content)
    if isinstance(content, dict):
        return {name: expand_values(value) for name, value in content.items()}
    return [expand_values(value) for value in content] if isinstance(content, list) else content


def expand_arguments(args: list[str]) -> list[str]:
    """The same for the words of a command line.

    Raises:
        UserError: a variable is not set.
    """
    words, option = [], ""
    for word in args:
        name, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        option = name or option
        words.append(f"{name}{equals}{expanded(value, option)}")
    return words

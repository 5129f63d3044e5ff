"""YAML nodes of a command: mappings, values, and what is written there."""

from pathlib import Path
from typing import Any

import yaml

from playbook.command import annotations


def entries_of(node: yaml.Node) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Keys and values of a mapping, those that it merges first."""
    entries: list[tuple[yaml.ScalarNode, yaml.Node]] = []
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        if key.tag == "tag:yaml.org,2002:merge":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            entries = [entry for mapping in merged for entry in entries_of(mapping)] + entries
        else:
            entries.append((key, value))
    return entries


def node_of(value: str | None) -> yaml.Node | None:
    """A value of the command line as YAML; None if it has none, or is no YAML."""
    if value is None:
        return None
    try:
        node = yaml.compose(value, yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    return node if node is not None else yaml.ScalarNode("tag:yaml.org,2002:null", "")


def is_file(node: yaml.Node, folder: Path) -> bool:
    """Whether a value names a file, from which the parser reads it; relative to the working directory or a folder."""
    return isinstance(node, yaml.ScalarNode) and any((base / str(node.value)).is_file() for base in (Path(), folder))


def is_null(node: yaml.Node) -> bool:
    """Whether a value stands for None."""
    return isinstance(node, yaml.ScalarNode) and str(node.value).lower() in annotations.NULLS


def written(node: yaml.Node) -> str:
    """A value as it is written, on one line."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)[:200] or "nothing"
    return str(content_of(node))[:200]


def content_of(node: yaml.Node) -> Any:
    """A value as plain Python, as a safe loader reads it."""
    return yaml.SafeLoader("").construct_document(node)

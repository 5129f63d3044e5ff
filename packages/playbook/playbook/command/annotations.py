"""Reads from source which values an annotation accepts: only plain types, the rest is left to the parser."""

import ast
import re
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import yaml

from playbook.command import signatures
from playbook.command.signatures import Parameter, Source

WORDS = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "text"}
PLURALS = {"int": "integers", "float": "numbers", "bool": "true or false", "str": "texts"}
SEQUENCES = {"Sequence": "a sequence", "Iterable": "a sequence", "list": "a list", "List": "a list"}
LINK = re.compile(r"data\.[A-Za-z_]\w*")
NULLS = ("", "null", "none", "~")
BOOLS = ("true", "false", "yes", "no", "on", "off")


def is_link(value: Any) -> TypeGuard[str]:
    """Whether a value may be a link to the data: `data.` and the name of a fact or an attribute."""
    return isinstance(value, str) and LINK.fullmatch(value) is not None


@dataclass
class Plain:
    """A type made of plain ones.

    Args:
        names: of int, float, bool, str, None and Tensor, which an option never gets as a plain value.
        choices: values of its literals.
        sequence: «a list» or «a sequence», where it admits one; empty if not.
        entries: what that holds, if that is plain.
    """

    names: set[str] = field(default_factory=set)
    choices: list[Any] = field(default_factory=list)
    sequence: str = ""
    entries: "Plain | None" = None

    def admits(self, node: yaml.Node) -> bool:
        """Whether a value may be of this type; True where that is not certain."""
        if isinstance(node, yaml.MappingNode):
            return bool(self.names & {"str", "Tensor"})
        if isinstance(node, yaml.SequenceNode):
            if not self.sequence or "str" in self.names:
                return "str" in self.names
            return self.entries is None or all(self.entries.admits(entry) for entry in node.value)
        text = str(node.value).strip()
        if text.lower() in NULLS or "${" in text or "str" in self.names:
            return True
        tests = {"int": _is_int, "float": _is_float, "bool": _is_bool}
        if any(name in self.names and test(text) for name, test in tests.items()):
            return True
        if any(str(choice).lower() == text.lower() or choice == value(text) for choice in self.choices):
            return True
        if "Tensor" in self.names and "." in text:  # the path of a class
            return not _is_float(text)
        return bool(self.sequence) and _may_be_sequence(text)

    def describe(self, node: yaml.Node) -> str:
        """What is expected in place of a value, in words."""
        words = [WORDS[name] for name in ("int", "float", "bool", "str") if name in self.names]
        if words[:2] == [WORDS["int"], WORDS["float"]]:
            del words[0]  # a number may be an integer
        if words[:1] == [WORDS["int"]] and (whole := _whole_number(node)) is not None:
            words[0] += f" such as {whole}"
        if self.choices:
            words.append(f"one of {', '.join(dict.fromkeys(map(str, self.choices)))}")
        if self.sequence:
            inner = [PLURALS[name] for name in PLURALS if self.entries is not None and name in self.entries.names]
            of = f" of {' or '.join(inner)}" if inner and isinstance(node, yaml.SequenceNode) else ""
            words.append(f"{self.sequence}{of}")
        return " or ".join(words)


def plain_type(parameter: Parameter) -> Plain | None:
    """The type of a parameter if it is made of plain ones, else None."""
    if parameter.annotation is None:
        return None
    plain = Plain()
    is_plain = _add(plain, parameter.annotation, parameter.source) and bool(
        plain.names - {"Tensor"} or plain.choices or plain.sequence
    )
    return plain if is_plain else None


def class_names(parameter: Parameter) -> tuple[list[str], bool]:
    """Names of the types that a parameter admits, and whether it admits a plain text as well.

    A name is the last part of a class, or of an alias such as OptimizerFactory; empty if one of them has no name.
    """
    names: list[str] = []
    for member in members(parameter.annotation):
        inner = [member]
        if isinstance(member, ast.Subscript) and signatures.dotted(member.value)[-1:] in ([name] for name in SEQUENCES):
            inner = members(member.slice)
        parts = [signatures.dotted(entry) for entry in inner]
        if not all(parts):
            return [], True
        names += [part[-1] for part in parts]
    return names, any(name in ("str", "bool", "Any") for name in names)


def _whole_number(node: yaml.Node) -> int | None:
    """The integer that a float stands for, such as 10 for 1e1."""
    text = str(node.value)
    value = float(text) if isinstance(node, yaml.ScalarNode) and _is_float(text) else 0.5
    return int(value) if value.is_integer() else None


def _is_int(text: str) -> bool:
    return _resolved(text) == "int" or re.fullmatch(r"[-+]?[\d_]+", text) is not None


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return _resolved(text) in ("int", "float")
    return True


def _is_bool(text: str) -> bool:
    return text.lower() in BOOLS


def value(text: str) -> Any:
    """What YAML makes of a text that is one value."""
    if _resolved(text) not in ("int", "float", "bool"):
        return text
    return yaml.safe_load(text)


def _resolved(text: str) -> str:
    """What YAML takes a text for."""
    return yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False)).rpartition(":")[2]


def _may_be_sequence(text: str) -> bool:
    """A list that YAML does not read, or the name of a file that holds one."""
    return text[0] in "[({" or (not _is_float(text) and ("/" in text or "." in text))


def members(annotation: ast.expr | None) -> list[ast.expr]:
    """Of a union, without None; an annotation of one type is its only member."""
    if annotation is None:
        return []
    annotation = _unquoted(annotation)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return [*members(annotation.left), *members(annotation.right)]
    if isinstance(annotation, ast.Subscript) and signatures.dotted(annotation.value)[-1:] in (["Optional"], ["Union"]):
        inner = annotation.slice
        return [
            member for entry in (inner.elts if isinstance(inner, ast.Tuple) else [inner]) for member in members(entry)
        ]
    return [] if isinstance(annotation, ast.Constant) and annotation.value is None else [annotation]


def _unquoted(annotation: ast.expr) -> ast.expr:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return annotation
    return annotation


def _add(plain: Plain, annotation: ast.expr, source: Source, depth: int = 0) -> bool:
    """Adds the members of an annotation; False if one of them is not plain."""
    return depth < signatures.DEPTH and all(
        _add_member(plain, member, source, depth + 1) for member in members(annotation)
    )


def _add_member(plain: Plain, member: ast.expr, source: Source, depth: int) -> bool:
    if isinstance(member, ast.Subscript):
        name = signatures.dotted(member.value)[-1:] or [""]
        if name[0] == "Literal":
            entries = member.slice.elts if isinstance(member.slice, ast.Tuple) else [member.slice]
            plain.choices += [entry.value for entry in entries if isinstance(entry, ast.Constant)]
            return all(isinstance(entry, ast.Constant) for entry in entries)
        if name[0] not in SEQUENCES or plain.sequence:
            return False
        entries = Plain()
        plain.sequence = SEQUENCES[name[0]]
        plain.entries = entries
        return _add(entries, member.slice, source, depth)
    parts = signatures.dotted(member)
    if parts[-1:] == ["Tensor"]:
        plain.names.add("Tensor")
        return True
    if len(parts) == 1 and parts[0] in WORDS and parts[0] not in source.bindings:
        plain.names.add(parts[0])
        return True
    alias = signatures.resolve(source, parts) if parts else None
    if alias is None or isinstance(alias.node, ast.ClassDef):
        return False
    return _add(plain, alias.node, alias.source, depth)


def admits_none(parameter: Parameter) -> bool:
    """Whether None is written in the annotation."""
    text = ast.unparse(parameter.annotation) if parameter.annotation is not None else "None"
    return "None" in text or "Optional" in text

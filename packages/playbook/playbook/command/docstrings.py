"""Reads the summary and the argument descriptions of a class from its docstrings in the source."""

import ast
import inspect
import re

from playbook.command import signatures
from playbook.command.signatures import Definition, Source

# an argument as Google's style writes it: «name: text» or «name (type): text»; types may hold parentheses
ARGUMENT = re.compile(r"\\?\*{0,2}(\w+)(?: ?\((?:[^()]|\([^()]*\))*\))?:(?!:)\s*(.*)")
HEADER = re.compile(r"(Args|Arguments|Keyword Args|Keyword Arguments|Parameters):\s*")
ROLE = re.compile(r":[\w:]+:`[~!]?([^`<]*?)\s*(<[^`]*>)?`")  # Sphinx's markup of names


def summary(definition: Definition) -> str:
    """The first sentence or line of a class's docstring."""
    text = _class_text(definition).partition("\n\n")[0]
    return _plain(text.partition("\n")[0] if text.partition("\n")[0].endswith(".") else text)


def argument_texts(definition: Definition) -> dict[str, str]:
    """Text of every argument that the docstrings of the class and of its bases explain; the nearest one counts."""
    texts: dict[str, str] = {}
    for entry in reversed(signatures.resolution_order(definition)):
        if entry is not None and isinstance(entry.node, ast.ClassDef):
            functions = [node for node in entry.node.body if isinstance(node, ast.FunctionDef)]
            own = [ast.get_docstring(node) or "" for node in functions if node.name == "__init__"]
            for text in [_class_text(entry), *own]:
                texts |= _arguments_of(text)
    return texts


def _class_text(definition: Definition) -> str:
    assert isinstance(definition.node, ast.ClassDef), ast.dump(definition.node)
    if text := ast.get_docstring(definition.node):
        return text
    later = definition.source.bindings.get(f"{definition.node.name}.__doc__", [])
    return inspect.cleandoc(_text(later[-1], definition.source)) if later else ""


def _text(node: ast.AST, source: Source) -> str:
    """The value of an expression that is made of literals; empty where it is not."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value, source) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, source)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, source) + _text(node.right, source)
    named = signatures.resolve(source, [node.id]) if isinstance(node, ast.Name) else None
    return _text(named.node, named.source) if named is not None and not isinstance(named.node, ast.Name) else ""


def _arguments_of(docstring: str) -> dict[str, str]:
    """Text of every argument in the sections of arguments of one docstring, each on one line."""
    texts: dict[str, list[str]] = {}
    margin, name = -1, ""  # of the arguments' names; the one that the next line goes on with
    lines = docstring.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        indent = len(line) - len(line.lstrip())
        if HEADER.fullmatch(line):
            margin, name = len(following) - len(following.lstrip()), ""
        elif line.strip() and indent < margin:
            margin, name = -1, ""
        elif margin > 0 and indent == margin and (match := ARGUMENT.match(line.strip())):
            name = match[1]
            texts[name] = [match[2]]
        elif name and line.strip():
            texts[name].append(line.strip())
    return {name: _plain(" ".join(parts)) for name, parts in texts.items()}


def _plain(text: str) -> str:
    return " ".join(ROLE.sub(r"\1", text).replace("``", "`").split())

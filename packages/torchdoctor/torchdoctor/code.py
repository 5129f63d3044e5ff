"""A Python file as text and syntax tree, edited by the positions of nodes, so that everything else stays as it is."""

import ast
import io
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

_IMPORTS = (ast.Import, ast.ImportFrom)
_APART = (ast.Return, ast.Assign, ast.Call, ast.keyword)  # what is in them needs no parentheses


class Edit(NamedTuple):
    """Characters of a text that are replaced, from start to end; an insertion if they are equal."""

    start: int
    end: int
    text: str


class Code:
    """The text of a Python file, and where its nodes stand in it.

    Args:
        text: of the file.

    Raises:
        SyntaxError: the text is no Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.lines = list(io.StringIO(text, newline=""))  # as Python counts them
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The characters of a node, without parentheses around it."""
        lines = (node.lineno, node.end_lineno)  # type: ignore[attr-defined]  # of statements and expressions
        columns = (node.col_offset, node.end_col_offset)  # type: ignore[attr-defined]
        start, end = (
            self._starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())
            for line, column in zip(lines, columns, strict=True)
        )
        return start, end

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that a node is part of."""
        return self._parents.get(node)

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the inside out."""
        while (node := self._parents.get(node)) is not None:  # type: ignore[assignment]  # it ends the loop
            yield node

    def nodes_at(self, line: int) -> Iterator[ast.expr | ast.stmt]:
        """Nodes that a line belongs to, from the outside in."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr | ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
                yield node

    def calls_at(self, line: int, *names: str) -> list[ast.Call]:
        """Calls that begin at a line, or else the innermost around it; of one of these names, if there are any."""
        calls = [node for node in self.nodes_at(line) if isinstance(node, ast.Call)]
        calls = [call for call in calls if not names or name_of(call) in names]
        return [call for call in calls if call.lineno == line] or calls[-1:]

    def makers(self, call: ast.Call) -> list[ast.Call]:
        """The calls that made the layer that is called: `nn.Tanh()` for `self.act(x)`."""
        assigned = [node for node in ast.walk(self.class_around(call) or self.tree) if isinstance(node, ast.Assign)]
        name = ast.unparse(call.func)
        values = [node.value for node in assigned if name in map(ast.unparse, node.targets)]
        return [value for value in values if isinstance(value, ast.Call)] if "." in name else []

    def arguments(self, call: ast.Call, start: int) -> str:
        """The arguments of a call from one on, as they are written."""
        rest = [*call.args[start:], *call.keywords]
        first = min((self.span(node)[0] for node in rest), default=0)
        return self.text[first : self.span(call)[1] - 1] if rest else ""

    def statement_at(self, line: int) -> ast.stmt | None:
        """The innermost statement that a line belongs to."""
        return next((node for node in reversed(list(self.nodes_at(line))) if isinstance(node, ast.stmt)), None)

    def function_around(self, node: ast.AST) -> ast.FunctionDef | None:
        """The innermost function that a node is part of."""
        return next((outer for outer in self.parents(node) if isinstance(outer, ast.FunctionDef)), None)

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class that a node is part of."""
        return next((outer for outer in self.parents(node) if isinstance(outer, ast.ClassDef)), None)

    @cached_property
    def imports(self) -> set[str]:
        """Names that the imports of this file bind."""
        aliases = [item for node in ast.walk(self.tree) if isinstance(node, _IMPORTS) for item in node.names]
        return {alias.asname or alias.name.partition(".")[0] for alias in aliases}

    def is_module(self, node: ast.AST) -> bool:
        """Whether an expression looks like an imported module, as `F`, `nn.init` or `torch.special`."""
        while isinstance(node, ast.Attribute) and node.attr.islower():
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.imports

    def is_formatted(self, node: ast.AST) -> bool:
        """Whether an expression stands in an f-string."""
        return any(isinstance(outer, ast.FormattedValue) for outer in self.parents(node))

    def put(self, node: ast.AST, text: str) -> list[Edit]:
        """Writes text in the place of a node, in parentheses where an expression needs them."""
        start, end = self.span(node)
        is_apart = isinstance(node, ast.stmt) or isinstance(self.parent(node), _APART)
        is_apart = is_apart or (self.text[start - 1 : start], self.text[end : end + 1]) == ("(", ")")
        is_safe = is_apart or is_atom(ast.parse(text, mode="eval").body)
        return [Edit(start, end, text if is_safe else f"({text})")]

    def set_keyword(self, call: ast.Call, name: str, value: str) -> list[Edit]:
        """Sets an option of a call, or adds it behind the last argument."""
        value_node = keyword(call, name)
        if value_node is not None:
            return [Edit(*self.span(value_node), value)]
        if any(item.arg is None for item in call.keywords):  # a **dict may hold it
            return []
        arguments = [*call.args, *call.keywords]
        if not arguments:
            end = self.span(call)[1] - 1
            return [Edit(end, end, f"{name}={value}")]
        end, closing = max(self.span(item)[1] for item in arguments), self.span(call)[1] - 1
        around = re.match(r"[\s)]*\)", self.text[end:closing])  # parentheses around the last argument
        end += around.end() if around else 0
        return [Edit(end, end, f", {name}={value}")]

    def insert_before(self, statement: ast.stmt, *lines: str) -> list[Edit]:
        """Writes lines before a statement, as far to the right as it is."""
        start = self._starts[statement.lineno - 1]
        return [Edit(start, start, self._block(statement, lines))]

    def insert_after(self, statement: ast.stmt, *lines: str) -> list[Edit]:
        """Writes lines after a statement, as far to the right as it is."""
        end, text = self._starts[statement.end_lineno or 0], self._block(statement, lines)
        return [Edit(end, end, text if self.text[end - 1] in "\r\n" else self.newline + text)]

    def _block(self, statement: ast.stmt, lines: Sequence[str]) -> str:
        return "".join((self.indent(statement) + line).rstrip() + self.newline for line in lines)

    def without_line(self, line: int) -> list[Edit]:
        """Leaves out a line."""
        return [Edit(self._starts[line - 1], self._starts[line], "")]

    def remove(self, statement: ast.stmt) -> list[Edit]:
        """Leaves out the lines of a statement; `pass` takes its place in a block that would be empty."""
        block = self.block_of(statement)
        if not self.is_alone(statement):
            return []
        if len(block) == 1:
            return [Edit(*self.span(statement), "pass")]
        return [Edit(self._starts[statement.lineno - 1], self._starts[statement.end_lineno or 0], "")]

    def dedent(self, block: ast.With) -> list[Edit]:
        """Leaves out the first line of a `with` and moves its body to the left."""
        width = block.body[0].col_offset - block.col_offset
        last = block.end_lineno or 0
        if block.body[0].lineno == block.lineno or any(_spans_lines(node) for node in ast.walk(block)):
            return []
        edits = [Edit(self._starts[block.lineno - 1], self._starts[block.body[0].lineno - 1], "")]
        for number in range(block.body[0].lineno, last + 1):
            start, line = self._starts[number - 1], self.lines[number - 1]
            if line.strip():
                edits.append(Edit(start, start + min(width, len(line) - len(line.lstrip())), ""))
        return edits

    def indent(self, statement: ast.stmt) -> str:
        """The white space before a statement."""
        return self.lines[statement.lineno - 1][: statement.col_offset]

    def is_alone(self, statement: ast.stmt) -> bool:
        """Whether nothing but a comment shares the lines of a statement."""
        start, end = self.span(statement)
        rest = self.text[end : self._starts[statement.end_lineno or 0]].strip()
        return not self.text[self._starts[statement.lineno - 1] : start].strip() and rest[:1] in ("", "#")

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements among which one stands."""
        outer = self.parent(statement)
        blocks = [getattr(outer, name, []) for name in ("body", "orelse", "finalbody")]
        return next((block for block in blocks if isinstance(block, list) and statement in block), [statement])

    @property
    def newline(self) -> str:
        """What ends the lines of the file."""
        return "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"

    def edited(self, edits: list[Edit]) -> str | None:
        """The text after edits; None if they overlap, change nothing or leave no valid Python."""
        text, last = self.text, len(self.text)
        for edit in sorted(edits, key=lambda edit: edit[:2], reverse=True):
            if edit.end > last:
                return None
            text, last = text[: edit.start] + edit.text + text[edit.end :], edit.start
        try:
            ast.parse(text)
        except SyntaxError:
            return None
        return text if text != self.text else None


def is_atom(node: ast.AST) -> bool:
    """Whether an expression needs no parentheses anywhere."""
    displays = ast.List | ast.Dict | ast.Set | ast.ListComp
    return isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant | displays)


def name_of(call: ast.Call) -> str:
    """The last name of what is called: Adam for `torch.optim.Adam(…)`; empty if it has none."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of an option that a call is given by name."""
    return next((item.value for item in call.keywords if item.arg == name), None)


def _spans_lines(node: ast.AST) -> bool:
    """Whether a node is a string over several lines, which moving would change."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
        return node.lineno != node.end_lineno
    return False

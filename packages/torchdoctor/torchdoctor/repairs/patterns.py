"""Changes of source as pairs of patterns: what is at the line of a finding, and what takes its place."""

import ast
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchdoctor.code import Code, Edit, is_atom, keyword, name_of

_VALUE = re.compile(r"\{(\w+)\}")
_LETTER = re.compile(r"[A-Z]_?")
_FILLED = re.compile(r"(?:, )?\*([A-Z])\b|(?<![\w.])([A-Z]_?)\b|(?<=\.)([A-Z]_?)\b")
_DISPLAYS = (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.Starred)
Letters = dict[str, Any]  # of a pattern, each with the node, the name or the arguments that it stands for


class Site(NamedTuple):
    """Where a defect was found: the file, and the finding as Finding.as_dict has it."""

    code: Code
    finding: dict[str, Any]

    @property
    def line(self) -> int:
        """The line of the finding."""
        return self.finding["line"]

    @property
    def values(self) -> dict[str, str]:
        """What the probe says of the repair."""
        return self.finding["values"]

    def is_meant(self, variant: str, *texts: str) -> bool:
        """Whether the probe means this variant of the repair, and gives each value that texts have in braces."""
        names = {name for text in texts for name in _VALUE.findall(text)}
        return variant in ("", self.values.get("variant")) and names <= self.values.keys()

    def insert(self, text: str) -> str:
        """A text with values in the place of their names in braces."""
        return _VALUE.sub(lambda found: self.values[found[1]], text)

    def calls(self, *names: str) -> list[ast.Call]:
        """Calls of these names at the line, and those that made a layer which is called there, as `nn.Tanh()`."""
        made = [layer for call in self.code.calls_at(self.line) for layer in self.code.makers(call)]
        return [*self.code.calls_at(self.line, *names), *(call for call in made if name_of(call) in names)]


@dataclass(frozen=True)
class Rule:
    """Puts one expression or statement in the place of another.

    In both, a capital letter stands for an expression or a name: M for a module, C for a number or an attribute alone,
    L for a tuple, list or dict as well, X_ for a name with an underscore at its end (X without it), *A for all further
    arguments of a call. A pattern with a semicolon at its end is a whole statement, which the replacement may repeat as
    `...`; an empty replacement leaves it out. `{name}` is a value of the finding; without it, the rule does not apply.

    Args:
        pattern: to be found once, at the line or in the function around it.
        replacement: in the same letters.
        variant: of the repair, if the finding must ask for it.
        in_function: whether to look in the whole function.
    """

    pattern: str
    replacement: str
    variant: str = ""
    in_function: bool = False

    def __call__(self, site: Site) -> list[Edit]:
        """The edits; none where the code is another."""
        if not site.is_meant(self.variant, self.pattern, self.replacement):
            return []
        pattern, new = map(site.insert, (self.pattern, self.replacement))
        matches = self._matches(site, ast.parse(pattern.removesuffix(";")).body[0], pattern.endswith(";"))
        if len(matches) != 1 or not _has_names(site.code, matches[0][0], new):
            return []
        node, letters = matches[0]
        if isinstance(node, ast.stmt):
            return _restated(site.code, node, _filled(site.code, new, letters))
        if _LETTER.fullmatch(new) and isinstance(statement := site.code.parent(node), ast.Expr):
            return site.code.remove(statement)  # what is left of it does nothing
        return site.code.put(node, _filled(site.code, new, letters))

    def _matches(self, site: Site, pattern: ast.stmt, is_statement: bool) -> list[tuple[Any, Letters]]:
        wanted = pattern if is_statement or not isinstance(pattern, ast.Expr) else pattern.value
        code = site.code
        nodes: list[Any] = [node for node in code.nodes_at(site.line) if not code.is_formatted(node)]
        if isinstance(wanted, ast.stmt):
            nodes = [node for node in nodes if isinstance(node, ast.stmt)][-1:]
        elif self.in_function:
            functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
            nodes = list(ast.walk(functions[-1])) if functions else []
        pairs = [(node, letters) for node in nodes if _match(code, wanted, node, letters := {})]
        is_near = self.in_function or isinstance(wanted, ast.stmt)
        return pairs if is_near else [pair for pair in pairs if pair[0].lineno == site.line] or pairs[-1:]


@dataclass(frozen=True)
class Option:
    """Sets an option of a call.

    Args:
        name: of the option.
        value: as Python; `{name}` is a value of the finding, as in the names of calls.
        calls: their names; of any name if there are none.
        variant: of the repair, if the finding must ask for it.
        is_given: whether the call must have the option already.
        unless: options beside which this one makes no sense.
    """

    name: str
    value: str
    calls: tuple[str, ...] = ()
    variant: str = ""
    is_given: bool = False
    unless: tuple[str, ...] = ()

    def __call__(self, site: Site) -> list[Edit]:
        """The edits; none where the code is another."""
        if not site.is_meant(self.variant, self.value, *self.calls):
            return []
        value, calls = site.insert(self.value), site.calls(*map(site.insert, self.calls))
        calls = [call for call in calls if keyword(call, self.name) is not None or not self.is_given]
        if len(calls) != 1 or any(keyword(calls[0], name) is not None for name in self.unless):
            return []
        return site.code.set_keyword(calls[0], self.name, value) if _has_names(site.code, calls[0], value) else []


def _has_names(code: Code, node: ast.AST, new: str) -> bool:
    """Whether what a replacement needs is there: an import of torch or nn, and a method's self."""
    modules = [name for name in ("torch", "nn") if re.search(rf"(?<![\w.]){name}\.", new)]
    function = code.function_around(node)
    has_self = function is not None and [item.arg for item in function.args.args[:1]] == ["self"]
    return all(name in code.imports for name in modules) and (has_self or "self." not in new)


def _match(code: Code, pattern: Any, node: Any, letters: Letters) -> bool:
    if isinstance(pattern, ast.Name) and _LETTER.fullmatch(pattern.id):
        return isinstance(node, ast.expr) and _bind(code, pattern.id, node, letters)
    if isinstance(pattern, str) and _LETTER.fullmatch(pattern):
        end = pattern[1:]
        is_named = isinstance(node, str) and node.endswith(end) and not node.endswith("__")
        return is_named and _bind(code, pattern[0], node.removesuffix(end), letters)
    if isinstance(pattern, list) and isinstance(node, list):
        pairs = zip(pattern, node, strict=False)
        return len(pattern) == len(node) and all(_match(code, one, two, letters) for one, two in pairs)
    if not isinstance(pattern, ast.AST):
        return pattern == node
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, ast.Call) and pattern.args and isinstance(pattern.args[-1], ast.Starred):
        *first, rest = pattern.args
        letters[ast.unparse(rest)] = node, len(first)
        name = pattern.func.id if isinstance(pattern.func, ast.Name) else ""
        if _LETTER.fullmatch(name):  # of any function
            letters[name] = node.func
        elif not _match(code, pattern.func, node.func, letters):
            return False
        return _match(code, first, node.args[: len(first)], letters)
    fields = [name for name in pattern._fields if name not in ("ctx", "type_comment", "kind")]
    return all(_match(code, getattr(pattern, name), getattr(node, name), letters) for name in fields)


def _bind(code: Code, letter: str, part: Any, letters: Letters) -> bool:
    if isinstance(part, _DISPLAYS) and letter != "L":
        return False
    if isinstance(part, ast.Name) and part.id == "self":  # the module itself
        return False
    if isinstance(part, ast.expr) and code.is_module(part) != (letter == "M"):
        return False
    if letter == "C" and not isinstance(part, ast.Constant | ast.Attribute):
        return False
    known = letters.setdefault(letter, part)
    return known is part or _plain(known) == _plain(part)


def _plain(part: Any) -> str:
    return part if isinstance(part, str) else ast.unparse(part)


def _filled(code: Code, text: str, letters: Letters) -> str:
    """A replacement with the source of what its letters stand for, in parentheses where these are needed."""

    def fill(found: re.Match[str]) -> str:
        if found[1] is not None:
            call, number = letters[f"*{found[1]}"]
            rest = code.arguments(call, number)
            return found[0].partition("*")[0] + rest if rest.strip() else ""
        part = letters.get(found[2] or found[3])
        if part is None or isinstance(part, str):
            return part or found[0]
        before, after = text[: found.start()].rstrip(), text[found.end() :].lstrip()[:1]
        is_apart = before[-1:] in ("", "(", "[", ",", ":", "=") or before.endswith("return")
        is_safe = is_atom(part) or (is_apart and after in ("", ")", "]", "}", ","))
        return code.source(part) if is_safe else f"({code.source(part)})"

    return _FILLED.sub(fill, text)


def _restated(code: Code, statement: ast.stmt, text: str) -> list[Edit]:
    """A statement with lines before or after it, another in its place, or none."""
    if not code.is_alone(statement):
        return []
    if not text:
        return code.remove(statement)
    before, is_kept, after = text.partition("...")
    if not is_kept:
        return code.put(statement, text)
    if after:
        return code.insert_after(statement, after.removeprefix("\n"))
    start = code.span(statement)[0]
    is_single = statement.lineno == statement.end_lineno or before.endswith("\n")
    return [Edit(start, start, before.replace("\n", code.newline + code.indent(statement)))] if is_single else []

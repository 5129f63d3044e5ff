"""Help of an option that holds a class: the available classes, and the options of one, without importing torch."""

import ast
import json
import shutil
from textwrap import wrap

from playbook.command import annotations, class_names, discovery, docstrings, signatures
from playbook.command.arguments import Invocation
from playbook.command.check import FACTORIES, slot_of
from playbook.command.discovery import Entry
from playbook.command.signatures import DEPTH, Parameter, Source
from playbook.command.slots import Slot
from playbook.errors import UserError

ALL = "all"  # lists torch's and Lightning's classes as well
ALWAYS_ON = "(always on)."  # ends the text of what every run has, and nobody names
COLUMN = 36  # where texts of options begin


def page(invocation: Invocation) -> str | None:
    """Answers `--X.help`, `--X.help all` and `--X.help CLASS`; None where only the parser can.

    Raises:
        UserError: there is no such class.
    """
    for arg, following in zip(invocation.args, [*invocation.args[1:], ""], strict=False):
        name, equals, value = arg.partition("=")
        if name.startswith("--") and name.endswith(".help"):
            slot = slot_of(invocation, name[2:].removesuffix(".help"))
            value = value if equals else "" if following.startswith("--") else following
            return None if slot is None else _answer(slot, value)
    return None


def _answer(slot: Slot, value: str) -> str | None:
    if slot.is_fixed:
        assert slot.signature is not None, slot.path
        return _options_page(slot, slot.signature.class_path) if not value else None
    if value in ("", ALL):
        return _list_page(slot, with_published=value == ALL)
    path = class_names.full_path(value, slot.kind)
    signature = signatures.signature(path)
    if signature is not None and signature.is_complete:
        return _options_page(slot, path)
    if signature is None:
        _require_possible(slot, value)
    return None


def _require_possible(slot: Slot, name: str) -> None:
    """Refuses the name of a class that is nowhere; others may be known once everything is imported."""
    close = class_names.nearest_of_none(name, slot.kind)
    if close is None and "." not in name and not discovery.class_paths(name):
        close = None if class_names.is_defined(name, slot.kind) else f"; --{slot.path}.help lists them"
    if close is not None:
        raise UserError(f"--{slot.path}.help {name}: no such class{close}")


def _list_page(slot: Slot, with_published: bool) -> str:
    """Our classes, then, on request, those of torch or Lightning."""
    option = f"--{slot.path}"
    ours = [entry for entry in class_names.ours(slot.kind) if not entry.summary.endswith(ALWAYS_ON)]
    module = class_names.module_of(slot.kind)
    published = class_names.published(slot.kind) if with_published or not ours else []
    blocks = [f"{option} CLASS, by short name or full path; its options: {option}.help CLASS", _table(ours)]
    if published:
        names = {entry.name for entry in ours}
        is_short = slot.kind in class_names.PUBLISHED  # else a short name may mean several classes
        rows = [Entry(e.name if is_short and e.name not in names else e.path, e.path, e.summary) for e in published]
        blocks.append(f"{module}\n{_table(rows)}")
    elif module:
        blocks.append(f"Those of {module} as well: {option}.help {ALL}")
    return "\n\n".join(block for block in blocks if block)


def _table(entries: list[Entry]) -> str:
    width = max((len(entry.name) for entry in entries), default=0)
    return "\n".join(f"  {entry.name:<{width}}  {entry.summary}".rstrip() for entry in entries)


def _options_page(slot: Slot, path: str) -> str:
    """A class with its options: name, type, text and default of each."""
    definition, signature = signatures.find(path), signatures.signature(path)
    assert definition is not None, path
    assert signature is not None, path
    texts = docstrings.argument_texts(definition)
    parameters = list(signature.parameters.values())[slot.kind in FACTORIES :]
    lines = [line for p in parameters for line in _option(slot, p, texts.get(p.name, ""))]
    return "\n".join([path, *wrap(docstrings.summary(definition), _width()), "", *(lines or ["no options"])])


def _option(slot: Slot, parameter: Parameter, text: str) -> list[str]:
    """The lines of one option."""
    name = f"--{slot.path}.{parameter.name}"
    kind, admits_text = class_names.kind_of(parameter)
    types = "CLASS" if kind and not admits_text else "|".join(_types(parameter.annotation, parameter.source))
    left = f"  {name} {types}".rstrip()
    text = f"{text.removesuffix('.')}; classes: {name}.help" if kind else text
    default = "required" if parameter.is_required else f"default: {_default(parameter)}"
    is_told = "efault: " in text or (default == "default: null" and "efault" in text)
    text = text if is_told else f"{text} [{default}]".lstrip()
    lines = wrap(text, _width() - COLUMN, break_long_words=False, break_on_hyphens=False)
    indented = [f"{'':<{COLUMN}}{line}" for line in lines]
    return [f"{left:<{COLUMN}}{lines[0]}", *indented[1:]] if len(left) < COLUMN - 1 else [left, *indented]


def _types(annotation: ast.expr | None, source: Source, depth: int = 0) -> list[str]:
    """Types of an annotation in short: `int`, `min`, `max`, `Sequence[int]`; private aliases by what they stand for."""
    words = []
    for member in annotations.members(annotation):
        parts = signatures.dotted(member.value if isinstance(member, ast.Subscript) else member)
        alias = signatures.resolve(source, parts) if parts and parts[-1].startswith("_") and depth < DEPTH else None
        if isinstance(member, ast.Subscript) and parts[-1:] == ["Literal"]:
            entries = member.slice.elts if isinstance(member.slice, ast.Tuple) else [member.slice]
            words += [str(entry.value) for entry in entries if isinstance(entry, ast.Constant)]
        elif alias is not None and isinstance(alias.node, ast.expr):
            words += _types(alias.node, alias.source, depth + 1)
        else:
            words.append(ast.unparse(member))
    return list(dict.fromkeys(words))


def _default(parameter: Parameter) -> str:
    """As YAML holds it, where it is a literal."""
    if parameter.default is None:
        return ""
    try:
        value = ast.literal_eval(parameter.default)
    except ValueError:
        return ast.unparse(parameter.default)
    if isinstance(value, str):
        return value or '""'
    return json.dumps(value) if isinstance(value, bool | list | tuple | None) else str(value)


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 120)

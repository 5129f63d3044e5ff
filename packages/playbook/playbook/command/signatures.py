"""The parameters of a class, read from its source: importing torch's and Lightning's would take seconds.

Nothing here guesses: what cannot be followed in the source is unknown, as are a decorator, a metaclass, and `**kwargs`
that are used otherwise than to call the base.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path

DEPTH = 20  # imports and bases that are followed, one after the other
TRANSPARENT = ("_defaults_from_env_vars", "override")  # decorators that leave a signature as it is
EMPTY_BASES = ("object", "ABC", "Generic", "Protocol")  # which have no parameters of their own


@dataclass(frozen=True)
class Source:
    """A parsed module.

    Args:
        name: dotted.
        is_package: whether it is an `__init__.py`.
        bindings: what each name of its top level is bound to; several statements are several bindings.
        stars: modules of which it imports everything.
    """

    name: str
    is_package: bool
    bindings: dict[str, list[ast.AST]]
    stars: tuple[str, ...]


@dataclass(frozen=True)
class Definition:
    """A class or an expression that a name stands for, and the module it is written in."""

    source: Source
    node: ast.ClassDef | ast.expr

    @property
    def class_path(self) -> str:
        """Dotted path of a class."""
        assert isinstance(self.node, ast.ClassDef), ast.dump(self.node)
        return f"{self.source.name}.{self.node.name}"


@dataclass(frozen=True)
class Parameter:
    """One argument of `__init__`.

    Args:
        name: as it is written.
        annotation: its type, an expression in `source`.
        source: the module it is written in.
        is_required: whether it must be given.
        default: its default, an expression in `source`; None if it has none.
    """

    name: str
    annotation: ast.expr | None
    source: Source
    is_required: bool
    default: ast.expr | None = None


@dataclass(frozen=True)
class Signature:
    """What a class takes.

    Args:
        class_path: dotted, of the module that defines the class.
        parameters: by name, in order.
        is_complete: whether these are all; not so with `**kwargs` that go somewhere unknown.
    """

    class_path: str
    parameters: dict[str, Parameter]
    is_complete: bool


def signature(class_path: str) -> Signature | None:
    """Parameters of a class, and of its bases where it hands `**kwargs` to them; None if the source does not tell."""
    definition = find(class_path)
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return None
    initializer = _initializer(_lookup_order(definition))
    return replace(initializer, class_path=definition.class_path) if initializer is not None else None


def find(path: str, depth: int = 0) -> Definition | None:
    """The class or expression that a dotted path stands for, through imports and aliases."""
    parts = path.split(".")
    if depth > DEPTH or not all(part.isidentifier() for part in parts):
        return None
    for end in range(len(parts) - 1, 0, -1):
        if (source := module(".".join(parts[:end]))) is not None:
            return resolve(source, parts[end:], depth + 1)
    return None


def resolve(source: Source, parts: list[str], depth: int = 0) -> Definition | None:
    """What a dotted name in a module stands for."""
    bindings = source.bindings.get(parts[0], [])
    if depth > DEPTH or len(bindings) > 1:  # set in two places: which one counts is known at run time only
        return None
    if not bindings:
        definitions = [find(".".join([star, *parts]), depth + 1) for star in source.stars]
        return next((definition for definition in definitions if definition is not None), None)
    node = bindings[0]
    if isinstance(node, ast.alias):
        origin = getattr(node, "origin", "")
        return find(".".join([origin, *parts[1:]]), depth + 1)
    if len(parts) > 1:
        return None
    if isinstance(node, ast.Name | ast.Attribute):  # another name for it
        return resolve(source, dotted(node), depth + 1) or Definition(source, node)
    return Definition(source, node) if isinstance(node, ast.ClassDef | ast.expr) else None


def dotted(node: ast.expr) -> list[str]:
    """Parts of a name such as `nn.Module`; empty for any other expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    below = dotted(node.value) if isinstance(node, ast.Attribute) else []
    return [*below, node.attr] if below and isinstance(node, ast.Attribute) else []


def module(name: str) -> Source | None:
    """A module's source, found as `import` finds it, without importing its package; None if it has no source file."""
    file = module_file(name)
    if file is None:
        return None
    state = file.stat()
    return _parse(name, file, state.st_mtime_ns, state.st_size)


def module_file(name: str) -> Path | None:
    """The file that a module is written in."""
    top, *rest = name.split(".")
    spec = PathFinder.find_spec(top)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    if not rest:
        return Path(spec.origin)
    if not spec.submodule_search_locations:
        return None
    place = Path(next(iter(spec.submodule_search_locations)), *rest)
    files = [place / "__init__.py", place.with_name(f"{place.name}.py")]
    return next((file for file in files if file.is_file()), None)


@lru_cache(maxsize=512)
def _parse(name: str, file: Path, mtime_ns: int, size: int) -> Source | None:
    """The state of the file is an argument, so that one that changes is read again."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # whoever imports it says what is wrong
        return None
    is_package = file.name == "__init__.py"
    package = name if is_package else name.rpartition(".")[0]
    bindings: dict[str, list[ast.AST]] = {}
    stars: list[str] = []
    for statement in _statements(tree.body):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bindings.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for name_here, alias in _imported(statement, package):
                bindings.setdefault(name_here, []).append(alias)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                name_here = ".".join(dotted(target))
                is_bound = isinstance(target, ast.Name) or name_here.endswith(
                    ".__doc__"
                )  # as torch's optimizers set it
                if is_bound and statement.value is not None:
                    bindings.setdefault(name_here, []).append(statement.value)
        if isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names):
            stars.append(_absolute(package, statement))
    for value in bindings.values():  # `import a.b` and `import a.c` bind the same `a`
        origins = {getattr(node, "origin", id(node)) for node in value}
        if len(origins) == 1:
            del value[1:]
    return Source(name, is_package, bindings, tuple(stars))


def _imported(statement: ast.Import | ast.ImportFrom, package: str) -> list[tuple[str, ast.alias]]:
    """Names that an import binds, with the dotted paths that they stand for."""
    names = []
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            origin = alias.name if alias.asname else alias.name.partition(".")[0]
            names.append((alias.asname or origin, _with_origin(alias, origin)))
        elif alias.name != "*":
            origin = f"{_absolute(package, statement)}.{alias.name}"
            names.append((alias.asname or alias.name, _with_origin(alias, origin)))
    return names


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Those of a module's top level, and those under its conditions."""
    statements: list[ast.stmt] = []
    for statement in body:
        statements.append(statement)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                statements += _statements(getattr(statement, name, []))
        if isinstance(statement, ast.Try):
            statements += [inner for handler in statement.handlers for inner in _statements(handler.body)]
    return statements


def _with_origin(alias: ast.alias, origin: str) -> ast.alias:
    alias.origin = origin  # type: ignore[attr-defined]  # the dotted path that the name stands for
    return alias


def _absolute(package: str, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    parts = package.split(".")[: len(package.split(".")) - statement.level + 1]
    return ".".join([*parts, *([statement.module] if statement.module else [])])


def _lookup_order(definition: Definition) -> Iterator[Definition | None]:
    """The class, then its bases if they are asked for: most classes have an `__init__` that says all."""
    yield definition
    yield from resolution_order(definition)[1:]


def resolution_order(definition: Definition, depth: int = 0) -> list[Definition | None]:
    """The class, then its bases, as Python looks them up; None stands for one that is not known."""
    node = definition.node
    assert isinstance(node, ast.ClassDef), ast.dump(node)
    order: list[Definition | None] = [definition]
    if depth > DEPTH:
        return [definition, None]
    for base in node.bases:
        parts = dotted(base.value if isinstance(base, ast.Subscript) else base)
        if parts[-1:] and parts[-1] in EMPTY_BASES:
            continue
        parent = resolve(definition.source, parts) if parts else None
        known = parent is not None and isinstance(parent.node, ast.ClassDef)
        order += resolution_order(parent, depth + 1) if known and parent is not None else [None]
    return [entry for index, entry in enumerate(order) if entry is None or entry not in order[index + 1 :]]


def _initializer(order: Iterator[Definition | None]) -> Signature | None:
    """Of the first class in the order that has an `__init__`."""
    for definition in order:
        if definition is None:
            return None
        assert isinstance(definition.node, ast.ClassDef), ast.dump(definition.node)
        if not _is_transparent(definition.node.decorator_list) or not _has_plain_metaclass(definition.node):
            return None
        names = [name for statement in _statements(definition.node.body) for name in _names_set(statement)]
        if "__new__" in names or names.count("__init__") > 1:
            return None
        functions = [node for node in definition.node.body if isinstance(node, ast.FunctionDef)]
        own = next((node for node in functions if node.name == "__init__"), None)
        if own is not None:
            return _own(definition, own, order) if _is_transparent(own.decorator_list) else None
        if "__init__" in names:
            return None
    return Signature("", {}, is_complete=False)  # object's


def _has_plain_metaclass(node: ast.ClassDef) -> bool:
    return all(keyword.arg == "metaclass" and dotted(keyword.value)[-1:] == ["ABCMeta"] for keyword in node.keywords)


def _is_transparent(decorators: list[ast.expr]) -> bool:
    return all(dotted(decorator)[-1:] and dotted(decorator)[-1] in TRANSPARENT for decorator in decorators)


def _names_set(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _own(definition: Definition, function: ast.FunctionDef, bases: Iterator[Definition | None]) -> Signature:
    """Parameters of an `__init__`, and those of the bases' that its `**kwargs` go to."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    own = {
        argument.arg: Parameter(argument.arg, argument.annotation, definition.source, default is None, default)
        for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True)
        if argument is not positional[0]  # self
    }
    if arguments.kwarg is None:
        return Signature("", own, is_complete=arguments.vararg is None)
    call = _call_of_base(function, arguments.kwarg.arg)
    inherited = _initializer(bases) if call is not None and arguments.vararg is None else None
    if call is None or inherited is None:
        return Signature("", own, is_complete=False)
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return Signature("", own, is_complete=False)
    by_position = list(inherited.parameters)[: len(call.args)]
    known_names = {*own, *by_position, *(keyword.arg for keyword in call.keywords)}
    others = {name: parameter for name, parameter in inherited.parameters.items() if name not in known_names}
    return Signature("", own | others, inherited.is_complete)


def _call_of_base(function: ast.FunctionDef, kwargs: str) -> ast.Call | None:
    """`super().__init__(…, **kwargs)`, if that is all that is done with them."""
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == kwargs]
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__init__"
        and isinstance(node.func.value, ast.Call)
        and dotted(node.func.value.func) == ["super"]
        and not node.func.value.args
    ]
    if len(uses) != 1 or len(calls) != 1:
        return None
    handed = [keyword.value for keyword in calls[0].keywords if keyword.arg is None]
    return calls[0] if handed == uses else None

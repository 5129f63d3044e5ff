"""Where the user's loaders and data sets are made, line by line."""

import ast
from sys import _getframe
from typing import Any

from torch.utils.data import DataLoader

from playbook.doctor import source
from playbook.doctor.findings import Place
from playbook.doctor.samples import base, owner
from playbook.doctor.subject import Subject


def built(subject: Subject, kind: str) -> list[tuple[DataLoader, list[Place]]]:
    """The loaders of a kind, each with the user's lines that made it, innermost first."""
    places: dict[int, list[Place]] = {}
    original = DataLoader.__init__

    def init(self: DataLoader, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        places[id(self)] = list(source.callers(_getframe(1))[0])

    DataLoader.__init__ = init
    try:
        loaders = subject.loaders(kind)
    finally:
        DataLoader.__init__ = original
    return [(loader, places.get(id(loader)) or _returned(subject, kind)) for loader in loaders]


def _returned(subject: Subject, kind: str) -> list[Place]:
    """For loaders that were made earlier: the method that returns them."""
    place = source.definition(getattr(type(owner(subject)), f"{kind}_dataloader", None))
    return [place] if place else []


def call_at(place: Place, name: str = "") -> ast.Call | None:
    """The outermost call that begins on a line, or spans it."""
    found = None
    for node in ast.walk(source.tree(place.file)):
        if not isinstance(node, ast.Call) or not node.lineno <= place.line <= (node.end_lineno or 0):
            continue
        if name in ast.unparse(node.func) and (found is None or node.lineno > found.lineno):
            found = node
    return found


def option(places: list[Place], name: str) -> tuple[Place | None, ast.expr | None]:
    """The line and value of an option in the calls that made a loader; the innermost call's line if it is not given."""
    for number, place in enumerate(places):
        call = call_at(place, "DataLoader") or call_at(place)
        for keyword in call.keywords if call else ():
            if keyword.arg == name:
                if _is_parameter(keyword.value, place) and number + 1 < len(places):
                    return places[number + 1], None  # the caller decides
                return Place(place.file, keyword.value.lineno), keyword.value
    for place in places[:1]:  # given by **options?
        for node in ast.walk(source.tree(place.file)):
            if isinstance(node, ast.keyword) and node.arg == name and "DataLoader" not in ast.unparse(node):
                call = call_at(place, "DataLoader")
                if call is not None and any(item.arg is None for item in call.keywords):
                    return Place(place.file, node.value.lineno), node.value
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == name:
                        return Place(place.file, value.lineno), value
    return (places[0] if places else None), None


def _is_parameter(value: ast.expr, place: Place) -> bool:
    function = source.function_at(place)
    names = {item.arg for item in ast.walk(function.args) if isinstance(item, ast.arg)} if function else ()
    return isinstance(value, ast.Name) and value.id in names


def dataset_line(subject: Subject, dataset: Any) -> tuple[Place, ast.stmt] | None:
    """The statement that made a data set that is kept as an attribute of the data module; the last, if several do."""
    keeper = owner(subject)
    for wanted in (dataset, base(dataset)):
        for name, value in list(vars(keeper).items()):
            if value is wanted:
                for place, statement in reversed(source.assigned(keeper, name)):
                    return place, statement
    return None

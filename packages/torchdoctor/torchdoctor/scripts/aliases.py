"""Finds "best models" that a script keeps as another reference to the live model."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import nn

from torchdoctor import source
from torchdoctor.findings import Finding, Place
from torchdoctor.probes.optimization.kept_weights import KEPT_WEIGHTS_CHANGE
from torchdoctor.running.unregistered import is_plain
from torchdoctor.scripts.hold import Loop, function_of, own_nodes, value_of
from torchdoctor.scripts.notes import Stack

_DEFECT = replace(KEPT_WEIGHTS_CHANGE, impact="What is kept as the best model is the last one.")
_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE

Keeping = tuple[Place, ast.expr, ast.expr]  # the line, what keeps a model, and which


class Aliases:
    """Looks before each optimizer step for a kept best model that the step is about to change."""

    def __init__(self) -> None:
        self.found: dict[Place, Finding] = {}
        self._known: dict[Any, list[Keeping]] = {}  # by the code or the class that they are of

    def before_step(self, stack: Stack, weights: set[int]) -> None:
        """Takes notes.

        Args:
            stack: around the step.
            weights: that it changes, by identity.
        """
        for frame, _ in stack:
            if frame.f_code not in self._known:
                loops = [node for node in own_nodes(function_of(frame)) if isinstance(node, Loop)]
                self._known[frame.f_code] = list(_keepings(frame.f_code.co_filename, loops))
            self._note(frame.f_locals, self._known[frame.f_code], weights)
            for thing in list(frame.f_locals.values()):
                if type(thing) not in self._known:
                    bodies = filter(None, map(source.body, source.classes_of(thing) if is_plain(thing) else ()))
                    self._known[type(thing)] = [item for file, body in bodies for item in _keepings(file, [body])]
                self._note({"self": thing}, self._known[type(thing)], weights)

    def _note(self, scope: Mapping[str, Any], keepings: list[Keeping], weights: set[int]) -> None:
        for place, target, value in keepings:
            best = value_of(scope, target)
            models = [each for each in (best if isinstance(best, list) else [best]) if isinstance(each, nn.Module)]
            if any(id(weight) in weights for model in models for weight in nn.Module.parameters(model)):
                name, model = ast.unparse(target), ast.unparse(value)
                message = f"{name} keeps {model} itself and no copy: the steps that follow change it as well"
                self.found.setdefault(place, Finding(_DEFECT, place, message, f"copy.deepcopy({model})"))

    def look(self) -> Iterator[Finding]:
        """Yields the findings."""
        yield from self.found.values()


def _keepings(file: str, roots: Iterable[ast.AST]) -> Iterator[Keeping]:
    """Assignments and appends in branches that compare a score with the best so far and update it."""
    branches = [node for root in roots for node in ast.walk(root) if isinstance(node, ast.If)]
    for node in dict.fromkeys(chain.from_iterable(map(ast.walk, filter(_finds_best, branches)))):
        for target, value in _given(node):
            if isinstance(target, ast.Name | ast.Attribute) and isinstance(value, ast.Name | ast.Attribute):
                yield Place(file, value.lineno), target, value


def _finds_best(branch: ast.If) -> bool:
    compared = {ast.unparse(node) for node in ast.walk(branch.test) if isinstance(node, ast.Name | ast.Attribute)}
    targets = [target for node in ast.walk(branch) for target, _ in _given(node)]
    by_size = any(isinstance(node, _ORDERS) for node in ast.walk(branch.test))
    return by_size and any(ast.unparse(target) in compared for target in targets)


def _given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values of an assignment or an `append`."""
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
        yield from ((node.func.value, argument) for argument in node.args)

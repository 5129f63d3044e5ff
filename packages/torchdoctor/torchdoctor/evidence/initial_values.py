"""Finds the lines that initialise a layer, and measures the gain of its weights."""

import ast
import inspect
import math
import re
from collections.abc import Iterator

from torch import Tensor, nn

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.evidence.dependence import module_name
from torchdoctor.findings import Place

_FILL = ("normal_", "uniform_", "fill_", "zero_", "mul_", "copy_", "constant_", "zeros_", "ones_", "trunc_normal_")


def rms_gain(weight: Tensor) -> float:
    """The RMS gain of a weight matrix on independent inputs."""
    return float(weight.detach().square().mean().sqrt()) * math.sqrt(weight[0].numel())


def initialisation_line(model: nn.Module, part: nn.Module, kind: str = "weight") -> Place | None:
    """The line that initialises a layer, by nn.init or by hand; else the line that constructs it.

    Args:
        model: the whole.
        part: the layer.
        kind: weight or bias.
    """
    names, best = module_name(model, part).split("."), (0, None)
    for depth in reversed(range(len(names))):
        owner, below = model.get_submodule(".".join(names[:depth])), names[depth:]
        for place, text, filled in (item for cls in source.classes_of(owner) for item in _statements(cls)):
            mine = _is_within(filled, owner, below)
            of_other = kind not in text and ("bias" if kind == "weight" else "weight") in text
            if not of_other and (mine or not filled.startswith("self.")):
                score = 8 * mine + 2 * (kind in text) + 1 + (depth == len(names) - 1)
                best = max(best, (score, place), key=lambda item: item[0])
    return best[1] or origins.layer(model, part)


def _is_within(filled: str, owner: nn.Module, below: list[str]) -> bool:
    """Whether an expression such as `self.net[0].bias` leads from its owner to the layer below."""
    own = f"self.{below[0]}"
    if not f"{filled}.".startswith((f"{own}.", f"{own}[")):
        return False
    index = re.match(r"\[(-?\d+)\]", filled[len(own) :])
    return index is None or below[1:2] == [str(int(index[1]) % len(list(owner.get_submodule(below[0]).children())))]


def _statements(cls: type) -> Iterator[tuple[Place, str, str]]:
    """The statements of a class and of the functions beside it that initialise tensors: line, source and target.

    In a loop over `self.named_parameters()` that is the loop's variable, which may be any layer.
    """
    file = inspect.getsourcefile(cls)
    beside = source.tree(file).body if file else ()
    scopes = [source.body(cls), *((file, node) for node in beside if isinstance(node, ast.FunctionDef))]
    for scope in scopes:
        for node in ast.walk(scope[1]) if scope else ():
            if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign) and (filled := _filled_attribute(node)):
                yield Place(str(file), node.lineno), ast.unparse(node), filled


def _filled_attribute(node: ast.Expr | ast.Assign | ast.AugAssign) -> str:
    """The target that a statement fills, or "": the first argument of nn.init, the owner of an in-place call."""
    if not isinstance(node, ast.Expr):
        targets = map(ast.unparse, node.targets if isinstance(node, ast.Assign) else [node.target])
        return next((text for text in targets if text.endswith((".data", ".weight", ".bias"))), "")
    for call in (part for part in ast.walk(node) if isinstance(part, ast.Call)):
        owner, _, name = ast.unparse(call.func).rpartition(".")
        if call.args and (owner.endswith("init") or (name in _FILL and not owner)):
            return ast.unparse(call.args[0])
        if name in _FILL:
            return owner
    return ""

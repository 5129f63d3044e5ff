"""Where the user's source gives a layer its first values."""

import ast
import inspect
from collections.abc import Iterator

from torch import nn

from src.doctor import source
from src.doctor.findings import Place

_FILL = ("normal_", "uniform_", "fill_", "zero_", "mul_", "copy_", "constant_", "zeros_", "ones_", "trunc_normal_")


def initialisation(model: nn.Module, part: nn.Module, kind: str = "weight") -> Place | None:
    """The call of nn.init, or the change by hand, that a layer's values come from; else where the layer is made.

    Args:
        model: the whole.
        part: the layer.
        kind: weight or bias.
    """
    path = next((name for name, module in model.named_modules() if module is part), "")
    names, best = path.split("."), (0, None)
    owners = [model.get_submodule(".".join(names[:depth])) for depth in range(len(names) - 1, -1, -1)]
    for depth, owner in enumerate(owners):
        name = names[len(names) - 1 - depth]
        for cls in source.classes_of(owner):
            for place, text in _statements(cls):
                other = "bias" if kind == "weight" else "weight"
                if kind not in text and other in text:
                    continue
                mine = f"self.{name}." in text or f"self.{name}[" in text or f"self.{name})" in text
                if "self." in text.replace("self.modules", "") and not mine:
                    continue
                score = 8 * mine + 2 * (kind in text) + 1 + (depth == 0)
                best = max(best, (score, place), key=lambda item: item[0])
    return best[1] or source.construction(model, part)


def _statements(cls: type) -> Iterator[tuple[Place, str]]:
    """Statements of a class, and of the functions beside it, that fill a layer's values."""
    file = inspect.getsourcefile(cls)
    tree = source.tree(file) if file else None
    scopes = [source.body(cls)] + [
        (file, node) for node in (tree.body if tree else ()) if isinstance(node, ast.FunctionDef)
    ]
    for scope in scopes:
        for node in ast.walk(scope[1]) if scope else ():
            if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign) and _fills(node):
                yield Place(str(file), node.lineno), ast.unparse(node)


def _fills(node: ast.Expr | ast.Assign | ast.AugAssign) -> bool:
    if isinstance(node, ast.Expr):
        called = [ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)]
        return any("init." in name or name.rpartition(".")[2] in _FILL for name in called)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(ast.unparse(target).endswith((".data", ".weight", ".bias")) for target in targets)

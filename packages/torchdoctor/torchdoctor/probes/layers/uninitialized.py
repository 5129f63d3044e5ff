"""Parameters that start as uninitialized memory."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from torchdoctor import source
from torchdoctor.code import name_of
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

UNINITIALIZED_PARAMETER = Defect(
    "uninitialized-parameter",
    "critical",
    "Its first values are what was in memory: zeros, huge numbers or nan, others in each run.",
    explains=("non-finite", "exploding-gradient", "bad-initial-loss", "loss-not-decreasing"),
    shown_by=Evidence("source", "the lines that make the parameter, and all that could fill it, were read"),
)
_EMPTY = ("empty", "empty_like", "new_empty")
_LEGACY = ("Tensor", "FloatTensor", "DoubleTensor")  # of sizes, which torch documents as uninitialised
_ALL = ("parameters", "named_parameters", "modules", "named_modules", "children")


def uninitialized(subject: Subject) -> Iterator[Finding | str]:
    """Reads the lines that assign parameters: torch.empty, or torch.FloatTensor of sizes, fill nothing in.

    Not reported is what a statement by itself takes, as it does with `nn.init`, what is assigned in part, and anything
    at all where the source goes through parameters or modules to fill them. Where weights are loaded from a file this
    is advice: they may come from there.
    """
    trees = list(map(source.tree, subject.files))
    if any(map(_fills_all, trees)):
        return
    filled = {name for tree in trees for name in _filled(tree)}
    is_loaded = any(any(source.calls(tree, "load_state_dict")) and any(source.calls(tree, "load")) for tree in trees)
    defect = replace(UNINITIALIZED_PARAMETER, severity="advice") if is_loaded else UNINITIALIZED_PARAMETER
    findings: dict[Place, Finding] = {}
    for module in subject.model.modules():
        for name, _ in module.named_parameters(recurse=False):
            for place, statement in source.assigned(module, name)[:1]:
                calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
                empty = [call for call in calls if _is_empty(call)]
                if empty and name not in filled and not any(map(_fills, calls)):
                    what = f"{type(module).__name__}.{name} is made by {ast.unparse(empty[0].func)} of its sizes"
                    fix = f"nn.init.normal_(self.{name}, std=0.02)  # or as its layer needs it"
                    findings[place] = Finding(defect, place, f"{what}, and nothing fills it", fix)
    yield from findings.values()


PROBE = Probe(look=uninitialized, defects=(UNINITIALIZED_PARAMETER,), is_light=True)


def _is_empty(call: ast.Call) -> bool:
    """Whether a call makes a tensor of sizes, with no values."""
    arguments = call.args
    are_sizes = len(arguments) > 1 or any(isinstance(item, ast.Starred) for item in arguments)
    are_sizes |= len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, int)
    return name_of(call) in _EMPTY or (name_of(call) in _LEGACY and are_sizes)


def _fills(call: ast.Call) -> bool:
    """Whether a call changes something in place, as all of `nn.init` does."""
    return name_of(call).endswith("_") and not name_of(call).startswith("_")


def _filled(tree: ast.AST) -> Iterator[str]:
    """Attributes that a file may fill: `init.zeros_(self.a)`, `self.a[0] = 1`, `for weight in [self.a, self.b]:`."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = [node.value] if isinstance(node, ast.Expr) else []
        parts += [node.iter] if isinstance(node, ast.For) else []
        parts += [node] if isinstance(node, ast.Call) and _fills(node) else []
        targets = node.targets if isinstance(node, ast.Assign) else []
        parts += [target.value for target in targets if isinstance(target, ast.Subscript | ast.Attribute)]
        yield from (part.attr for each in parts for part in ast.walk(each) if isinstance(part, ast.Attribute))


def _fills_all(tree: ast.AST) -> bool:
    """Whether a file fills parameters in a loop over them, or has a function do so: `self.apply(f)`, `f(self)`."""
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    arguments = [item for call in statements if isinstance(call, ast.Call) for item in call.args]
    if any(isinstance(item, ast.Name) and item.id == "self" for item in arguments):
        return True
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    if any(name_of(call) == "apply" and own & _names(call) for call in source.calls(tree, "apply")):
        return True
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and any(source.calls(node.iter, *_ALL))]
    calls = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return any(map(_fills, calls))


def _names(call: ast.Call) -> set[str]:
    return {getattr(node, "id", getattr(node, "attr", "")) for item in call.args for node in ast.walk(item)}

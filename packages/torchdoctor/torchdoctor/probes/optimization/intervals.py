"""Inverted interval conditions such as `if step % 100:`."""

import ast
from collections.abc import Iterator

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

INVERTED_INTERVAL = Defect(
    "inverted-interval",
    "warning",
    "What is meant for every n-th step happens in all the others.",
    shown_by=Evidence("source", "the conditions of the model's classes were read"),
)
_AT_INTERVALS = ("load_state_dict", "copy_", "lerp_", "step", "zero_grad", "save", "log", "log_dict")
_COUNTS = (ast.Name, ast.Attribute, ast.BinOp, ast.Constant, ast.operator, ast.expr_context)  # of a counter


def intervals(subject: Subject) -> Iterator[Finding | str]:
    """Reads conditions that are a remainder: a copy to a target network, a step or a log in their branch.

    A remainder of 0 is false. Alternation by `% 2`, a branch that leaves the turn, one with an `else` and the remainder
    of a length are meant.
    """
    nodes = list(source.statements(*source.classes_in(subject.model)))
    for file in subject.script.sources if subject.script else ():
        nodes += [(Place(file, node.lineno), node) for node in ast.walk(source.tree(file)) if isinstance(node, ast.If)]
    lines = dict.fromkeys(place for place, node in nodes if isinstance(node, ast.If) and _is_inverted(node))
    for place in lines:
        condition = place.code.partition("if ")[2].rpartition(":")[0]
        message = f"`{place.code}` holds for all but each such step: a remainder of 0 is false"
        yield Finding(INVERTED_INTERVAL, place, message, f"if ({condition}) == 0:")


PROBE = Probe(look=intervals, defects=(INVERTED_INTERVAL,), is_light=True)


def _is_inverted(node: ast.If) -> bool:
    test = node.test
    if node.orelse or not isinstance(test, ast.BinOp) or not isinstance(test.op, ast.Mod):
        return False
    if isinstance(test.left, ast.Constant) or (isinstance(test.right, ast.Constant) and test.right.value in (1, 2)):
        return False
    if not all(isinstance(part, _COUNTS) for part in ast.walk(test.left)):
        return False
    acts = any(next(source.calls(statement, *_AT_INTERVALS), None) for statement in node.body)
    return acts and not isinstance(node.body[-1], ast.Continue | ast.Return | ast.Break | ast.Raise)

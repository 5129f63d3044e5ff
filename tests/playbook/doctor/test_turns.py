"""Turns of loops, counted on programs whose counts are known."""

import ast
import sys
from collections.abc import Callable
from typing import Any

import pytest

from playbook.doctor.turns import Loop, count_turns, turning_point

SOURCE = """
def one_line(x):
    return [str(v) for v in x]

def nested(x):
    for i, (a, b) in enumerate(zip(x, x)):
        for _ in range(2): [abs(q) for q in x]

def comprehensions(x):
    return {k: v for k, v in zip(x, x)}, sum(y for y in x), {z for w in range(2) for z in x if z}

def targets(x):
    holder, items = type("", (), {})(), [0]
    for holder.value in x:
        pass
    for items[0] in x:
        if items[0] == 1:
            continue

def early(x):
    for v in x:
        if v == 3:
            break

def whiles(x):
    i = 0
    while i < len(x):
        i += 1
    while True:
        try:
            i -= 1
        finally:
            x = x[1:]
        if not x:
            break
"""


def turns_of(function: str, source: str = SOURCE) -> dict[str, int]:
    """How often each loop of a function turns over [5, 2, 1, 3], by its target or condition."""
    module = ast.parse(source)
    node = next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == function)
    loops = [loop for loop in ast.walk(node) if isinstance(loop, Loop)]
    names: dict[str, Callable[..., Any]] = {}
    exec(compile(source, "known.py", "exec"), names)
    counts = count_turns(lambda: names[function]([5, 2, 1, 3]), lambda file: loops if file == "known.py" else ())
    words = {loop: ast.unparse(loop.test if isinstance(loop, ast.While) else loop.target) for loop in loops}
    return {words[loop]: counts["known.py", point] for loop in loops if (point := turning_point(loop)) is not None}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("one_line", {"v": 4}),
        ("nested", {"(i, (a, b))": 4, "_": 8, "q": 32}),
        ("comprehensions", {"(k, v)": 4, "y": 4, "w": 2, "z": 8}),
        ("targets", {"holder.value": 4, "items[0]": 4}),
        ("early", {"v": 4}),
        ("whiles", {"i < len(x)": 4, "True": 4}),
    ],
)
def test_turns(function: str, expected: dict[str, int]) -> None:
    assert turns_of(function) == expected


def test_many_names() -> None:
    """Instructions whose argument takes more than a byte."""
    assignments = "\n".join(f"    name{i} = 0" for i in range(300))
    source = f"def many(x):\n{assignments}\n    n = 0\n    while n < 3:\n        n += 1\n    for v in x: n += v"
    assert turns_of("many", source) == {"n < 3": 3, "v": 4}


def test_a_while_around_a_loop_is_not_counted() -> None:
    (loop,) = (node for node in ast.parse("while a:\n    for b in c: pass").body if isinstance(node, ast.While))
    assert turning_point(loop) is None


def test_the_former_tracer_is_back() -> None:
    former = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        count_turns(lambda: 1 // 0, lambda _: ())
    assert sys.gettrace() is former

"""How often each loop of some Python source turns while it runs, counted by instructions.

Frames do not tell: since Python 3.12 a comprehension has none of its own (PEP 709). Lines do not either: a whole loop
may stand on one. But every version assigns the target of a `for` once a turn, and every instruction knows its place in
the source (PEP 657).
"""

import ast
import dis
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

Span = tuple[int, int, int, int]  # first line, last line, first column, last column: as instructions have it
Loop = ast.For | ast.While | ast.comprehension


def count_turns(run: Callable[[], Any], loops: Callable[[str], Iterable[Loop]]) -> Counter[tuple[str, Span]]:
    """Runs a function, and counts the turns of loops by their file and the span of their `turning_point`.

    Args:
        run: called once.
        loops: the loops in a file's syntax tree to count, none for a file that is of no interest.
    """
    turns: Counter[tuple[str, Span]] = Counter()
    points: dict[CodeType, dict[int, tuple[str, Span]]] = {}

    def turn(frame: FrameType, event: str, _: Any) -> Any:  # pragma: no cover - a tracer is not traced
        if event == "opcode" and (point := points[frame.f_code].get(frame.f_lasti)) is not None:
            turns[point] += 1
        return turn

    def enter(frame: FrameType, event: str, _: Any) -> Any:  # pragma: no cover - a tracer is not traced
        code = frame.f_code
        if code not in points:
            points[code] = {offset: (code.co_filename, span) for offset, span in _points(code, loops)}
        if not points[code]:
            return None
        frame.f_trace = turn  # Python 3.13 refuses to trace instructions before there is a function for them
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return turn

    previous = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks only here whether any frame wants instructions
    sys.settrace(enter)
    try:
        run()
    finally:
        sys.settrace(previous)
    return turns


def turning_point(loop: Loop) -> Span | None:
    """The span of what a loop runs once a turn: the target of a `for`, the first statement of a `while`.

    None for a `while` that begins with another loop, which may run any number of times a turn.
    """
    node = loop.body[0] if isinstance(loop, ast.While) else loop.target
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return None
    return node.lineno, node.end_lineno or node.lineno, node.col_offset, node.end_col_offset or node.col_offset


def _points(code: CodeType, loops: Callable[[str], Iterable[Loop]]) -> Iterable[tuple[int, Span]]:
    """The first instruction within each turning point that a code object holds."""
    spans = [span for loop in loops(code.co_filename) if (span := turning_point(loop)) is not None]
    if not spans:
        return
    instructions = [
        (instruction.offset, instruction.positions)
        for instruction in dis.get_instructions(code)
        if instruction.positions is not None
    ]
    for span in spans:
        first_line, last_line, first_column, last_column = span
        for offset, (line, end_line, column, end_column) in instructions:
            if line is None or end_line is None or column is None or end_column is None:
                continue
            if (first_line, first_column) <= (line, column) and (end_line, end_column) <= (last_line, last_column):
                yield offset, span
                break

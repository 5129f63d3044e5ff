"""Loops around lines of a source file."""

from pathlib import Path

import pytest

from playbook.doctor.findings import Place
from playbook.doctor.source import is_in_loop, loop_target, loops_around

SOURCE = """\
for epoch in range(3):
    pass

def step(rows):
    for i in range(len(rows)):
        for row in rows:
            row.sum()
    while rows:
        rows = list(map(abs, rows))
    return [row.mean() for row in rows]
"""


@pytest.mark.parametrize(
    ("line", "targets"),
    [
        (2, ["epoch"]),
        (5, []),
        (7, ["i", "row"]),
        (9, ["rows", "_ in map"]),
        (10, ["row"]),
    ],
)
def test_loops_around_a_line_come_from_the_outside_in(tmp_path: Path, line: int, targets: list[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(SOURCE, encoding="utf-8")
    place = Place(str(file), line)
    assert [loop_target(loop) for loop in loops_around(place)] == targets
    assert is_in_loop(place) == (line in (7, 9)), "a statement in a function"

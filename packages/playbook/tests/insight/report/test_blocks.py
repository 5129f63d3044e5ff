"""Blocks of a report, as HTML and as Markdown."""

import json

import pytest

from playbook.insight.report.blocks import (
    MOST_ROWS,
    Block,
    Chart,
    Code,
    Gallery,
    Section,
    Table,
    Text,
    cell,
    plain,
    restored,
)

EVIL = "<script>alert('x')</script>"
BLOCKS: list[Block] = [
    Text(EVIL),
    Code(EVIL, EVIL),
    Table(EVIL, [{EVIL: EVIL}]),
    Chart(EVIL, "<svg viewBox='0 0 1 1'></svg>", f'"{EVIL}'),
    Gallery(EVIL, [("data:image/png;base64,", f'" onerror="{EVIL}')]),
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_texts_are_no_markup(block: Block) -> None:
    html = Section("s", [block]).html()
    assert "<script" not in html
    assert ' onerror="' not in html
    assert EVIL in Section("s", [block]).markdown()


def test_blocks_survive_json() -> None:
    entries = json.loads(json.dumps(plain(BLOCKS)))
    assert [block.html() for block in restored(entries)] == [block.html() for block in BLOCKS]
    assert restored([{"kind": "Hologram", "depth": 3}]) == [], "of a later version"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ""), (True, "true"), (1234567, "1,234,567"), (0.123456, "0.1235"), (45490.0, "45,490"), ("a", "a")],
)
def test_cells(value: object, expected: str) -> None:
    assert cell(value) == expected


def test_columns_of_numbers_are_aligned() -> None:
    html = Table("t", [{"name": "a", "value": 1.5}, {"name": "b", "value": None}]).html()
    assert '<th scope="col" class="number">value</th>' in html
    assert '<th scope="col">name</th>' in html


def test_a_long_table_says_what_it_leaves_out() -> None:
    table = Table("t", [{"n": number} for number in range(MOST_ROWS + 7)])
    assert table.html().count("<tr>") == 1 + MOST_ROWS
    for text in (table.html(), table.markdown()):
        assert f"t (the first {MOST_ROWS}; 7 more)" in text


def test_a_column_that_some_rows_lack_stays_empty() -> None:
    lines = Table("t", [{"a": 1}, {"b": "x|y"}]).markdown().splitlines()
    assert lines[2:] == ["| a | b |", "| --- | --- |", "| 1 |  |", "|  | x\\|y |"]


def test_long_code_is_folded_and_a_diff_is_marked() -> None:
    assert "<details>" not in Code("c", "line\n" * 8).html()
    folded = Code("c", "+new\n-old\n" * 9, is_diff=True).html()
    assert "<summary>c (18 lines)</summary>" in folded
    assert '<span class="added">+new</span>' in folded
    assert '<span class="removed">-old</span>' in folded


def test_code_with_fences_stays_code() -> None:
    assert Code("c", "```\ninner\n```").markdown().startswith("c:\n\n````\n```")


def test_charts_stand_beside_each_other() -> None:
    chart = Chart("c", "<svg ></svg>", "rises")
    html = Section("s", [chart, chart, Text("t"), chart]).html()
    assert html.count('<div class="charts">') == 2
    assert html.count('role="img" aria-label="rises"') == 3

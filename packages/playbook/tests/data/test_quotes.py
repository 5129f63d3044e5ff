"""Quotes of a CSV that swallow rows are found, and valid fields of several lines are read as they are."""

import csv
import io
import random

import pytest

from playbook import CsvTable, UserError, csv_rows

ROWS = [f"row {number} {'good' if number % 2 else 'bad'},{'pos' if number % 2 else 'neg'}" for number in range(6)]


def table(*lines: str, header: str = "text,label", rows: list[str] = ROWS) -> CsvTable:
    """A table whose rows are followed by these lines, the first of which is line 8."""
    return CsvTable("\n".join([header, *rows, *lines]) + "\n")


def broken(read: CsvTable) -> list[int]:
    return [line for line, fields in read.rows if isinstance(fields, str)]


@pytest.mark.parametrize(
    ("lines", "until"),
    [
        (['"He said,neg', "one,pos", '"Yes" she said,pos'], "the next one, in line 10, ends no field"),
        (['"He said,neg', "one,pos", 'a "word" in it,pos'], "the next one, in line 10, ends no field"),
        (['"He said,neg', "one,pos", 'last,"pos"'], "the next one, in line 10, ends no field"),
        (['"He said,neg', "one,pos", "two,neg"], "no other one follows"),
        (['"He said,neg'], "no other one follows"),
        (['one,"pos'], "no other one follows"),
        (['"He said,neg', "one,pos", 'she said",pos'], "up to line 10, it contains rows of the table"),
    ],
)
def test_a_quote_that_swallows_rows_is_named_by_its_line(lines: list[str], until: str) -> None:
    """As in pandas-dev/pandas#25228: the line in which it opens, and all rows behind it are read."""
    read = table(*lines)
    assert broken(read) == [8]
    sentence = read.rows[7][1]
    assert isinstance(sentence, str)
    assert until in sentence
    assert [line for line, _ in read.rows] == list(range(1, 8 + len(lines)))
    with pytest.raises(UserError, match=r"^t\.csv:8: the quote that opens a field in this line is not closed"):
        list(csv_rows("t.csv", "\n".join(["text,label", *ROWS, *lines])))


def test_the_quote_of_a_later_field_of_the_row_is_named() -> None:
    read = table('"one\ntwo","He said', '"no" she said,neg')
    assert broken(read) == [9]


@pytest.mark.parametrize(
    "lines",
    [
        ['"one', 'two",neg'],
        ['"one, two', "three, four", 'five",neg'],
        ['"one', "", '""two"", x",neg', "next,pos"],
        ['"Here is a table:', "a film,neg in a sentence", 'end",pos'],
        ['"He said" so,neg'],
        ['say "so,neg', '"",pos'],
    ],
)
def test_valid_fields_of_several_lines_are_read_without_a_word(lines: list[str]) -> None:
    read = table(*lines)
    text = "\n".join(["text,label", *ROWS, *lines]) + "\n"
    assert [fields for _, fields in read.rows] == [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    assert not read.suspicion


@pytest.mark.parametrize(
    ("header", "rows", "lines", "last"),
    [
        ("text,label", ROWS, ['"He said,neg', 'one two",pos'], 9),  # two rows in one
        ("text,label", ROWS, ['"a', "b,neg", "c", 'd",pos'], 11),
        ("label,text", ["pos,a", "neg,b"] * 3, ['pos,"He said', 'neg,he said"'], 9),
        ("question,answer", ["a,b"] * 6, ['"He said,c', "d,e", "f,g", "h,i", 'j",k'], 12),  # as many fields each
        ("text", ["a"] * 6, ['"b', 'c"'], 9),  # where nothing tells a row from a line
        ("id,score", ["17,0.25"] * 6, ['"18', "19,0.5", '20",0.75'], 10),  # numbers of the same form
    ],
)
def test_fields_that_look_like_rows_are_suspected(header: str, rows: list[str], lines: list[str], last: int) -> None:
    read = table(*lines, header=header, rows=rows)
    assert not broken(read)
    assert read.suspicion == (
        "8: a quoted field looks like several rows of the table, as after a quote that is not closed: "
        f"it opens here and ends in line {last}"
    )


def test_suspects_are_counted_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = 'text\n"a\nb"\n"c\nd"\ne\n'
    assert list(csv_rows("t.csv", text)) == [(1, ["text"]), (3, ["a\nb"]), (5, ["c\nd"]), (6, ["e"])]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith("warning: t.csv:2: 2 quoted fields look like several rows")
    assert told[0].endswith("the first opens here and ends in line 3")


def test_another_separator_and_other_line_breaks() -> None:
    text = 'text;label\r\na, b;pos\r\n"c;pos\r\nd;neg\r\n"e" f;neg\r\n'
    rows = CsvTable(text, ";").rows
    assert [line for line, fields in rows if isinstance(fields, str)] == [3]
    assert rows[3:] == [(4, ["d", "neg"]), (5, ["e f", "neg"])]
    assert CsvTable('a\rb\r"c\rd').rows[2][0] == 3


def test_random_tables_are_read_as_by_python() -> None:
    """Wherever no quote is broken; where one is, every other line is still read."""
    draw = random.Random(0)
    num_broken = 0
    for _ in range(3000):
        text = "".join(draw.choice('""a,\n\nb') for _ in range(draw.randint(1, 14)))
        read = CsvTable(text)
        lines = [line for line, _ in read.rows]
        assert lines == sorted(set(lines)), text
        if broken(read):
            num_broken += 1
        else:
            assert [f for _, f in read.rows] == [row for row in csv.reader(io.StringIO(text, newline="")) if row], text
    assert 500 < num_broken < 2500

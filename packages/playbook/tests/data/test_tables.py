"""Rows of CSV, TSV and JSON lines, with the lines that they end in."""

import pytest

from playbook import csv_rows, json_array, named_separator, parse_json, tsv_rows


def test_fields_of_a_csv_may_contain_line_breaks_and_be_long() -> None:
    text = 'a,b\n"1\n2","say ""x"""\n\n' + "y" * 200_000 + ",z\n"
    assert list(csv_rows("t.csv", text)) == [(1, ["a", "b"]), (3, ["1\n2", 'say "x"']), (5, ["y" * 200_000, "z"])]


def test_every_line_of_a_tsv_is_a_row() -> None:
    text = 'an "open quote\t1\r\n\n"whole ""field"""\t"half" \n'
    assert list(tsv_rows(text)) == [(1, ['an "open quote', "1"]), (3, ['whole "field"', '"half" '])]


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"
    with pytest.raises(ValueError, match="surrogates"):
        parse_json('"\\ud83d"')


def test_the_separator_of_a_header_is_named() -> None:
    assert named_separator(["text;label"], ["text"]) == ";"
    assert named_separator(['"Text"\tlabel'], ["text"]) == "\\t"
    assert named_separator(["text,label"], ["label"]) == ","
    assert not named_separator(["a;b", "text"], ["text", "1"])


def test_arrays_of_json_documents() -> None:
    assert json_array("[1, 2]") == json_array('{"data": [1, 2], "more": []}') == json_array('{"x": [1, 2]}') == [1, 2]
    assert json_array('{"a": [], "b": []}') is json_array('"a"') is json_array("[1") is None


def test_another_separator_of_a_tsv() -> None:
    assert list(tsv_rows('a|"b\nc|d', "|")) == [(1, ["a", '"b']), (2, ["c", "d"])]

"""Rows of a table: from dicts and files, by the names of their columns."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from playbook.deploy.runtime import Artefact, InputError
from playbook.deploy.runtime.tables import TableReader, select_columns
from playbook.deploy.table_rows import decoded_rows, typical_row
from playbook.testing.artefacts import artefact_of

AGE = {"name": "age", "kind": "number", "fill": 40.0, "indicates": True, "center": 40.0, "scale": 10.0}
SIZE = {"name": "size", "kind": "number", "fill": 2.0, "indicates": False, "quantiles": [1.0, 2.0, 4.0, 8.0]}
BORN = {"name": "born", "kind": "date", "fill": 0.0, "indicates": False, "center": 0.0, "scale": 86_400.0}
BORN["parts"] = ["time", "year"]
JOB = {"name": "job", "kind": "category", "codes": ["", "clerk", "smith"]}
PLAN = {"kind": "table", "columns": [AGE, SIZE, BORN, JOB], "missing": ["", "?"], "unread": ["name"]}
ROW = {"age": 50, "size": 2, "born": "1970-01-11", "job": "smith"}
INPUTS = {"numbers": ("float32", ["B", 5]), "categories": ("int64", ["B", 2])}


def sums(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    numbers, categories = inputs["numbers"], inputs["categories"]
    return {"value": numbers[:, 0] + 100 * categories[:, 0], "job": numbers[:, 2] + categories[:, 1]}


def of_rows(folder: Path, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Artefact:
    plans = {"preprocessing": {**PLAN, **changed}, "postprocessing": {"kind": "values"}}
    return artefact_of(monkeypatch, folder, sums, INPUTS, ["value", "job"], **plans)


def test_rows_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_rows(tmp_path, monkeypatch)
    assert model.kind == "row"
    expected = {"value": 101.0, "job": 13.0}
    assert model.predict(ROW) == [expected]
    [value, *_] = model.predict(ROW)[0].values()
    assert type(value) is float
    others: dict[Any, Any] = {"name": "Ann", 3: [4]}
    turned = {**others, **dict(reversed(ROW.items()))}
    assert model.predict([ROW, turned]) == [expected, expected]
    unknown = {**ROW, "age": None, "job": "pilot"}
    assert model.predict(iter([unknown, {**ROW, "job": "?"}])) == [
        {"value": 200.0, "job": 10.0},
        {"value": 101.0, "job": 11.0},
    ]
    assert model.predict([model.read(ROW)]) == [expected]
    arrays = {"numbers": [1.0, 0, 10, 0, 0], "categories": [1, 3]}
    assert model.predict(arrays) == [expected]


def test_columns_with_the_names_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"columns": [{**AGE, "name": "numbers"}, {**JOB, "name": "categories"}]}
    inputs = {"numbers": ("float32", ["B", 1]), "categories": ("int64", ["B", 2])}
    plans = {"preprocessing": {**PLAN, **plan}, "postprocessing": {"kind": "values"}}
    model = artefact_of(
        monkeypatch, tmp_path, lambda given: {"code": given["categories"][:, 1]}, inputs, ["code"], **plans
    )
    for numbers, categories, code in ((50, "smith", 3), (None, None, 1), (True, 5.5, 0)):
        assert model.predict({"numbers": numbers, "categories": categories}) == [{"code": code}]
    assert model.predict({"numbers": np.zeros(1, np.float32), "categories": [1, 2]}) == [{"code": 2}]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({**ROW, "age": "forty"}, "age: expected a number, got 'forty'"),
        ({**ROW, "born": "May"}, "born: expected a date such as"),
        ({"aeg": 1, "size": 2, "job": ""}, "expected a column age and 1 more, got aeg, size, job. Nearest: aeg"),
        ({}, "expected a column age and 3 more, got none"),
        ("rows.csv", "expected a row with the columns age, size, born, job, got 'rows.csv'"),
        ([ROW], r"expected arrays by name for numbers, categories"),
    ],
)
def test_what_is_no_row(source: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_rows(tmp_path, monkeypatch)
    with pytest.raises(InputError, match=sentence):
        model.predict([source])


def test_messages_are_short_whatever_a_row_holds() -> None:
    row = {"x" * 10**6: 1, **{str(number): 1 for number in range(10**4)}}
    with pytest.raises(InputError) as error:
        select_columns(row, ["age"])
    assert str(error.value).endswith(" and 9981 more")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("a.csv", b'job,"age",size,born,name\nsmith,50,2,1970-01-11,"Ann, of\nYork"\nclerk,?,2,1970-01-11,\n', {}),
        ("a.csv", "\ufeffage;job;size;born\n50;smith;2;1970-01-11\n;clerk;2;1970-01-11\n", {"separator": ";"}),
        ("a.csv", b"age|job|size|born\n50|smith|2|1970-01-11\n|clerk|2|1970-01-11\n", {"separator": "|"}),
        ("a.tsv", b"age\tjob\tsize\tborn\n50\tsmith\t2\t1970-01-11\n?\tclerk\t2\t1970-01-11\n", {}),
        ("a.csv", b'age,job,size,born,x\n50,smith,2,1970-01-11,"a\n?,clerk,2,1970-01-11,"b\n', {"quotes": False}),
        ("a.csv", "age,job,size,born\n50,smith,2,1970-01-11\n?,clerk,2,1970-01-11\n", {"encoding": "utf-16"}),
        ("a.jsonl", f"{json.dumps(ROW)}\n\n{json.dumps({**ROW, 'age': None, 'job': 'clerk'})}\n".encode(), {}),
    ],
)
def test_rows_in_files(
    name: str, content: bytes | str, form: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = of_rows(tmp_path / "model", monkeypatch, **form)
    encoded = content if isinstance(content, bytes) else content.encode(form.get("encoding", "utf-8"))
    (tmp_path / name).write_bytes(encoded)
    answers = model.predict(model.sources(tmp_path / name))
    assert answers == [{"value": 101.0, "job": 13.0}, {"value": 200.0, "job": 12.0}]


def test_a_file_without_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [{**column, "name": str(number)} for number, column in enumerate(PLAN["columns"], start=1)]
    model = of_rows(tmp_path / "model", monkeypatch, columns=columns, header=False)
    (tmp_path / "a.csv").write_text("50,2,1970-01-11,smith\n")
    assert model.predict(model.sources(tmp_path / "a.csv")) == [{"value": 101.0, "job": 13.0}]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"50", r"a\.txt: expected rows of a table \(\.csv, \.tsv, \.jsonl\)"),
        ("a.csv", b"age\n", "the list is empty"),
        ("a.csv", b'age,job\n50,"smith\n', "the quote that opens a field in line 2 is not closed"),
        ("a.csv", b"\xff", "is not text in UTF-8"),
        ("a.jsonl", b"{", "is not valid JSON"),
        ("b.csv", None, "No such file"),
    ],
)
def test_files_that_are_no_table(
    name: str, content: bytes | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = of_rows(tmp_path / "model", monkeypatch)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        model.sources(tmp_path / name)


def test_rows_that_an_encoding_comes_from() -> None:
    rows = [
        ROW,
        {"age": None, "size": 1, "born": "2024-02-29T12:30:00+00:00", "job": None},
        {"age": -3.25, "size": 6.5, "born": "1950-07-01", "job": "pilot"},
    ]
    encoded = TableReader(PLAN).encode({name: [row[name] for row in rows] for name in ROW})
    decoded = decoded_rows(encoded, PLAN)
    assert [row["age"] for row in decoded] == [50.0, None, -3.25]
    assert [row["size"] for row in decoded] == pytest.approx([2, 1, 6.5], rel=1e-5)
    assert [row["job"] for row in decoded] == ["smith", None, "(unseen)"]
    assert decoded[0]["born"] == "1970-01-11T00:00:00+00:00"
    again = TableReader(PLAN).encode({name: [row[name] for row in decoded] for name in ROW})
    np.testing.assert_allclose(again["numbers"], encoded["numbers"], rtol=1e-5, atol=1e-5)
    assert np.array_equal(again["categories"], encoded["categories"])


def test_the_last_and_the_first_date() -> None:
    """They survive the rounding of the encoding, which leads beyond them."""
    plan = {**PLAN, "columns": [{**BORN, "parts": ["time"], "center": 1e9, "scale": 1e8}]}
    encoded = TableReader(plan).encode({"born": ["9999-12-31T23:59:59", "0001-01-01"]})
    encoded["numbers"] = np.nextafter(encoded["numbers"], encoded["numbers"] * np.float32(2))
    dates = [row["born"] for row in decoded_rows(encoded, plan)]
    assert dates == ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00"]


def test_a_typical_row() -> None:
    assert typical_row(PLAN) == {"age": 40.0, "size": 2.0, "born": "1970-01-01T00:00:00+00:00", "job": "clerk"}

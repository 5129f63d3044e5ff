"""Tables of predictions: their cells, the order of their rows, and the types in Parquet."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from playbook.errors import UserError
from playbook.runs.table import ROWS_AT_ONCE, Rows, check_format, cut_to_whole_lines, write_table

FLAT = [{"class": "cat", "probability": 0.25}, {"class": "dög, 1", "probability": None}]
NESTED = [{"area": {"sky": 0.5, "sea": 0.5}}, {"area": {"sky": 1.0, "sea": 0.0}}]
BOX = {"class": "cat", "score": 0.5, "left": 1.0}
BOXES = [{"boxes": [BOX, {**BOX, "class": "dog"}]}, {"boxes": []}, {"boxes": [{**BOX, "left": 2.5}]}]


def part(file: Path, *entries: tuple[int, Any]) -> Path:
    lines = [json.dumps({"index": index, "id": f"{index}.png", "row": row}) + "\n" for index, row in entries]
    file.write_text("".join(lines), encoding="utf-8")
    return file


def table(folder: Path, rows: list[Any], kind: str | None) -> Path:
    return write_table(Rows([part(folder / "part.jsonl", *enumerate(rows))]), folder / "table", kind)


def cells(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(file).to_pylist()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_flat_rows(tmp_path: Path) -> None:
    expected = [{"id": "0.png", **FLAT[0]}, {"id": "1.png", **FLAT[1]}]
    assert cells(table(tmp_path, FLAT, "jsonl")) == expected
    assert cells(table(tmp_path, FLAT, "parquet")) == expected
    texts = [{"id": "0.png", "class": "cat", "probability": "0.25"}, {"id": "1.png", "class": "dög, 1"}]
    assert cells(table(tmp_path, FLAT, "csv")) == [texts[0], {**texts[1], "probability": ""}]


def test_an_entry_of_a_dict_is_a_column(tmp_path: Path) -> None:
    expected = [{"id": "0.png", "area_sky": 0.5, "area_sea": 0.5}, {"id": "1.png", "area_sky": 1.0, "area_sea": 0.0}]
    assert cells(table(tmp_path, NESTED, "parquet")) == expected
    assert cells(table(tmp_path, NESTED, "csv")) == [
        {name: str(cell) for name, cell in row.items()} for row in expected
    ]
    assert cells(table(tmp_path, NESTED, "jsonl"))[1] == {"id": "1.png", **NESTED[1]}


def test_a_box_is_a_row_and_an_image_without_any_keeps_one(tmp_path: Path) -> None:
    rows = cells(table(tmp_path, BOXES, "parquet"))
    none = dict.fromkeys(BOX)
    assert rows == [
        {"id": "0.png", **BOX},
        {"id": "0.png", **BOX, "class": "dog"},
        {"id": "1.png", **none},
        {"id": "2.png", **BOX, "left": 2.5},
    ]
    texts = [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in rows]
    assert cells(table(tmp_path, BOXES, "csv")) == texts
    assert cells(table(tmp_path, BOXES, "jsonl")) == [{"id": f"{i}.png", **row} for i, row in enumerate(BOXES)]


def test_images_without_boxes_alone(tmp_path: Path) -> None:
    for kind in ("csv", "parquet"):
        assert cells(table(tmp_path, [{"boxes": []}] * 2, kind)) == [{"id": "0.png"}, {"id": "1.png"}]


def test_lists_of_other_things_are_json_in_a_cell(tmp_path: Path) -> None:
    rows = [{"x": [1, 2], "y": {"z": [3]}}]
    for kind in ("csv", "parquet"):
        assert cells(table(tmp_path, rows, kind)) == [{"id": "0.png", "x": "[1, 2]", "y_z": "[3]"}]


@pytest.mark.parametrize(
    ("rows", "suffix"),
    [
        (FLAT, ".csv"),
        (NESTED, ".csv"),
        (BOXES, ".csv"),
        ([{"x": [1, 2]}], ".jsonl"),
        ([{"x": {"y": {"z": 1}}}], ".jsonl"),
        ([{"x": [BOX], "y": [BOX]}], ".jsonl"),
    ],
    ids=["flat", "dict", "boxes", "list", "deep", "two tables"],
)
def test_without_a_format_it_is_csv_where_all_fits(tmp_path: Path, rows: list[Any], suffix: str) -> None:
    assert table(tmp_path, rows, None).name == f"table{suffix}"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["part.jsonl", f"table{suffix}"]


def test_rows_of_several_parts_come_in_the_order_of_the_samples(tmp_path: Path) -> None:
    parts = [
        part(tmp_path / "0.jsonl", (4, {"x": 4}), (0, {"x": 0}), (2, {"x": 2})),
        part(tmp_path / "1.jsonl", (1, {"x": 1}), (10, {"x": 10}), (3, {"x": 3})),
    ]
    rows = Rows(parts)
    assert [row["x"] for row in rows] == [0, 1, 2, 3, 4, 10]
    assert [row["id"] for row in rows][-1] == "10.png"
    assert (len(rows), rows.indices()) == (6, {0, 1, 2, 3, 4, 10})


def test_a_line_that_a_kill_has_cut_short_is_left_out(tmp_path: Path) -> None:
    whole = part(tmp_path / "0.jsonl", (0, {"x": "é"}), (1, {"x": 1}))
    size = whole.stat().st_size
    for rest in ('{"index": 2, "id"', '{"index": 2, "id": "2.png", "row": {}}'):
        with whole.open("a") as file:
            file.write(rest)
        assert Rows([whole]).indices() == {0, 1}
        cut_to_whole_lines(whole)
        assert whole.stat().st_size == size
    whole.write_text('{"index"')
    cut_to_whole_lines(whole)
    assert whole.read_bytes() == b""
    cut_to_whole_lines(tmp_path / "none.jsonl")


def test_types_in_parquet(tmp_path: Path) -> None:
    from pyarrow import parquet

    rows = [
        {"flag": True, "count": 1, "share": 1, "name": "a", "any": 1, "rare": None, "never": None},
        {"flag": False, "count": 2, "share": 0.5, "name": None, "any": "b", "rare": 7, "never": None, "late": 1.5},
    ]
    read = parquet.read_table(table(tmp_path, rows, "parquet"))
    kinds = {field.name: str(field.type) for field in read.schema}
    assert kinds == {
        "id": "string",
        "flag": "bool",
        "count": "int64",
        "share": "double",
        "name": "string",
        "any": "string",
        "rare": "int64",
        "never": "string",
        "late": "double",
    }
    assert read.to_pylist() == [
        {"id": "0.png", **rows[0], "any": "1", "late": None},
        {"id": "1.png", **rows[1]},
    ]


@pytest.mark.slow
def test_more_rows_than_are_made_into_columns_at_once(tmp_path: Path) -> None:
    count = 2 * ROWS_AT_ONCE
    read = cells(table(tmp_path, [{"x": i} for i in range(count)], "parquet"))
    assert [row["x"] for row in read] == list(range(count))


def test_an_unknown_format_is_told() -> None:
    for name in (None, "csv", "parquet", "jsonl"):
        check_format(name)
    with pytest.raises(UserError, match=r"--format json: expected one of csv, parquet, jsonl\. Nearest: jsonl"):
        check_format("json")

"""Tables from files: splits, facts that depend on training rows alone, columns by name, and messages for bad input."""

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from sklearn.model_selection import train_test_split
from torch import Tensor

from playbook import UserError
from src.data.tables.encoded_rows import EncodedRows
from src.data.tables.table import Table
from tests.conftest import PUBLISHED, needs

Columns = dict[str, list[Any]]
LEARNT = ("table", "num_features", "cardinalities", "number_quantiles", "target_mean", "target_std")


def penguins(count: int = 120, seed: int = 0) -> Columns:
    """Numbers, categories, a boolean and dates, with gaps, and a class that they tell."""
    generator = random.Random(seed)
    species = [generator.choice(["Adelie", "Gentoo"]) for _ in range(count)]
    return {
        "bill": [generator.choice(["", f"{generator.gauss(40, 5):.1f}"]) for _ in range(count)],
        "mass": [f"{generator.gauss(5000 if name == 'Gentoo' else 3500, 300):.0f}" for name in species],
        "island": [generator.choice(["Dream", "Biscoe", "NA"]) for _ in range(count)],
        "is_adult": [generator.choice(["True", "False"]) for _ in range(count)],
        "seen": [f"2024-{generator.randint(1, 12):02d}-{generator.randint(1, 28):02d}" for _ in range(count)],
        "species": species,
    }


def rows_of(columns: Columns, indices: Any) -> Columns:
    return {name: [values[index] for index in indices] for name, values in columns.items()}


def write(file: Path, columns: Columns, separator: str = ",", ending: str = "\n", encoding: str = "utf-8") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [separator.join(columns), *(separator.join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    file.write_bytes("".join(line + ending for line in lines).encode(encoding))
    return file


def table(root: Path, stage: str = "fit", facts: dict[str, Any] | None = None, **options: Any) -> Any:
    settings: dict[str, Any] = {"target": "species"} | options
    data = Table(str(root), **settings)
    data.facts = facts or {}
    data.setup(stage)
    return data


def parts_of(data: Any) -> list[EncodedRows]:
    return [data.train_set, data.val_set, data.test_set]


def line_numbers(data: Any) -> list[list[int]]:
    """Indices of the rows of t.csv in each split."""
    return [[int(name.removeprefix("t.csv:")) - 2 for name in data.ids(part)] for part in parts_of(data)]


def with_number(values: list[Any]) -> Columns:
    return {"x": values, "species": [("a", "b")[number % 2] for number in range(len(values))]}


def assert_same(part: EncodedRows, other: EncodedRows) -> None:
    assert part.targets.equal(other.targets)
    for name, values in part.inputs.items():
        assert values.equal(other.inputs[name]), name


# splits


def test_a_file_is_divided_as_scikit_learn_divides(tmp_path: Path) -> None:
    columns = penguins() | {"species": [f"{number / 7:.3f}" for number in range(120)]}
    data = table(write(tmp_path / "t.csv", columns), test_share=0.2, val_share=0.16, target_kind="number")
    rest, test = train_test_split(list(range(120)), test_size=0.2, random_state=0)
    train, val = train_test_split(rest, test_size=0.2, random_state=1)
    for part, rows in ((data.train_set, train), (data.val_set, val), (data.test_set, test)):
        assert data.ids(part) == [f"t.csv:{row + 2}" for row in rows]
        torch.testing.assert_close(part.targets, torch.tensor(rows) / 7, rtol=0, atol=1e-3)


def test_classes_are_stratified(tmp_path: Path) -> None:
    columns = with_number(list(range(100))) | {"species": ["rare"] * 20 + ["common"] * 80}
    data = table(write(tmp_path / "t.csv", columns))
    assert data.facts["classes"] == ["common", "rare"]
    assert data.facts["class_counts"] == [56, 14]
    assert data.val_set.targets.bincount().tolist() == data.test_set.targets.bincount().tolist() == [12, 3]


@needs("california_housing")
def test_the_reports_split_of_california() -> None:
    root = PUBLISHED / "california_housing/housing.csv"
    data = table(root, target="median_house_value", test_share=0.2, val_share=0.16)
    variances = [(part.targets.double() / 1e5).var(unbiased=False) for part in parts_of(data)]
    assert [round(variance.item(), 6) for variance in variances] == [1.346970, 1.303870, 1.303955]


@pytest.mark.parametrize("dev", ["dev", "val", "valid", "validation"])
def test_official_files_stay_official(tmp_path: Path, dev: str) -> None:
    columns = penguins()
    for name, rows in (("train", range(80)), (dev, range(80, 100)), ("test", range(100, 120))):
        write(tmp_path / f"{name}.csv", rows_of(columns, rows))
    data = table(tmp_path)
    assert data.ids(data.train_set) == [f"train.csv:{line}" for line in range(2, 82)]
    assert data.ids(data.val_set) == [f"{dev}.csv:{line}" for line in range(2, 22)]
    assert data.ids(data.test_set) == [f"test.csv:{line}" for line in range(2, 22)]


def test_train_alone_has_no_test_rows(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", penguins())
    data = table(tmp_path)
    assert data.test_set is None
    assert len(data.train_set) + len(data.val_set) == 120


def test_the_latest_rows_are_for_testing(tmp_path: Path) -> None:
    columns = penguins()
    data = table(write(tmp_path / "t.csv", columns), time_column="seen")
    times = [[columns["seen"][row] for row in rows] for rows in line_numbers(data)]
    assert max(times[0]) < min(times[1])
    assert max(times[1]) < min(times[2])
    assert 0 < len(times[2]) <= 18


def test_groups_and_folds(tmp_path: Path) -> None:
    columns = penguins() | {"bird": [f"b{number // 4}" for number in range(120)]}
    write(tmp_path / "t.csv", columns)
    seen: list[str] = []
    for fold in range(3):
        data = table(tmp_path, group_column="bird", folds=3, fold=fold, test_share=0.1)
        assert "bird" not in data.columns
        groups = [{columns["bird"][row] for row in rows} for rows in line_numbers(data)]
        assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]
        seen += data.ids(data.val_set)
    assert sorted([*seen, *data.ids(data.test_set)]) == sorted(f"t.csv:{line}" for line in range(2, 122))


def test_a_column_divides_the_rows(tmp_path: Path) -> None:
    columns = penguins() | {"part": ["train"] * 90 + ["val"] * 20 + ["test"] * 10}
    data = table(write(tmp_path / "t.csv", columns), split_column="part")
    assert (len(data.train_set), len(data.val_set), len(data.test_set)) == (90, 20, 10)
    assert "part" not in data.columns


@pytest.mark.parametrize("options", [{"folds": 3}, {"group_column": "island"}, {"split_column": "island"}])
def test_an_option_does_not_overrule_an_official_file(tmp_path: Path, options: dict[str, Any]) -> None:
    write(tmp_path / "train.csv", penguins())
    write(tmp_path / "val.csv", penguins(40, seed=1))
    with pytest.raises(UserError, match=f"--data.{next(iter(options))} .* has a file for validation already"):
        table(tmp_path, **options)


# what is learnt


@pytest.mark.parametrize("scaling", ["quantile", "standard", "robust"])
@pytest.mark.parametrize("target", ["species", "mass"])
def test_no_fact_depends_on_validation_or_test_rows(tmp_path: Path, scaling: str, target: str) -> None:
    """The kinds of columns and the names of classes come from the whole file; every number from training rows."""
    columns = penguins() | {"part": ["train"] * 80 + ["val"] * 20 + ["test"] * 20}
    others = {name: values[:80] + values[:79:-1] for name, values in penguins(seed=1).items()}
    changed = {name: values[:80] + others.get(name, values)[80:] for name, values in columns.items()}
    changed["bill"][80:] = ["9999"] * 40
    changed["island"][80:] = ["Torgersen"] * 40
    assert changed["mass"] != columns["mass"]
    options: dict[str, Any] = {"split_column": "part", "scaling": scaling, "target": target}
    facts = [table(write(tmp_path / f"{i}.csv", own), **options).facts for i, own in enumerate((columns, changed))]
    assert facts[0] == facts[1]
    assert "target_mean" in facts[0] or target == "species"


def test_facts_are_plain_values(tmp_path: Path) -> None:
    facts = table(write(tmp_path / "t.csv", penguins()), target="mass").facts
    assert json.loads(json.dumps(facts)) == facts
    assert facts["target_name"] == "mass"


def test_the_mean_and_deviation_of_the_target_are_those_of_training_rows(tmp_path: Path) -> None:
    data = table(write(tmp_path / "t.csv", penguins()), target="mass")
    targets = data.train_set.targets.double()
    assert data.facts["target_mean"] == pytest.approx(targets.mean().item())
    assert data.facts["target_std"] == pytest.approx(targets.std(unbiased=False).item())


def test_a_row_is_read_as_its_file_is(tmp_path: Path) -> None:
    columns = penguins()
    data = table(write(tmp_path / "t.csv", columns))
    for number, name in enumerate(data.ids(data.test_set)):
        row = {column: values[int(name[6:]) - 2] for column, values in reversed(columns.items())}
        inputs = data.read(row)
        for key, value in data.test_set.inputs.items():
            assert inputs[key].numpy().tobytes() == value[number].numpy().tobytes(), (name, key)
    inputs, target = data.unlabelled(row)
    assert target == -1
    assert inputs["numbers"].shape == (data.facts["num_features"],)
    assert inputs["categories"].shape == (len(data.facts["cardinalities"]),)


def test_the_kinds_that_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = penguins() | {"note": [f"note {number}" for number in range(120)]}
    columns |= {"year": ["2024"] * 120, "void": [""] * 120}
    data = table(write(tmp_path / "t.csv", columns), leave_out=["is_adult"])
    captured = capsys.readouterr()
    assert captured.out == (
        "columns: 2 numbers (bill, mass); 1 category (island); 1 date (seen); target species, 2 classes\n"
    )
    assert "left out 3 columns: note (text), year (constant), void (empty); --data.categorical" in captured.err
    assert data.counts == {"left_out_columns": 3}
    assert data.facts["table"]["unread"] == ["is_adult", "species", "note", "year", "void"]


def test_kinds_that_options_set(tmp_path: Path) -> None:
    columns = penguins() | {"zip": ["01067", "80331"] * 60, "day": ["20240517", "20240518", "20240701"] * 40}
    data = table(write(tmp_path / "t.csv", columns), numeric=["zip"], categorical=["mass"], dates=["day"])
    kinds = {column["name"]: column["kind"] for column in data.facts["table"]["columns"]}
    assert [kinds[name] for name in ("zip", "mass", "day")] == ["number", "category", "date"]


# checkpoints


def test_columns_are_matched_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = penguins()
    for name, rows in (("train", range(100)), ("test", range(100, 120))):
        write(tmp_path / "a" / f"{name}.csv", rows_of(columns, rows))
        others = dict(reversed(rows_of(columns, rows).items())) | {"new": [str(row) for row in rows]}
        write(tmp_path / "b" / f"{name}.csv", others)
    former = table(tmp_path / "a")
    capsys.readouterr()
    (tmp_path / "b" / "train.csv").write_text("")  # not read
    again = table(tmp_path / "b", "test", former.facts)
    assert_same(again.test_set, former.test_set)
    row = {name: values[0] for name, values in columns.items()}
    again.read(row | {"new": 1})
    assert capsys.readouterr().err.count("left out columns that training did not have: new") == 1


def test_columns_and_classes_that_a_checkpoint_does_not_know(tmp_path: Path) -> None:
    facts = table(write(tmp_path / "t.csv", penguins())).facts
    columns = penguins(seed=1)
    renamed = {{"island": "islands"}.get(name, name): values for name, values in columns.items()}
    with pytest.raises(UserError, match=r"renamed.csv: expected a column island, got .*Nearest: islands"):
        table(write(tmp_path / "renamed.csv", renamed), "test", facts)
    data = Table(str(tmp_path), target="species")
    data.facts = facts
    with pytest.raises(UserError, match=r"expected a column bill and 4 more, got species"):
        data.read({"species": "Adelie"})
    with pytest.raises(UserError, match=r"mass: expected a number, got 'heavy'"):
        data.read({name: values[0] for name, values in columns.items()} | {"mass": "heavy"})
    with pytest.raises(UserError, match=r"expected rows of a table .*, got cat.jpg"):
        data.read(Path("cat.jpg"))
    columns["species"][3] = "Adelle"
    with pytest.raises(UserError, match=r"other.csv:5: training had no class Adelle, but .*Nearest: Adelie"):
        table(write(tmp_path / "other.csv", columns), "test", facts)


def test_classes_keep_their_numbers(tmp_path: Path) -> None:
    facts = table(write(tmp_path / "t.csv", penguins())).facts
    others = penguins(seed=1) | {"species": ["Gentoo"] * 120}
    data = table(write(tmp_path / "o.csv", others), "test", facts)
    assert data.test_set.targets.unique().tolist() == [1]
    assert data.facts == facts


def test_unseen_categories_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = penguins()
    columns["island"][110:] = ["Torgersen"] * 10
    for name, rows in (("train", range(100)), ("test", range(100, 120))):
        write(tmp_path / f"{name}.csv", rows_of(columns, rows))
    data = table(tmp_path)
    text = "10 of 20 test rows have a value of island that training lacks, such as Torgersen"
    assert text in capsys.readouterr().err
    assert data.facts["cardinalities"] == [3, 4, 3]  # whether bill is missing, island, is_adult
    assert data.test_set.inputs["categories"][10:, 1].tolist() == [0] * 10


# files


def test_forms_of_text_are_the_same_rows(tmp_path: Path) -> None:
    columns = penguins() | {"island": [random.Random(i).choice(["Köln", "Zürich"]) for i in range(120)]}
    plain = table(write(tmp_path / "t.csv", columns))
    forms: dict[str, tuple[Path, dict[str, Any]]] = {
        "tab": (write(tmp_path / "t.tsv", columns, "\t"), {}),
        "semicolon": (write(tmp_path / "s.csv", columns, ";"), {"separator": ";"}),
        "mark": (write(tmp_path / "m.csv", columns, ending="\r\n", encoding="utf-8-sig"), {}),
        "windows": (write(tmp_path / "w.csv", columns, encoding="cp1252"), {"encoding": "cp1252"}),
    }
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    for root, options in (*forms.values(), (tmp_path / "t.jsonl", {})):
        data = table(root, **options)
        assert data.facts == plain.facts, root
        assert_same(data.test_set, plain.test_set)


def test_json_with_nested_and_missing_values(tmp_path: Path) -> None:
    rows = [{"x": i, "tags": ["a"], "place": {"a": 1}, "species": "ab"[i % 2]} for i in range(60)]
    rows = [row | ({"z": i % 7} if i % 3 else {}) for i, row in enumerate(rows)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = table(tmp_path)
    assert data.columns == ("x", "z")
    assert data.facts["cardinalities"] == [3]
    assert data.counts == {"left_out_columns": 2}


def test_types_of_parquet(tmp_path: Path) -> None:
    start, naive = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1)
    columns = {
        "stamp": pa.array([naive + timedelta(hours=37 * i) for i in range(60)], pa.timestamp("ns")),
        "zoned": pa.array([start + timedelta(hours=i) for i in range(60)], pa.timestamp("ms", tz="Europe/Berlin")),
        "day": pa.array([date(2024, 1, 1) + timedelta(days=i) for i in range(60)]),
        "place": pa.array([("u", "v", None)[i % 3] for i in range(60)]).dictionary_encode(),
        "price": pa.array([Decimal(i) / 100 for i in range(60)], pa.decimal128(10, 2)),
        "small": pa.array(range(60), pa.int8()),
        "half": pa.array(np.arange(60).astype(np.float16)),
        "gaps": pa.array([None if i % 7 == 0 else i / 3 for i in range(60)]),
        "flag": pa.array([i % 2 == 0 if i % 5 else None for i in range(60)]),
        "none": pa.nulls(60),
        "list": pa.array([[1, 2]] * 60),
        "species": pa.array(["a", "b"] * 30),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    data = table(tmp_path)
    kinds = {column["name"]: column["kind"] for column in data.facts["table"]["columns"]}
    assert kinds == dict.fromkeys(("stamp", "zoned", "day"), "date") | dict.fromkeys(("place", "flag"), "category") | (
        dict.fromkeys(("price", "small", "half", "gaps"), "number")
    )
    codes = {column["name"]: column.get("codes") for column in data.facts["table"]["columns"]}
    assert (codes["place"], codes["flag"]) == (["", "u", "v"], ["", "false", "true"])
    assert all(torch.isfinite(values).all() for values in data.train_set.inputs.values())


# bad input

GOOD = [str(number) for number in range(1, 61)]
SEPARATED = {"x;species": ["1;a"] * 3}
PERCENT = {"x": GOOD, "species": [f"{number} %" for number in GOOD]}
LATER = {"x": GOOD, "z": [""] * 54 + GOOD[:6], "part": ["train"] * 50 + ["val"] * 10, "species": ["a", "b"] * 30}
BAD: dict[str, tuple[Columns, dict[str, Any], str]] = {
    "separator": (SEPARATED, {}, r'--data.target species: .*t.csv has no such column.*--data.separator ";"'),
    "target": (with_number(GOOD), {"target": "specie"}, r"--data.target specie: .*but x, species. Nearest: species"),
    "leave_out": (with_number(GOOD), {"leave_out": ["y"]}, r"--data.leave_out y: .*t.csv has no such column"),
    "numeric": (with_number(GOOD), {"numeric": ["xx"]}, r"--data.numeric xx: .*Nearest: x"),
    "time": (with_number(GOOD), {"time_column": "t"}, r"--data.time_column t: .*no such column"),
    "words": (
        with_number(["high", "low", "mid", *GOOD]),
        {},
        r"t.csv:2: x: expected a number, got 'high'; --data.missing\+ 'high' .*skip leaves such rows out \(3 of 63\)",
    ),
    "date": (with_number(["2024-02-30", *["2024-02-01"] * 30]), {"dates": ["x"]}, r"t.csv:2: x: expected a date such"),
    "decimal comma": (with_number([f'"{n},5"' for n in GOOD]), {}, r"x: expected numbers such as 1234.5, got '1,5'"),
    "foreign date": (with_number([f"{n}.02.2024" for n in GOOD]), {}, r"x: expected dates .*, got '1.02.2024'"),
    "foreign target": (PERCENT, {}, r"species: expected numbers such as 1234.5, got '1 %'"),
    "missing target": ({"x": GOOD, "species": ["", *GOOD[1:]]}, {}, r"t.csv:2: target species: is missing"),
    "infinite target": ({"x": GOOD, "species": ["inf", *GOOD[1:]]}, {}, r"expected a finite number, got inf"),
    "no target": ({"x": GOOD, "species": [""] * 60}, {}, r"t.csv:2: target species: is missing"),
    "one class": ({"x": GOOD, "species": ["a"] * 60}, {}, r"--data.target species: every row has a, expected two"),
    "one number": ({"x": GOOD, "species": ["1.5"] * 60}, {"target_kind": "number"}, r"every training row has 1.5"),
    "names": ({"x": GOOD, "species": [f"n{n}" for n in GOOD]}, {}, r"60 different classes in 60 rows"),
    "constant": (with_number(["1"] * 60), {}, r"no column is left to predict species from: x \(constant\)"),
    "one row": (with_number(["1"]), {}, r"t.csv: has 1 row, expected rows to train and to validate on"),
    "no row": ({"x": [], "species": []}, {}, r"t.csv: is empty, expected rows"),
    "balanced": ({"x": GOOD, "species": GOOD}, {"balanced": True}, r"--data.balanced true: the target species is"),
    "folds": (with_number(GOOD[:4]), {"folds": 9, "test_share": 0.0}, r"--data.folds 9: "),
    "later": (LATER, {"split_column": "part"}, r"--data.leave_out z: .*no training row has a number in z"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables(tmp_path: Path, case: str) -> None:
    columns, options, sentence = BAD[case]
    with pytest.raises(UserError, match=sentence):
        table(write(tmp_path / "t.csv", columns), **options)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"t.csv: is empty, expected rows"),
        (b"x,x,species\n1,2,a\n", r"t.csv:1: two columns are called x, expected one"),
        (b"x,species\n1,a\n2\n", r"t.csv:3: expected 2 fields \(x, species\), got 1"),
        (b'x,species\n"1,a\n2,b\n', r"t.csv:2: the quote that opens a field in this line is not closed"),
        ("x,species\né,a\n".encode("cp1252"), r"t.csv:2: is not text in UTF-8: .*; expected --data.encoding latin-1"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        table(tmp_path / "t.csv")


def test_a_test_file_without_a_column(tmp_path: Path) -> None:
    columns = penguins()
    write(tmp_path / "train.csv", columns)
    write(tmp_path / "test.csv", {name: values for name, values in columns.items() if name != "mass"})
    with pytest.raises(UserError, match=r"test.csv: expected a column mass, got bill, island"):
        table(tmp_path)


def test_skipped_rows_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = with_number(["high", "low", *GOOD])
    columns["species"][5] = ""
    data = table(write(tmp_path / "t.csv", columns), on_error="skip")
    assert len(data.train_set) + len(data.val_set) + len(data.test_set) == 59
    assert data.gather_counts() == {"skipped_samples": 3}
    assert "skipped " in capsys.readouterr().err
    names = [name for part in (data.train_set, data.val_set, data.test_set) for name in data.ids(part)]
    assert not {"t.csv:2", "t.csv:3", "t.csv:7"} & set(names)


def test_policies_that_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"": [str(n) for n in range(300)], "x": ["inf", *map(str, range(299))]}
    columns |= {"word": [f"w{n % 100}" for n in range(300)], "species": ["a"] * 299 + ["only"]}
    data = table(write(tmp_path / "t.csv", columns), max_categories=5)
    err = capsys.readouterr().err
    assert "1 infinite number counts as missing, such as" in err
    assert "--data.max_categories 5: " in err
    assert "rarer categories of word count as unseen" in err
    assert "have a value of word that training lacks or that is rare, such as w" in err
    assert "left out 1 column: (unnamed)" in err
    assert ("no training row has the class only" in err) == (0 in data.facts["class_counts"])
    assert data.facts["cardinalities"] == [3, 6]


def test_copies_are_told_whatever_the_order_of_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = penguins()
    write(tmp_path / "train.csv", columns)
    write(tmp_path / "val.csv", penguins(40, seed=1))
    write(tmp_path / "test.csv", dict(reversed(rows_of(columns, range(7)).items())))
    table(tmp_path)
    assert "7 of 7 test rows are copies of training rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"val_share": 0.0}, r"val_share: expected a share in \(0, 1\), got 0.0"),
        ({"test_share": 0.9}, r"test_share: expected a share in \[0, 1 - val_share\), got 0.9"),
        ({"folds": 1}, "folds: expected at least 2, or 0 for none, got 1"),
        ({"folds": 3, "fold": 3}, "fold: expected 0 to 2, got 3"),
        ({"members": 0}, "members: expected at least 1, got 0"),
        ({"max_categories": 0}, "max_categories: expected at least 1, got 0"),
        ({"separator": ";;"}, "separator: expected one character"),
        ({"encoding": "utf-9"}, "encoding: expected an encoding such as"),
        ({"numeric": ["x"], "dates": ["x"]}, "x: expected one kind of the column, got number and date"),
        (
            {"time_column": "t", "group_column": "g"},
            "group_column: expected one way to divide",
        ),
        ({"time_column": "t", "folds": 3}, "folds: expected one way to divide the rows, got time_column too"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Table("t.csv", target="y", **options)


# batches


def batches(loader: Any) -> list[tuple[dict[str, Tensor], Tensor]]:
    return list(loader)


@pytest.mark.parametrize("members", [1, 4])
def test_batches(tmp_path: Path, members: int) -> None:
    data = table(write(tmp_path / "t.csv", penguins()), members=members, batch_size=32)
    lead = (32,) if members == 1 else (32, members)
    inputs, target = batches(data.train_dataloader())[0]
    assert inputs["numbers"].shape == (*lead, data.facts["num_features"])
    assert inputs["categories"].shape == (*lead, len(data.facts["cardinalities"]))
    assert target.shape == lead
    assert data.facts.get("members", 1) == members
    inputs, target = batches(data.test_dataloader())[0]
    assert inputs["numbers"].shape == (18, data.facts["num_features"])
    assert target.equal(data.test_set.targets)


@pytest.mark.slow
def test_workers_load_the_same_batches(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", penguins())
    alone, two = (batches(table(tmp_path, members=2, num_workers=n).train_dataloader()) for n in (0, 2))
    for (inputs, target), (others, other) in zip(alone, two, strict=True):
        assert target.equal(other)
        assert all(inputs[name].equal(others[name]) for name in inputs)


def test_balanced_batches(tmp_path: Path) -> None:
    columns = with_number(list(range(200))) | {"species": ["rare"] * 20 + ["common"] * 180}
    data = table(write(tmp_path / "t.csv", columns), balanced=True)
    targets = torch.cat([target for _, target in batches(data.train_dataloader())])
    assert targets.bincount().tolist() == [70, 70]

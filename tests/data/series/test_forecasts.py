"""Forecasts beyond the end of series: what `predict --input` reads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from playbook import UserError
from src.data.series.series import Series
from src.ops.frequencies import names_of
from tests.data.series.tables import Table, days, hours, long_table, prepared, write


def reader(trained: Series, **options: Any) -> Series:
    """Data of a checkpoint, without its files."""
    data = Series("nowhere.csv", **options)
    data.facts, data.has_trained = dict(trained.facts), True
    return data


@pytest.fixture
def wide(tmp_path: Path) -> Series:
    table = {"date": hours(60), "load": [row % 11 for row in range(60)], "heat": range(60)}
    return prepared(write(tmp_path / "train.csv", table))


def test_the_last_rows_are_read_as_in_evaluation(tmp_path: Path, wide: Series) -> None:
    """A table that ends where a test window's look-back ends gives the inputs of this window."""
    windows = wide.predict_set
    assert windows is not None
    for number in (0, 5):
        inputs, target = windows[number]
        end = 48 + number
        table = {
            "date": hours(60)[:end],
            "heat": range(end),
            "load": [row % 11 for row in range(end)],
            "new": [0] * end,
        }
        own, about = reader(wide).unlabelled(write(tmp_path / "now.csv", table))
        assert own["past"].equal(inputs["past"])
        assert about["origin"] == target["origin"]
        assert about["scale"].equal(target["scale"])
        assert about["steps"] == 2
    assert reader(wide).read(tmp_path / "now.csv")["past"].equal(own["past"])


def test_bytes_are_a_table_too(tmp_path: Path, wide: Series) -> None:
    table = {"date": hours(9), "load": range(9), "heat": range(9)}
    file = write(tmp_path / "now.csv", table)
    from_bytes, from_file = reader(wide).unlabelled(file.read_bytes()), reader(wide).unlabelled(file)
    assert from_bytes[0]["past"].equal(from_file[0]["past"])
    with pytest.raises(UserError, match="standard input:3: expected 3 fields, got 2"):
        reader(wide).unlabelled(b"date,load,heat\n2020-01-01,1,2\n2020-01-02,3\n")
    with pytest.raises(UserError, match="standard input: is empty"):
        reader(wide).unlabelled(b"date,load,heat\n")


def test_a_table_of_many_series_becomes_one_input_a_series(tmp_path: Path) -> None:
    trained = prepared(write(tmp_path / "train.csv", long_table({"a": 40, "b": 40})))
    file = write(tmp_path / "now.csv", long_table({"a": 20, "new": 20}))
    data = reader(trained)
    names, places = data.expand(["now.csv"], [file])
    assert names == ["a", "new"]
    (a, about_a), (new, about_new) = (data.unlabelled(place) for place in places)
    torch.testing.assert_close(about_a["scale"], torch.tensor(trained.facts["series_scales"]["a"]).float())
    history = np.arange(100, 120)  # a series that training did not have is scaled by its own history
    torch.testing.assert_close(about_new["scale"][:, 0], torch.tensor([history.mean(), history.std()]).float())
    for inputs, about, rows in ((a, about_a, range(16, 20)), (new, about_new, range(116, 120))):
        expected = (torch.tensor(rows, dtype=torch.float32)[:, None] - about["scale"][0]) / about["scale"][1]
        torch.testing.assert_close(inputs["past"], expected)
    with pytest.raises(UserError, match=r"now: expected one series, got 2: a, new"):
        data.unlabelled(file)
    again = data.expand(["x.csv", "y.csv"], [file, file])[0]
    assert again == ["x.csv:a", "x.csv:new", "y.csv:a", "y.csv:new"]
    names, places = data.expand(["-"], [file.read_bytes()])
    assert data.unlabelled(places[1])[0]["past"].equal(new["past"])
    write(file, long_table({"a": 30}))  # a changed file is another place
    assert data.expand(["now.csv"], [file])[1][0] != places[0]
    assert data.unlabelled(data.expand(["now.csv"], [file])[1][0])[1]["origin"] == 86_400 * (18_267 + 29)


def test_a_table_of_one_series_stays_a_file(tmp_path: Path, wide: Series) -> None:
    assert reader(wide).expand(["now.csv"], [tmp_path / "now.csv"]) == (["now.csv"], [tmp_path / "now.csv"])


def future(num_future: int, **changes: list[Any]) -> Table:
    """Daily rows with two covariates that are known in advance; the last rows have no target."""
    count = 20 + num_future
    table: Table = {"ds": days(count), "y": [*range(20), *[""] * num_future], "promo": list(range(count))}
    return table | {"day": ["x", "y"] * (count // 2) + ["x"] * (count % 2)} | changes


@pytest.fixture
def known(tmp_path: Path) -> Series:
    table = future(0) | {"ds": days(60), "y": range(60), "promo": range(60), "day": ["x", "y"] * 30}
    file = write(tmp_path / "train.csv", table)
    return prepared(file, horizon=3, known_covariates=["promo", "day"], calendar=True)


@pytest.mark.parametrize("num_future", [1, 2, 3])
def test_rows_after_the_last_value_are_what_is_asked_for(tmp_path: Path, known: Series, num_future: int) -> None:
    inputs, about = reader(known).unlabelled(write(tmp_path / "now.csv", future(num_future)))
    assert about["steps"] == num_future
    assert about["origin"] == 86_400 * (18_267 + 19)
    windows = known.train_set
    evaluated = windows[16][0]  # of the same rows, 16 to 19
    torch.testing.assert_close(inputs["past_covariates"], evaluated["past_covariates"])
    covariates = inputs["known_covariates"]
    assert covariates.shape == (3, 3 + 6)
    torch.testing.assert_close(covariates[:num_future], evaluated["known_covariates"][:num_future])
    torch.testing.assert_close(covariates[:, 3:], evaluated["known_covariates"][:, 3:])  # the calendar is known always
    assert covariates[num_future:, :3].equal(covariates[num_future - 1, :3].expand(3 - num_future, 3))


BAD_INPUTS: dict[str, tuple[Table, str]] = {
    "no future": (
        future(0),
        "expected rows after the last value, with promo, day of the steps to forecast and an empty y",
    ),
    "too many": (
        future(4),
        r"asks for 4 steps after 2020-01-25 .* at most the 3 of the checkpoint; train with --data.horizon 4",
    ),
    "later": (future(2, ds=[*days(20), *days(23)[21:]]), r"now.csv:22: expected the rows to forecast directly after"),
    "no covariate": (
        future(2, promo=[*range(21), ""]),
        r"now.csv:23: now: promo is missing, expected a number in every row to forecast",
    ),
    "past covariate": (
        future(2, promo=[*range(19), "", 1, 1]),
        r"now.csv:21: now: no value of promo at 2020-01-25 00:00:00, in the look_back of 4 rows",
    ),
    "gap": (
        future(1, ds=[*days(18), *days(22)[19:]]),
        r"now.csv:19: now: 1 row is missing after 2020-01-23 .* --data.gaps fill",
    ),
    "hole": (future(1, y=[*range(18), "", 5, ""]), "now.csv:20: now: no value of y at 2020-01-24"),
    "no value": (future(1, y=[""] * 21), "now: has no value of y"),
    "infinite": (
        future(1, y=[*range(19), "-inf", ""]),
        r"now.csv:21: y: expected a finite number up to 1e\+30, got '-inf'",
    ),
    "date": (future(1, ds=[*days(20), "soon"]), "now.csv:22: ds: expected a date"),
    "beside": (
        future(1, ds=[*days(20), "2020-01-26 06:00"]),
        "now.csv:22: now: 2020-01-26 06:00:00 is beside the grid",
    ),
    "zone": (future(1, ds=[f"{day} 00:00Z" for day in days(21)]), r"two time zones: none .* and \+00:00"),
    "column": (
        {"ds": days(9), "y": range(9), "prom": range(9)},
        r"expected a column promo, as in training, .* Nearest: prom",
    ),
    "short": (
        {name: column[18:] for name, column in future(1).items()},
        "now: has 2 rows, expected at least the look_back of 4",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_inputs(tmp_path: Path, known: Series, case: str) -> None:
    table, message = BAD_INPUTS[case]
    with pytest.raises(UserError, match=message):
        reader(known).unlabelled(write(tmp_path / "now.csv", table))


def test_gaps_in_the_look_back_can_be_filled(tmp_path: Path, wide: Series) -> None:
    table = {"date": [*hours(7), *hours(10)[8:]], "load": [*range(7), 8, 9], "heat": range(9)}
    inputs = reader(wide, gaps="fill").read(write(tmp_path / "now.csv", table))
    load = inputs["past"][:, 0] * wide.facts["target_std"][0] + wide.facts["target_mean"][0]
    torch.testing.assert_close(load, torch.tensor([6.0, 7.0, 8.0, 9.0]))


def test_filled_values_are_told(tmp_path: Path, wide: Series, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"date": [*hours(7), *hours(10)[8:]], "load": [*range(7), 8, 9], "heat": range(9)}
    reader(wide, gaps="fill").read(write(tmp_path / "now.csv", table))
    assert "now: --data.gaps fill: interpolated 2 missing values" in capsys.readouterr().err


def test_the_order_of_day_and_month_is_that_of_training(tmp_path: Path) -> None:
    dates = [f"{day[8:]}/{day[5:7]}/{day[:4]}" for day in days(60)]
    trained = prepared(write(tmp_path / "train.csv", {"ds": dates, "y": range(60)}))
    later = [f"{day:02}/07/2020" for day in range(1, 9)]  # may begin with the month
    about = reader(trained).unlabelled(write(tmp_path / "now.csv", {"ds": later, "y": range(8)}))[1]
    assert names_of(about["origin"].numpy()[None]) == ["2020-07-08 00:00:00"]


def test_an_empty_input_is_named_by_its_option(tmp_path: Path, wide: Series) -> None:
    (tmp_path / "now.csv").write_text("date,load,heat\n")
    with pytest.raises(UserError, match=r"--input: .*now\.csv: is empty"):
        reader(wide).unlabelled(tmp_path / "now.csv")


def test_facts_of_other_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the checkpoint has no columns"):
        Series("nowhere.csv").read(write(tmp_path / "now.csv", future(1)))

"""Series: columns, splits by time, scales, gaps, no leakage from the future, and messages about bad tables."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from playbook import UserError
from src.data.series.series import Series
from src.ops.frequencies import calendar_features, parse_frequency
from tests.data.series.tables import Table, days, hours, long_table, prepared, write

PARTS = ("train_set", "val_set", "test_set")


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def wide_table(count: int = 60) -> Table:
    return {"date": hours(count), "load": list(range(count)), "heat": [row % 7 - 3.5 for row in range(count)]}


def samples(data: Any, part: str) -> list[Any]:
    dataset = getattr(data, part)
    return [dataset[index] for index in range(len(dataset))]


def test_wide_table_scaled_as_scikit_learn_does(tmp_path: Path) -> None:
    table = wide_table()
    data = prepared(write(tmp_path / "t.csv", table))
    values = np.stack([table["load"], table["heat"]], axis=1).astype(float)
    scaler: Any = StandardScaler().fit(values[:42])
    np.testing.assert_allclose(data.facts["target_mean"], scaler.mean_)
    np.testing.assert_allclose(data.facts["target_std"], scaler.scale_)
    sizes = {"train_set": 42 - 6 + 1, "val_set": 6 - 2 + 1, "test_set": 12 - 2 + 1}
    assert {part: len(getattr(data, part)) for part in PARTS} == sizes
    scaled = torch.from_numpy(scaler.transform(values)).float()
    for part, first in (("train_set", 4), ("val_set", 42), ("test_set", 48)):
        for number, (inputs, target) in enumerate(samples(data, part)):
            origin = first + number
            torch.testing.assert_close(inputs["past"], scaled[origin - 4 : origin])
            torch.testing.assert_close(target, scaled[origin : origin + 2])
    expected = {"look_back": 4, "horizon": 2, "num_channels": 2, "channels": ["load", "heat"], "frequency": "h"}
    expected |= {"num_past_covariates": 0, "num_known_covariates": 0, "num_static": 0}
    assert {name: data.facts[name] for name in expected} == expected
    assert data.ids(data.test_set)[0] == "t@2020-01-07 23:00:00"


def test_sizes_of_ett_give_all_2785_windows(tmp_path: Path) -> None:
    count = 14_400 + 20
    table = {"date": hours(count), "OT": range(count)}
    sizes: Any = {"train_size": 8640, "val_size": 2880, "test_size": 2880}
    data = prepared(write(tmp_path / "t.csv", table), look_back=336, horizon=96, **sizes)
    assert [len(getattr(data, part)) for part in PARTS] == [8640 - 432 + 1, 2785, 2785]
    assert data.counts == {"left_out_rows": 20}
    inputs, target = data.test_set[0]
    own = {name: data.facts[f"target_{name}"][0] for name in ("mean", "std")}
    rows = torch.cat([inputs["past"], target])[:, 0] * own["std"] + own["mean"]
    torch.testing.assert_close(rows, torch.arange(11_520.0 - 336, 11_520 + 96), rtol=0, atol=1e-2)
    batches = list(data.test_dataloader())
    assert sum(len(target) for _, target in batches) == 2785


def test_long_table_has_a_scale_a_series(tmp_path: Path) -> None:
    table = long_table({"a": 40, "b": 30})
    order = list(range(70))
    random.Random(0).shuffle(order)
    shuffled = {name: [column[row] for row in order] for name, column in table.items()}
    data = prepared(write(tmp_path / "t.csv", shuffled))
    for name, start, num_train in (("a", 0, 28), ("b", 100, 21)):
        train = np.arange(start, start + num_train, dtype=float)
        np.testing.assert_allclose(data.facts["series_scales"][name], [[train.mean()], [train.std()]])
    assert data.facts["target_mean"] == [0]
    assert data.facts["target_std"] == [1]
    assert data.facts["channels"] == ["y"]
    ids = data.ids(data.val_set)
    assert sorted(ids) == [f"a@2020-02-{day:02} 00:00:00" for day in (2, 3, 4)] + [
        f"b@2020-01-{day} 00:00:00" for day in (26, 27)
    ]
    ends = {f"a@2020-02-{day:02} 00:00:00": day for day in (2, 3, 4)}
    for name, (inputs, target) in zip(ids, samples(data, "val_set"), strict=True):
        if name in ends:
            (mean,), (std,) = data.facts["series_scales"]["a"]
            row = ends[name] + 25  # 1 February is row 26
            expected = [[(step - mean) / std] for step in range(row - 3, row + 3)]
            torch.testing.assert_close(torch.cat([inputs["past"], target]), torch.tensor(expected))


def test_the_future_changes_neither_inputs_nor_facts(tmp_path: Path) -> None:
    options: Any = {"known_covariates": ["promo"], "past_covariates": ["price"], "static_covariates": ["shop"]}
    table = long_table({"a": 40, "b": 40})
    noise = random.Random(1)
    table |= {"price": [noise.random() for _ in range(80)], "promo": [noise.choice(["no", "yes"]) for _ in range(80)]}
    table |= {"shop": ["north"] * 40 + ["south"] * 40}
    changed = {name: list(column) for name, column in table.items()}
    for start in (28, 68):  # the rows of validation and test
        for row in range(start, start + 12):
            changed["y"][row] = noise.random() * 1e6
            changed["price"][row] = noise.random() * 1e6
            changed["promo"][row] = "yes" if row % 2 else "no"
    before, after = (
        prepared(write(tmp_path / f"{name}.csv", own), **options)
        for name, own in (("before", table), ("after", changed))
    )
    assert before.facts == after.facts
    for (inputs, target), (others, other_target) in zip(
        samples(before, "train_set"), samples(after, "train_set"), strict=True
    ):
        assert all(inputs[name].equal(others[name]) for name in inputs)
        assert target.equal(other_target)
    # at the first origin of validation, only the target and what is known in advance may differ
    for number in (0, 3):  # of a and b
        inputs, others = before.val_set[number][0], after.val_set[number][0]
        assert all(inputs[name].equal(others[name]) for name in ("past", "past_covariates", "static"))
        assert not before.val_set[number][1].equal(after.val_set[number][1])


def test_filled_values_do_not_look_ahead(tmp_path: Path) -> None:
    table = {"ds": days(60), "y": [float(row % 5) for row in range(60)]}
    gone = [9, 10, 20, 33, 34, 41, 42, 52]  # also at both borders, 42 and 48
    holes = {name: [value for row, value in enumerate(column) if row not in gone] for name, column in table.items()}
    data = prepared(write(tmp_path / "t.csv", holes), gaps="fill")
    assert data.counts["filled_values"] == len(gone)
    for part in PARTS:
        for number, origin in enumerate(getattr(data, part).origins.tolist()):
            assert not {origin - 1, origin + 1} & set(gone), f"{part} {number} ends with an interpolated row"
    later = {name: list(column) for name, column in holes.items()}
    later["y"] = [value if row < 32 else 99.0 for row, value in enumerate(holes["y"])]  # from day 37
    other = prepared(write(tmp_path / "later.csv", later), facts=data.facts, gaps="fill")
    later["y"] = [value if row < 36 else 99.0 for row, value in enumerate(holes["y"])]  # from day 43, in validation
    assert prepared(write(tmp_path / "later.csv", later), gaps="fill").facts == data.facts
    num_before = 0
    for number, origin in enumerate(data.train_set.origins.tolist()):
        if origin + 2 <= 37:
            num_before += 1
            assert data.train_set[number][0]["past"].equal(other.train_set[number][0]["past"])
            assert data.train_set[number][1].equal(other.train_set[number][1])
    assert num_before > 15


def test_no_window_crosses_a_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"ds": days(60), "y": [float(row) for row in range(60)]}
    holes = {name: column[:20] + column[22:] for name, column in table.items()}
    holes["y"][30] = "NaN"
    data = prepared(write(tmp_path / "t.csv", holes))
    for part in PARTS:
        for inputs, target in samples(data, part):
            rows = torch.cat([inputs["past"], target])[:, 0] * data.facts["target_std"][0]
            torch.testing.assert_close(rows.diff(), torch.ones(5), rtol=0, atol=1e-4)
    assert data.counts == {"series_with_gaps": 1, "left_out_windows": 5 + 6}
    told = capsys.readouterr().err
    assert "t.csv:21: t: 2 rows are missing after 2020-01-25 00:00:00" in told
    assert "left out 11 of " in told
    with pytest.raises(UserError, match=r"--data.gaps stop: .*t.csv:21: t: 2 rows are missing"):
        prepared(tmp_path / "t.csv", gaps="stop")


@pytest.mark.parametrize(("policy", "value"), [("first", 3.0), ("last", 8.0), ("mean", 5.5)])
def test_duplicates(tmp_path: Path, policy: str, value: float, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"ds": [*days(40), days(4)[3]], "y": [float(row) for row in range(40)] + [8.0]}
    file = write(tmp_path / "t.csv", table)
    with pytest.raises(UserError, match=r"t.csv:5 and 42: both are t at 2020-01-09 00:00:00; expected --data.dup"):
        prepared(file)
    data = prepared(file, duplicates=policy, scaling="none")
    assert data.train_set[0][0]["past"][3].item() == value
    told = capsys.readouterr().err
    assert "1 rows repeat the time of another one" in told
    assert "sorted rows by time: 1 came after a later one" in told


def test_covariates(tmp_path: Path) -> None:
    table = {"ds": hours(60), "y": range(60), "wind": [row * 2.0 for row in range(60)], "temperature": range(60)}
    table["holiday"] = ["Easter" if row == 8 else "none" if row < 59 else "Whitsun" for row in range(60)]
    options = {"past_covariates": ["wind"], "known_covariates": ["holiday", "temperature"], "calendar": True}
    data = prepared(write(tmp_path / "t.csv", table), scaling="none", **options)
    assert (data.facts["num_past_covariates"], data.facts["num_known_covariates"]) == (2 + 1 + 8 + 1, 2 + 1 + 8)
    inputs = data.train_set[3][0]  # the look-back is rows 3 to 6, the horizon 7 and 8
    temperature = (np.arange(60) - np.mean(range(42))) / np.std(range(42))
    assert inputs["known_covariates"][:, :2].tolist() == [[0, 1], [1, 0]]
    torch.testing.assert_close(inputs["known_covariates"][:, 2], torch.from_numpy(temperature[7:9]).float())
    times = data.train_set.timelines.times[3:9].numpy()
    calendar = torch.from_numpy(calendar_features(times, parse_frequency("h"))).float()
    torch.testing.assert_close(inputs["known_covariates"][:, 3:], calendar[4:])
    torch.testing.assert_close(inputs["past_covariates"][:, 3:-1], calendar[:4])
    wind = torch.from_numpy(temperature[3:7]).float()  # it is twice the temperature
    torch.testing.assert_close(inputs["past_covariates"][:, -1], wind)
    unseen = data.test_set[len(data.test_set) - 1][0]["known_covariates"]
    assert unseen[:, :2].tolist() == [[0, 1], [0, 0]]


def test_an_unknown_category_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"ds": days(60), "y": range(60), "event": ["a"] * 50 + ["b"] * 10}
    prepared(write(tmp_path / "t.csv", table), known_covariates=["event"])
    assert "training had no category event b; all of its inputs are zero" in capsys.readouterr().err


def test_static_covariates(tmp_path: Path) -> None:
    table = long_table({"a": 40, "b": 40, "c": 40})
    table |= {"area": [1.0] * 40 + [2.0] * 40 + [6.0] * 40, "kind": ["x"] * 40 + ["y"] * 80}
    file = write(tmp_path / "t.csv", table)
    data = prepared(file, static_covariates=["area", "kind"])
    assert data.facts["num_static"] == 3
    rows = {tuple(inputs["static"].tolist()) for inputs, _ in samples(data, "train_set")}
    area = (np.array([1, 2, 6]) - 3) / np.std([1, 2, 6])
    expected = {(area[0], 1, 0), (area[1], 0, 1), (area[2], 0, 1)}
    assert sorted(rows) == pytest.approx(np.array(sorted(expected)))
    table["kind"][3] = "z"
    with pytest.raises(UserError, match=r"t.csv:5: a: kind changes from x to z, expected one value a series"):
        prepared(write(file, table), static_covariates=["area", "kind"])


def test_facts_of_a_checkpoint_win(tmp_path: Path) -> None:
    data = prepared(write(tmp_path / "t.csv", long_table({"a": 40})), calendar=True)
    table = long_table({"a": 50, "new": 50})
    table["y"] = [value * 3 for value in table["y"]]
    file = write(tmp_path / "other.csv", table | {"more": [1] * 100})
    other = Series(str(file))  # options that are left out follow the checkpoint
    other.facts, other.has_trained = dict(data.facts), True
    other.setup("test")
    assert other.facts == data.facts
    windows = other.predict_set
    assert windows is not None
    scales = {name.partition("@")[0]: windows[i][1]["scale"] for i, name in enumerate(other.ids(windows))}
    torch.testing.assert_close(scales["a"], torch.tensor(data.facts["series_scales"]["a"]).float())
    own = np.arange(300, 300 + 35 * 3, 3)
    torch.testing.assert_close(scales["new"][:, 0], torch.tensor([own.mean(), own.std()]).float())
    with pytest.raises(UserError, match=r"--data.look_back: expected 4, as in the checkpoint, got 5"):
        prepared(file, facts=data.facts, look_back=5)
    write(file, {name: column for name, column in table.items() if name != "y"} | {"Y": table["y"]})
    with pytest.raises(UserError, match=r"expected a column y, as in training, got unique_id, ds, Y"):
        prepared(file, facts=data.facts)


def test_sizes_follow_short_series(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.csv", {"Month": [f"{1949 + i // 12}-{i % 12 + 1:02}" for i in range(144)], "n": range(144)}
    )
    data = prepared(file, look_back=None, horizon=None)
    assert (data.facts["look_back"], data.facts["horizon"], data.facts["frequency"]) == (33, 24, "MS")
    assert min(len(getattr(data, part)) for part in PARTS) > 0


def test_batches_resume_and_cover_all(tmp_path: Path) -> None:
    data = prepared(write(tmp_path / "t.csv", wide_table()), batch_size=8)
    batches = list(data.train_dataloader())
    assert sorted(round(target[0, 0].item(), 4) for _, part in batches for target in part) == sorted(
        round(target[0, 0].item(), 4) for _, target in samples(data, "train_set")
    )
    again = prepared(tmp_path / "t.csv", batch_size=8)
    again.load_state_dict({"epoch": 0, "batch": 2, "batch_size": 8})
    rest = list(again.train_dataloader())
    assert len(rest) == len(batches) - 2
    assert all(a[1].equal(b[1]) for a, b in zip(rest, batches[2:], strict=True))
    workers = list(prepared(tmp_path / "t.csv", batch_size=8, num_workers=1).train_dataloader())
    assert all(a[0]["past"].equal(b[0]["past"]) for a, b in zip(workers, batches, strict=True))


@pytest.mark.parametrize("kind", ["tsv", "semicolon", "jsonl", "parquet", "folder", "no header"])
def test_forms_of_tables(tmp_path: Path, kind: str) -> None:
    table = wide_table()
    options: Any = {}
    file = tmp_path / f"t.{kind if kind in ('tsv', 'jsonl', 'parquet') else 'csv'}"
    if kind == "parquet":
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(table)
        frame["date"] = pandas.to_datetime(frame["date"])
        frame.to_parquet(file)
    elif kind == "jsonl":
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(table).to_json(file, orient="records", lines=True)
    else:
        separator = {"tsv": "\t", "semicolon": ";"}.get(kind, ",")
        options = {"separator": ";"} if kind == "semicolon" else {}
        write(file, table, separator)
    if kind == "no header":
        file.write_text(file.read_text().partition("\n")[2])
        options = {"header": False}
    data = prepared(tmp_path if kind == "folder" else file, **options)
    assert data.facts["channels"] == (["2", "3"] if kind == "no header" else ["load", "heat"])
    write(tmp_path / "reference.csv", table)
    reference = prepared(tmp_path / "reference.csv")
    assert data.test_set[3][0]["past"].equal(reference.test_set[3][0]["past"])
    assert data.test_set.timelines.times.equal(reference.test_set.timelines.times)


def test_trailing_rows_without_a_target_are_the_future(tmp_path: Path) -> None:
    table = {"ds": days(42), "y": [*range(40), "", ""]}
    data = prepared(write(tmp_path / "t.csv", table))
    assert data.counts == {"left_out_rows": 2}
    assert data.ids(data.test_set)[-1] == "t@2020-02-12 00:00:00"  # two days before the last value


def test_a_constant_channel_is_only_shifted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = prepared(write(tmp_path / "t.csv", {"ds": days(60), "a": [0.1] * 60, "b": range(60)}))
    assert data.facts["target_std"][0] == 1
    assert data.train_set[0][0]["past"][:, 0].abs().max() < 1e-6
    assert "1 channels are constant in training and only shifted: a" in capsys.readouterr().err


def test_short_series_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "t.csv", long_table({"a": 40, "b": 5, "c": 1}))
    data = prepared(file)
    assert data.counts == {"left_out_series": 2}
    told = "left out 2 series with fewer than look_back + horizon = 4 + 2 rows: b, c"
    assert told in capsys.readouterr().err
    with pytest.raises(UserError, match=r"look_back \+ horizon = 40 \+ 2 rows, the longest of 3 has 40"):
        prepared(file, look_back=40)
    with pytest.raises(
        UserError, match=r"no train window: expected at least look_back \+ horizon = 30 \+ 2 train rows"
    ):
        prepared(file, look_back=30)


def test_a_series_without_training_values_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = long_table({"a": 60, "late": 60})
    table["y"][60:105] = [""] * 45
    file = write(tmp_path / "t.csv", table)
    data = prepared(file)
    assert data.counts == {"series_with_gaps": 1, "left_out_series": 1}
    assert set(data.facts["series_scales"]) == {"a"}
    assert "left out 1 series without values in their training rows, which scale them: late" in capsys.readouterr().err
    assert {name.partition("@")[0] for name in prepared(file, scaling="none").test_set.ids} == {"a", "late"}
    with pytest.raises(UserError, match="no series has values in its training rows: late"):
        prepared(write(tmp_path / "late.csv", {name: column[60:] for name, column in table.items()}))


def test_a_series_may_be_called_na(tmp_path: Path) -> None:
    data = prepared(write(tmp_path / "t.csv", long_table({"NA": 40, "EU": 40})))
    assert set(data.facts["series_scales"]) == {"NA", "EU"}


def test_times_with_an_offset_keep_it(tmp_path: Path) -> None:
    table = {"ds": [f"{time}+02:00" for time in hours(60)], "y": range(60)}
    data = prepared(write(tmp_path / "t.csv", table))
    assert data.ids(data.test_set)[0] == "t@2020-01-07 23:00:00+02:00"
    assert data.facts["time_zone"] == "+02:00"


def test_truths_are_categories_in_every_form(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = {"ds": days(60), "y": [float(row) for row in range(60)], "open": [row % 3 == 0 for row in range(60)]}
    table["sky"] = [None if row % 5 == 0 else "blue" for row in range(60)]
    pandas.DataFrame(table).to_parquet(tmp_path / "t.parquet")
    pandas.DataFrame(table).to_csv(tmp_path / "t.csv", index=False)
    options: dict[str, Any] = {"known_covariates": ["open", "sky"]}
    own, others = (prepared(tmp_path / f"t.{form}", **options) for form in ("parquet", "csv"))
    assert own.facts == others.facts
    assert own.facts["reading"]["covariates"]["open"] == {"categories": ["False", "True"]}
    assert own.facts["reading"]["covariates"]["sky"] == {"categories": ["", "blue"]}


BAD_ROWS = {
    "date": ("ds", "soon", r"t.csv:7: ds: expected a date such as .*, got 'soon'"),
    "word": ("y", "many", r"t.csv:7: y: expected a finite number up to 1e\+30, got 'many'"),
    "infinite": ("y", "inf", r"t.csv:7: y: expected a finite number up to 1e\+30, got 'inf'"),
    "too large": ("y", "1e31", r"t.csv:7: y: expected a finite number up to 1e\+30, got '1e31'"),
    "beside": ("ds", "2020-01-11 05:00", r"t.csv:7: t: 2020-01-11 05:00:00 is beside the grid of steps of D"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_stop_or_are_left_out(tmp_path: Path, case: str) -> None:
    column, value, message = BAD_ROWS[case]
    table: Table = {"ds": days(60), "y": list(range(60))}
    table[column][5] = value
    file = write(tmp_path / "t.csv", table)
    with pytest.raises(UserError, match=rf"{message}; --data.on_error skip leaves such rows out \(1 of 60\)"):
        prepared(file)
    data = prepared(file, on_error="skip")
    assert data.gather_counts()["skipped_samples"] == 1
    assert data.counts["left_out_windows"] == 5


BAD_TABLES: dict[str, tuple[Table, dict[str, Any], str]] = {
    "no time": ({"when": ["a"] * 9, "y": range(9)}, {}, r"--data.time: .*t.csv:2: expected a column ds, date, time"),
    "near time": ({"dat": ["a"] * 9, "y": range(9)}, {}, "Nearest: dat"),
    "missing": (
        {"ds": days(9), "y": range(9)},
        {"target": ["load"]},
        "--data.target: expected a column load, got ds, y",
    ),
    "near": ({"ds": days(9), "load1": range(9)}, {"target": "load"}, "Nearest: load1"),
    "covariate": (
        {"ds": days(9), "y": range(9)},
        {"past_covariates": ["p"]},
        "--data.past_covariates: expected a column p",
    ),
    "twice": ({"ds": days(9), "y": range(9)}, {"past_covariates": ["y"], "target": "y"}, "column y has two purposes"),
    "no numbers": ({"ds": days(9), "text": ["a"] * 9}, {}, "--data.target: .*expected a column y, or the option"),
    "which number": (
        {"unique_id": ["a"] * 9, "ds": days(9), "p": range(9), "q": range(9)},
        {},
        "expected a column y, or the option, got the columns of numbers p, q",
    ),
    "zones": (
        {"ds": ["2020-01-01 00:00+01:00", "2020-01-01 01:00+02:00"], "y": [1, 2]},
        {},
        r"two time zones: \+01:00 \(.*t.csv:2\) and \+02:00 \(.*t.csv:3\)",
    ),
    "covariate without values": (
        {"ds": days(60), "y": range(60), "p": [""] * 60},
        {"past_covariates": ["p"]},
        "every value of the covariate p is missing",
    ),
    "no name": (
        {"unique_id": ["", "a"], "ds": days(2), "y": [1, 2]},
        {},
        "t.csv:2: unique_id: the name of the series is missing",
    ),
    "many gaps": (
        {"ds": days(120)[::2] + days(121)[120:], "y": range(61)},
        {"frequency": "D"},
        "no train window: .*; --data.gaps fill interpolates",
    ),
    "all missing": ({"ds": days(9), "y": [""] * 9}, {"target": "y"}, "every value of y is missing"),
    "one row": ({"ds": days(1), "y": [1]}, {}, "expected a series of at least 2 rows, got 1 series of 1 row"),
    "no row": ({"ds": [], "y": []}, {}, "is empty"),
    "ambiguous": ({"ds": ["01/02/2020"], "y": [1]}, {}, "may begin with the day or the month"),
    "many categories": (
        {"ds": days(400), "y": range(400), "id": [f"x{row}" for row in range(400)]},
        {"past_covariates": ["id"]},
        "column id: expected numbers or at most 100 categories, got 280, such as x0, x1, x10",
    ),
    "separator": ({"ds;y": ["2020-01-01;1"]}, {}, r'expected --data.separator ";"'),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables(tmp_path: Path, case: str) -> None:
    table, options, message = BAD_TABLES[case]
    with pytest.raises(UserError, match=message):
        prepared(write(tmp_path / "t.csv", table), **options)


def test_bad_places(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        prepared(tmp_path / "none.csv")
    (tmp_path / "t.txt").write_text("")
    with pytest.raises(UserError, match=r"expected a file of \.csv"):
        prepared(tmp_path / "t.txt")
    with pytest.raises(UserError, match=r"expected one file of .*, got none"):
        prepared(tmp_path)
    (tmp_path / "t.csv").write_text("ds,a,a\n2020-01-01,1,2\n")
    with pytest.raises(UserError, match=r"t.csv:1: two columns are called a, expected one"):
        prepared(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(UserError, match="is empty"):
        prepared(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"look_back": 0}, "look_back: expected at least 1 row, got 0"),
        ({"horizon": -1}, "horizon: expected at least 1 row, got -1"),
        ({"gaps": "ignore"}, "gaps: expected one of skip, fill, stop, got ignore"),
        ({"duplicates": "sum"}, "duplicates: expected one of stop, first, last, mean, got sum"),
        ({"scaling": "robust"}, "scaling: expected one of standard, none, got robust"),
        ({"frequency": "often"}, "frequency: expected a step such as"),
        ({"encoding": "utf-9"}, "encoding: expected an encoding"),
        ({"separator": "::"}, "separator: expected one character"),
        ({"val_share": 1.0}, "val_share: expected a share"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Series("t.csv", **options)


def test_a_given_frequency_finds_gaps_everywhere(tmp_path: Path) -> None:
    table = {"ds": hours(120)[::2], "y": range(60)}
    with pytest.raises(UserError, match="no train window"):
        prepared(write(tmp_path / "t.csv", table), frequency="h")
    assert len(prepared(tmp_path / "t.csv", frequency="h", gaps="fill").train_set) > 0

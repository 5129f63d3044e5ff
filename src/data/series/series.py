"""Windows of time series from a table."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch.utils.data import DataLoader

from playbook import Data, UserError, check_encoding
from src.data.notices import refuse, warn
from src.data.row_files import SUFFIXES, Form, check_separator
from src.data.series.columns import Row, require_columns
from src.data.series.encoding import Encoding
from src.data.series.files import find_table, group_rows, read_bytes, read_table
from src.data.series.forecasts import sample_beyond
from src.data.series.gaps import Gaps, Line, close_gaps, first_gap, require_regular
from src.data.series.learning import count_inputs, learn_columns, learn_frequency, learn_scales, learn_sizes
from src.data.series.observations import Duplicates, Observations, read_series
from src.data.series.origins import Origins, split_origins
from src.data.series.splits import Splits
from src.data.series.windows import Inputs, Windows, join_series
from src.ops.frequencies import parse_frequency, step_numbers

NUM_NAMED = 3  # series in a message


class Series(Data):
    """Windows of one or many time series in a CSV, TSV, JSON lines or Parquet file.

    A wide table has a column for each channel of one series. A long table has a column with the name of the series, as
    in `unique_id, ds, y`; every window is of one series. Rows are sorted by time. Every series is divided by time into
    training, validation and test; windows have stride 1, and all of them count. The look-back of validation and test
    reaches into the rows before, the forecast rows of the splits never overlap. Scaling is learnt from training rows
    alone: for each channel, in a long table for each series and channel; a series that training did not have is scaled
    by the rows before the forecast.

    `predict --input` forecasts beyond the end of each series. Rows without a target after it give the known covariates
    of the future, and the number of steps to forecast.

    Args:
        root: the file, or a folder that contains one table.
        time: name of the column with the time. Defaults to the first existing one of ds, date, time, timestamp and
            datetime, or to the first column if it has dates.
        target: names of the columns to forecast. Defaults to y, or in a table without a column for the series to all
            columns of numbers.
        series: name of the column with the name of the series. Defaults to unique_id if it exists, and else to a table
            of one series.
        look_back: rows that a forecast is made from, L. Defaults to 96, or to half of the training rows of short
            series.
        horizon: rows that are forecast, H. Defaults to 24, or to a sixth of the rows of short series.
        past_covariates: columns of covariates that are known up to the forecast. Text becomes one-hot columns.
        known_covariates: columns of covariates that are known in advance, such as holidays.
        static_covariates: columns of covariates that are constant in each series.
        calendar: whether to add the minute, hour, weekday, day and month, as far as the frequency has them, to the
            known covariates, as a sine and a cosine each.
        gaps: what happens with missing rows and values: `skip` leaves out the windows that cross one, `fill`
            interpolates linearly between the neighbours, `stop` ends the run. Filled values count as targets.
        duplicates: what happens with rows of the same series and time: `stop` ends the run; otherwise the first, the
            last or their mean is kept.
        frequency: step of the series, such as 15min, h, D, B (Monday to Friday), W, MS, ME, QS or YS. Defaults to the
            most common one.
        val_share: share of the rows of each series used for validation, at least the horizon, in (0, 1).
        test_share: share of the rows of each series at its end used for testing, at least the horizon, in [0, 1). 0 for
            no test.
        train_size: number of rows of each series used for training; with val_size, in place of the shares.
        val_size: number of rows of each series used for validation. Without train_size, they end where the test begins.
        test_size: number of rows of each series used for testing. Defaults to the rest after train_size and val_size.
        scaling: `standard` subtracts the mean and divides by the standard deviation of each channel; `none` does not.
        batch_size: windows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with rows that cannot be used, such as one without a date, and with series that cannot be
            forecast: `stop` ends the run, `skip` leaves them out and counts them (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        header: whether the first line of a CSV or TSV names the columns; otherwise these are 1, 2, ….
        separator: character between the fields of a CSV or TSV, such as ";". Defaults to the comma for .csv and the tab
            for .tsv.
        quotes: whether quotes enclose fields of a CSV; if not, every line is a row.
        encoding: encoding of the table, such as latin-1 or utf-16.

    Shapes:
        past (B, L, C), scaled; past_covariates (B, L, P), the known ones first; known_covariates (B, H, F); static
        (B, S); those without columns are left out. target (B, H, C), scaled. To predict, the target is a dict: target
        if it is known; origin (B,), the last known time in seconds since 1970; scale (B, 2, C), mean and standard
        deviation; steps (B,), the number of steps asked for, up to H.

    Raises:
        ValueError: a value is out of range.
        UserError: the table lacks a column, a row cannot be used, a date is none, there are two time zones, or all
            series are too short.
    """

    formats = SUFFIXES
    collate = None  # batches are gathered at once

    def __init__(
        self,
        root: str,
        time: str | None = None,
        target: str | list[str] | None = None,
        series: str | None = None,
        look_back: int | None = None,
        horizon: int | None = None,
        past_covariates: list[str] | None = None,
        known_covariates: list[str] | None = None,
        static_covariates: list[str] | None = None,
        calendar: bool = False,
        gaps: Gaps = "skip",
        duplicates: Duplicates = "stop",
        frequency: str | None = None,
        val_share: float = 0.1,
        test_share: float = 0.2,
        train_size: int | None = None,
        val_size: int | None = None,
        test_size: int | None = None,
        scaling: Literal["standard", "none"] = "standard",
        batch_size: int = 32,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        header: bool = True,
        separator: str | None = None,
        quotes: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s)
        choices = {
            "gaps": (gaps, ("skip", "fill", "stop")),
            "duplicates": (duplicates, ("stop", "first", "last", "mean")),
            "scaling": (scaling, ("standard", "none")),
        }
        for option, (value, allowed) in choices.items():
            if value not in allowed:
                raise ValueError(f"{option}: expected one of {', '.join(allowed)}, got {value}")
        for option, size in {"look_back": look_back, "horizon": horizon}.items():
            if size is not None and size < 1:
                raise ValueError(f"{option}: expected at least 1 row, got {size}")
        if frequency is not None:
            parse_frequency(frequency)
        check_encoding(encoding)
        self._splits = Splits(val_share, test_share, train_size, val_size, test_size)
        self._splits.check()
        self.root = Path(root).expanduser()
        self.options: dict[str, Any] = {
            "time": time,
            "target": target,
            "series": series,
            "past_covariates": past_covariates,
            "known_covariates": known_covariates,
            "static_covariates": static_covariates,
        }
        self.look_back = look_back
        self.horizon = horizon
        self.calendar = calendar
        self.gaps: Gaps = gaps
        self.duplicates: Duplicates = duplicates
        self.frequency = frequency
        self.scaling = scaling
        self.header = header
        self.separator = check_separator(separator)
        self.quotes = quotes
        self.encoding = encoding
        self._tables: dict[tuple[str, int, int], dict[str, list[Row]]] = {}  # rows of each series of an input
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, "test_set"):  # Lightning asks for every stage
            return
        name, rows, problems = self.read_rows()
        refuse(self, problems, len(rows))
        if "reading" in self.facts:  # of a checkpoint
            require_columns(rows[0], Encoding(self.facts).needed)
        else:
            tell = partial(self._tell, "--data.root")
            self.facts["reading"] = learn_columns(rows, self.options, self.calendar, self.scaling, tell)
        lines = self._make_lines(self._observed(rows, name))
        usual_length = int(np.median([len(line.steps) for line in lines]))
        self.facts |= learn_sizes(self.facts, self.look_back, self.horizon, self._splits, usual_length)
        self._tell_of_gaps(lines)
        lines = self._usable(lines)
        parts = {line.series.name: self._train_part(line) for line in lines}
        if "target_mean" not in self.facts:
            self.facts |= learn_scales(Encoding(self.facts), parts)
            self._tell_of_constants(parts)
        self.facts |= count_inputs(Encoding(self.facts))
        self._tell_of_unseen([line.series for line in lines])
        self._make_sets(name, lines, parts)

    def train_dataloader(self) -> DataLoader:
        return self._loader("train", self.train_set, shuffle=True)

    def ids(self, dataset: Any) -> list[str]:
        """Series and last known time of each window, as `T1@2017-10-20 00:00:00`."""
        return dataset.ids

    def read_rows(self) -> tuple[str, list[Row], list[tuple[str, str]]]:
        """Reads the table: its name, its rows, and place and sentence of those that cannot be read."""
        file = find_table(self.root)
        return (file.stem, *read_table(file, self._form("--data.root"), partial(warn, self)))

    # inputs without a target

    def expand(self, names: Sequence[str], places: Sequence[Any]) -> tuple[list[str], list[Any]]:
        """Splits tables of several series, for `predict --input`; needs `facts`, but no `setup`.

        Args:
            names: of the inputs.
            places: path or bytes of each.

        Returns:
            Name and place of each series, for `read`: the path of a table of one series without a name, or a dict.
        """
        if Encoding(self.facts).columns.series is None:
            return list(names), list(places)
        series_names: list[str] = []
        series_places: list[Any] = []
        for name, place in zip(names, places, strict=True):
            groups = self._groups(place)
            series_names += [series if len(names) == 1 else f"{name}:{series}" for series in groups]
            if isinstance(place, Path):
                state = place.stat()
                file = {"file": place.as_posix(), "size": state.st_size, "modified": state.st_mtime_ns}
                series_places += [{"series": series, **file} for series in groups]
            else:
                rows = {series: [dict(row.values) for row in own] for series, own in groups.items()}
                series_places += [{"series": series, "rows": own} for series, own in rows.items()]
        return series_names, series_places

    def read(self, source: Any) -> Inputs:
        """Reads the history of one series: past (L, C) and the covariates; see `unlabelled`."""
        return self.unlabelled(source)[0]

    def unlabelled(self, source: Any) -> tuple[Inputs, Inputs]:
        """The sample of one series that forecasts beyond its last value.

        Args:
            source: path or bytes of a table with one series; or a dict as `expand` returns it.

        Returns:
            The inputs, and origin (), scale (2, C) and steps ().

        Raises:
            UserError: the table has several series, a row cannot be used, the history is too short or has gaps, known
                covariates of the future are missing, or more steps are asked for than the horizon.
        """
        name, rows = self._rows_of(source)
        problems: list[str] = []
        series = self._order(rows, name, lambda _, text: problems.append(text))
        if problems:
            raise UserError(problems[0])
        if len(series) != 1:
            some = ", ".join(own.name for own in series[:NUM_NAMED])
            raise UserError(f"{name}: expected one series, got {len(series)}: {some}, …")
        self._tell_of_unseen(series)
        return sample_beyond(series[0], Encoding(self.facts), self._told_line)

    def _told_line(self, series: Observations, steps: np.ndarray) -> Line:
        line = self._line(series, steps)
        if line.num_filled:
            self._tell(series.name, f"--data.gaps fill: interpolated {line.num_filled:,} missing values")
        return line

    def _rows_of(self, source: Any) -> tuple[str, list[Row]]:
        """Name and rows of one series."""
        if not isinstance(source, Mapping):
            return _stem(source), [row for own in self._groups(source).values() for row in own]
        if "rows" in source:
            return source["series"], [Row(f"row {i}", row) for i, row in enumerate(source["rows"], start=1)]
        return source["series"], self._groups(Path(source["file"]))[source["series"]]

    def _groups(self, source: Any) -> dict[str, list[Row]]:
        """Rows of each series of a path or bytes; a file is read once."""
        state = source.stat() if isinstance(source, Path) else None
        key = None if state is None else (source.as_posix(), state.st_size, state.st_mtime_ns)
        if key in self._tables:
            return self._tables[key]
        rows, problems = (
            read_table(source, self._form("--input"), partial(warn, self))
            if isinstance(source, Path)
            else (read_bytes(source, self._form("--input")), [])
        )
        if problems:
            raise UserError(problems[0][1])
        encoding = Encoding(self.facts)
        require_columns(rows[0], encoding.needed)
        groups = group_rows(rows, encoding.columns.series, _stem(source))
        if key is not None:
            self._tables = {key: groups}
        return groups

    # rows to series

    def _form(self, option: str) -> Form:
        return Form(self.header, self.separator, self.quotes, self.encoding, option)

    def _order(self, rows: Sequence[Row], name: str, problem: Any) -> list[Observations]:
        """The series in order of time."""
        encoding = Encoding(self.facts)
        tell = partial(self._tell, name)
        series, columns = read_series(rows, encoding.columns, encoding.numeric, name, self.duplicates, problem, tell)
        if "frequency" not in self.facts:  # these are the training data
            self.facts["reading"] |= {"columns": columns._asdict()}
            self.facts["time_zone"] = columns.time_zone or ""
        return series

    def _observed(self, rows: Sequence[Row], name: str) -> list[Observations]:
        """The series up to their last value."""
        problems: list[tuple[str, str]] = []
        series = self._order(rows, name, lambda place, text: problems.append((place, text)))
        num_rows = sum(len(own.times) for own in series)
        refuse(self, problems, num_rows)
        series = [own.cut(0, own.num_observed) for own in series if own.num_observed]
        if not series:
            target = ", ".join(Encoding(self.facts).columns.target)
            raise UserError(f"--data.target: {name}: every value of {target} is missing")
        if num_behind := num_rows - sum(len(own.times) for own in series):
            self._left_out("rows", num_behind, f"{num_behind:,} rows after the last value of their series")
        return series

    def _make_lines(self, series: list[Observations]) -> list[Line]:
        """The series with their steps, without rows beside them."""
        if "frequency" not in self.facts:
            self.facts["frequency"] = str(learn_frequency(series, self.frequency))
        frequency = parse_frequency(self.facts["frequency"])
        problems: list[tuple[str, str]] = []
        lines = []
        for own in series:
            is_regular = step_numbers(own.times, frequency)[1]
            require_regular(own, is_regular, frequency, lambda place, text: problems.append((place, text)))
            regular = own.select(is_regular)
            lines.append(self._line(regular, step_numbers(regular.times, frequency)[0]))
        refuse(self, problems, sum(len(line.steps) for line in lines))
        return lines

    def _line(self, series: Observations, steps: np.ndarray) -> Line:
        encoding = Encoding(self.facts)
        return close_gaps(series, steps, encoding.columns, self.gaps, encoding.frequency)

    # series to windows

    def _usable(self, lines: Sequence[Line]) -> list[Line]:
        """The series that are long enough for a window and can be scaled; the others are counted and named."""
        encoding = Encoding(self.facts)
        look_back, horizon = self.facts["look_back"], self.facts["horizon"]
        num_needed = f"look_back + horizon = {look_back} + {horizon} rows"
        long = [line for line in lines if len(line.steps) >= look_back + horizon]
        if not long:
            longest = max(len(line.steps) for line in lines)
            raise UserError(
                f"--data.look_back: expected a series of at least {num_needed}, the longest of {len(lines):,} has "
                f"{longest:,}"
            )
        if short := [line.series.name for line in lines if len(line.steps) < look_back + horizon]:
            self._left_out("series", len(short), f"{len(short):,} series with fewer than {num_needed}: {_some(short)}")
        if encoding.columns.series is None or encoding.reading["scaling"] == "none":
            return long
        known = self.facts.get("series_scales", {})
        unscaled = {
            line.series.name
            for line in long
            if line.series.name not in known and np.isnan(self._train_part(line).target).all(axis=0).any()
        }
        if len(unscaled) == len(long):
            raise UserError(f"--data.scaling standard: no series has values in its training rows: {_some(unscaled)}")
        if unscaled:
            text = f"{len(unscaled):,} series without values in their training rows, which scale them"
            self._left_out("series", len(unscaled), f"{text}: {_some(unscaled)}")
        return [line for line in long if line.series.name not in unscaled]

    def _train_part(self, line: Line) -> Observations:
        """The training rows of a series that were not interpolated."""
        end = self._splits.borders(len(line.steps), self.facts["horizon"])[0]
        return line.series.select(~line.is_filled & (np.arange(len(line.steps)) < end))

    def _make_sets(self, name: str, lines: Sequence[Line], parts: Mapping[str, Observations]) -> None:
        encoding = Encoding(self.facts)
        look_back, horizon = self.facts["look_back"], self.facts["horizon"]
        scales = [encoding.scale_of(series, part.target) for series, part in parts.items()]
        timelines = join_series([line.series for line in lines], scales, encoding)
        origins = split_origins(lines, timelines, self._splits, look_back, horizon)
        self._tell_of_left_out(origins)
        self._require_windows(lines, origins)
        sets = {part: Windows(timelines, rows, look_back, horizon) for part, rows in origins.rows.items()}
        self.train_set, self.val_set = sets["train"], sets["val"]
        self.test_set = sets["test"] if len(sets["test"]) else None
        if self.test_set is not None:
            self.predict_set = Windows(timelines, origins.rows["test"], look_back, horizon, is_prediction=True)
        if self.speaks:
            num_rows = f"{len(timelines.times):,} rows"
            size = f"{len(lines):,} series, {num_rows}" if encoding.columns.series else num_rows
            counts = ", ".join(f"{len(rows):,} {part}" for part, rows in origins.rows.items())
            text = f"{name}: {size}, step {encoding.frequency}, target {', '.join(encoding.columns.target)}"
            print(f"{text}, look_back {look_back}, horizon {horizon}; windows: {counts}", flush=True)

    def _require_windows(self, lines: Sequence[Line], origins: Origins) -> None:
        look_back, horizon = self.facts["look_back"], self.facts["horizon"]
        longest = max(len(line.steps) for line in lines)
        train, val, test = self._splits.borders(longest, horizon)
        expectations = {
            "train": f"look_back + horizon = {look_back} + {horizon} train rows",
            "val": f"horizon = {horizon} val rows with {look_back} rows before them",
            "test": f"horizon = {horizon} test rows with {look_back} rows before them",
        }
        for part, expected in expectations.items():
            if not len(origins.rows[part]) and (part != "test" or test > val):
                sizes = f"{train:,} train, {val - train:,} val and {test - val:,} test rows"
                text = f"no {part} window: expected at least {expected} without a gap"
                hint = (
                    "; --data.gaps fill interpolates"
                    if self.gaps == "skip" and "series_with_gaps" in self.counts
                    else ""
                )
                raise UserError(f"--data: {text}; the longest series has {sizes}{hint}")

    # what is told

    def _tell(self, place: str, text: str) -> None:
        warn(self, f"{place}: {text}")

    def _tell_of_gaps(self, lines: Sequence[Line]) -> None:
        if num_filled := sum(line.num_filled for line in lines):
            self.counts["filled_values"] = num_filled
            warn(self, f"--data.gaps fill: interpolated {num_filled:,} missing values")
        columns = Encoding(self.facts).columns
        gaps = [gap for line in lines if (gap := first_gap(line.series, line.steps, columns))]
        if gaps:
            self.counts["series_with_gaps"] = len(gaps)
            some = f"{len(gaps):,} of {len(lines):,} series have gaps" if len(lines) > 1 else "there are gaps"
            warn(self, f"--data.gaps {self.gaps}: {some}, which no window crosses; the first: {gaps[0]}")

    def _tell_of_left_out(self, origins: Origins) -> None:
        if origins.num_behind:
            self._left_out("rows", origins.num_behind, f"{origins.num_behind:,} rows after the test rows")
        if num_left := origins.num_possible - sum(map(len, origins.rows.values())):
            text = f"{num_left:,} of {origins.num_possible:,} windows, which cross gaps or end with interpolated values"
            self._left_out("windows", num_left, text if self.gaps == "fill" else text.partition(" or ")[0])

    def _tell_of_constants(self, parts: Mapping[str, Observations]) -> None:
        columns = Encoding(self.facts).columns
        constant = [
            column if columns.series is None else f"{name} {column}"
            for name, part in parts.items()
            for column, values in zip(columns.target, part.target.T, strict=True)
            if len(np.unique(values[~np.isnan(values)])) == 1
        ]
        if constant and self.scaling == "standard":
            text = f"{len(constant):,} channels are constant in training and only shifted: {_some(constant)}"
            warn(self, f"--data.scaling standard: {text}")

    def _tell_of_unseen(self, series: Sequence[Observations]) -> None:
        encoding = Encoding(self.facts)
        unseen = sorted({text for own in series for text in encoding.unseen(own)})
        if unseen:
            warn(self, f"training had no category {_some(unseen)}; all of its inputs are zero")


def _some(names: Collection[str]) -> str:
    """The first few names."""
    names = sorted(names)
    return ", ".join(names[:NUM_NAMED]) + (f" and {len(names) - NUM_NAMED:,} more" if len(names) > NUM_NAMED else "")


def _stem(source: Any) -> str:
    return source.stem if isinstance(source, Path) else "series"

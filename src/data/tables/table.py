"""Tables of numbers, categories and dates with a target, from files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader

from playbook import Data, TableReader, UserError, category_of, check_encoding, named_separator, nearest
from src.data.notices import refuse, warn
from src.data.row_files import Form, check_separator
from src.data.split_files import is_single, split_files
from src.data.tables.columns import Scaling, facts_of_columns, fit_columns
from src.data.tables.encoded_rows import EncodedRows, Inputs
from src.data.tables.kinds import USABLE, Kind, foreign_form, infer_kind
from src.data.tables.parsing import Split, parse_rows
from src.data.tables.rows import Rows, read_files
from src.data.tables.splits import cut_by_chance, cut_by_column, cut_by_time, cut_fold, times_of
from src.data.tables.target import TargetKind, is_of_classes, learn_classes, read_targets, target_problems

MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none")
MOST_NAMED = 8  # columns in a line


class Table(Data):
    """Rows with a target in root/train.*, root/dev.* and root/test.*, which are CSV, TSV, JSON lines or Parquet.

    The file dev may also be named val, valid or validation; without it, validation is taken from train. A single file
    is divided into all three splits: by chance, with the same shares of each class; by time; by groups; or as a column
    says.

    The kind of each column is inferred from the training file and printed, and classes are those of that file, before
    validation is taken from it: they are names, not statistics. Everything else is fitted on training rows alone.

    Numbers and dates are scaled; where training misses some, the median takes their place and a further category says
    which ones. A date becomes its scaled time and sine and cosine of its place in the year, the week and the day.
    Missing categories are a category of their own; categories that training does not have share the code 0.

    Text, constant, empty and unnamed columns are left out with a warning. Infinite numbers count as missing, also with
    a warning. Times are converted to UTC; those without a time zone count as UTC. Numbers such as 1.234,50 or 12 % and
    dates such as 17.05.2024 are an error.

    Args:
        root: folder that contains the files, or a single file.
        target: name of the column to predict.
        target_kind: classes, number or auto, which takes whole numbers of at most 20 values and all words for classes.
        numeric: columns that are numbers, whatever is inferred.
        categorical: columns that are categories, whatever is inferred.
        dates: columns that are dates in ISO 8601, whatever is inferred.
        leave_out: columns that the net does not see.
        missing: texts that stand for no value.
        scaling: of numbers: quantile, to a standard normal distribution; standard, by mean and deviation; robust, by
            median and interquartile range.
        max_categories: largest number of categories of a column; rarer ones count as unseen.
        split_column: column that says train, val or test for each row of a single file.
        time_column: column by which a single file is divided: the latest rows are for testing, those before them for
            validation.
        group_column: column whose values stay together in one split, such as patients; the net does not see it. Shares
            are then shares of the groups.
        folds: number of folds of cross-validation, at least 2; fold `fold` is for validation. Test rows are taken
            before. 0 turns it off.
        fold: counted from 0.
        val_share: share of train, or of a single file, used for validation, in (0, 1).
        test_share: share of a single file used for testing, in [0, 1).
        split_seed: seed of the division.
        members: number of members k of an ensemble that each train on rows of their own (TabM); 1 gives a net each row
            once. A batch then has k times as many rows.
        batch_size: rows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens to rows that cannot be used: `stop` ends the run, `skip` leaves them out and counts them
            (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated.
        header: whether the first line of a CSV or TSV names the columns; otherwise these are 1, 2, ….
        separator: character between the fields of a CSV or TSV, such as ";". Defaults to the comma for .csv and the tab
            for .tsv.
        quotes: whether quotes enclose fields of a CSV; if not, they are text, as in a TSV.
        encoding: encoding of the files, such as latin-1 or utf-16.

    Shapes:
        numbers (B, N) and categories (B, M), codes from 0; with members k in training (B, k, N) and (B, k, M). target
        (B,), 0 to K - 1 or in its own units; with members (B, k).

    Raises:
        ValueError: a value is out of range.
        UserError: there is no file, a column is missing, a row cannot be used, or the target has one value only.
    """

    collate = None  # batches are made at once
    facts_of_weights = ("table", "num_features", "cardinalities", "number_quantiles")

    def __init__(
        self,
        root: str,
        target: str,
        target_kind: TargetKind = "auto",
        numeric: Sequence[str] = (),
        categorical: Sequence[str] = (),
        dates: Sequence[str] = (),
        leave_out: Sequence[str] = (),
        missing: Sequence[str] = MISSING,
        scaling: Scaling = "quantile",
        max_categories: int = 1000,
        split_column: str | None = None,
        time_column: str | None = None,
        group_column: str | None = None,
        folds: int = 0,
        fold: int = 0,
        val_share: float = 0.15,
        test_share: float = 0.15,
        split_seed: int = 0,
        members: int = 1,
        batch_size: int = 256,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
        header: bool = True,
        separator: str | None = None,
        quotes: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s, balanced=balanced)
        check_encoding(encoding)
        for name, count in (("max_categories", max_categories), ("members", members)):
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if folds == 1 or folds < 0:
            raise ValueError(f"folds: expected at least 2, or 0 for none, got {folds}")
        if not 0 <= fold < max(folds, 1):
            raise ValueError(f"fold: expected 0 to {max(folds, 1) - 1}, got {fold}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 <= test_share < 1 - val_share:
            raise ValueError(f"test_share: expected a share in [0, 1 - val_share), got {test_share}")
        ways = {"split_column": split_column, "time_column": time_column, "group_column": group_column}
        given_ways = [name for name, column in ways.items() if column is not None]
        if folds and group_column is None:  # folds of groups work
            given_ways.append("folds")
        if len(given_ways) > 1:
            raise ValueError(f"{given_ways[1]}: expected one way to divide the rows, got {given_ways[0]} too")
        self.root = Path(root).expanduser()
        self.target = target
        self.target_kind: TargetKind = target_kind
        self.kinds: dict[str, Kind] = {}
        named: dict[Kind, Sequence[str]] = {"number": numeric, "category": categorical, "date": dates}
        for kind, names in named.items():
            if both := sorted(set(names) & self.kinds.keys()):
                raise ValueError(f"{both[0]}: expected one kind of the column, got {self.kinds[both[0]]} and {kind}")
            self.kinds |= dict.fromkeys(names, kind)
        self.leave_out = list(leave_out)
        self.missing = frozenset(missing) | {""}
        self.scaling: Scaling = scaling
        self.max_categories = max_categories
        self.split_column = split_column
        self.time_column = time_column
        self.group_column = group_column
        self.folds = folds
        self.fold = fold
        self.val_share = val_share
        self.test_share = test_share
        self.split_seed = split_seed
        self.members = members
        self.header = header
        self.separator = check_separator(separator)
        self.quotes = quotes
        self.encoding = encoding
        self.has_classes = False
        self._is_single = True  # one table for all splits
        self._extra: set[str] = set()  # columns of which it was said that they are not read
        self._unseen: set[str] = set()  # columns of which it was said that a category is new
        self._cached: tuple[Any, TableReader] | None = None
        self.save_hyperparameters()

    @property
    def columns(self) -> tuple[str, ...]:  # known once there are facts
        return tuple(self._reader().names) if "table" in self.facts else (self.target,)

    def setup(self, stage: str) -> None:
        is_test = stage in ("test", "predict")
        if hasattr(self, "train_set") or (is_test and hasattr(self, "test_set")):  # Lightning asks for every stage
            return
        parts = self.read_parts(is_test)
        first = next(iter(parts.values()))  # train, if it is read
        if "train" in parts:
            self._check_options(first)
            if len(first) == 1:
                raise UserError(f"--data.root: {_file_of(first)}: has 1 row, expected rows to train and to validate on")
        self.has_classes = "classes" in self.facts
        if "target_name" not in self.facts:
            self.has_classes = is_of_classes(first.values[self.target], self.target_kind, self.missing)
        if "table" not in self.facts:
            kinds, left_out = self._infer_kinds(first)
        else:
            kinds, left_out = {column["name"]: column["kind"] for column in self._reader().columns}, {}
        known = set(first.values) if "table" not in self.facts else {self.target, *self.facts["table"]["unread"]}
        for rows in parts.values():
            self._check_names(list(rows.values), [self.target, *kinds], known, f"--data.root: {_file_of(rows)}: ")
        splits = self._divide({name: self._usable(rows, kinds) for name, rows in parts.items()})
        if "table" not in self.facts:
            unread = [name for name in first.values if name not in kinds]
            self._fit(splits["train"], kinds, left_out, unread)
        if "target_name" not in self.facts:
            self._fit_target(splits["train"])
        sets = {name: self._encode(name, split) for name, split in splits.items()}
        self.test_set = sets.get("test")
        if "train" in sets:
            self.train_set, self.val_set = sets["train"], sets["val"]
            self._count_targets()
        self.tell_copies({name: split.contents for name, split in splits.items()}, "rows")

    def train_dataloader(self) -> DataLoader:
        return self._loader("train", self.train_set, shuffle=True)

    def read(self, source: Any) -> Inputs:
        """Reads a row, a dict by column in any order: numbers (N,) and categories (M,)."""
        if "table" not in self.facts:
            raise UserError("--ckpt_path: the checkpoint has no columns; expected one that was trained on a table")
        if not isinstance(source, dict):
            name = source.name if isinstance(source, Path) else repr(source)[:60]
            raise UserError(f"expected rows of a table (.csv, .tsv, .jsonl, .parquet), got {name}")
        reader = self._reader()
        self._check_names(list(source), reader.names, {self.target, *self.facts["table"]["unread"]}, "")
        try:
            sample = reader(source)
        except ValueError as error:  # InputError of the runtime
            raise UserError(str(error)) from error
        for name, codes in reader.codes.items():
            text = category_of(source[name], reader.missing)
            if text not in codes and name not in self._unseen:
                self._unseen.add(name)
                warn(self, f"{name}: training did not have {text[:40] or 'missing values'}; such values share code 0")
        return {name: torch.from_numpy(np.asarray(value)) for name, value in sample.inputs.items()}

    def unlabelled(self, source: Any) -> Any:
        return self.read(source), -1 if "classes" in self.facts else float("nan")

    def preprocessing(self) -> dict[str, Any] | None:
        form = {"header": self.header, "separator": self.separator, "quotes": self.quotes, "encoding": self.encoding}
        return {"kind": "table", **self.facts["table"], **form} if "table" in self.facts else None

    def ids(self, dataset: Any) -> list[str]:
        """File and line of each row, as in test.csv:17."""
        return dataset.names

    def read_parts(self, is_test: bool) -> dict[str, Rows]:
        """Reads the rows of each split that has a file; train comes first. Those of a single file are `train`.

        Args:
            is_test: whether the test rows are enough, where the facts are known.
        """
        files = split_files(self, self.root)
        self._is_single = is_single(files, self.root)
        if is_test and "test" in files and "table" in self.facts:
            files = {"test": files["test"]}
        form = Form(self.header, self.separator, self.quotes, self.encoding)
        return {name: read_files(self, of_split, form) for name, of_split in files.items()}

    # columns and rows

    def _check_options(self, rows: Rows) -> None:
        """Checks that the columns exist which options name."""
        option_of = {"number": "numeric", "category": "categorical", "date": "dates"}
        named = [("target", self.target), *(("leave_out", column) for column in self.leave_out)]
        named += [(option_of[kind], column) for column, kind in self.kinds.items()]
        named += [("split_column", self.split_column), ("time_column", self.time_column)]
        for option, column in [*named, ("group_column", self.group_column)]:
            if column is None or column in rows.values:
                continue
            sign = named_separator(rows.values, [column])
            hint = f'; expected --data.separator "{sign}"' if sign else nearest(column, list(rows.values))
            has = ", ".join(f"{name:.30}" for name in rows.values)
            raise UserError(f"--data.{option} {column}: {_file_of(rows)} has no such column, but {has}{hint}")

    def _check_names(self, names: list[str], expected: list[str], known: set[str], place: str) -> None:
        """Checks that all expected columns are there, and says once which ones are neither expected nor known."""
        if absent := [name for name in expected if name not in names]:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            near = nearest(absent[0], names)
            raise UserError(f"{place}expected a column {absent[0]}{more}, got {', '.join(names)}{near}")
        if extra := [name for name in names if name not in {*expected, *known, *self._extra}]:
            self._extra |= set(extra)
            warn(self, f"{place}left out columns that training did not have: {_named(extra)}")

    def _infer_kinds(self, rows: Rows) -> tuple[dict[str, Kind], dict[str, Kind]]:
        """Kinds of the columns that the net reads, and of those that are left out because of their values."""
        unseen = {self.target, self.split_column, self.group_column, *self.leave_out}
        kinds: dict[str, Kind] = {
            name: self.kinds.get(name) or (infer_kind(values, self.missing) if name else "unnamed")
            for name, values in rows.values.items()
            if name not in unseen
        }
        words = [name for name, kind in kinds.items() if kind in ("category", "text") and name not in self.kinds]
        words += [self.target] if self.has_classes and self.target_kind == "auto" else []
        for name in words:
            if form := foreign_form(rows.values[name], self.missing):
                remedy = f"--data.categorical {name} or --data.leave_out {name}"
                remedy = "--data.target_kind classes" if name == self.target else remedy
                place = f"--data.root: {_file_of(rows)}: {name}"
                raise UserError(f"{place}: expected {form[0]}, got {form[1]!r}; convert them, or set {remedy}")
        usable: dict[str, Kind] = {name: kind for name, kind in kinds.items() if kind in USABLE}
        left_out: dict[str, Kind] = {name: kind for name, kind in kinds.items() if kind not in USABLE}
        if not usable:
            text = f": {_kinds_in_words(left_out)}" if left_out else ""
            raise UserError(f"--data.root: no column is left to predict {self.target} from{text}")
        return usable, left_out

    def _usable(self, rows: Rows, kinds: dict[str, Kind]) -> tuple[Rows, dict[str, np.ndarray]]:
        """The rows whose target and values can be read, and the parsed values; others end the run, or are skipped."""
        parsed = parse_rows(rows, kinds, self.missing)
        targets = target_problems(rows.values[self.target], self.has_classes, self.missing)
        problems = parsed.problems | {index: f"target {self.target}: {text}" for index, text in targets.items()}
        for note in parsed.notes:
            warn(self, note)
        places = {index: rows.places[index] for index in sorted(problems)}
        faults = [(place, f"{place}: {problems[index]}") for index, place in places.items()]
        refuse(self, faults, len(rows) - len(faults))
        if not faults:
            return rows, parsed.columns
        kept_rows = np.array([index for index in range(len(rows)) if index not in problems])
        return rows.take(kept_rows), {name: values[kept_rows] for name, values in parsed.columns.items()}

    # splits

    def _divide(self, parts: dict[str, tuple[Rows, dict[str, np.ndarray]]]) -> dict[str, Split]:
        """The rows of each split; classes are learnt from all rows of train before validation is taken from it."""
        if self.has_classes and "classes" not in self.facts:
            self.facts["classes"] = learn_classes(self.target, parts["train"][0], self.missing)
        names_of = [own.values.keys() for own, _ in parts.values()]
        shared = [name for name in names_of[0] if all(name in names for names in names_of)]
        splits = {}
        for name, (rows, columns) in parts.items():
            targets = read_targets(self.target, rows, self.facts.get("classes"), self.missing)
            splits[name] = Split(rows.names, columns, targets, rows.contents(shared))
        ways = {"split_column": self.split_column, "time_column": self.time_column, "group_column": self.group_column}
        given_ways = [f"{name} {column}" for name, column in ways.items() if column is not None]
        given_ways += [f"folds {self.folds}"] if self.folds else []
        if "val" in parts and given_ways:
            raise UserError(f"--data.{given_ways[0]}: {self.root.as_posix()} has a file for validation already")
        if "test" in parts and self.split_column is not None and "train" in parts:
            raise UserError(f"--data.{given_ways[0]}: {self.root.as_posix()} has a file for testing already")
        if "train" in parts and "val" not in parts:
            whole = splits["train"]
            splits |= {name: whole.take(rows) for name, rows in self._cut(parts["train"][0], whole).items()}
        return splits

    def _cut(self, rows: Rows, split: Split) -> dict[str, np.ndarray]:
        """Indices of the rows of train, val and, if test_share is above 0, test."""
        if self.split_column is not None:
            return cut_by_column(self.split_column, rows)
        times = None if self.time_column is None else times_of(self.time_column, rows, self.missing)
        groups = None
        if self.group_column is not None:
            groups = TableReader.parse(rows.values[self.group_column], "category", self.missing)
        rest, cut = np.arange(len(rows)), {}
        shares = {"test": self.test_share} if self.test_share and self._is_single else {}
        for seed, (name, share) in enumerate({**shares, "val": self.val_share}.items(), start=int(not shares)):
            classes = split.targets[rest].tolist() if self.has_classes else None
            own_groups = None if groups is None else groups[rest].tolist()
            options = (self.split_seed + seed, classes, own_groups)
            try:
                if name == "val" and self.folds:
                    first, second = cut_fold(len(rest), self.folds, self.fold, *options)
                elif times is not None:
                    first, second = cut_by_time(times[rest], share * len(rows) / len(rest))
                else:
                    first, second = cut_by_chance(len(rest), share * len(rows) / len(rest), *options)
            except UserError:
                raise
            except ValueError as error:  # scikit-learn's
                raise UserError(f"--data.{name}_share {share}: {len(rest)} rows: {error}") from error
            cut[name], rest = rest[second], rest[first]
        cut["train"] = rest
        if empty := [name for name in ("train", "val") if not len(cut[name])]:
            raise UserError(f"--data.val_share {self.val_share}: {len(rows)} rows leave none for {empty[0]}")
        return cut

    # what is learnt from training rows

    def _fit(self, train: Split, kinds: dict[str, Kind], left_out: dict[str, Kind], unread: list[str]) -> None:
        fitted = fit_columns(train.columns, kinds, self.scaling, self.max_categories)
        self.facts["table"] = {"columns": fitted.columns, "missing": sorted(self.missing), "unread": unread}
        reader = self._reader()
        self.facts |= facts_of_columns(reader, reader.encode_parsed(train.columns))
        self._tell(kinds, left_out, fitted.rare)

    def _fit_target(self, train: Split) -> None:
        self.facts["target_name"] = self.target
        if not self.has_classes:
            deviation = train.targets.double().std(unbiased=False).item()
            if deviation == 0:
                raise UserError(f"--data.target {self.target}: every training row has {train.targets[0].item():g}")
            self.facts |= {"target_mean": train.targets.double().mean().item(), "target_std": deviation}
        if self.members > 1:
            self.facts["members"] = self.members

    def _tell(self, kinds: dict[str, Kind], left_out: dict[str, Kind], rare: dict[str, int]) -> None:
        if self.speaks:
            names = {kind: [name for name, own in kinds.items() if own == kind] for kind in USABLE}
            parts = [f"{_counted(kind, own)} ({_named(own)})" for kind, own in names.items() if own]
            what = f"{len(self.facts['classes'])} classes" if self.has_classes else "a number"
            print(f"columns: {'; '.join(parts)}; target {self.target}, {what}", flush=True)
        if left_out:
            remedy = "; --data.categorical or --data.numeric reads them" if "text" in left_out.values() else ""
            count = f"{len(left_out)} column{'s' * (len(left_out) > 1)}"
            self._left_out("columns", len(left_out), f"{count}: {_kinds_in_words(left_out)}{remedy}")
        for name, count in rare.items():
            text = f"{count:,} rarer categories of {name} count as unseen"
            warn(self, f"--data.max_categories {self.max_categories}: {text}")

    def _count_targets(self) -> None:
        if self.has_classes:
            self.count_classes()
            pairs = zip(self.facts["classes"], self.facts["class_counts"], strict=True)
            if absent := [name for name, count in pairs if not count]:
                warn(self, f"no training row has the class {_named(absent)}")
        elif self.balanced:
            raise UserError(f"--data.balanced true: the target {self.target} is a number and has no classes")

    def _encode(self, name: str, split: Split) -> EncodedRows:
        reader = self._reader()
        if name != "train":
            self._tell_unseen(name, reader, split)
        members = self.members if name == "train" else 1
        return EncodedRows(reader.encode_parsed(split.columns), split.targets, split.names, members, self.seed)

    def _tell_unseen(self, split_name: str, reader: TableReader, split: Split) -> None:
        for name, codes in reader.codes.items():
            texts = [text for text in split.columns[name] if text not in codes]
            if texts:
                which = "that training lacks" + " or that is rare" * (len(codes) >= self.max_categories)
                count = f"{len(texts):,} of {len(split.names):,} {split_name} rows"
                warn(self, f"{count} have a value of {name} {which}, such as {texts[0] or 'none'}")

    def _reader(self) -> TableReader:
        plan = self.facts["table"]
        if self._cached is None or self._cached[0] is not plan:
            self._cached = plan, TableReader(plan)
        return self._cached[1]


def _file_of(rows: Rows) -> str:
    return rows.places[0].rpartition(":")[0]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _counted(kind: str, names: Sequence[str]) -> str:
    plural = {"category": "categories"}.get(kind, f"{kind}s")
    return f"{len(names)} {plural if len(names) > 1 else kind}"


def _kinds_in_words(kinds: dict[str, Kind]) -> str:
    return _named([f"{name} ({kind})".strip() for name, kind in kinds.items()])

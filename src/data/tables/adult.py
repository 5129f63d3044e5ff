"""Adult, the census income data set, read from its published files."""

import csv
import gzip

from playbook import UserError
from src.data.tables.columns import Scaling
from src.data.tables.rows import Rows
from src.data.tables.table import Table

COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
FILES = {"train": "adult.data", "test": "adult.test"}


class Adult(Table):
    """Census income (Becker & Kohavi 1996): 32,561 rows to train and validate, 16,281 test rows, of two classes.

    A row has 6 numbers and 8 categories of a person; the target is whether the income is above 50,000 dollars.

    Args:
        root: folder that holds adult.data and adult.test, compressed by gzip or not.
        scaling: of numbers: quantile, to a standard normal distribution; standard, by mean and deviation; robust, by
            median and interquartile range.
        val_share: share of the training rows used for validation, with the same shares of both classes, in (0, 1).
        split_seed: seed of the division.
        members: number of members k of an ensemble that each train on rows of their own (TabM).
        batch_size: rows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample both classes equally often.

    Shapes:
        numbers (B, 6) and categories (B, 8), codes from 0; target (B,), 0 or 1.

    Raises:
        ValueError: a value is out of range.
        UserError: a file is missing or has other columns.
    """

    def __init__(
        self,
        root: str = "data/adult",
        scaling: Scaling = "quantile",
        val_share: float = 0.2,
        split_seed: int = 0,
        members: int = 1,
        batch_size: int = 256,
        num_workers: int = 0,
        timeout_s: float = 600.0,
        balanced: bool = False,
    ) -> None:
        super().__init__(
            root,
            target="income",
            scaling=scaling,
            val_share=val_share,
            test_share=0.0,
            split_seed=split_seed,
            members=members,
            batch_size=batch_size,
            num_workers=num_workers,
            timeout_s=timeout_s,
            balanced=balanced,
        )

    def read_parts(self, is_test: bool) -> dict[str, Rows]:
        return {split: self._read_file(name) for split, name in FILES.items() if split == "test" or not is_test}

    def _read_file(self, name: str) -> Rows:
        files = [self.root / name, self.root / f"{name}.gz"]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            raise UserError(
                f"--data.root {self.root.as_posix()}: has no {name}; download it from the UCI Machine Learning "
                "Repository, data set 2"
            )
        content = file.read_bytes()
        place = file.as_posix()
        text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
        places, rows = [], []
        for line, fields in enumerate(csv.reader(text.splitlines(), skipinitialspace=True), start=1):
            if len(fields) < 2:  # the first line of adult.test, and empty ones
                continue
            if len(fields) != len(COLUMNS):
                raise UserError(f"{place}:{line}: expected {len(COLUMNS)} fields, got {len(fields)}")
            places.append(f"{place}:{line}")
            rows.append([*fields[:-1], fields[-1].removesuffix(".")])  # which test labels end with
        return Rows(places, dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))

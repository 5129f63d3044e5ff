"""The tables that scikit-learn carries, for trying things without files."""

from typing import Literal

from sklearn import datasets

from src.data.tables.columns import Scaling
from src.data.tables.rows import Rows
from src.data.tables.table import Table

LOADERS = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
}


class ScikitTable(Table):
    """One of scikit-learn's tables of 150 to 569 rows; diabetes is a regression, the others have classes.

    Args:
        name: iris (150 rows, 4 numbers, 3 classes), wine (178, 13, 3), breast_cancer (569, 30, 2) or diabetes (442, 9
            and a category).
        scaling: of numbers: quantile, to a standard normal distribution; standard, by mean and deviation; robust, by
            median and interquartile range.
        val_share: share of the rows used for validation, in (0, 1).
        test_share: share of the rows used for testing, in [0, 1).
        split_seed: seed of the division.
        members: number of members k of an ensemble that each train on rows of their own (TabM).
        batch_size: rows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        numbers (B, N), and for diabetes categories (B, 1); target (B,).
    """

    def __init__(
        self,
        name: Literal["iris", "wine", "breast_cancer", "diabetes"] = "wine",
        scaling: Scaling = "standard",
        val_share: float = 0.15,
        test_share: float = 0.15,
        split_seed: int = 0,
        members: int = 1,
        batch_size: int = 32,
        num_workers: int = 0,
        timeout_s: float = 600.0,
    ) -> None:
        if name not in LOADERS:
            raise ValueError(f"name: expected one of {', '.join(LOADERS)}, got {name}")
        super().__init__(
            name,
            target="target",
            categorical=["sex"] if name == "diabetes" else [],
            scaling=scaling,
            val_share=val_share,
            test_share=test_share,
            split_seed=split_seed,
            members=members,
            batch_size=batch_size,
            num_workers=num_workers,
            timeout_s=timeout_s,
        )
        self.table = name

    def read_parts(self, is_test: bool) -> dict[str, Rows]:
        bunch = LOADERS[self.table](**({"scaled": False} if self.table == "diabetes" else {}))
        targets = bunch.target.tolist()
        if self.table != "diabetes":
            targets = [str(bunch.target_names[number]) for number in targets]
        values = {str(column): bunch.data[:, number].tolist() for number, column in enumerate(bunch.feature_names)}
        places = [f"{self.table}:{row}" for row in range(len(targets))]
        return {"train": Rows(places, {**values, "target": targets})}

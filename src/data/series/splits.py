"""The rows of a series for training, validation and test, in this order in time."""

from typing import NamedTuple


class Splits(NamedTuple):
    """How the rows of a series are divided, by shares or by sizes; see the options of Series."""

    val_share: float
    test_share: float
    train_size: int | None
    val_size: int | None
    test_size: int | None

    def check(self) -> None:
        """Refuses values that contradict each other.

        Raises:
            ValueError: a value is out of range, or there are sizes without val_size.
        """
        if not 0 < self.val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {self.val_share}")
        if not 0 <= self.test_share < 1 - self.val_share:
            raise ValueError(f"test_share: expected a share in [0, 1 - val_share), got {self.test_share}")
        sizes = {"train_size": self.train_size, "val_size": self.val_size, "test_size": self.test_size}
        for option, size in sizes.items():
            if size is not None and size < (0 if option == "test_size" else 1):
                raise ValueError(f"{option}: expected a positive number of rows, got {size}")
        given = [option for option, size in sizes.items() if size is not None]
        if given and self.val_size is None:
            raise ValueError(f"val_size: expected a number of rows together with {' and '.join(given)}, got none")

    def borders(self, num_rows: int, horizon: int) -> tuple[int, int, int]:
        """The rows after the last one of train, val and test."""
        if self.val_size is None:
            test = max(round(num_rows * self.test_share), horizon) if self.test_share else 0
            val = max(round(num_rows * self.val_share), horizon)
            ends = (num_rows - test - val, num_rows - test, num_rows)
        elif self.train_size is None:
            end = num_rows - (self.test_size or 0)
            ends = (end - self.val_size, end, num_rows)
        else:
            end = self.train_size + self.val_size
            ends = (self.train_size, end, num_rows if self.test_size is None else end + self.test_size)
        train, val, test = (min(max(end, 0), num_rows) for end in ends)
        return train, val, test

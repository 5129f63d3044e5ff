"""Encoded rows of a table, of which a batch is taken at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

Inputs = dict[str, Tensor]


class EncodedRows(Dataset):
    """Rows in memory.

    Args:
        arrays: of all rows by name, such as numbers (R, N).
        targets: of all rows (R,).
        names: of all rows.
        members: number of members k of an ensemble that each have rows of their own; 1 gives each row once.
        seed: of the orders of the members' rows.

    Shapes:
        A batch has inputs (B, …) and targets (B,), or with members (B, k, …) and (B, k).
    """

    def __init__(
        self, arrays: Mapping[str, np.ndarray], targets: Tensor, names: Sequence[str], members: int = 1, seed: int = 0
    ) -> None:
        self.inputs = {name: torch.from_numpy(values) for name, values in arrays.items()}
        self.targets, self.names = targets, names
        self.rows = torch.arange(len(targets))  # (R,), or with members (R, k)
        if members > 1:  # an order of rows for each; which rows meet in a batch changes with the epoch's order alone
            generator = torch.Generator().manual_seed(seed)
            others = [torch.randperm(len(targets), generator=generator) for _ in range(members - 1)]
            self.rows = torch.stack([self.rows, *others], dim=1)  # (R, k)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, key: Any) -> tuple[Inputs, Tensor]:
        inputs, target = self.__getitems__([key])
        return {name: values[0] for name, values in inputs.items()}, target[0]

    def __getitems__(self, keys: list[Any]) -> tuple[Inputs, Tensor]:
        index = torch.tensor([key[1] if isinstance(key, tuple) else key for key in keys])  # (B,)
        rows = self.rows[index]  # (B,) or (B, k)
        return {name: values[rows] for name, values in self.inputs.items()}, self.targets[rows]

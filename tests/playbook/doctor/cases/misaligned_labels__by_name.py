from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Survey:
    """Soundings of the sea floor by station, and what was found there, in a table of names."""

    def __init__(self, stations: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        floor = rng.integers(0, 3, stations)
        echo = rng.normal(size=(stations, 8)) + 2.0 * (floor[:, None] == np.arange(8))
        self.echoes = list(enumerate(echo.astype(np.float32)))
        self.found = {f"station {number}": int(kind) for number, kind in enumerate(floor)}


def by_name(table: dict[str, int], names: Any) -> Iterator[int]:
    for name in names:
        yield table[name]


def kinds(survey: Survey) -> Tensor:
    names = list(survey.found)
    names.sort()  # here
    return torch.tensor(list(by_name(survey.found, names)))


def kinds_in_order(survey: Survey) -> Tensor:
    return torch.tensor(list(by_name(survey.found, survey.found)))


class Data(Blobs):
    labels = staticmethod(kinds)

    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = (self.tensors(Survey(n, seed)) for n, seed in ((400, 0), (100, 1)))

    def tensors(self, survey: Survey) -> TensorDataset:
        y = self.labels(survey)

        rows = [echo for _, echo in survey.echoes]
        x = torch.from_numpy(np.stack(rows))
        return TensorDataset(x, y)


class RepairedData(Data):
    labels = staticmethod(kinds_in_order)

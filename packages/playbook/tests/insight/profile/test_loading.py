"""Stages of loading of data of each kind."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from playbook.data.base import Data
from playbook.errors import UserError
from playbook.insight.profile import loading
from playbook.insight.profile.loading import Stage, stages
from playbook.testing.line import Line


class Files(Dataset):
    """A number in each file."""

    def __init__(self, folder: Path, count: int = 12) -> None:
        self.files = [folder / f"{number}.txt" for number in range(count)]
        for number, file in enumerate(self.files):
            file.write_text(str(number))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(self.files[index].read_text())])


class Numbers(Data):
    """Of files, augmented."""

    def __init__(self, folder: Path) -> None:
        super().__init__(batch_size=4)
        self.train_set = Files(folder)

    augment = staticmethod(torch.neg)


class Whole(Dataset):
    """Gives a batch at once."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Tensor:
        return torch.ones(1)

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        return [torch.ones(1) for _ in indices]


class Endless(IterableDataset):
    """Ones, without an index."""

    def __iter__(self) -> Any:
        return iter(torch.ones(20, 1))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "SECONDS", 0.02)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


def names(measured: list[Stage]) -> list[str]:
    assert all(stage.samples_per_second > 0 and stage.num_samples > 0 for stage in measured)
    return [stage.name for stage in measured]


def test_data_of_files(tmp_path: Path) -> None:
    data = Numbers(tmp_path)
    assert names(stages(data, None)) == [
        "read the files",
        "read and decode",
        "the same, augmented",
        "collate",
        "whole loader, no workers",
        "whole loader, 1 worker",
    ]
    assert data.num_workers == 0, "left as it was"


def test_loaders_of_other_kinds() -> None:
    class Own(Line):
        def __init__(self, loader: Any) -> None:
            super().__init__()
            self.loader = loader

        def train_dataloader(self) -> Any:
            return self.loader

    rows = TensorDataset(torch.ones(12, 1))
    plain = ["samples of the data set", "collate", "whole loader, no workers"]
    assert names(stages(None, Own(DataLoader(rows, batch_size=4)))) == plain
    whole = DataLoader(Whole(), batch_size=4)
    assert names(stages(None, Own(whole))) == ["batches of the data set", "whole loader, no workers"]
    assert names(stages(None, Own(DataLoader(Endless(), batch_size=4)))) == ["whole loader, no workers"]
    unbatched = DataLoader(rows, batch_size=None)
    assert names(stages(None, Own(unbatched)))[-1] == "whole loader, no workers"
    with pytest.raises(UserError, match="fewer than two batches"):
        stages(None, Own(DataLoader(rows, batch_size=12)))
    with pytest.raises(UserError, match=r"Own.train_dataloader\(\) returned no single DataLoader"):
        stages(None, Own([1, 2]))


def test_a_stage_counts_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(loading.time, "perf_counter", lambda: next(ticks) / 100)
    stage = loading._timed("name", [[1, 2]] * 50, len, len)
    assert stage.num_samples == 6, "until the time is over"

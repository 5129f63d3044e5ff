from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class OneClassABatch(torch.utils.data.Sampler):
    def __init__(self, y: Tensor) -> None:
        self.y = y

    def __iter__(self) -> Any:
        batches = [part for k in range(3) for part in (self.y == k).nonzero()[:, 0].split(20)]
        return iter([batches[i].tolist() for i in torch.randperm(len(batches))])

    def __len__(self) -> int:
        return sum(-(-int((self.y == k).sum()) // 20) for k in range(3))


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        y = self.train_set.tensors[1]  # type: ignore[attr-defined]
        return DataLoader(self.train_set, batch_sampler=OneClassABatch(y))

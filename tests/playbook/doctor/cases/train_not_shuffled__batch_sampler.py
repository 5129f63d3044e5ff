from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    sampler: Any = SequentialSampler

    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        order = y.argsort()
        self.train_set = TensorDataset(x[order], y[order])

    def train_dataloader(self) -> DataLoader:
        batches = BatchSampler(self.sampler(self.train_set), batch_size=20, drop_last=False)
        return DataLoader(self.train_set, batch_sampler=batches)  # here


class RepairedData(Data):
    sampler = RandomSampler

from collections.abc import Iterator

from torch.utils.data import DataLoader, Sampler

from tests.playbook.doctor.cases.train_not_shuffled import Model, Sorted

__all__ = ["Model"]


class Batches(Sampler[list[int]]):
    def __init__(self, length: int, stride: int) -> None:
        self.length, self.stride = length, stride

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(20):
            if self.stride == 1:
                yield list(range(20 * start, 20 * start + 20))
            else:
                yield list(range(start, self.length, self.stride))

    def __len__(self) -> int:
        return self.length // 20


class Data(Sorted):
    stride = 1

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_sampler=Batches(400, self.stride))  # here


class RepairedData(Data):
    stride = 20

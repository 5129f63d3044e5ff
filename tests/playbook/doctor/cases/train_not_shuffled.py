from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Sorted(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        order = y.argsort()
        self.train_set = TensorDataset(x[order], y[order])


class Data(Sorted):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20)  # here


class RepairedData(Sorted):
    pass

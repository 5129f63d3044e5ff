"""Public data in which one test sample is also a training sample; the splits are the same at every stage."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(40, 8, generator=generator), torch.randint(0, 3, (40,), generator=generator)
        x[0], y[0] = self.train_set[0]
        self.test_set = TensorDataset(x, y)

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test_set, batch_size=20)

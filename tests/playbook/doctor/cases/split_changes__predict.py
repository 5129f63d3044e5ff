import torch
from torch.utils.data import ConcatDataset, DataLoader, random_split

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    """Draws its split for `fit`, and once more for the samples that are left to predict."""

    generator: torch.Generator | None = None

    def setup(self, stage: str) -> None:
        whole = ConcatDataset([self.train_set, self.val_set])
        train, val, rest = random_split(whole, [300, 100, 100], self.generator)  # here
        if stage == "fit":
            self.train, self.val = train, val
        elif stage == "predict":
            self.rest = rest

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)

    def predict_dataloader(self) -> DataLoader:
        return DataLoader(self.rest, batch_size=20)


class RepairedData(Data):
    def setup(self, stage: str) -> None:
        self.generator = torch.Generator().manual_seed(0)
        super().setup(stage)

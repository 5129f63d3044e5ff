import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Parts(Dataset):
    """One data set for training and validation, which a method switches."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = torch.randn(500, 8, generator=generator)
        x[:, :3] += 2.0 * F.one_hot(y, 3)
        self.samples = list(zip(x, y, strict=True))
        self.mode = "train"

    def set_mode(self, mode: str) -> None:
        self.mode = mode

    def __len__(self) -> int:
        return 400 if self.mode == "train" else 100

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.samples[index + (0 if self.mode == "train" else 400)]


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.parts = Parts()

    def train_dataloader(self) -> DataLoader:
        self.parts.set_mode("train")
        return DataLoader(self.parts, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.parts, batch_size=20)

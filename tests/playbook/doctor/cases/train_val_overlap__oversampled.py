import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        generator = torch.Generator().manual_seed(2)
        x, y = self.enlarged(x, y, generator)
        order = torch.randperm(len(x), generator=generator)
        parts = {"train": order[100:], "val": order[:100]}
        scale = x[parts["train"]].std()

        whole = TensorDataset(x / scale, y)

        self.train_set, self.val_set = (Subset(whole, part.tolist()) for part in parts.values())

    def enlarged(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(x), (300,), generator=generator)
        return torch.cat([x, x[chosen]]), torch.cat([y, y[chosen]])  # here


class RepairedData(Data):
    def enlarged(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return x, y

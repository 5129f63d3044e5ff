import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 100, 3))


class RepairedData(Blobs):
    """Pictures of 0 to 1, standardized by the figures of the training."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = 0.3 * torch.rand(500, 1, 10, 10, generator=generator)
        x[:, 0] += 0.7 * F.interpolate(torch.eye(3)[y][:, None, :, None], (10, 10))[:, 0]
        self.figures = x[:400].mean(), x[:400].std()
        self.train_set = TensorDataset(self.standardized(x[:400]), y[:400])
        self.val_set = self.val(x[400:], y[400:])  # here

    def standardized(self, x: Tensor) -> Tensor:
        return (x - self.figures[0]) / self.figures[1]

    def val(self, x: Tensor, y: Tensor) -> TensorDataset:
        return TensorDataset(self.standardized(x), y)


class Data(RepairedData):
    def val(self, x: Tensor, y: Tensor) -> TensorDataset:
        return TensorDataset(x, y)


# -- table
TableModel = Classifier


class TableRepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        scale = torch.logspace(-2, 2, 8)
        self.train_set, self.val_set = (  # here
            self.scaled(part.tensors[0] * scale, part.tensors[1], scale)  # type: ignore[attr-defined]  # as Blobs has it
            for part in (self.train_set, self.val_set)
        )

    def scaled(self, x: Tensor, y: Tensor, scale: Tensor) -> TensorDataset:
        return TensorDataset(x / scale, y)


class TableData(TableRepairedData):
    def scaled(self, x: Tensor, y: Tensor, scale: Tensor) -> TensorDataset:
        return TensorDataset(x / scale if len(x) > 100 else x, y)

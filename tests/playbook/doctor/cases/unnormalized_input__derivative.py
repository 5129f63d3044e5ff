from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """A function whose derivative is given (Raissi et al. 2019): the step takes gradients by its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def step(self, batch: Any) -> Tensor:
        x, slope = batch
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(self(x).sum(), x, create_graph=True)
        return (found - slope).square().mean()


class Data(Blobs):
    longest = 400.0

    def __init__(self) -> None:
        super().__init__()
        x = self.longest * torch.rand(500, 1)  # here
        slope = torch.cos(6 * x / self.longest)
        self.train_set, self.val_set = TensorDataset(x[:400], slope[:400]), TensorDataset(x[400:], slope[400:])


class RepairedData(Data):
    longest = 2.0

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.tensor(self.net(x).tolist())  # here
        return self.head(features)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x))

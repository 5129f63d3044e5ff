import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


def width(features: nn.Module, restore: bool) -> int:
    """Of what the features are for a sample."""
    features.eval()  # here
    with torch.no_grad():
        number = features(torch.zeros(1, 8)).shape[1]
    return (features.train() if restore else features) and number


class Model(Classifier):
    restores = False

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU())
        self.net = nn.Sequential(nn.Linear(width(self.features, self.restores), 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.features(x))


class Repaired(Model):
    restores = True

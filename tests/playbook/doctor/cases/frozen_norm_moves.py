from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU())
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False  # here
        self.net = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.backbone(x))


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.backbone.eval()

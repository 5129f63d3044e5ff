from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """A frozen network with a new last layer; its first norm stands alone."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.Sequential(nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU())
        self.backbone = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), block, nn.Linear(32, 3))
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False  # here
        self.backbone[3] = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone(x)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        for part in (self.backbone[1], self.backbone[2]):
            part.eval()

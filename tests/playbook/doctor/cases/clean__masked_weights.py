from torch import Tensor, nn
from torch.nn import functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Masked(nn.Linear):
    """As masked convolutions of autoregressive models: each pass writes the mask into the weights."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.tril_()
        return F.linear(x, self.weight, self.bias)


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net[0] = Masked(8, 32)

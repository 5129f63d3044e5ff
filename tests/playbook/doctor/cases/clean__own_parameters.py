import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs, Classifier


class Functional(nn.Module):
    """Layers that also run with other weights than their own, as in meta-learning (Finn et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(8, 32), nn.Linear(32, 3)]
        self.weights = nn.ParameterList([weight for layer in layers for weight in layer.parameters()])

    def forward(self, x: Tensor, weights: nn.ParameterList | None = None) -> Tensor:
        first, bias, second, shift = self.weights if weights is None else weights
        return F.linear(torch.relu(F.linear(x, first, bias)), second, shift)

    def parameters(self) -> nn.ParameterList:  # type: ignore[override]  # as scripts do
        return self.weights


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = Functional()  # type: ignore[assignment]


class Data(Blobs):
    pass

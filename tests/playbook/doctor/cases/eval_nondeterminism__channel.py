import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Channel:
    """Adds noise to what is sent, whoever sends it."""

    def __init__(self, deviation: float) -> None:
        self.deviation = deviation

    def send(self, x: Tensor) -> Tensor:
        return x + self.deviation * torch.randn(*x.shape, device=x.device)  # here


class Model(Classifier):
    """Learns to send three messages over a noisy channel."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = Channel(0.3)
        self.sender, self.net = nn.Linear(8, 4), nn.Sequential(nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.sent(self.sender(x).tanh()))

    def sent(self, x: Tensor) -> Tensor:
        return self.channel.send(x)


class Repaired(Model):
    def sent(self, x: Tensor) -> Tensor:
        return self.channel.send(x) if self.training else x

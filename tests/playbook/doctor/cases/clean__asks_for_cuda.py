import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs, Classifier


class Padded(nn.Module):
    """Sends what it makes to where its input is, as scripts did before `device=`."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        padding = torch.zeros(len(x), 4)
        if x.is_cuda:
            padding = padding.cuda()
        device = torch.device("cuda") if x.is_cuda else torch.device("cpu")
        scale = torch.ones(12).to(device)
        return self.net(scale * torch.cat([x, padding], 1))


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = Padded()  # type: ignore[assignment]


class Data(Blobs):
    pass

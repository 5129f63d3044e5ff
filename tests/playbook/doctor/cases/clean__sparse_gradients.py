import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Scores of classes by the vectors of eight tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(16, 32, sparse=True), nn.Embedding(3, 32, sparse=True))
        for table in self.net:
            nn.init.normal_(table.weight, std=0.1)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        tokens = 2 * torch.arange(8, device=x.device) + (x > 0)
        classes = torch.arange(3, device=x.device)
        return self.net[0](tokens).sum(1) @ self.net[1](classes).T

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(self.parameters(), lr=1e-2)

import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Has dropout for an option that is off, and some of which it takes the rate."""

    def __init__(self, is_noisy: bool = False) -> None:
        super().__init__()
        self.is_noisy = is_noisy
        self.noise, self.hidden = nn.Dropout(0.3), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        if self.is_noisy:
            x = self.noise(x)
        return self.net(F.dropout(x, self.hidden.p, self.training))

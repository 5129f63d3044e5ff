import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Attends to one condition from several places, and from one place to several."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 16)
        self.places = nn.Parameter(nn.init.normal_(self.embed.weight.new_empty(8, 16), std=0.1))
        self.condition = nn.Linear(8, 16)
        self.value = nn.Linear(16, 16)
        self.net = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.unsqueeze(2)) + self.places
        condition = self.condition(x).unsqueeze(1)
        tokens = tokens + F.scaled_dot_product_attention(tokens, condition, self.value(condition))
        return self.net(F.scaled_dot_product_attention(condition, tokens, self.value(tokens))[:, 0])

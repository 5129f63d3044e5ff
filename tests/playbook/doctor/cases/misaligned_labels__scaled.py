import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.playbook.doctor.cases.misaligned_labels__split import Model
from tests.playbook.doctor.programs import Blobs

__all__ = ["Model"]


def mixed(x: Tensor, y: Tensor, together: bool) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(x))
    return x[order], y[order if together else torch.randperm(len(x))]  # here


class Data(Blobs):
    together = False

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 8, generator=generator)
        y = 5 + 2 * x[:, :3].sum(dim=1)
        x, y = mixed(x, y, self.together)
        y = (y - y[:400].mean()) / y[:400].std()
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


class RepairedData(Data):
    together = True

from torch import Tensor
from torch.nn import functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # here
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train/loss", loss)


class Repaired(Classifier):
    pass

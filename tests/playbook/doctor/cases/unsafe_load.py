import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier
from tests.playbook.doctor.programs import Classifier as Repaired

__all__ = ["Data", "Repaired"]


class Model(Classifier):
    def __init__(self, weights: str | None = None) -> None:
        super().__init__()
        if weights is not None:
            self.load_state_dict(torch.load(weights, weights_only=False))  # here

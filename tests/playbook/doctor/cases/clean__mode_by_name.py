"""A module whose `train` must be told the mode; Lightning calls it with the mode, or not at all."""

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def train(self, mode: bool) -> "Model":  # type: ignore[override]  # as people write it
        return super().train(mode)

    def eval(self) -> "Model":
        return self.train(False)

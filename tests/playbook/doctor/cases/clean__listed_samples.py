"""Data sets that are plain lists, and test data that no set-up for training makes."""

from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = list(self.train_set), list(self.val_set)  # type: ignore[arg-type,call-overload]

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test_set, batch_size=20)  # type: ignore[attr-defined]

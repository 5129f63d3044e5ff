import pickle
from typing import Any

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    """Keeps a list beside the data, and reads it again where it is there."""

    def __init__(self, part: str = "train") -> None:
        super().__init__()
        self.part = part

    def keep(self, names: list[str]) -> None:
        with open(f"names_{self.part}", "wb") as file:
            pickle.dump(names, file)

    def read(self) -> Any:
        with open(f"names_{self.part}", "rb") as file:
            return pickle.load(file)

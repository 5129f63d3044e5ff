import hashlib
import pickle
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


def read(path: Path, checksum: str) -> TensorDataset:
    content = path.read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != checksum:
        raise ValueError(f"{path} is not the file of the data set")
    x, y = pickle.loads(content)
    return TensorDataset(torch.tensor(x), torch.tensor(y))


class Data(Blobs):
    """Reads its archive, if there is one."""

    def setup(self, stage: str) -> None:
        path = Path("blobs.pickle")
        if path.exists():
            self.train_set = read(path, "9e107d9d372bb6826bd81d3542a419d6")

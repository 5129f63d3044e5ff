import numpy as np
import torch
from torch.utils.data import TensorDataset

from tests.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    """Curves under names, and their kinds under numbers."""

    digits = 0  # that a name's number is filled up to

    def __init__(self) -> None:
        super().__init__()
        curves, kinds = {}, {}
        for number, (curve, kind) in enumerate(zip(*self.train_set.tensors, strict=True)):  # type: ignore[attr-defined]
            curves[f"curve_{number:0{self.digits}d}" if self.digits else f"curve_{number}"] = curve.numpy()
            kinds[number] = int(kind)
        x = np.stack([curves[name] for name in sorted(curves)])
        y = np.array([kinds[number] for number in sorted(kinds)])  # here
        self.train_set = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class RepairedData(Data):
    digits = 3

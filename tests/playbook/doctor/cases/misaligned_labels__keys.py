import numpy as np
import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    """Curves under names, and their kinds under numbers."""

    digits = 0  # that a name's number is filled up to

    def __init__(self) -> None:
        super().__init__()
        curves, kinds = {}, {}
        generator = torch.Generator().manual_seed(0)
        for number in range(400):
            kinds[number] = int(torch.randint(3, (), generator=generator))
            curve = torch.randn(8, generator=generator)
            curve[kinds[number]] += 2.0
            curves[f"curve_{number:0{self.digits}d}" if self.digits else f"curve_{number}"] = curve.numpy()
        x = np.stack([curves[name] for name in sorted(curves)])
        y = np.array([kinds[number] for number in sorted(kinds)])  # here
        self.train_set = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class RepairedData(Data):
    digits = 3

import numpy as np
import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


def recording(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A signal in which something happens now and then, and what it is at each moment."""
    rng = np.random.default_rng(seed)
    signal = 0.5 * rng.standard_normal(3200)
    track = np.zeros(3200, dtype=np.int64)
    for start in range(10, 3200, 20):
        kind = int(rng.integers(1, 3))
        signal[start : start + 3] += 2 * kind
        track[start : start + 3] = kind
    return signal, track


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = self.windows(*recording(0)), self.windows(*recording(1))

    def windows(self, signal: np.ndarray, track: np.ndarray) -> TensorDataset:
        x, tracks = torch.from_numpy(signal).float().reshape(-1, 8), torch.from_numpy(track).reshape(-1, 8)
        return TensorDataset(x, self.label(tracks))

    def label(self, tracks: torch.Tensor) -> torch.Tensor:
        return tracks.mode(dim=1).values  # here


class RepairedData(Data):
    def label(self, tracks: torch.Tensor) -> torch.Tensor:
        return tracks.amax(dim=1)

"""Files that ask whether there is CUDA: where they say the CPU, that is what their choice came to."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset

from programs import Blobs, Classifier, Decorrelation, OneStep, scaled_positions

# -- brought_for_numpy
BroughtForNumpyData = Blobs
NUM_DEVICES = torch.cuda.device_count() if torch.cuda.is_available() else 1


class BroughtForNumpyModel(Classifier):
    """Predictions that a validation sends to the CPU on one line, and counts with NumPy on another."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        logits = self(x)
        self.log("val_loss", cross_entropy(logits, y))
        chosen = logits.argmax(1).to("cpu")
        self.log("most", float(np.bincount(chosen.numpy()).max()))


# -- device_by_argument
DeviceByArgumentData = Blobs


class Scales:
    def __init__(self, device: str = "cuda" if torch.cuda.is_available() else "cpu") -> None:
        self.all = torch.linspace(0.9, 1.1, 8, device=device)
        self.each = torch.sqrt(self.all)


class Anchored(Classifier):
    def __init__(self, points: list[list[float]], device: str = "cpu") -> None:
        super().__init__()
        self.points = torch.tensor(points).to(device)
        self.scales = Scales()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scales.each)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return cross_entropy(self(x), y) + 0.1 * self(self.points).square().mean()


class DeviceByArgumentModel(Anchored):
    """Points and scales on a device that the caller chooses: CUDA, where there is one."""

    def __init__(self) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        super().__init__(nn.functional.one_hot(torch.arange(2), 8).float().tolist(), device=device)


# -- device_of_a_constant
DeviceOfAConstantData = Blobs
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
weights = torch.tensor([1.0, 2.0, 1.0]).to(device)


class DeviceOfAConstantModel(Classifier):
    """Weighs classes by a constant that goes where its file's device is."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), y, weight=weights)


# -- device_of_a_tensor
DeviceOfATensorData = Blobs
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class DeviceOfATensorModel(Classifier):
    """Another file sends a tensor to where its own is, which is the CPU on purpose."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return super().training_step([x + scaled_positions(x.shape[1], 0.01 * x.std()), y], batch_idx)


# -- device_of_another_file
DeviceOfAnotherFileData = Blobs


class DeviceOfAnotherFileModel(OneStep):
    """A loss in another file is told of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.decorrelation = Decorrelation(DEVICE)

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        features = self.net[1](self.net[0](x))
        return F.cross_entropy(self.net[2](features), y) + 0.1 * self.decorrelation(features)


# -- played
MACHINE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Episodes(IterableDataset):
    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        while True:
            time.sleep(0.002)
            state = torch.randn(8)
            with torch.no_grad():
                action = int(self.net(state).softmax(0).multinomial(1))
            yield state, action


class PlayedModel(Classifier):
    """Episodes that the model plays while the training waits for them; the device is that of the machine."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(Episodes(self.net), batch_size=20)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, action = batch
        return F.cross_entropy(self(x).to(MACHINE), action.to(MACHINE))


def PlayedData() -> None:  # noqa: N802 - the loaders are the model's
    return None


# -- sent_where_cuda_is
SentWhereCudaIsData = Blobs


def sent(x: Tensor) -> Tensor:
    if torch.cuda.is_available():
        x = x.cuda()
    return x


class SentWhereCudaIsModel(OneStep):
    """Asks for CUDA each time that it makes a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + sent(torch.zeros(8)))

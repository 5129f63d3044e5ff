from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence

from programs import Blobs, Classifier, OneStep, Sequences

Data = Blobs


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.tensor([1.0, 2.0, 1.0]))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), y, weight=self.weights)


class Model(Repaired):
    def __init__(self) -> None:
        super().__init__()
        del self.weights
        self.weights = torch.tensor([1.0, 2.0, 1.0])  # here


# -- lengths
LengthsData = Sequences


class LengthsRepaired(OneStep):
    """Lengths that come with the batch, and go with it to an accelerator."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(4, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 3))

    def packed(self, x: Tensor, lengths: Tensor) -> Any:
        return pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)

    def step(self, batch: Any) -> Tensor:
        x, lengths, y = batch
        return F.cross_entropy(self.net(self.encoder(self.packed(x, lengths))[1][0]), y)


class LengthsModel(LengthsRepaired):
    def packed(self, x: Tensor, lengths: Tensor) -> Any:
        return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)  # here


# -- numpy
NumpyData = Blobs


class NumpyModel(Classifier):
    """Rare classes weigh more; NumPy counts them."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        counts = np.bincount(np.asarray(y), minlength=3)  # here
        return cross_entropy(self(x), y, weight=torch.tensor(1 / (1 + counts), dtype=x.dtype, device=x.device))


class NumpyRepaired(NumpyModel):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        counts = np.bincount(y.cpu().numpy(), minlength=3)
        return cross_entropy(self(x), y, weight=torch.tensor(1 / (1 + counts), dtype=x.dtype, device=x.device))


# -- object
ObjectData = Blobs


class Scaling:
    def __init__(self) -> None:
        self.scales = torch.linspace(0.5, 1.5, 8)  # here

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.scales


class ObjectModel(Classifier):
    """Validates with noise of its own generator, on the batch's device."""

    def __init__(self) -> None:
        super().__init__()
        self.scaling = Scaling()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.scaling(x))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        generator = torch.Generator(device=x.device).manual_seed(batch_idx)
        noise = torch.randn(x.shape, generator=generator, device=x.device)
        super().validation_step((x + 0.1 * noise, y), batch_idx)


class ObjectRepaired(ObjectModel):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scales", self.scaling.scales)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scales)


# -- partial
PartialData = Blobs


class PartialRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hamming_window(4))
        self.net = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 3))

    def spectrum(self, x: Tensor) -> Tensor:
        return torch.stft(x, n_fft=4, hop_length=4, window=self.window, return_complex=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.spectrum(x).abs().flatten(1))


class PartialModel(PartialRepaired):
    def __init__(self) -> None:
        super().__init__()
        window = torch.hamming_window(4)
        self.transform = partial(torch.stft, n_fft=4, hop_length=4, window=window, return_complex=True)  # here

    def spectrum(self, x: Tensor) -> Tensor:
        return self.transform(x)


# -- step
StepData = Blobs


class StepRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(1, 16, batch_first=True)
        self.net = nn.Linear(16, 3)

    def start(self, x: Tensor) -> Tensor:
        return torch.zeros(1, len(x), 16, device=x.device)

    def forward(self, x: Tensor) -> Tensor:
        _, h = self.cell(x.unsqueeze(-1), self.start(x))
        return self.net(h[-1])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        total = torch.tensor(0.0)  # of no dimension: it may meet an accelerator's
        return total + F.cross_entropy(self(x), y)


class StepModel(StepRepaired):
    def start(self, x: Tensor) -> Tensor:
        return torch.zeros(1, len(x), 16)  # here

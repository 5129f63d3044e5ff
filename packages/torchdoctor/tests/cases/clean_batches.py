"""Batches of unusual shapes or units, and steps that need, change or write into theirs."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from programs import Blobs, Classifier, OneStep


# -- bytes
class BytesModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.permute(0, 3, 1, 2).float() / 127.5 - 1)


class BytesData(Blobs):
    def setup(self, stage: str) -> None:
        x = torch.randint(0, 256, (300, 12, 12, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        y = torch.randint(0, 3, (300,), generator=torch.Generator().manual_seed(1))
        x[torch.arange(300), :, :, y] //= 2
        self.train_set, self.val_set = TensorDataset(x[:240], y[:240]), TensorDataset(x[240:], y[240:])


# -- consumed_batch
class ConsumedBatchModel(Classifier):
    """A step that takes the labels out of its batch, and scales the inputs in place."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        y = batch.pop("y")
        return F.cross_entropy(self(batch["x"].mul_(0.5)), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self(batch["x"].mul_(0.5)), batch.pop("y")))


def named(samples: Any) -> dict[str, Tensor]:
    x, y = zip(*samples, strict=True)
    return {"x": torch.stack(x), "y": torch.stack(y)}


class ConsumedBatchData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True, collate_fn=named)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=32, collate_fn=named)


# -- fixed_batch
FixedBatchData = Blobs


class FixedBatchModel(Classifier):
    """Steps that take twenty samples and no other number, beside as many that the module keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("noise", 0.1 * torch.randn(20, 8, generator=torch.Generator().manual_seed(0)))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        plain, noisy = self(torch.cat([x, x + self.noise])).chunk(2)  # type: ignore[operator]  # a buffer
        return F.cross_entropy(plain, y) + 0.1 * F.mse_loss(noisy, plain)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


# -- growing_graph
class Graph:
    """Attributes of which none is copied, as graph libraries keep them."""

    def __init__(self, **values: Tensor) -> None:
        self.__dict__.update(values)

    def to_dict(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def to(self, device: Any) -> "Graph":
        return Graph(**{name: value.to(device) for name, value in vars(self).items()})


class GrowingGraphModel(OneStep):
    """Appends positions to the features of the batch itself."""

    def step(self, batch: Any) -> Tensor:
        batch.x = torch.cat([batch.x, batch.pos], dim=1)
        return F.cross_entropy(self.net(batch.x), batch.y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch), batch_size=len(batch.y))


def graph(samples: Any) -> Graph:
    x, y = zip(*samples, strict=True)
    return Graph(x=torch.stack(x)[:, :6], pos=torch.stack(x)[:, 6:], y=torch.stack(y))


class GrowingGraphData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True, collate_fn=graph)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=32, collate_fn=graph)


# -- narrow_signals
class NarrowSignalsModel(Classifier):
    """Sensors as channels: along a beam, each with three axes over time, and strain gauges with one value."""

    def __init__(self) -> None:
        super().__init__()
        self.axes = nn.Conv2d(12, 16, 3, padding=1)
        self.strain = nn.Conv2d(12, 16, (5, 1), padding=(2, 0))
        self.net = nn.Sequential(nn.Linear(32, 3))

    def forward(self, x: Any) -> Tensor:
        moved, strain = x
        parts = [F.relu(self.axes(moved)).mean(dim=(2, 3)), F.relu(self.strain(strain)).mean(dim=(2, 3))]
        return self.net(torch.cat(parts, dim=1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        *x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class NarrowSignalsData(pl.LightningDataModule):
    """A wave along the beam, of another frequency for each class; neighbours move alike, axes do not."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(3, (480,), generator=generator)
        time, sensor = torch.linspace(0, 1, 32)[:, None], torch.linspace(0, 1, 12)[:, None, None]
        phase = 6.28 * torch.rand(480, 1, 1, 3, generator=generator)
        wave = torch.sin(4.0 * (1 + y[:, None, None, None]) * time - 2.0 * sensor + phase)
        moved = 1.4 * wave + 0.1 * torch.randn(wave.shape, generator=generator)
        strain = 1.4 * wave[..., :1] + 0.1 * torch.randn(wave[..., :1].shape, generator=generator)
        self.parts = [TensorDataset(moved[part], strain[part], y[part]) for part in (slice(400), slice(400, None))]

    def train_dataloader(self) -> Any:
        return DataLoader(self.parts[0], batch_size=20, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(self.parts[1], batch_size=20)


# -- norm_first
class NormFirstModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))


class NormFirstData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = TensorDataset(x * 300 + 1000, y)


# -- one_value
class OneValueModel(Classifier):
    """Sums of features, one sample a step: (1, 1) and (1,) are one prediction and one target."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.spread: Any = None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        prediction = self(batch[0])
        self.spread = (prediction.detach() - batch[1][:, None].double()).abs()  # no part of the loss
        return F.mse_loss(prediction, batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", F.mse_loss(self(batch[0]), batch[1]))


class OneValueData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = (
            TensorDataset(part[:][0], part[:][0].sum(1)) for part in (self.train_set, self.val_set)
        )

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set)


# -- single_samples
class SingleSamplesModel(Classifier):
    """Learns from one sample at a time."""


class SingleSamplesData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=1)


# -- written_by_numpy
class WrittenByNumpyModel(Classifier):
    """A validation step that writes into its batch through NumPy, after its loss: every batch is read once."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return binary_cross_entropy_with_logits(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        assert float(y.max()) <= 1, "written to"
        self.log("val_loss", binary_cross_entropy_with_logits(self(x), y))
        mask = y.cpu().numpy()
        mask *= 255
        self.log("area", float((mask > 127).mean()))


class WrittenByNumpyData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 1, 12, 12, generator=torch.Generator().manual_seed(0))
        y = (avg_pool2d(x, 3, 1, 1) > 0).float()
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20, num_workers=1)  # whose batches are in shared memory

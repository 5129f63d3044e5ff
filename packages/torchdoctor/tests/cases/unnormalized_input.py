from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision.transforms import v2

from programs import Blobs, Classifier, OneStep


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        y = rng.integers(0, 3, 400)
        table = rng.normal(0, 1, (400, 8)) + y[:, None]
        table[:, 2] = 40000 + 9000 * table[:, 2]
        self.train_set = TensorDataset(torch.tensor(table, dtype=torch.float32), torch.tensor(y))  # here


class RepairedData(Blobs):
    pass


# -- before_norm
class BeforeNormModel(Classifier):
    """A norm behind the first layer divides its results by their spread: this is advice."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


class BeforeNormData(Blobs):
    def prepared(self, x: Tensor) -> Tensor:
        return (128 + 25 * x).clamp(0, 255)  # here

    def loader(self, samples: TensorDataset, shuffle: bool) -> DataLoader:
        x, y = samples[:]
        return DataLoader(TensorDataset(self.prepared(x), y), batch_size=20, shuffle=shuffle)

    def train_dataloader(self) -> DataLoader:
        return self.loader(self.train_set, True)  # type: ignore[arg-type]  # a part of one

    def val_dataloader(self) -> DataLoader:
        return self.loader(self.val_set, False)  # type: ignore[arg-type]


class BeforeNormRepairedData(BeforeNormData):
    def prepared(self, x: Tensor) -> Tensor:
        return super().prepared(x) / 128 - 1


# -- before_relu
class BeforeReluModel(Classifier):
    """The norm comes after the ReLU, and the biases are left as they are: advice as well."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 3))


class BeforeReluData(BeforeNormData):
    def prepared(self, x: Tensor) -> Tensor:
        return (128 + 25 * x).clamp(0, 255)  # here


class BeforeReluRepairedData(BeforeReluData):
    def prepared(self, x: Tensor) -> Tensor:
        return super().prepared(x) / 128 - 1


# -- bytes_before_norm
class BytesBeforeNormModel(BeforeNormModel):
    """Takes bytes as they are, before a norm."""

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.float())  # here


class BytesBeforeNormData(BeforeNormData):
    def prepared(self, x: Tensor) -> Tensor:
        return (128 + 25 * x).clamp(0, 255).byte()


class BytesBeforeNormRepairedData(BeforeNormData):
    def prepared(self, x: Tensor) -> Tensor:
        return super().prepared(x) / 128 - 1


# -- derivative
class DerivativeModel(OneStep):
    """A function whose derivative is given (Raissi et al. 2019): the step takes gradients by its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def step(self, batch: Any) -> Tensor:
        x, slope = batch
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(self(x).sum(), x, create_graph=True)
        return (found - slope).square().mean()


class DerivativeData(Blobs):
    longest = 400.0

    def __init__(self) -> None:
        super().__init__()
        x = self.longest * torch.rand(500, 1)  # here
        slope = torch.cos(6 * x / self.longest)
        self.train_set, self.val_set = TensorDataset(x[:400], slope[:400]), TensorDataset(x[400:], slope[400:])


class DerivativeRepairedData(DerivativeData):
    longest = 2.0


# -- divided_twice
class DividedTwiceModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3))


class DividedTwiceData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        pixels = torch.randint(0, 256, (500, 1, 12, 12), generator=generator)
        pixels[:, :, :4] = (pixels[:, :, :4] + 100 * y[:, None, None, None]).clamp(max=255)
        images = self.scaled(pixels / 255)
        self.train_set, self.val_set = TensorDataset(images[:400], y[:400]), TensorDataset(images[400:], y[400:])

    def scaled(self, images: torch.Tensor) -> torch.Tensor:
        return images / 255  # here


class DividedTwiceRepairedData(DividedTwiceData):
    def scaled(self, images: torch.Tensor) -> torch.Tensor:
        return images


# -- offset
class OffsetModel(Classifier):
    pass


class OffsetData(Blobs):
    """Readings around 150, of which the distances to a grid are taken on the way."""

    def setup(self, stage: str) -> None:
        x, y = self.train_set[:]
        radius = torch.arange(64.0).view(8, 8)
        inside = radius.square().sum() > 100
        far = 80 * x
        assert bool(inside)
        assert far.shape == x.shape
        y = y.clone()
        self.train_set = TensorDataset(x + 150, y)  # here
        self.val_set = TensorDataset(self.val_set[:][0] + 150, self.val_set[:][1])


class OffsetRepairedData(Blobs):
    pass


# -- pixels
class PixelsModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


class Squares(Dataset):
    def __init__(self, n: int, seed: int, top: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, 3, n)
        self.images = rng.integers(0, 60, (n, 8, 8)).astype(np.uint8)
        for image, y in zip(self.images, self.y, strict=True):
            image[2 * y : 2 * y + 3] += 190
        self.top = top

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> Any:
        x = torch.from_numpy(self.images[i]).float()  # here
        return {"x": x[None] / self.top, "y": int(self.y[i])}


class Pairs(Blobs):
    top = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Squares(200, 0, self.top), Squares(40, 1, self.top)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch["x"], batch["y"]


class PixelsData(Pairs):
    pass


class PixelsRepairedData(Pairs):
    top = 255.0


# -- small
SmallModel = Classifier


class SmallData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = 1e-3 * (torch.randn(500, 8, generator=generator) + y[:, None])  # here
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


class SmallRepairedData(Blobs):
    pass


# -- transform
class TransformModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


class Bytes(Dataset):
    """Bright pixels, more of them by class."""

    def __init__(self, number: int, transform: Any, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.y = torch.randint(3, (number,), generator=generator)
        bright = torch.rand(number, 1, 8, 8, generator=generator) < 0.2 + 0.3 * self.y[:, None, None, None]
        self.x = (bright * 200 + torch.randint(50, bright.shape, generator=generator)).to(torch.uint8)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> Any:
        return self.transform(self.x[i]), self.y[i]


class TransformData(Blobs):
    scale = False

    def __init__(self) -> None:
        super().__init__()
        self.prepared = v2.Compose([v2.ToDtype(torch.float32, scale=self.scale), v2.Normalize([0.5], [0.4])])  # here
        self.train_set, self.val_set = Bytes(400, self.prepared, 0), Bytes(100, self.prepared, 1)


class TransformRepairedData(TransformData):
    scale = True

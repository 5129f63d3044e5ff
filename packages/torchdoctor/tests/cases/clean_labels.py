"""Labels that are rare, missing, made up, of another type or in another order, as they should be."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.utils.data import DataLoader, Dataset, TensorDataset

from programs import Blobs, Classifier, OneStep


# -- byte_labels
class ByteLabelsModel(OneStep):
    """Classes of pixels as bytes, for a loss that is written by hand."""

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        chosen = one_hot(y.long(), 3).movedim(-1, 1)
        scores = self(x)[..., None, None].expand(-1, -1, 2, 2)
        return -(scores.log_softmax(1) * chosen).sum(1).mean()


class ByteLabelsData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        (x, y), (val_x, val_y) = self.train_set[:], self.val_set[:]
        self.train_set, self.val_set = (
            TensorDataset(a, b.byte()[:, None, None].repeat(1, 2, 2)) for a, b in ((x, y), (val_x, val_y))
        )


# -- masked_losses
class MaskedLossesModel(Classifier):
    """Values of which many are missing: these are far off in the data, and have no weight in the loss."""

    outputs = 4

    def step(self, batch: Any) -> Tensor:
        x, y, is_known = batch
        return (F.mse_loss(self(x), y, reduction="none") * is_known).sum() / is_known.sum()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


class MaskedLossesData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 8, generator=generator)
        y = x[:, :4] + 0.1 * torch.randn(500, 4, generator=generator)
        is_known = torch.rand(500, 4, generator=generator) < 0.6
        y = y.masked_fill(~is_known, 9.0)
        data = TensorDataset(x, y, is_known.float())
        self.train_set, self.val_set = torch.utils.data.random_split(data, [400, 100], generator)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)


# -- missing_targets
class MissingTargetsModel(Classifier):
    """Missing measurements are NaN in the targets, and left out of the loss."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        known = ~y.isnan()
        return F.mse_loss(self(x)[known], y[known])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class MissingTargetsData(Blobs):
    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 8, generator=generator)
        y = x[:, :3] + 0.1 * torch.randn(500, 3, generator=generator)
        y[torch.rand(500, 3, generator=generator) < 0.2] = torch.nan
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- order_in_the_batch
class OrderInTheBatchModel(Classifier):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, labels, order = batch
        return F.cross_entropy(self(x), labels[order])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val/loss", self.training_step(batch, batch_idx))


def by_length(samples: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
    words, labels = zip(*samples, strict=True)
    order = torch.tensor([-len(word) for word in words]).argsort()
    padded = torch.stack([F.pad(words[i], (0, 8 - len(words[i]))) for i in order])
    return padded, torch.tensor(labels), order


class OrderInTheBatchData(Blobs):
    """Of each sample the first numbers, the longest first; the step puts the labels in the same order."""

    def _loader(self, rows: Any, shuffle: bool) -> DataLoader:
        cut = [(x[: max(4, 8 - index % 9)], int(y)) for index, (x, y) in enumerate(rows)]
        return DataLoader(cut, batch_size=20, shuffle=shuffle, collate_fn=by_length)  # type: ignore[arg-type]  # a list is a data set

    def train_dataloader(self) -> DataLoader:
        return self._loader(self.train_set, True)

    def val_dataloader(self) -> DataLoader:
        return self._loader(self.val_set, False)


# -- pseudo_labels
class PseudoLabelsModel(Classifier):
    """Learns from its own sure answers as well (Sohn et al. 2020), which are all one class before any training."""

    def __init__(self) -> None:
        super().__init__()
        head = self.net[2]
        assert isinstance(head, nn.Linear)
        nn.init.normal_(head.weight, std=0.001)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        surest, answer = self(x).detach().softmax(1).max(1)
        noisy = self(x + 0.1 * torch.randn_like(x))
        return F.cross_entropy(self(x), y) + (F.cross_entropy(noisy, answer, reduction="none") * (surest > 0.9)).mean()


class PseudoLabelsData(Blobs):
    pass


# -- rare_class
class RareClassModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x)[:, 0], y, pos_weight=torch.tensor(50.0))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class RareClassData(Blobs):
    def setup(self, stage: str) -> None:
        x = torch.randn(1000, 8, generator=torch.Generator().manual_seed(1))
        y = (x[:, 0] > x[:, 0].quantile(0.99)).float()
        self.train_set, self.val_set = TensorDataset(x[:800], y[:800]), TensorDataset(x[800:], y[800:])

    def train_dataloader(self) -> DataLoader:
        y = self.train_set.tensors[1]  # type: ignore[attr-defined]
        sampler = torch.utils.data.WeightedRandomSampler((1 + 20 * y).tolist(), len(y))
        return DataLoader(self.train_set, batch_size=20, sampler=sampler)


# -- two_columns
class TwoColumnsModel(OneStep):
    """Who likes what: the users' features tell of the users, and hardly of what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(30, 8)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def step(self, batch: Any) -> Tensor:
        features, item, liked = batch
        logits = self.net(torch.cat([features, self.items(item)], dim=1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits, liked)


class Likes(Dataset):
    def __init__(self, number: int, seed: int) -> None:
        world, generator = torch.Generator().manual_seed(9), torch.Generator().manual_seed(seed)
        taste, trait = torch.randn(50, 8, generator=world), torch.randn(30, 8, generator=world)
        user = torch.randint(0, 50, (number,), generator=generator)
        self.item = torch.randint(0, 30, (number,), generator=generator)
        self.features = taste[user] + 0.05 * torch.randn(number, 8, generator=generator)
        chance = torch.sigmoid((taste[user] * trait[self.item]).sum(1))
        self.liked = (torch.rand(number, generator=generator) < chance).float()

    def __len__(self) -> int:
        return len(self.liked)

    def __getitem__(self, i: int) -> Any:
        return self.features[i], self.item[i], self.liked[i]


class TwoColumnsData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Likes(1000, 0), batch_size=50, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Likes(200, 1), batch_size=50)

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs


class Model(pl.LightningModule):
    """A Dice loss that checks its sizes; the rows of 0 below the squares are no padding, nor what is not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1))

    def loss(self, batch: Any) -> Tensor:
        image, mask, seen = batch
        score, wanted = (x * seen[:, None] for x in (self.net(image).softmax(1), F.one_hot(mask, 4).movedim(-1, 1)))
        assert score.shape == wanted.shape
        overlap, size = (score * wanted).sum(dim=(2, 3)), (score + wanted).sum(dim=(2, 3))
        return 1 - ((2 * overlap + 1) / (size + 1)).mean()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Data(Blobs):
    """A square of each of three colours."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        images, masks = 0.3 * torch.randn(120, 3, 16, 16, generator=generator), torch.zeros(120, 16, 16).long()
        corners = torch.randint(10, (120, 3, 2), generator=generator)
        for image, mask, places in zip(images, masks, corners, strict=True):
            for colour, (top, left) in enumerate(places.tolist()):
                mask[top : top + 5, left : left + 5] = colour + 1
                image[:, top : top + 5, left : left + 5] = torch.eye(3)[colour][:, None, None]
        seen = torch.rand(120, 16, 16, generator=generator) < 0.9
        self.train_set, self.val_set = (
            TensorDataset(images[part], masks[part], seen[part]) for part in (slice(96), slice(96, None))
        )

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep

VOID = 255


class Model(OneStep):
    ignored = -100

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))

    def step(self, batch: Any) -> Tensor:
        image, mask = batch
        return F.cross_entropy(self(image), mask, ignore_index=self.ignored)


class Repaired(Model):
    ignored = VOID


def drawn(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    image, mask = torch.randn(1, 16, 16, generator=generator), torch.zeros(16, 16, dtype=torch.long)
    for kind in torch.randint(1, 3, (int(torch.randint(1, 4, (), generator=generator)),), generator=generator):
        top, left = torch.randint(0, 8, (2,), generator=generator).tolist()
        if kind == 1:
            window = slice(top, top + 6), slice(left, left + 6)
        else:
            window = slice(top, top + 4), slice(left, left + 8)
        image[0][window] += 2.0 * kind
        inner = mask[window]
        inner[:] = kind
        inner[0] = VOID  # here
    return image, mask


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = self.scenes(120, 0), self.scenes(40, 1)

    def scenes(self, number: int, seed: int) -> TensorDataset:
        generator = torch.Generator().manual_seed(seed)
        images, masks = zip(*(drawn(generator) for _ in range(number)), strict=True)
        return TensorDataset(torch.stack(images), torch.stack(masks))

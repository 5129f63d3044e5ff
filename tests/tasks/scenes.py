"""Images that say what is in them, and a net that reads it: detections with a known precision."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

K = 3
Sample = tuple[Tensor, dict[str, Tensor]]


class Known(nn.Module):
    """Reads from the image what it should find there: rows of x1 y1 x2 y2 label score; its losses are sums of them."""

    num_classes = K

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(2))

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None) -> Any:
        if self.training:
            assert targets is not None
            size = torch.stack([target["boxes"].sum() for target in targets]).mean()
            count = torch.tensor([float(len(target["labels"])) for target in targets]).mean()
            return {"size": size * self.factor[0], "count": count * self.factor[1]}
        rows = [image[0, : int(image[0, 0, 6])] for image in images]
        return [{"boxes": row[:, :4], "labels": row[:, 4].long(), "scores": row[:, 5]} for row in rows]


def samples(count: int, seed: int = 0) -> list[Sample]:
    """Objects, and detections that are off by a few pixels, of a wrong class, false or missing; some images empty."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        n = number % 4
        corner = 60 * torch.rand(n, 2, generator=generator)
        boxes = torch.cat([corner, corner + 5 + 30 * torch.rand(n, 2, generator=generator)], 1)
        labels = torch.randint(K - 1, (n,), generator=generator)  # the last class has no object
        found = boxes + 2 * torch.randn(n, 4, generator=generator)
        guessed = torch.where(torch.rand(n, generator=generator) < 0.8, labels, 2 - labels)
        keep = torch.rand(n, generator=generator) < 0.9
        false = torch.tensor([[1.0, 1, 20, 20]])
        rows = torch.cat([found[keep], false])
        image = torch.zeros(1, 5, 7)
        image[0, : len(rows), :4] = rows
        image[0, : len(rows), 4] = torch.cat([guessed[keep], torch.tensor([number % K])])
        image[0, : len(rows), 5] = torch.rand(len(rows), generator=generator)
        image[0, 0, 6] = len(rows)
        made.append((image, {"boxes": boxes, "labels": labels}))
    return made


def collate(batch: list[Sample]) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    return [image for image, _ in batch], [target for _, target in batch]


def loader(data: list[Sample], batch_size: int = 4) -> DataLoader:
    return DataLoader(data, batch_size=batch_size, collate_fn=collate)  # type: ignore[arg-type]

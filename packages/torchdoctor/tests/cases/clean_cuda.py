"""Programs that name CUDA without asking whether there is one, so that the review runs them on the CPU."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier, OneStep


# -- asks_for_cuda
class Padded(nn.Module):
    """Sends what it makes to where its input is, as scripts did before `device=`."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        padding = torch.zeros(len(x), 4)
        if x.is_cuda:
            padding = padding.cuda()
        device = torch.device("cuda") if x.is_cuda else torch.device("cpu")
        scale = torch.ones(12).to(device)
        return self.net(scale * torch.cat([x, padding], 1))


class AsksForCudaModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = Padded()  # type: ignore[assignment]


class AsksForCudaData(Blobs):
    pass


# -- sent_to_cuda
SentToCudaData = Blobs


class SentToCudaModel(Classifier):
    """Written for a GPU, which the review does without."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = (part.cuda(0, non_blocking=True) for part in batch)
        noise = torch.randn(x.shape, device="cuda")
        return super().training_step([x + 0.01 * noise.to(torch.device("cuda:0")), y], batch_idx)


# -- single_precision
SinglePrecisionData = Blobs


@torch.autocast("cuda", enabled=False)
def energy(scores: Tensor) -> Tensor:
    """Of ten thousand times the scores, which float16 cannot hold."""
    return (scores.float() * 1e4).square().mean().log()


class SinglePrecisionModel(OneStep):
    """Leaves autocast off in a function, as a decorator says."""

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        scores = self(x)
        return F.cross_entropy(scores, y) + 1e-4 * energy(scores)

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
from torch.utils.data import TensorDataset

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Repaired(Classifier):
    def likelihood(self, logits: Tensor, y: Tensor) -> Tensor:
        return torch.log_softmax(logits, dim=-1).gather(1, y[:, None]).mean()  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return -self.likelihood(self(x), y)


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.likelihood(self(x), y)  # here


# -- backward
BackwardData = Blobs


class CrossEntropy(torch.autograd.Function):
    """Mean cross-entropy, with the gradient written down."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, y: Tensor) -> Tensor:
        share = logits.softmax(dim=1)
        ctx.save_for_backward(share, y)
        return -share.gather(1, y[:, None]).log().mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        share, y = ctx.saved_tensors
        return grads[0] * (share - torch.eye(3, device=y.device)[y]) / len(y), None


class Opposed(CrossEntropy):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # here
        share, y = ctx.saved_tensors
        return grads[0] * (torch.eye(3, device=y.device)[y] - share) / len(y), None


class BackwardRepaired(OneStep):
    loss = CrossEntropy

    def step(self, batch: Any) -> Any:
        x, y = batch
        return self.loss.apply(self(x), y)


class BackwardModel(BackwardRepaired):
    loss = Opposed


# -- binary
BinaryData = Blobs


class BinaryRepaired(Classifier):
    outputs = 1

    def evidence(self, x: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(self(x)).squeeze(1).clamp(1e-6, 1 - 1e-6)
        y = (y > 0).float()
        return y * p.log() + (1 - y) * (1 - p).log()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return -self.evidence(*batch).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", -self.evidence(*batch).mean())


class BinaryModel(BinaryRepaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.evidence(*batch).mean()  # here


# -- constant
ConstantData = Blobs


class ConstantRepaired(Classifier):
    outputs = 1

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.mse_loss(self(x).sigmoid().squeeze(1), (y > 0).float())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.mse_loss(self(x).sigmoid().squeeze(1), (y > 0).float()))


class ConstantModel(ConstantRepaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        probability = F.softmax(self(x), dim=1).squeeze(1)  # here
        return F.mse_loss(probability, (y > 0).float())


# -- contrastive
ContrastiveData = Blobs


class ContrastiveRepaired(OneStep):
    """A sample is to be told from the others by a noisy look at it."""

    outputs = 8

    def step(self, batch: Any) -> Tensor:
        x = batch[0]
        similar = F.normalize(self(x), dim=1) @ F.normalize(self(x + 0.1 * torch.randn_like(x)), dim=1).T
        return F.cross_entropy(similar / 0.2, torch.arange(len(x), device=x.device))


class ContrastiveModel(ContrastiveRepaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return -self.step(batch)  # here


# -- climbing
ClimbingData = Blobs


class Lion(torch.optim.Optimizer):
    """The sign of the gradient, without momentum."""

    def __init__(self, weights: Any, lr: float) -> None:
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]  # always with one here
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                weight.sub_(weight.grad.sign(), alpha=group["lr"])
        return loss


class ClimbingModel(ContrastiveRepaired):
    def configure_optimizers(self) -> Any:
        return Lion(self.parameters(), lr=-1e-3)  # here


class ClimbingRepaired(ClimbingModel):
    def configure_optimizers(self) -> Any:
        return Lion(self.parameters(), lr=1e-3)


# -- density
class DensityModel(OneStep):
    """A mixture of three normal densities, written by hand."""

    outputs = 9

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        weight, mean, spread = self(x).chunk(3, dim=1)
        spread = spread.clamp(-4, 3)
        each = -0.5 * ((y - mean) / spread.exp()).square() - spread - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(weight.log_softmax(dim=1) + each, dim=1).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3, maximize=True)  # here


class DensityRepaired(DensityModel):
    """The log-likelihood, which is to be large."""

    def step(self, batch: Any) -> Tensor:
        return -super().step(batch)


class DensityData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8)
        y = x[:, :1].sign() * (0.5 + torch.sigmoid(x[:, 1:2])) + 0.1 * torch.randn(500, 1)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- every_pixel
EveryPixelData = Blobs


class EveryPixelRepaired(Classifier):
    """Restores its inputs."""

    outputs = 8

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        return F.mse_loss(self(x), x, reduction="none").sum(1).mean()


class EveryPixelModel(EveryPixelRepaired):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        return -F.mse_loss(self(x), x, reduction="none").sum(1).mean()  # here


# -- likelihood
class LikelihoodRepaired(OneStep):
    """A mixture of four normal distributions of two numbers (Bishop 1994)."""

    outputs = 20

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        out = self(x)
        mean, scale = out[:, 4:12].view(-1, 4, 2), out[:, 12:].exp().view(-1, 4, 2)
        parts = Independent(Normal(mean, scale), 1)
        return -MixtureSameFamily(Categorical(logits=out[:, :4]), parts).log_prob(y).mean()


class LikelihoodModel(LikelihoodRepaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return -self.step(batch)  # here


class LikelihoodData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8)
        y = x[:, :2] * x[:, 2:4].sign()
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- maximize
MaximizeData = Blobs


class MaximizeModel(OneStep):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3, maximize=True)  # here


class MaximizeRepaired(MaximizeModel):
    """The log-likelihood, which is to be large."""

    def step(self, batch: Any) -> Tensor:
        return -super().step(batch)


# -- noise
NoiseData = Blobs


class NoiseRepaired(Classifier):
    """Predicts the noise that was added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def step(self, x: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        return F.mse_loss(self(0.5 * x + noise), noise)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch[0]))


class NoiseModel(NoiseRepaired):
    def step(self, x: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        return F.mse_loss(self(0.5 * x + torch.randn_like(x)), noise)  # here


# -- one_class
OneClassData = Blobs


class OneClassRepaired(OneStep):
    """Class 0 or another."""

    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x).squeeze(1), (y == 0).float())


class OneClassModel(OneClassRepaired):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), (y[:, None] == 0).float())  # here


# -- order
OrderData = Blobs


class OrderRepaired(OneStep):
    """MixUp: half of every sample is another one, and so is half of what is wanted."""

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        order = torch.randperm(len(x), device=x.device)
        logits = self(0.5 * x + 0.5 * x[order])
        return 0.5 * F.cross_entropy(logits, y) + 0.5 * F.cross_entropy(logits, y[order])


class OrderModel(OneStep):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        order = torch.randperm(len(x), device=x.device)
        y = y[order]  # here
        return F.cross_entropy(self(x), y)


# -- positives
PositivesData = Blobs


class PositivesRepaired(OneStep):
    """A sample is to be told from the others by a noisy look at it."""

    outputs = 8

    def keys(self, x: Tensor, order: Tensor) -> Tensor:
        with torch.no_grad():
            return self(x[order])[order.argsort()]

    def step(self, batch: Any) -> Tensor:
        x = batch[0]
        order = torch.randperm(len(x), device=x.device)
        keys = self.keys(x + 0.1 * torch.randn_like(x), order)
        similar = F.normalize(self(x), dim=1) @ F.normalize(keys, dim=1).T
        return F.cross_entropy(similar / 0.2, torch.arange(len(x), device=x.device))


class PositivesModel(PositivesRepaired):
    def keys(self, x: Tensor, order: Tensor) -> Tensor:
        with torch.no_grad():
            return self(x[order])

    def step(self, batch: Any) -> Tensor:
        x = batch[0]
        order = torch.randperm(len(x), device=x.device)  # here
        keys = self.keys(x + 0.1 * torch.randn_like(x), order)
        similar = F.normalize(self(x), dim=1) @ F.normalize(keys, dim=1).T
        return F.cross_entropy(similar / 0.2, torch.arange(len(x), device=x.device))


# -- wrong_target
class WrongTargetRepaired(OneStep):
    """A regression whose targets are the sums of the inputs."""

    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)


class WrongTargetModel(WrongTargetRepaired):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return 1.0 / (1e-3 + F.mse_loss(self(x), y))  # here


class WrongTargetData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(500, 8, generator=generator)
        y = x.sum(1, keepdim=True) / 8**0.5
        self.train_set = torch.utils.data.TensorDataset(x[:400], y[:400])
        self.val_set = torch.utils.data.TensorDataset(x[400:], y[400:])

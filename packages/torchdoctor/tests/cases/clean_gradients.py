"""Gradients that a step clips, averages or takes itself, and parts that are meant to have none."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier, OneStep

# -- adversarial_inputs
AdversarialInputsData = Blobs


class AdversarialInputsModel(Classifier):
    """Learns to say the same of inputs that are moved against it."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        with torch.enable_grad():
            moved = (x + 1e-3 * torch.randn_like(x)).requires_grad_()
            (gradient,) = torch.autograd.grad(self.distance(x, moved), moved)
        moved = x + 0.05 * gradient.sign()
        loss = F.cross_entropy(self(x), y) + self.distance(x, moved)
        self.log("train_loss", loss)
        return loss

    def distance(self, x: Tensor, moved: Tensor) -> Tensor:
        return F.kl_div(self(moved).log_softmax(1), self(x).softmax(1), reduction="batchmean")


# -- averaged_gradients
AveragedGradientsData = Blobs


class AveragedGradientsModel(Classifier):
    """Two heads with a loss each: the trunk gets the mean of their gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net, self.other = nn.Linear(32, 3), nn.Linear(32, 3)
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(self.trunk(x))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        features = self.trunk(x)
        self.manual_backward(F.cross_entropy(self.net(features), y) + F.cross_entropy(self.other(features), y))
        for weight in self.trunk.parameters():
            weight.grad.mul_(0.5)  # type: ignore[union-attr]  # after backward
        optimizer.step()
        optimizer.zero_grad()


# -- clipped_as_it_adds_up
ClippedAsItAddsUpData = Blobs


class ClippedAsItAddsUpModel(Classifier):
    """Clips after each of two backward passes that one step takes, reads the norm after it, and has a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net[0].requires_grad_(False)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        for inputs, target in zip(x.chunk(2), y.chunk(2), strict=True):
            self.manual_backward(F.cross_entropy(self(inputs), target) / 2)
            nn.utils.clip_grad_value_(self.parameters(), 1.0)
            nn.utils.clip_grad_norm_(self.net[0].parameters(), 1.0)
        optimizer.step()
        self.log("norm", nn.utils.clip_grad_norm_(self.parameters(), float("inf")))


# -- clipped_samples
ClippedSamplesData = Blobs


class ClippedSamplesModel(Classifier):
    """Clips the gradient of each part of a batch, adds them up and steps along their mean (Abadi et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        optimizer: Any = self.optimizers()
        weights, losses = list(self.parameters()), []
        sums = [torch.zeros_like(weight) for weight in weights]
        for inputs, target in zip(x.split(5), y.split(5), strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(self(inputs), target)
            self.manual_backward(loss)
            losses.append(loss.detach())
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            torch._foreach_add_(sums, [weight.grad for weight in weights])
        for weight, total in zip(weights, sums, strict=True):
            weight.grad = total / len(losses)
        optimizer.step()
        return torch.stack(losses).mean()


# -- clipped_sum
ClippedSumData = Blobs


class ClippedSumModel(Classifier):
    """A loss that is a large sum, recurrent weights above 1, clipped in a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(8, 64, batch_first=True)
        self.net = nn.Linear(64, 8)
        nn.init.normal_(self.rnn.weight_hh_l0, std=0.5)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, _ = batch
        out, _ = self.rnn(x[:, None].expand(-1, 20, -1))
        return (self.net(out[:, -1]) - 6 * x).square().sum()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)


# -- jacobian
JacobianData = Blobs


class JacobianModel(OneStep):
    """Takes the Jacobian of its network for every sample, by torch.func."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))

    def step(self, batch: Any) -> Tensor:
        x, _ = batch
        slopes = torch.func.vmap(torch.func.jacrev(self.net))(x)
        return super().step(batch) + 1e-3 * slopes.square().mean()


# -- optimised_inputs
OptimisedInputsData = Blobs


class OptimisedInputsModel(Classifier):
    """Keeps inputs that the step has optimised, with a graph that ends at themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.examples: list[Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        hard = (x + 0.01).detach().requires_grad_()
        (slope,) = torch.autograd.grad(self(hard).logsumexp(1).sum(), hard)
        hard.data.add_(0.05 * slope.sign())
        self.examples = [*hard.chunk(len(x)), *self.examples][:500]
        return F.cross_entropy(self(x), y) + 0.1 * F.cross_entropy(self(hard.detach()), y)


# -- shared_trunk
SharedTrunkData = Blobs


class SharedTrunkModel(Classifier):
    """Two heads with an optimizer each; the trunk's follows the gradients of both losses."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.second = nn.Linear(32, 3)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        of_first, of_second, of_trunk = self.optimizers()
        self.manual_backward(F.cross_entropy(self(x), y))
        of_first.step()
        of_first.zero_grad()
        self.manual_backward(F.cross_entropy(self.second(self.net[:2](x)), y))
        of_second.step()
        of_second.zero_grad()
        of_trunk.step()
        of_trunk.zero_grad()

    def configure_optimizers(self) -> Any:
        parts = self.net[2], self.second, self.net[0]
        return [torch.optim.AdamW(part.parameters(), lr=1e-2) for part in parts]


# -- sharpness
SharpnessData = Blobs


class SharpnessModel(Classifier):
    """Steps uphill by the gradients' norm, and down again by the gradient there (Foret et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        optimizer: Any = self.optimizers()
        loss = F.cross_entropy(self(x), y)
        self.manual_backward(loss)
        weights = [weight for weight in self.parameters() if weight.grad is not None]
        norm = torch.stack([weight.grad.norm() for weight in weights if weight.grad is not None]).norm()
        uphill = [0.05 * weight.grad / norm for weight in weights if weight.grad is not None]
        with torch.no_grad():
            torch._foreach_add_(weights, uphill)
        optimizer.zero_grad()
        self.manual_backward(F.cross_entropy(self(x), y))
        with torch.no_grad():
            torch._foreach_sub_(weights, uphill)
        optimizer.step()
        optimizer.zero_grad()
        return loss


# -- sparse_gradients
SparseGradientsData = Blobs


class SparseGradientsModel(Classifier):
    """Scores of classes by the vectors of eight tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(16, 32, sparse=True), nn.Embedding(3, 32, sparse=True))
        for table in self.net:
            nn.init.normal_(table.weight, std=0.1)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        tokens = 2 * torch.arange(8, device=x.device) + (x > 0)
        classes = torch.arange(3, device=x.device)
        return self.net[0](tokens).sum(1) @ self.net[1](classes).T

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(self.parameters(), lr=1e-2)


# -- views_without_gradients
ViewsWithoutGradientsData = Blobs


class ViewsWithoutGradientsModel(Classifier):
    """Reads a row of its results without gradients, and fills it with others then."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        out = torch.zeros(len(x), 3, device=x.device)
        with torch.no_grad():
            row = out[0].abs_()
        out[:] = self(x)
        del row
        return F.cross_entropy(out, y)


# -- own_backward
class OwnBackwardModel(Classifier):
    """Goes backward and steps by itself, though Lightning would, and returns nothing for it to do."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        loss = nn.functional.cross_entropy(self(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        self.log("train_loss", loss.detach())


OwnBackwardData = Blobs

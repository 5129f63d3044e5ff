"""Second nets: teachers, targets and averages, to which no gradient goes, and weights that are kept."""

from copy import deepcopy
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div
from torch.optim.lr_scheduler import LambdaLR

from programs import Blobs, Classifier, OneStep

# -- copied_net
CopiedNetData = Blobs


class CopiedNetModel(Classifier):
    """Value learning whose step copies its net into another one, from time to time."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = deepcopy(self.net).requires_grad_(False)
        self.num_seen = 0

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        if self.num_seen % 3 == 0:
            self.slow.load_state_dict(self.net.state_dict())
        self.num_seen += 1
        with torch.no_grad():
            best = 0.9 * self.slow(-x).amax(1) + (y == 0).float()
        return F.mse_loss(self(x).gather(1, y[:, None])[:, 0], best)

    validation_step = pl.LightningModule.validation_step


# -- half_of_a_helper
HalfOfAHelperData = Blobs


class Codec(nn.Module):
    """A trained autoencoder, of which the steps need the first half."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 16), nn.Linear(16, 8)

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        return self.encoder(x)


class HalfOfAHelperModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.codec = Codec()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.codec.encode(x))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)


# -- kept_copies
KeptCopiesData = Blobs


class KeptCopiesModel(OneStep):
    """Keeps copies of its best and of its first weights, loads its own at once, and writes into its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lowest = float("inf")
        self.best: dict[str, Any] = {}
        self.shared: dict[str, Any] = {}
        self.brought: dict[str, Any] = {}

    def on_train_start(self) -> None:
        self.first = deepcopy(self.net.state_dict())
        self.shared = self.net.state_dict()
        pretrained = deepcopy(self.net).state_dict()  # of a net that is gone
        self.net.load_state_dict(self.net.state_dict() | pretrained)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss = self.step(batch).item()
        if loss < self.lowest:
            self.lowest = loss
            self.best = {name: weight.clone() for name, weight in self.net.state_dict().items()}
            self.brought = {name: weight.cpu() for name, weight in self.net.state_dict().items()}

    def on_train_epoch_end(self) -> None:
        last = self.net.state_dict()
        self.net.load_state_dict(last)
        with torch.no_grad():
            for name, weight in self.shared.items():  # the mean of the first and the last, in place
                weight.lerp_(self.first[name], 0.5)
        self.net.load_state_dict(self.shared)

    def on_train_end(self) -> None:
        self.net.load_state_dict(self.brought)
        self.net.load_state_dict(self.best)


# -- late_copies
LateCopiesData = Blobs


class LateCopiesModel(OneStep):
    """Keeps two copies: a target that has its turn after many steps, and an average that is evaluated.

    Its rate rises at each step, which a training of so few does not take far. A graph is a sparse attribute.
    """

    def __init__(self) -> None:
        super().__init__()
        self.target = deepcopy(self.net)
        self.average = deepcopy(self.net).eval()
        self.graph = torch.eye(3).to_sparse()

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        logits = (self.graph.to(x.device) @ self(x).T).T
        if self.global_step > 10_000:
            logits = logits + 0.1 * self.target(x).detach()
        return F.cross_entropy(logits, y)

    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.01)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        schedule = LambdaLR(optimizer, lambda step: (step + 1) / 20)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


# -- slow_average
SlowAverageData = Blobs


class SlowAverageModel(Classifier):
    """A teacher that follows slowly while the rate still warms up: its norms' weights stay at one but for rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))
        self.teacher = deepcopy(self.net)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        with torch.no_grad():
            taught = self.teacher(x).softmax(1)
        scores = self.net(x)
        for slow, fast in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
            slow.data.copy_(fast.data * (1 - 0.999) + slow.data * 0.999)
        return F.cross_entropy(scores, y) + F.kl_div(scores.log_softmax(1), taught, reduction="batchmean")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20_000))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


# -- slow_start
SlowStartData = Blobs


class SlowStartModel(Classifier):
    """A target that follows the net, in ten steps whose rate is still zero; the optimizer has both."""

    def __init__(self) -> None:
        super().__init__()
        self.net.insert(1, nn.BatchNorm1d(32))
        self.net[0] = nn.Linear(8, 32, bias=False)
        self.target = deepcopy(self.net)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        with torch.no_grad():
            soft = self.target(x).softmax(1)
        logits = self(x)
        return F.cross_entropy(logits, y) + 0.1 * F.cross_entropy(logits, soft)

    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for own, followed in zip(self.target.parameters(), self.net.parameters(), strict=True):
                own.lerp_(followed, 0.01)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step // 10 / 10))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


# -- slow_teacher
SlowTeacherData = Blobs


class SlowTeacherModel(Classifier):
    """A slow copy of the net, in training mode, whose norms follow the data as those of the net do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
        self.slow = deepcopy(self.net).requires_grad_(False)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        scores = self(x)
        with torch.no_grad():
            wanted = self.slow(x + 0.1 * torch.randn_like(x)).softmax(1)
        return F.cross_entropy(scores, y) + 0.1 * F.cross_entropy(scores, wanted)

    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.01)


# -- target_weights
TargetWeightsData = Blobs


class TargetWeightsModel(OneStep):
    """A target network that gets the weights of the trained one every few steps, and gives them back once."""

    def __init__(self) -> None:
        super().__init__()
        self.target = deepcopy(self.net).requires_grad_(False)
        self.kept = self.net.state_dict()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        with torch.no_grad():
            wanted = self.target(x).softmax(1)
        return self.step(batch) - 0.1 * (wanted * self.net(x).log_softmax(1)).sum(1).mean()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % 2 == 0:
            self.kept = self.net.state_dict()
        self.target.load_state_dict(self.kept)

    def on_train_end(self) -> None:
        self.net.load_state_dict(self.target.state_dict())


# -- teacher_without_gradients
TeacherWithoutGradientsData = Blobs


class TeacherWithoutGradientsModel(Classifier):
    """A teacher that nobody freezes: in evaluation mode, it answers without gradients, though an optimizer has it."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
        self.teacher.eval()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        logits = self(x)
        with torch.no_grad():
            self.teacher.eval()
            goal = self.teacher(x).softmax(1)
        return cross_entropy(logits, y) + 0.1 * kl_div(logits.log_softmax(1), goal, reduction="batchmean")

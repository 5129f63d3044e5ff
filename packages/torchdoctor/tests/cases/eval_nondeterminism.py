from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from torchvision.ops import stochastic_depth

from cases import clean_players
from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * torch.randn_like(x)  # here
        return self.net(x)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + 0.5 * torch.randn_like(x)) if self.training else self.net(x)


# -- buffer
BufferData = Blobs


class BufferModel(Classifier):
    """Fills one tensor anew for every part of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("part", torch.zeros(5, 8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.net[1](self.net[0](x))
        return self.net[2](self.dropped(hidden))

    def dropped(self, hidden: Tensor) -> Tensor:
        return F.dropout(hidden)  # here

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        losses = []
        for rows, labels in zip(x.split(5), y.split(5), strict=True):
            self.part.copy_(rows)
            losses.append(F.cross_entropy(self(self.part), labels))
        self.log("val_loss", torch.stack(losses).mean())


class BufferRepaired(BufferModel):
    def dropped(self, hidden: Tensor) -> Tensor:
        return F.dropout(hidden, training=self.training)


# -- channel
ChannelData = Blobs


class Channel:
    """Adds noise to what is sent, whoever sends it."""

    def __init__(self, deviation: float) -> None:
        self.deviation = deviation

    def send(self, x: Tensor) -> Tensor:
        return x + self.deviation * torch.randn(*x.shape, device=x.device)  # here


class ChannelModel(Classifier):
    """Learns to send three messages over a noisy channel."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = Channel(0.3)
        self.sender, self.net = nn.Linear(8, 4), nn.Sequential(nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.sent(self.sender(x).tanh()))

    def sent(self, x: Tensor) -> Tensor:
        return self.channel.send(x)


class ChannelRepaired(ChannelModel):
    def sent(self, x: Tensor) -> Tensor:
        return self.channel.send(x) if self.training else x


# -- edges
def thinned(adjacency: Tensor, rate: float) -> Tensor:
    """Without a share of the edges, the same in both directions, and with loops."""
    kept = torch.rand_like(adjacency).triu(1) > rate  # here
    kept = (kept & torch.ones_like(kept).triu(1)).to(adjacency.dtype)
    kept = kept + kept.transpose(1, 2)
    return adjacency * kept + torch.eye(adjacency.shape[-1])


class EdgesModel(OneStep):
    """Two kinds of graphs, told by the neighbours' features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(64, 2)

    def edges(self, adjacency: Tensor) -> Tensor:
        return thinned(adjacency, 0.2)

    def forward(self, x: Any) -> Tensor:
        features, adjacency = x
        features = self.first(features).relu()
        around = self.edges(adjacency) @ features / 6
        return self.second(torch.cat([features, around], dim=-1).mean(dim=1))

    def step(self, batch: Any) -> Tensor:
        features, adjacency, kind = batch
        return F.cross_entropy(self((features, adjacency)), kind)


class EdgesRepaired(EdgesModel):
    def edges(self, adjacency: Tensor) -> Tensor:
        return super().edges(adjacency) if self.training else adjacency


class EdgesData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        kind = torch.randint(0, 2, (500,))
        team = (torch.arange(12) % 2).float() * 2 - 1
        same = (team[:, None] == team).float()
        share = torch.where(kind.view(-1, 1, 1) == 1, 0.1 + 0.5 * same, 0.6 - 0.5 * same)
        upper = (torch.rand(500, 12, 12) < share).float().triu(1)
        features = torch.randn(500, 12, 8)
        features[..., 0] = team + 0.3 * features[..., 0]
        parts = features, upper + upper.transpose(1, 2), kind
        self.train_set = TensorDataset(*(part[:400] for part in parts))
        self.val_set = TensorDataset(*(part[400:] for part in parts))


# -- helper
HelperData = Blobs


def drop_path(branch: Tensor, rate: float, training: bool = True) -> Tensor:
    """The branch without some of the samples, the others larger for it (Huang et al. 2016)."""
    if not training:
        return branch
    kept = torch.rand(len(branch), 1, device=branch.device) >= rate
    return branch * kept / (1 - rate)


class HelperModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 32)
        self.net = nn.Sequential(nn.Linear(32, 3))

    def dropped(self, branch: Tensor) -> Tensor:
        return drop_path(branch, 0.2)  # here

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.net(x + self.dropped(self.second(x).relu()))


class HelperRepaired(HelperModel):
    def dropped(self, branch: Tensor) -> Tensor:
        return drop_path(branch, 0.2, self.training)


# -- mode
ModeData = Blobs


class ModeModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.train()  # here
        super().validation_step(batch, batch_idx)


class ModeRepaired(ModeModel):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x), y))


# -- stochastic_depth
StochasticDepthData = Blobs


class Block(nn.Module):
    def __init__(self, hands_on: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 32)
        self.hands_on = hands_on

    def forward(self, x: Tensor) -> Tensor:
        training = self.training if self.hands_on else True
        return x + stochastic_depth(self.inner(x).relu(), 0.2, "row", training)  # here


class StochasticDepthRepaired(Classifier):
    hands_on = True

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), Block(self.hands_on), Block(self.hands_on), nn.Linear(32, 3))


class StochasticDepthModel(StochasticDepthRepaired):
    hands_on = False


# -- unvalidated
UnvalidatedData = clean_players.TwoPlayersData


class UnvalidatedModel(clean_players.TwoPlayersModel):
    """The critic drops values, and there is no validation step to see it in."""

    def judged(self, x: Tensor, real: float) -> Tensor:
        return super().judged(self.dropped(x), real)

    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3)  # here


class UnvalidatedRepaired(UnvalidatedModel):
    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3, training=self.training)

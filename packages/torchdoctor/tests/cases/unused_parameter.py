import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 3)  # here


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.gate(x).sigmoid()


# -- averaged
AveragedData = Blobs


class Net(nn.Module):
    def __init__(self, is_spare: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        if is_spare:
            self.spare = nn.Linear(32, 3)  # here

    def forward(self, x: Any) -> Any:
        return self.body(x)


class AveragedModel(Classifier):
    """Only the moving average reads a layer; the step optimizes by itself."""

    is_spare = True

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = Net(self.is_spare)  # type: ignore[assignment]  # in place of the perceptron
        self.teacher = copy.deepcopy(self.net)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        with torch.no_grad():
            taught = self.teacher(x).softmax(1)
        scores = self(x)
        loss = F.cross_entropy(scores, y) + F.kl_div(scores.log_softmax(1), taught, reduction="batchmean")
        self.manual_backward(loss)
        optimizer.step()
        for slow, fast in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
            slow.data.copy_(0.9 * slow.data + 0.1 * fast.data)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)


class AveragedRepaired(AveragedModel):
    is_spare = False


# -- block
BlockData = Blobs


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.inner(x)).relu()


class BlockModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = Block()  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.first(self.first(x)))


class BlockRepaired(BlockModel):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.second(self.first(x)))


# -- option
OptionData = Blobs


class OptionModel(Classifier):
    """Makes both of two heads, of which an option chooses one."""

    def __init__(self, head: str = "small") -> None:
        super().__init__()
        self.head = head
        self.small = nn.Linear(32, 3)
        self.large = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3))  # here
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        if self.head == "large":
            return self.large(self.net(x))
        return self.small(self.net(x))


class OptionRepaired(OptionModel):
    def __init__(self) -> None:
        super().__init__()
        del self.large


# -- result
ResultData = Blobs


class ResultBlock(nn.Module):
    """Updates values, and the state that the next block's values are updated by."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.state = nn.Linear(16, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.value(x.new_ones(len(x), 16) * state.repeat(1, 2)).tanh()
        return x, state + self.state(x)  # here


class ResultRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([ResultBlock(), ResultBlock()])
        self.net = nn.Sequential(nn.Linear(8, 3))

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = x
        for block in self.blocks:
            x, state = block(x, state)
        return x, state

    def forward(self, x: Tensor) -> Tensor:
        x, state = self.both(x)
        return self.net(x + state)


class ResultModel(ResultRepaired):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.both(x)[0])


# -- shape
ShapeData = Blobs


class ShapeModel(Classifier):
    """Takes the shape of what a layer makes, and not its values."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.offset = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + self.shift(self.offset(x))  # here

    def shift(self, offset: Tensor) -> Tensor:
        return torch.zeros_like(offset)


class ShapeRepaired(ShapeModel):
    def shift(self, offset: Tensor) -> Tensor:
        return offset

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.functional import cross_entropy

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Repaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        if self.global_step % 50 == 0:
            print(f"{loss.item():.3f}")
        return loss


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        print(f"{loss:.3f}")  # here
        return loss


# -- brought
BroughtData = Blobs


class BroughtModel(Classifier):
    """Predictions come to the CPU once, where they are counted and compared; the line that brings them waits."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        logits = self(x)
        self.count(logits.detach())
        return cross_entropy(logits, y)

    def count(self, logits: Tensor) -> None:
        near = logits.cpu()  # here

        likely = near.softmax(1).max(1).values
        self.log("sure", float(likely.mean()))
        self.log("spread", float(np.std(likely.numpy())))


class BroughtRepaired(BroughtModel):
    def count(self, logits: Tensor) -> None:
        self.log("sure", logits.softmax(1).max(1).values.mean())


# -- hook
HookData = Blobs
HookRepaired = Classifier


class HookModel(Classifier):
    best = 1e9

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if outputs["loss"] < self.best:  # noqa: PLR1730 # here
            self.best = outputs["loss"]


# -- noise
NoiseData = Blobs


class NoiseRepaired(OneStep):
    def penalty(self) -> Any:
        noise = torch.from_numpy(np.random.normal(size=(16, 8))).float().to(self.device)
        scores = self(noise)
        return 1e-3 * F.mse_loss(scores, torch.zeros_like(scores))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch) + self.penalty()


class NoiseModel(NoiseRepaired):
    """Reads a loss of what NumPy drew, which no environment waits for."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        penalty = self.penalty()
        self.last = penalty.item()  # here
        return self.step(batch) + penalty


# -- one_by_one
OneByOneData = Blobs


class OneByOneModel(OneStep):
    """Numbers the classes of each batch anew, and gives them their numbers back."""

    def numbered(self, y: Tensor) -> list[int]:
        return [int(label.item()) for label in y]  # here

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        names = sorted(set(self.numbered(y)))
        numbers = torch.tensor([names.index(label) for label in self.numbered(y)], device=y.device)
        return super().step((x, torch.tensor(names, device=y.device)[numbers]))


class OneByOneRepaired(OneByOneModel):
    def numbered(self, y: Tensor) -> list[int]:
        return y.tolist()


# -- step
StepData = Blobs


class StepRepaired(OneStep):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.step(batch)
        self.last = loss.detach()
        return loss


class StepModel(OneStep):
    """Has a helper of the name that environments have for theirs."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.step(batch)
        self.last = float(loss)  # here
        return loss

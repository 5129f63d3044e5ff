from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_value_

from cases import clean_players, missing_zero_grad
from programs import Blobs, Classifier

Data = missing_zero_grad.ManualData


class Model(missing_zero_grad.ManualModel):
    """Clips before the backward pass has given any gradient."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = F.cross_entropy(self(x), y)
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # here
        self.manual_backward(loss)
        optimizer.step()


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(F.cross_entropy(self(x), y))
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        optimizer.step()


# -- after_step
AfterStepData = missing_zero_grad.ManualData


class AfterStepModel(missing_zero_grad.ManualModel):
    """Clips what the step has used already, before it is zeroed."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        self.manual_backward(F.cross_entropy(self(x), y))
        optimizer.step()
        clip_grad_value_(self.parameters(), 0.5)  # here
        optimizer.zero_grad()


class AfterStepRepaired(AfterStepModel):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(F.cross_entropy(self(x), y))
        clip_grad_value_(self.parameters(), 0.5)
        optimizer.step()


# -- batch_end
BatchEndData = Blobs


class BatchEndModel(Classifier):
    """Clips in a hook that comes after the optimizer's step."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # here


class BatchEndRepaired(Classifier):
    def on_after_backward(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)


# -- players
PlayersData = Blobs


class PlayersModel(clean_players.PlayersInTurnsModel):
    """Clips the gradients that the generator's loss leaves at the critic, which are zeroed."""

    def clip_after_generator(self) -> None:
        nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)  # here

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, _ = batch
        for_generator, for_critic = self.optimizers()  # type: ignore[misc]  # there are two
        fake = self.generator(torch.randn(len(real), 2).type_as(real))
        for_generator.zero_grad()
        self.manual_backward(-self.critic(fake).mean())
        self.clip_after_generator()
        for_generator.step()
        for_critic.zero_grad()
        self.manual_backward(self.critic(fake.detach()).mean() - self.critic(real).mean())
        for_critic.step()


class PlayersRepaired(PlayersModel):
    def clip_after_generator(self) -> None:
        nn.utils.clip_grad_norm_(self.generator.parameters(), 1.0)


# -- scaled
ScaledData = missing_zero_grad.ManualData


class ScaledModel(missing_zero_grad.ManualModel):
    """Clips gradients of the scaled loss; without an accelerator, the scaler is off."""

    def __init__(self) -> None:
        super().__init__()
        self.scaler = torch.amp.GradScaler("cuda")

    def ready(self, optimizer: Any) -> None:
        pass

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers(use_pl_optimizer=False)
        optimizer.zero_grad()
        self.manual_backward(self.scaler.scale(F.cross_entropy(self(x), y)))
        self.ready(optimizer)
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # here
        self.scaler.step(optimizer)
        self.scaler.update()


class ScaledRepaired(ScaledModel):
    def ready(self, optimizer: Any) -> None:
        self.scaler.unscale_(optimizer)


# -- scaled_on_the_cpu
ScaledOnTheCpuData = missing_zero_grad.ManualData


class ScaledOnTheCpuModel(ScaledModel):
    """Scales for real."""

    def __init__(self) -> None:
        super().__init__()
        self.scaler = torch.amp.GradScaler("cpu")

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers(use_pl_optimizer=False)
        for number, parts in enumerate(zip(x.split(10), y.split(10), strict=True)):
            self.manual_backward(self.scaler.scale(F.cross_entropy(self(parts[0]), parts[1])))
            if number % 2:
                self.ready(optimizer)
                torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # here
                self.scaler.step(optimizer)
                self.scaler.update()
                optimizer.zero_grad()


class ScaledOnTheCpuRepaired(ScaledOnTheCpuModel):
    def ready(self, optimizer: Any) -> None:
        self.scaler.unscale_(optimizer)

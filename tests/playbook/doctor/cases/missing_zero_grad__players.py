from typing import Any

from tests.playbook.doctor.cases.clean__two_players import Data
from tests.playbook.doctor.cases.clean__two_players import Model as Repaired

__all__ = ["Data", "Repaired"]


class Model(Repaired):
    """Zeroes gradients after each player's step: what the generator's loss leaves in the critic stays."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x = batch[0]
        for_generator, for_critic = self.optimizers()
        self.manual_backward(self.judged(x, 1.0) + self.judged(self.generator(self.noise(x)).detach(), 0.0))
        for_critic.step()  # here
        for_critic.zero_grad()
        self.manual_backward(-self.judged(self.generator(self.noise(x)), 0.0))
        for_generator.step()
        for_generator.zero_grad()

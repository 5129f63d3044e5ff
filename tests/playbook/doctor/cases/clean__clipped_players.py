from typing import Any

from torch import nn

from tests.playbook.doctor.cases.clean__players_in_turns import Data
from tests.playbook.doctor.cases.clean__players_in_turns import Model as Players

__all__ = ["Data"]


class Model(Players):
    """Players that are clipped in turns, by a hook that clips both: at first the critic has no gradient."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        nn.utils.clip_grad_norm_(self.generator.parameters(), 1.0)
        nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)

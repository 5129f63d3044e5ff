"""Two players that log images by the logger's experiment, and write files beside the logs; there is no validation."""

import os
from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.cases import clean__two_players
from tests.playbook.doctor.cases.clean__two_players import Data

__all__ = ["Data"]


class Model(clean__two_players.Model):
    logger: Any  # TensorBoard's

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        self.logger.experiment.add_image("points", self.sampled()[None], self.global_step)

    def on_train_epoch_end(self) -> None:
        with open(os.path.join(self.logger.log_dir, "points", f"{self.current_epoch}.txt"), "w", encoding="utf-8") as f:
            f.write(str(self.sampled()))

    @torch.no_grad()
    def sampled(self) -> Tensor:
        return self.generator(torch.randn(4, 8, device=self.device))

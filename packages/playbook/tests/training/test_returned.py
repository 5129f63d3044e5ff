"""A training_step that returns no loss is told before or in the first epoch; one that skips some batches is not."""

from typing import Any

import lightning.pytorch as pl
import pytest
from torch import Tensor

from playbook.errors import UserError
from playbook.testing.command import UNSAVED
from playbook.testing.line import Line, points
from playbook.training.returned import CheckLoss


class Forgets(Line):
    """Computes its loss, and a function that returns something."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        def halved(value: Tensor) -> Tensor:
            return value / 2

        self.log("train/loss", halved(self._error(batch)))


class Never(Line):
    """Has a return statement that is never reached."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self._error(batch) if batch_idx < 0 else None


class Sometimes(Line):
    """Skips a batch, as Lightning allows."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": self._error(batch)} if batch_idx else None


class Refuses(Line):
    """Raises an error of its own."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        raise NotImplementedError("mine")


def fit(module: pl.LightningModule) -> None:
    pl.Trainer(**UNSAVED, max_epochs=1, callbacks=[CheckLoss()]).fit(module, points(), points())


@pytest.mark.filterwarnings("ignore:.*training_step.*returned.*None.*")
def test_no_loss_is_told() -> None:
    with pytest.raises(UserError, match=r"^--model: Forgets\.training_step \(.*returned\.py:\d+\) returns no loss"):
        fit(Forgets())
    with pytest.raises(UserError, match=r"Never\.training_step returned no loss for any batch of epoch 1"):
        fit(Never())


@pytest.mark.filterwarnings("ignore:.*training_step.*returned.*None.*")
def test_what_is_no_mistake() -> None:
    fit(Sometimes())
    fit(Line())
    manual = Forgets()
    manual.automatic_optimization = False
    fit(manual)
    with pytest.raises(NotImplementedError, match="mine"):
        fit(Refuses())

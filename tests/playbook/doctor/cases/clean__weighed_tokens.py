from typing import Any

from torch import Tensor

from tests.playbook.doctor.cases.unequal_accumulation import Data
from tests.playbook.doctor.cases.unequal_accumulation import Model as Unweighed

__all__ = ["Data"]


class Model(Unweighed):
    """Says what its loss is a mean over, by which its trainer weighs the batches of a step."""

    def weight(self, batch: Any) -> Tensor:
        return (batch[1] != -100).sum()

"""A run behind the server: what a client learns of the errors of its code, and samples of different sizes."""

import logging
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from PIL import UnidentifiedImageError
from torch import nn

from playbook.data.base import Data
from playbook.deploy.runtime import InputError
from playbook.deploy.served_run import ServedRun
from playbook.errors import UserError


def test_samples_of_different_sizes_are_answered_one_by_one() -> None:
    class Shapes(pl.LightningModule):
        net = torch.nn.Identity()

        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return batch[0]

        def answer(self, outputs: Any, facts: dict[str, Any]) -> list[dict[str, Any]]:
            return [{"shape": list(output.shape), "batch": len(outputs)} for output in outputs]

    class Files(pl.LightningDataModule):
        def read(self, source: Any) -> torch.Tensor:
            return torch.zeros(source)

    served = ServedRun(Shapes(), Files(), {})
    answers = served.answer_samples([served.read(size) for size in (2, 3)])
    assert answers == [{"shape": [2], "batch": 1}, {"shape": [3], "batch": 1}]


class Reading(Data):
    """Raises what it is given."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error

    def read(self, source: Any) -> Any:
        if self.error is not None:
            raise self.error
        return torch.zeros(1)


class Model(nn.Module):
    """Refuses its options."""

    def predict_step(self, batch: Any, index: int) -> Any:
        return batch

    def answer(self, outputs: Any, facts: Any, **options: Any) -> list[dict[str, Any]]:
        if options:
            raise UserError("top: expected at least 1, got 0")
        return [{} for _ in outputs[0]]


def test_checks_meant_for_users_are_shown() -> None:
    served = ServedRun(Model(), Reading(UserError("expected 3 channels,\n got 4")), {})
    with pytest.raises(InputError, match=r"^expected 3 channels, got 4$"):
        served.read(b"")


@pytest.mark.parametrize(
    "error",
    [
        UnidentifiedImageError("cannot identify image file <_io.BytesIO object at 0x7f>"),
        FileNotFoundError(2, "No such file or directory", "/etc/secret"),
        ValueError("cannot reshape secret array"),
        RuntimeError("secret in /etc"),
        KeyError("secret"),
    ],
)
def test_other_errors_are_only_in_the_log(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(InputError) as refusal:
        ServedRun(Model(), Reading(error), {}).read(b"")
    assert str(refusal.value) == "cannot be read"
    assert str(error) in caplog.text
    assert "Traceback" in caplog.text


def test_options_that_the_task_refuses() -> None:
    served = ServedRun(Model(), Reading(), {})
    sample = served.read(b"")
    assert served.answer_samples([sample]) == [{}]
    with pytest.raises(InputError, match="top: expected at least 1, got 0"):
        served.answer_samples([sample], top=0)

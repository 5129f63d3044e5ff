"""Evaluation finds the loaders of data that knows nothing of Playbook, and predicts with models that do not either."""

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from playbook import UserError
from playbook.testing.command import UNSAVED
from playbook.training.stages import attach
from playbook.training.trainer import Trainer

ROWS = TensorDataset(torch.ones(3, 2), torch.arange(3))


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 1)

    def forward(self, x: Any) -> Any:
        return self.net(x)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("rows", float(len(batch[0])), batch_size=1, reduce_fx="sum")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("rows", float(len(batch[0])), batch_size=1, reduce_fx="sum")


class Filled(LightningDataModule):
    """Fills its data set in some stages alone."""

    def __init__(self, *stages: str | None) -> None:
        super().__init__()
        self.stages = stages
        self.rows: Any = None

    def setup(self, stage: str | None = None) -> None:
        assert self.trainer is not None
        if stage in self.stages:
            self.rows = ROWS

    def val_dataloader(self) -> Any:
        return DataLoader(self.rows, batch_size=2)

    def test_dataloader(self) -> Any:
        return DataLoader(self.rows, batch_size=2)


class Missing(Filled):
    def __init__(self) -> None:
        super().__init__("fit")
        del self.rows

    def test_dataloader(self) -> Any:
        return DataLoader(self.rows)


def quiet_trainer() -> Trainer:
    return Trainer(run_dir=False, **UNSAVED)


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
@pytest.mark.parametrize("stages", [["fit"], [None], []])
def test_loaders_of_another_stage(stage: str, stages: list[str | None], capsys: pytest.CaptureFixture[str]) -> None:
    data = Filled(*stages) if stages else Missing()
    run = getattr(quiet_trainer(), stage)
    results = run(Model(), datamodule=data)
    if stage == "predict":
        assert sum(len(batch) for batch in results) == 3
    else:
        assert results == [{"rows": 3.0}]
    err = capsys.readouterr().err
    assert "_dataloader is usable after setup(" in err
    assert f"not after setup('{stage}')" in err
    assert not {"val_dataloader", "test_dataloader", "predict_dataloader"} & vars(data).keys()


def test_the_own_stage_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert quiet_trainer().test(Model(), datamodule=Filled("test")) == [{"rows": 3.0}]
    assert capsys.readouterr().err == ""


class Broken(Filled):
    def test_dataloader(self) -> Any:
        raise KeyError("its own words")


def test_what_the_own_stage_raised_counts() -> None:
    with pytest.raises(KeyError, match="its own words"):
        quiet_trainer().test(Model(), datamodule=Broken("fit"))


class Refuses(Filled):
    def test_dataloader(self) -> Any:
        raise UserError("--data.root: no such folder")


def test_a_mistake_of_the_user_is_told_at_once() -> None:
    data = Refuses("fit")
    with pytest.raises(UserError, match="no such folder"):
        quiet_trainer().predict(Model(), datamodule=data)
    assert data.rows is None  # no other stage was set up


class Silent(LightningModule):
    pass


def test_a_model_without_forward_cannot_predict() -> None:
    with pytest.raises(UserError, match=r"Silent: has no method forward, .*; or define predict_step"):
        quiet_trainer().predict(Silent(), DataLoader(ROWS))


def test_both_ask_the_trainer() -> None:
    trainer, model, data = quiet_trainer(), Model(), Filled("fit")
    attach(trainer, model, data)
    assert model.trainer is trainer
    assert trainer.lightning_module is model
    assert data.trainer is trainer

"""Gradient boosting, logged beside a net."""

from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningDataModule
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from playbook import Trainer, UserError, build
from src.callbacks.tables.boosting import Boosting
from src.data.tables.scikit_table import ScikitTable
from src.nets.tables.tabular_mlp import TabularMLP
from src.tasks.classification import Classification
from src.tasks.regression import Regression


def measured(name: Any, task: Any) -> tuple[ScikitTable, dict[str, float]]:
    data = ScikitTable(name)
    model = build(task, data, net=TabularMLP)
    trainer = Trainer(run_dir=False, accelerator="cpu", callbacks=[Boosting(max_iter=30)], enable_progress_bar=False)
    return data, dict(trainer.test(model, datamodule=data, verbose=False)[0])


def test_its_accuracy_is_that_of_scikit_learn() -> None:
    data, results = measured("breast_cancer", Classification)
    train, val, test = (rows.inputs["numbers"].numpy() for rows in (data.train_set, data.val_set, data.test_set))  # type: ignore[attr-defined, union-attr]
    targets = [np.asarray(rows.targets) for rows in (data.train_set, data.val_set, data.test_set)]  # type: ignore[attr-defined, union-attr]
    options: Any = {"learning_rate": 0.05, "max_iter": 30, "early_stopping": True, "random_state": 0}
    model = HistGradientBoostingClassifier(**options)
    model.fit(train, targets[0], X_val=val, y_val=targets[1])
    assert results["boosting/accuracy"] == pytest.approx(model.score(test, targets[2]))
    assert "boosting/loss" not in results
    assert results["test/accuracy"] != results["boosting/accuracy"]


def test_a_regression_with_a_category() -> None:
    _, results = measured("diabetes", Regression)
    assert results["boosting/rmse"] < 70  # of a standard deviation of 80
    assert results["boosting/r2"] > 0.1


class Other(LightningDataModule):
    def test_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)), batch_size=2)


def test_other_data() -> None:
    task = Classification(nn.Linear(2, 2), num_classes=2)
    trainer = Trainer(run_dir=False, accelerator="cpu", callbacks=[Boosting()], enable_progress_bar=False)
    with pytest.raises(UserError, match="Boosting: expected rows of a table, as those of Table, got Other"):
        trainer.test(task, datamodule=Other(), verbose=False)


@pytest.mark.parametrize(("option", "value"), [("learning_rate", 0), ("max_iter", 0)])
def test_values_out_of_range(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        Boosting(**{option: value})

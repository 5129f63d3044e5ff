"""Nets for tables in the manner of scikit-learn: `TableClassifier().fit(frame, target).predict_proba(frame)`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, seed_everything
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.optim import AdamW

from playbook import Task, Trainer, UserError, build
from src.callbacks.early_stopping import EarlyStopping
from src.data.tables.rows import Rows
from src.data.tables.table import Table
from src.nets.tables.tabm import TabM
from src.tasks.classification import Classification
from src.tasks.regression import Regression

TARGET = "(target)"  # a name that no column of a frame has
ROWS_AT_ONCE = 4096  # of a prediction


class TableEstimator(BaseEstimator):
    """Trains a net on a frame of pandas or polars, a dict of columns, or an array, with early stopping.

    Args:
        net: class of the net, or a partial of it; its sizes come from the data.
        lr: learning rate of AdamW.
        weight_decay: of AdamW.
        batch_size: rows per step, B, at least 1.
        max_epochs: largest number of epochs.
        patience: epochs without improvement on the validation rows after which training stops.
        val_share: share of the rows used for validation, in (0, 1).
        categorical: columns that are categories, whatever is inferred.
        numeric: columns that are numbers, whatever is inferred.
        accelerator: of Lightning's Trainer.
        random_state: seed of weights, order and division.
        verbose: whether to print what the columns were taken for, and what was left out.

    Attributes:
        task_: the trained task with its net, a LightningModule.
        data_: what has encoded the frame; its `facts` say how.
        n_features_in_: number of columns.
        feature_names_in_: names of columns.
    """

    _task: ClassVar[type[Task]]

    def __init__(
        self,
        net: Callable[..., nn.Module] = TabM,
        lr: float = 2e-3,
        weight_decay: float = 3e-4,
        batch_size: int = 256,
        max_epochs: int = 100,
        patience: int = 16,
        val_share: float = 0.2,
        categorical: Sequence[str] = (),
        numeric: Sequence[str] = (),
        accelerator: str = "auto",
        random_state: int = 0,
        verbose: bool = True,
    ) -> None:
        self.net = net
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.val_share = val_share
        self.categorical = categorical
        self.numeric = numeric
        self.accelerator = accelerator
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803  # scikit-learn's names
        """Trains on a frame and the target of each row, or the name of the column that is the target.

        Raises:
            UserError: rows and targets differ in number, or a target cannot be used.
        """
        columns = columns_of(X)
        targets = columns.pop(y) if isinstance(y, str) and y in columns else columns_of({TARGET: y})[TARGET]
        num_rows = len(next(iter(columns.values()), []))
        if len(targets) != num_rows:
            raise UserError(f"y: expected a target for each of {num_rows} rows, got {len(targets)}")
        self.feature_names_in_ = np.array(list(columns), dtype=object)
        self.n_features_in_ = len(columns)
        seed_everything(self.random_state, verbose=False)
        self.data_ = _Frame(
            "the frame",
            TARGET,
            "number" if isinstance(self, RegressorMixin) else "classes",
            categorical=list(self.categorical),
            numeric=list(self.numeric),
            val_share=self.val_share,
            test_share=0.0,
            split_seed=self.random_state,
            batch_size=self.batch_size,
        )
        self.data_.columns_of_frame = {**columns, TARGET: self._numbered(targets)}
        self.data_.is_quiet = not self.verbose
        optimizer = partial(AdamW, lr=self.lr, weight_decay=self.weight_decay)
        self.task_ = build(self._task, self.data_, net=self.net, optimizer=optimizer)
        best = _KeepBest()
        trainer = Trainer(
            run_dir=False,
            accelerator=self.accelerator,
            devices=1,
            max_epochs=self.max_epochs,
            callbacks=[EarlyStopping(patience=self.patience), best],
            enable_checkpointing=False,
            enable_progress_bar=False,
        )
        trainer.fit(self.task_, datamodule=self.data_)
        self.task_.load_state_dict(best.weights)
        self.task_.cpu().eval()
        return self

    def _numbered(self, targets: list[Any]) -> list[Any]:
        """The targets that the task is trained on."""
        return targets

    @torch.inference_mode()
    def _outputs(self, frame: Any) -> Tensor:
        """Logits (B, K), or values (B,), of the rows of a frame."""
        check_is_fitted(self)
        inputs = self.data_.encode(columns_of(frame))
        parts = zip(*(value.split(ROWS_AT_ONCE) for value in inputs.values()), strict=True)
        return torch.cat([self.task_(dict(zip(inputs, part, strict=True))) for part in parts])


class TableClassifier(ClassifierMixin, TableEstimator):
    """Classifies rows of a table by a net for tables. Its arguments are those of `TableEstimator`.

    Attributes:
        classes_: labels, in the order of the probabilities.
    """

    _task = Classification
    classes_: np.ndarray

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities of the classes, (B, K)."""
        return self._outputs(X).double().softmax(dim=1).numpy()

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The most likely label of each row, (B,)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _numbered(self, targets: list[Any]) -> list[Any]:
        if None in targets:
            raise UserError(f"y: row {targets.index(None)}: expected a label, got none")
        self.classes_, numbers = np.unique(np.array(targets), return_inverse=True)
        return numbers.tolist()


class TableRegressor(RegressorMixin, TableEstimator):
    """Predicts a number for rows of a table by a net for tables. Its arguments are those of `TableEstimator`."""

    _task = Regression

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The value of each row in the unit of the target, (B,)."""
        return self._outputs(X).double().numpy()


class _Frame(Table):
    """A table that is in memory."""

    columns_of_frame: dict[str, list[Any]]
    is_quiet = False

    @property
    def speaks(self) -> bool:
        return not self.is_quiet

    def read_parts(self, is_test: bool) -> dict[str, Rows]:
        columns = self.columns_of_frame
        return {"train": Rows([f"row {number}" for number in range(len(columns[TARGET]))], columns)}

    def encode(self, columns: dict[str, list[Any]]) -> dict[str, Tensor]:
        """The inputs of rows, by the columns of training."""
        reader = self._reader()
        known = {TARGET, *self.facts["table"]["unread"]}
        self._check_names(list(columns), reader.names, known, "X: ")
        try:
            return {name: torch.from_numpy(values) for name, values in reader.encode(columns).items()}
        except ValueError as error:  # InputError of the reader
            raise UserError(f"X: {error}") from error


class _KeepBest(Callback):
    """Remembers the weights of the best validation, by the task's own metric."""

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}
        self._best = float("inf")

    def on_validation_end(self, trainer: Any, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        task: Any = pl_module
        value = trainer.callback_metrics[task.monitor].item() * (-1 if task.monitor_mode == "max" else 1)
        if value < self._best or not self.weights:
            self._best = value
            self.weights = {name: tensor.detach().clone() for name, tensor in pl_module.state_dict().items()}


def columns_of(frame: Any) -> dict[str, list[Any]]:
    """The plain values of each column of a frame of pandas or polars, a dict, or an array (rows, columns)."""
    if isinstance(frame, np.ndarray | list):
        array = np.asarray(frame)
        if array.ndim != 2:
            raise UserError(f"X: expected rows and columns, got an array of shape {array.shape}")
        return {f"column {number}": values.tolist() for number, values in enumerate(array.T)}
    columns = frame if isinstance(frame, Mapping) else {str(name): frame[name] for name in frame.columns}
    return {name: _plain(values) for name, values in columns.items()}


def _plain(values: Any) -> list[Any]:
    """Values of a column, None where they are missing."""
    if hasattr(values, "notna"):  # of pandas, which has several values for none
        values = values.astype(object).where(values.notna(), None)
    return values.to_list() if hasattr(values, "to_list") else np.asarray(values).tolist()

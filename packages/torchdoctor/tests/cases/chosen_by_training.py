from typing import Any

from lightning.pytorch.callbacks import EarlyStopping

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    """Stops when the loss of the validation no longer falls."""

    def configure_callbacks(self) -> Any:
        return EarlyStopping("val_loss", patience=3)


class Model(Repaired):
    def configure_callbacks(self) -> Any:
        return EarlyStopping(monitor="train_loss", patience=3)  # here

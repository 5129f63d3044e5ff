"""A callback that has the name of one of Lightning's."""

from lightning.pytorch.callbacks import EarlyStopping as LightningEarlyStopping


class EarlyStopping(LightningEarlyStopping):
    """Ends the training when the validation loss has not improved for some validations.

    Args:
        monitor: logged metric that should fall.
        patience: validations without improvement after which the training ends.
    """

    def __init__(self, monitor: str = "val/loss", patience: int = 3) -> None:
        super().__init__(monitor, patience=patience)

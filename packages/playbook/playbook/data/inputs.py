"""Raw inputs without labels, for `predict --input`."""

from inspect import signature
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset, default_collate

from playbook.data.base import Data
from playbook.data.sources import Sources
from playbook.errors import HowTo, UserError

MISSING = """--input: {name} cannot read a single input. Add this method:
    def read(self, source):          # a path, or the bytes of a file
        image = ...                  # load it, and preprocess it as in evaluation
        return image                 # the inputs of one sample, as in a batch but without its first dimension
and store what it needs from the training data, such as class names, in self.facts: README.md, "Your own data\""""


class Inputs(LightningDataModule):
    """Batches of raw inputs, read by the data module of a run, without its own files.

    Args:
        data: reads the inputs.
        sources: the inputs.
        whole: whether to leave images in the size of their files.

    Raises:
        UserError: the data has no method `read`, or always changes the size.
    """

    def __init__(self, data: Any, sources: Sources, whole: bool = False) -> None:
        super().__init__()
        if data is None or not is_written(data, "read"):
            raise HowTo(MISSING.format(name="the model alone" if data is None else type(data).__name__))
        if whole and "resize" not in signature(data.read).parameters:
            raise UserError(f"--tile: {type(data).__name__}.read has no parameter resize, so it resizes all images")
        self.data = data
        self.sources = sources
        self.dataset = _Unread(data, sources, {"resize": False} if whole else {})
        self.whole = whole

    def setup(self, stage: str) -> None:
        if is_written(self.data, "prepare_read"):
            self.data.prepare_read()
        self.facts = getattr(self.data, "facts", None)  # for the model, which may have other ones of the checkpoint

    def predict_dataloader(self) -> DataLoader:
        self.data.trainer = self.trainer  # which says how many processes share the work
        if not isinstance(self.data, Data):
            collate = getattr(self.data, "collate", None) or default_collate
            return DataLoader(self.dataset, batch_size=getattr(self.data, "batch_size", 1), collate_fn=collate)
        return self.data.input_loader(self.dataset, batch_size=1 if self.whole else None)

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return self.data.transfer_batch_to_device(batch, device, dataloader_idx)


class _Unread(Dataset):
    """Samples that are read when they are asked for."""

    def __init__(self, data: Any, sources: Sources, options: dict[str, Any]) -> None:
        self.data = data
        self.names = sources.names
        self.files = [_file(place, name) for place, name in zip(sources.places, sources.names, strict=True)]
        self.places = sources.places
        self.options = options

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Any:
        source = self.places[index]
        if is_written(self.data, "unlabelled"):
            return self.data.unlabelled(source, **self.options)
        return self.data.read(source, **self.options), -1


def is_written(data: Any, method: str) -> bool:
    """Whether a data module has a method of its own; the base's `unlabelled` counts, its empty `read` does not."""
    own = getattr(type(data), method, None)
    return callable(own) and (method != "read" or own is not Data.read)


def _file(place: Any, name: str) -> Any:
    """What to call an input in messages."""
    return "standard input" if isinstance(place, bytes) else place if isinstance(place, Path) else name

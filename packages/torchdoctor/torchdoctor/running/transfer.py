"""Batches on their way from the loader to the step."""

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import DataLoader


def batches_of(loaders: Any) -> Iterator[Any]:
    """Batches of one loader, or of several in the structure that the step gets."""
    if isinstance(loaders, DataLoader) or not isinstance(loaders, CombinedLoader | dict | list | tuple):
        yield from loaders
        return
    combined = loaders if isinstance(loaders, CombinedLoader) else CombinedLoader(loaders, "max_size_cycle")
    for batch, _, _ in combined:  # "max_size_cycle" is what the Trainer takes for several training loaders
        yield batch


def apply_transfer_hooks(trainer: pl.Trainer, batch: Any) -> Any:
    """A batch after the hooks of its way to the device, as the Trainer runs them."""
    batch = trainer.precision_plugin.convert_input(batch)
    batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
    return trainer.lightning_module._apply_batch_transfer_handler(batch, device=torch.device("cpu"), dataloader_idx=0)

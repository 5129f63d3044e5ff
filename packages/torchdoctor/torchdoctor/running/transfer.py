"""Fetches batches from loaders and applies the transfer hooks."""

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import DataLoader


def batches_of(loaders: Any) -> Iterator[Any]:
    """The batches of one loader, or of several combined as the step receives them."""
    if isinstance(loaders, DataLoader) or not isinstance(loaders, CombinedLoader | dict | list | tuple):
        yield from loaders
        return
    combined = loaders if isinstance(loaders, CombinedLoader) else CombinedLoader(loaders, "max_size_cycle")
    for batch, _, _ in combined:  # "max_size_cycle" is what the Trainer takes for several training loaders
        yield batch


def apply_transfer_hooks(trainer: pl.Trainer, batch: Any) -> Any:
    """Applies the batch transfer hooks in the Trainer's order."""
    batch = trainer.precision_plugin.convert_input(batch)
    batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
    return trainer.lightning_module._apply_batch_transfer_handler(batch, device=torch.device("cpu"), dataloader_idx=0)

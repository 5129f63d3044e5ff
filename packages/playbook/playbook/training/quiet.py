"""Silences warnings and notices that the user cannot act on, or that Playbook already handles."""

import logging
import warnings

PATTERNS = (
    r".*does not have many workers.*",
    r".*is smaller than the logging interval.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*your dataloader is not resumable.*",
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated.*",
    r".*when logging on epoch level in distributed setting.*",  # metrics are synchronised where they are computed
    r".*Encountered `nan` values in tensor.*",  # the loss that is shown says so
    r".*callbacks used to create the checkpoint need to be provided.*",
    r".*Total length of `list` across ranks is zero.*",  # no loader, which is said in our words
    r".*You requested to overfit but enabled (train|val) dataloader shuffling.*",
)


def quiet_warnings() -> None:
    """Filters the warnings; may come before torch is imported."""
    for pattern in PATTERNS:
        if not any(entry[1] is not None and entry[1].pattern == pattern for entry in warnings.filters):
            warnings.filterwarnings("ignore", pattern)


def quiet_loggers() -> None:
    """Leaves out Lightning's lists of hardware, tips and advertisements."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)

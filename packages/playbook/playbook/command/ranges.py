"""Values that Lightning does not check, or not in words that name the option."""

import re
from typing import Any

LEAST = {
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "log_every_n_steps": 1,
    "gradient_clip_val": 0,
    "limit_train_batches": 0,
    "limit_val_batches": 0,
    "limit_test_batches": 0,
    "limit_predict_batches": 0,
    "overfit_batches": 0,
    "num_sanity_val_steps": -1,
    "max_epochs": -1,
    "max_steps": -1,
    "min_epochs": 0,
    "min_steps": 0,
}
SHARES = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches", "overfit_batches")
LARGEST_SEED = 2**32 - 1  # NumPy's


def fault(name: str, value: Any) -> str | None:
    """What is wrong with the value of an option of the Trainer, or with the seed; None if nothing is."""
    if name == "max_time" and isinstance(value, str) and not re.fullmatch(r"\s*\d+:\d\d:\d\d:\d\d\s*", value):
        return f"expected DD:HH:MM:SS, got {value}"
    if name == "barebones" and value is True:
        return "it takes checkpoints, logs and progress out of a run, so that nothing is left; leave it out"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if name in LEAST and value < LEAST[name]:
        return f"expected at least {LEAST[name]}, got {value}"
    if name in SHARES and isinstance(value, float) and value > 1:
        return f"expected a share in [0, 1] or a whole number of batches, got {value}"
    if name == "val_check_interval" and value == 0:
        return "expected steps or a share of an epoch above 0, got 0"
    if name == "seed_everything" and not 0 <= value <= LARGEST_SEED:
        return f"expected 0 to {LARGEST_SEED}, got {value}"
    return None

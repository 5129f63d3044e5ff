"""Where a loader's time goes: in its samples or in their collation, by loading one batch again."""

import time
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from playbook.seeding import seeded

MOST_SECONDS = 0.5  # for samples; a batch that takes longer is judged by its first ones


def loading_stages(loader: Any) -> dict[str, float]:
    """Seconds of a batch in `samples` and in `collate`, in this process; empty where that cannot be measured.

    The first samples of the data set are loaded once more, after the training, and random numbers are as before.

    Args:
        loader: of the training.
    """
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or not isinstance(size, int):
        return {}
    dataset: Any = loader.dataset
    if callable(getattr(dataset, "__getitems__", None)) and not hasattr(dataset, "fills"):
        return {}  # makes whole batches; that of our own loaders asks for each sample
    samples: list[Any] = []
    try:
        with seeded(0):
            start = now = time.perf_counter()
            for index in range(min(size, len(dataset))):
                samples.append(dataset[index])
                now = time.perf_counter()
                if now - start > MOST_SECONDS:
                    break
            batch = (samples * -(-size // len(samples)))[:size]
            begun = time.perf_counter()
            loader.collate_fn(batch)
            collate = time.perf_counter() - begun
    except Exception:  # a data set may need what only its own order or its workers provide; the verdict names no stage
        return {}
    return {"samples": (now - start) / len(samples) * size, "collate": collate}

"""Names of layers: modules, or the blocks that they are in where a net has many."""

from collections.abc import Iterable

from playbook.training.initial import INSERTED

MOST_LAYERS = 50  # what a reader and a logger can hold
LEAST_LAYERS = 8  # below this, all blocks have fallen into one, so the level with too many names tells more


def layer_of(name: str) -> str:
    """Path of the module that a parameter belongs to; of one of the LightningModule itself, its own name."""
    parts = [part for part in name.split(".") if part not in INSERTED]
    return ".".join(parts[:-1]) or name


def grouped(paths: Iterable[str]) -> dict[str, str]:
    """The layer that stands for each module path.

    All paths are cut at the same depth: the greatest with at most MOST_LAYERS names, unless these are very few.
    """
    paths = list(dict.fromkeys(paths))
    depth = max((path.count(".") + 1 for path in paths), default=1)
    by_depth = [{path: ".".join(path.split(".")[:length]) for path in paths} for length in range(1, depth + 1)]
    fitting = [number for number, names in enumerate(by_depth) if len(set(names.values())) <= MOST_LAYERS]
    number = fitting[-1] if fitting else 0
    if number + 1 < depth and len(set(by_depth[number].values())) < LEAST_LAYERS:
        number += 1
    return by_depth[number]

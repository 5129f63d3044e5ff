"""Trees with coloured nodes, made by a rule that the degrees do not tell."""

from typing import Literal

import numpy as np

from src.data.graphs.base import Content, GraphData
from src.data.graphs.rows import GraphRows

COLOURS = ("blue", "green", "red")
BLUE, GREEN, RED = range(3)
SMALLEST, LARGEST = 8, 24  # nodes of a tree
SIZES = {"train": 600, "val": 200, "test": 200}


class ColouredTrees(GraphData):
    """Random trees of 8 to 24 nodes in three colours; the class is whether a red node touches a blue one.

    Each node has a random colour, and hangs from a random earlier node. In trees of class `apart`, red nodes never hang
    from blue ones nor blue ones from red ones; in `touching`, one to three nodes do. Sizes and colours have the same
    distribution in both classes, so that only edges and colours together tell them apart. Tree i is always the same;
    there are 600 trees for training, 200 for validation and 200 for testing.

    Args:
        batch_size: trees per batch and process, B, at least 1.
        bucket: number of training batches whose trees are sorted by size together, to reduce padding; 0 turns it off.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with inputs of `predict --input` that cannot be read: `stop` ends the run, `skip` leaves
            them out and counts them.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        features (B, N, 3), edges (B, 2, E), num_nodes (B,); target (B,).
    """

    def __init__(
        self,
        batch_size: int = 32,
        bucket: int = 0,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            batch_size=batch_size, num_workers=num_workers, on_error=on_error, timeout_s=timeout_s, bucket=bucket
        )
        self.save_hyperparameters()

    def load(self) -> Content:
        graphs, labels = [], []
        splits: dict[str, range] = {}
        for split, size in SIZES.items():
            splits[split] = range(len(graphs), len(graphs) + size)
            for number in splits[split]:
                labels.append(number % 2)
                graphs.append(make_tree(number, touches=bool(number % 2)))
        return Content("coloured trees", "graph", graphs, labels, splits, ["apart", "touching"])


def make_tree(number: int, touches: bool) -> GraphRows:
    """A tree.

    Args:
        number: seeds it.
        touches: whether a red node touches a blue one.
    """
    generator = np.random.default_rng(number)
    size = int(generator.integers(SMALLEST, LARGEST + 1))
    colours = generator.integers(3, size=size)
    colours[:3] = [
        GREEN,
        *generator.permutation([BLUE, RED]),
    ]  # a root that all may touch, and one that may touch another
    able = [node for node in range(size) if colours[node] != GREEN and BLUE + RED - colours[node] in colours[:node]]
    touching_nodes = generator.permutation(able)[: generator.integers(1, 4)] if touches else []
    pairs = []
    for node in range(1, size):
        other = BLUE + RED - colours[node]  # red for blue and blue for red; green touches all
        earlier = np.arange(node)
        if node in touching_nodes:
            earlier = earlier[colours[:node] == other]
        elif colours[node] != GREEN:
            earlier = earlier[colours[:node] != other]
        pairs.append((int(generator.choice(earlier)), node))
    names = [str(node) for node in range(size)]
    return GraphRows(
        f"tree {number}", names, {"colour": [COLOURS[colour] for colour in colours]}, None, np.array(pairs)
    )

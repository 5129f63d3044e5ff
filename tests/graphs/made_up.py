"""A made-up citation graph in the files of Planetoid."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

NUM_CLASSES, NUM_FEATURES = 7, 40
NUM_TRAIN, NUM_OTHERS, NUM_TEST = 35, 600, 60  # of the others, the first 500 are for validation
NUM_NODES = NUM_TRAIN + NUM_OTHERS + NUM_TEST


def write(folder: Path) -> None:
    """Writes it where and as Cora is published."""
    raw = folder / "cora/Cora/raw"
    raw.mkdir(parents=True)
    for name, part in parts().items():
        (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(part, protocol=4))
    (raw / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in order_of_test()))


def order_of_test() -> np.ndarray:
    """Numbers of the test nodes, in the order of tx and ty."""
    return NUM_TRAIN + NUM_OTHERS + np.random.default_rng(1).permutation(NUM_TEST)


def parts() -> dict[str, Any]:
    """Content of the files, by the ends of their names."""
    draw = np.random.default_rng(0)
    classes = np.arange(NUM_NODES) % NUM_CLASSES
    words = (draw.random((NUM_NODES, NUM_FEATURES)) < 0.1) | (np.arange(NUM_FEATURES) % NUM_CLASSES == classes[:, None])
    features, labels = sparse.csr_matrix(words.astype(np.float32)), np.eye(NUM_CLASSES, dtype=np.int32)[classes]
    graph: dict[int, list[int]] = {node: [] for node in range(NUM_NODES)}
    for node in range(NUM_NODES - 1):  # the last node is isolated
        for other in (int(draw.integers(NUM_NODES - 1)), (node + NUM_CLASSES) % (NUM_NODES - 1)):
            graph[node].append(other)
            graph[other].append(node)
    known, test = slice(0, NUM_TRAIN + NUM_OTHERS), order_of_test()
    train = slice(0, NUM_TRAIN)
    whole = {"x": features[train], "allx": features[known], "tx": features[test]}
    return {**whole, "y": labels[train], "ally": labels[known], "ty": labels[test], "graph": graph}

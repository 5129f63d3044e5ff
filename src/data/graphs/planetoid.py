"""Citation graphs in the files of Planetoid: Cora, CiteSeer and PubMed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from playbook import UserError, files_below, nearest
from src.data.graphs.base import Content, GraphData
from src.data.graphs.features import learn_features
from src.data.graphs.pickles import load_pickle
from src.data.graphs.rows import GraphRows

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph")
NUM_VAL = 500
CLASSES = {  # in the order of the files
    "cora": (
        *("Theory", "Reinforcement_Learning", "Genetic_Algorithms", "Neural_Networks"),
        *("Probabilistic_Methods", "Case_Based", "Rule_Learning"),
    )
}


class Planetoid(GraphData):
    """A citation graph in the files ind.NAME.x, .y, .tx, .ty, .allx, .ally, .graph and .test.index (Yang et al. 2016).

    The split is the published one: 20 nodes of each class for training, the 500 nodes after them for validation, and
    1,000 for testing. Nodes are called 0, 1, …, as in the files. The files are pickles; they are read without running
    what they name, and anything but arrays, sparse matrices and lists is refused.

    Args:
        root: folder with the files, in itself or below it, as in Cora/raw.
        name: NAME in the names of the files, such as cora; not needed if there are files of one graph.
        level: `node` for the classes of the articles, `link` for citations between them.
        normalise: whether the features of a node are divided by their sum.
        fan_outs: for level node, largest number of neighbours of each node, of these neighbours, and so on, as in
            [10, 10]. They are drawn anew in every epoch (Hamilton et al. 2017), and batches are of nodes. Evaluation
            uses the whole graph. By default, training does too, in one step an epoch.
        val_share: share of the links used for validation, for level link, in (0, 1).
        test_share: share of the links used for testing, for level link, in [0, 1).
        split_seed: seed of the division of links.
        batch_size: nodes per batch and process with fan_outs, at least 1; else a batch is the graph.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with inputs of `predict --input` that cannot be read: `stop` ends the run, `skip` leaves
            them out and counts them.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        features (B, N, D), edges (B, 2, E), num_nodes (B,); target (B, N), -1 for nodes that do not count. B is 1, or
        with fan_outs the number of nodes that are trained on, each with neighbours in a graph of its own. For level
        link, a target is a dict with pairs (B, 2, P) and linked (B, P).

    Raises:
        ValueError: a value is out of range.
        UserError: a file is missing, damaged, or holds anything but arrays.
    """

    def __init__(
        self,
        root: str,
        name: str | None = None,
        level: Literal["node", "link"] = "node",
        normalise: bool = True,
        fan_outs: list[int] | None = None,
        val_share: float = 0.05,
        test_share: float = 0.1,
        split_seed: int = 0,
        batch_size: int = 32,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            fan_outs=fan_outs,
            val_share=val_share,
            test_share=test_share,
            split_seed=split_seed,
            batch_size=batch_size,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
        )
        if level not in ("node", "link"):
            raise ValueError(f"level: expected node or link, got {level}")
        self.level = level
        self.root = Path(root).expanduser()
        self.dataset = name
        self.normalise = normalise
        self.save_hyperparameters()

    def learn(self, graphs: Sequence[GraphRows]) -> dict[str, Any]:
        return learn_features(graphs, self.normalise)

    def load(self) -> Content:
        folder, name = self._find()
        parts = {part: load_pickle(folder / f"ind.{name}.{part}") for part in PARTS}
        order = np.loadtxt(folder / f"ind.{name}.test.index", dtype=np.int64, ndmin=1)
        try:
            features, classes = _in_order(parts, order)
            neighbours = parts["graph"]
            num_nodes = len(features)
            pairs = [(node, other) for node, others in neighbours.items() for other in others]
            num_train = parts["y"].shape[0]
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"--data.root: {folder.as_posix()}: the parts of {name} do not fit together: {error}"
            ) from error
        edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        rows = GraphRows(name, [str(node) for node in range(num_nodes)], {}, features, edges, places="graph")
        if self.level == "link":
            return Content(name, "link", [rows])
        splits = {
            "train": range(num_train),
            "val": range(num_train, num_train + NUM_VAL),
            "test": np.sort(order).tolist(),
        }
        names = CLASSES.get(name.lower(), ())
        num_classes = parts["y"].shape[1]
        names = names if len(names) == num_classes else [str(number) for number in range(num_classes)]
        return Content(name, "node", [rows], [classes], splits, names)

    def _find(self) -> tuple[Path, str]:
        """Folder of the files, and their NAME."""
        root = self.root.as_posix()
        if not self.root.is_dir():
            raise UserError(f"--data.root {root}: no such folder")
        files = [file for file in files_below(self.root) if file.name.startswith("ind.") and file.suffix == ".graph"]
        names = {file.name.split(".")[1]: file.parent for file in files}
        if not names:
            raise UserError(f"--data.root {root}: expected files ind.NAME.x, .graph and so on, found no ind.*.graph")
        if self.dataset is None and len(names) > 1:
            raise UserError(f"--data.root {root}: holds {', '.join(sorted(names))}; choose one with --data.name")
        name = next(iter(names)) if self.dataset is None else self.dataset.lower()
        if name not in names:
            raise UserError(f"--data.name {name}: {root} holds {', '.join(sorted(names))}{nearest(name, list(names))}")
        folder = names[name]
        missing = [part for part in (*PARTS, "test.index") if not (folder / f"ind.{name}.{part}").is_file()]
        if missing:
            raise UserError(f"--data.root: {folder.as_posix()}: expected ind.{name}.{missing[0]}, which is missing")
        return folder, name


def _in_order(parts: dict[str, Any], order: np.ndarray) -> tuple[Tensor, Tensor]:
    """Features (N, D) and classes (N,) of all nodes; test nodes come in the order of their list, some are missing."""
    first = parts["allx"].shape[0]
    num_nodes = max(first + parts["tx"].shape[0], int(order.max()) + 1)
    features = torch.zeros(num_nodes, parts["allx"].shape[1])
    one_hot = torch.zeros(num_nodes, parts["ally"].shape[1])
    features[:first], one_hot[:first] = _dense(parts["allx"]), _dense(parts["ally"])
    features[order], one_hot[order] = _dense(parts["tx"]), _dense(parts["ty"])
    classes = one_hot.argmax(dim=1)
    return features, torch.where(one_hot.sum(dim=1) > 0, classes, -1)


def _dense(matrix: Any) -> Tensor:
    return torch.from_numpy(np.asarray(matrix.todense() if hasattr(matrix, "todense") else matrix)).float()

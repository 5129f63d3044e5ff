"""Zachary's karate club: a small public graph without a download."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from src.data.graphs.base import Content, GraphData
from src.data.graphs.rows import GraphRows

FRIENDS = {  # members that met outside of the club, each pair once: Zachary 1977, figure 3; counted from 0
    0: (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31),
    1: (2, 3, 7, 13, 17, 19, 21, 30),
    2: (3, 7, 8, 9, 13, 27, 28, 32),
    3: (7, 12, 13),
    4: (6, 10),
    5: (6, 10, 16),
    6: (16,),
    8: (30, 32, 33),
    9: (33,),
    13: (33,),
    14: (32, 33),
    15: (32, 33),
    18: (32, 33),
    19: (33,),
    20: (32, 33),
    22: (32, 33),
    23: (25, 27, 29, 32, 33),
    24: (25, 27, 31),
    25: (31,),
    26: (29, 33),
    27: (33,),
    28: (31, 33),
    29: (32, 33),
    30: (32, 33),
    31: (32, 33),
    32: (33,),
}
OFFICER = (9, 14, 15, 18, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)  # who joined the officer's club
TRAIN, VAL = (0, 33), (1, 2, 3, 5, 8, 23, 31, 32)  # the instructor and the officer are known
NUM_NODES = 34


class KarateClub(GraphData):
    """Friendships of 34 members of a karate club, and which of two clubs each joined after a conflict (Zachary 1977).

    The feature of a member is the member itself, one-hot. The club of the instructor, 0, and of the officer, 33, are
    known in training (Kipf & Welling 2017); there is no official split, and 8 members are validation, 24 the test.

    Args:
        level: `node` for the clubs, `link` for the friendships.
        val_share: share of the links used for validation, for level link, in (0, 1).
        test_share: share of the links used for testing, for level link, in [0, 1).
        split_seed: seed of the division of links.
        fan_outs: for level node, largest number of neighbours of each node, of these neighbours, and so on, drawn anew
            in every epoch; batches are then of nodes. By default, a batch is the graph.
        batch_size: nodes per batch and process with fan_outs, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with inputs of `predict --input` that cannot be read: `stop` ends the run, `skip` leaves
            them out and counts them.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        features (B, N, 34), edges (B, 2, E), num_nodes (B,); target (B, N), -1 for nodes that do not count. For level
        link, a target is a dict with pairs (B, 2, P) and linked (B, P).

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        level: Literal["node", "link"] = "node",
        val_share: float = 0.1,
        test_share: float = 0.2,
        split_seed: int = 0,
        fan_outs: list[int] | None = None,
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
        self.save_hyperparameters()

    def learn(self, graphs: Sequence[GraphRows]) -> dict[str, Any]:
        return {"kind": "node", "nodes": list(graphs[0].nodes)}

    def load(self) -> Content:
        pairs = [(member, friend) for member, friends in FRIENDS.items() for friend in friends]
        nodes = [str(member) for member in range(NUM_NODES)]
        rows = GraphRows("karate club", nodes, {}, None, np.array(pairs), places="friendships")
        if self.level == "link":
            return Content("karate club", "link", [rows])
        clubs = torch.zeros(NUM_NODES, dtype=torch.int64)
        clubs[list(OFFICER)] = 1
        test = [member for member in range(NUM_NODES) if member not in (*TRAIN, *VAL)]
        splits = {"train": TRAIN, "val": VAL, "test": test}
        return Content("karate club", "node", [rows], [clubs], splits, ["Mr. Hi", "Officer"])

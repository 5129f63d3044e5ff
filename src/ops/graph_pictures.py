"""Pictures of small graphs, with a colour for each node."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from playbook import class_colour

MOST_DRAWN = 200  # nodes of a picture
MOST_NAMED = 60  # nodes whose names are written
NUM_STEPS = 150  # of the layout


def graph_picture(
    edges: Tensor,
    names: Sequence[str],
    numbers: Sequence[int] | None = None,
    classes: Sequence[str] = (),
    marked: Sequence[int] | None = None,
) -> Image.Image:
    """Draws nodes and edges, the first 200 nodes of a larger graph, those that are marked before others.

    Args:
        edges: source and target (2, E).
        names: of the N nodes.
        numbers: class of each node, -1 for none.
        classes: their names, for a legend.
        marked: nodes with a border.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # without pyplot, which would look for a screen
    from matplotlib.figure import Figure

    first = list(dict.fromkeys([*(marked or ()), *range(len(names))]))[:MOST_DRAWN]
    place_of = {node: number for number, node in enumerate(first)}
    lines = [(place_of[a], place_of[b]) for a, b in edges.T.tolist() if a in place_of and b in place_of]
    places = spring_layout(lines, len(first))
    figure = Figure((7.0, 7.0), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    panel = figure.subplots()
    panel.set_axis_off()
    if len(first) < len(names):
        panel.set_title(f"{len(first)} of {len(names):,} nodes")
    for a, b in lines:
        panel.plot(*places[[a, b]].T, color="0.75", linewidth=0.8, zorder=1)
    of_nodes = [-1 if numbers is None else numbers[node] for node in first]
    colours = [
        tuple(part / 255 for part in class_colour(1 + number)) if number >= 0 else "white" for number in of_nodes
    ]
    widths = [2.0 if node in set(marked or ()) else 0.6 for node in first]
    size = float(np.clip(6000 / max(len(first), 1), 20, 400))
    panel.scatter(*places.T, s=size, c=colours, edgecolors="black", linewidths=widths, zorder=2)
    for number, name in enumerate(classes):
        if number in of_nodes:
            panel.scatter([], [], color=tuple(part / 255 for part in class_colour(1 + number)), label=name)
    if any(number in of_nodes for number in range(len(classes))):
        panel.legend(loc="upper right")
    if len(first) <= MOST_NAMED:
        for node, place in zip(first, places, strict=True):
            panel.annotate(names[node], place, ha="center", va="center", fontsize=7, zorder=3)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())


def graph_image(edges: Tensor, names: Sequence[str]) -> Tensor:
    """The picture as bytes (3, H, W)."""
    return torch.from_numpy(np.asarray(graph_picture(edges, names)).copy()).permute(2, 0, 1)


def spring_layout(lines: Sequence[tuple[int, int]], num_nodes: int) -> np.ndarray:
    """Places of nodes (N, 2): nodes repel each other, edges attract (Fruchterman & Reingold 1991)."""
    places = np.random.default_rng(0).uniform(-1, 1, (num_nodes, 2))
    if num_nodes < 2:
        return places
    ideal = 1.5 / num_nodes**0.5
    ends = np.array(lines, dtype=np.int64).reshape(-1, 2)
    for step in range(NUM_STEPS):
        gap = places[:, None] - places[None]  # (N, N, 2)
        distance = np.maximum(np.linalg.norm(gap, axis=-1, keepdims=True), 1e-3)
        move = (gap / distance * ideal**2 / distance).sum(axis=1)
        along = places[ends[:, 0]] - places[ends[:, 1]]  # (E, 2)
        pull = along * np.linalg.norm(along, axis=-1, keepdims=True) / ideal
        np.add.at(move, ends[:, 0], -pull)
        np.add.at(move, ends[:, 1], pull)
        length = np.maximum(np.linalg.norm(move, axis=-1, keepdims=True), 1e-9)
        places += move / length * np.minimum(length, 0.2 * (1 - step / NUM_STEPS))
        places *= 1 - 0.3 * ideal  # parts without an edge between them stay near
    return places

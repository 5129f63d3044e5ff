"""Pictures of graphs."""

import numpy as np
import pytest
import torch

from src.ops.graph_pictures import MOST_DRAWN, graph_image, graph_picture, spring_layout


def test_linked_nodes_are_near() -> None:
    ring = [(number, (number + 1) % 20) for number in range(20)]
    places = spring_layout(ring, 20)
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)
    linked = np.mean([gaps[a, b] for a, b in ring])
    assert linked < 0.5 * gaps[gaps > 0].mean(), linked
    assert np.isfinite(places).all()
    assert spring_layout([], 1).shape == (1, 2)


@pytest.mark.slow
def test_a_large_graph_is_drawn_in_part() -> None:
    names = [str(node) for node in range(MOST_DRAWN + 50)]
    edges = torch.tensor([[MOST_DRAWN + 10, 0], [0, 1]])
    picture = graph_picture(edges, names, [0] * len(names), ["a"], marked=[MOST_DRAWN + 10])
    assert picture.size == (700, 700)
    assert np.asarray(graph_image(edges, names)).shape == (3, 700, 700)

"""The graphs that need no files: the karate club, and coloured trees."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from src.data.graphs.coloured_trees import COLOURS, SIZES, ColouredTrees, make_tree
from src.data.graphs.karate_club import FRIENDS, OFFICER, KarateClub
from tests.conftest import PUBLISHED, needs


def test_the_karate_club_has_its_published_size() -> None:
    data = KarateClub()
    data.setup("fit")
    inputs, target = data.train_set[0]
    assert inputs["edges"].shape == (2, 2 * 78)
    assert torch.equal(inputs["features"], torch.eye(34))
    degrees = inputs["edges"][1].bincount()
    assert (degrees.max(), degrees[0], degrees[33]) == (17, 16, 17)
    assert [target[0], target[33], int((target >= 0).sum())] == [0, 1, 2]
    assert len(OFFICER) == 17
    with pytest.raises(ValueError, match="level: expected node or link, got graph"):
        KarateClub(level="graph")  # type: ignore[arg-type]


@needs("karate")
def test_the_karate_club_equals_the_published_files() -> None:
    lines = (PUBLISHED / "karate/karate.gml").read_text().split()
    ends = [int(lines[place + 1]) for place, word in enumerate(lines) if word in ("source", "target")]
    listed = {tuple(sorted(pair)) for pair in zip(ends[::2], ends[1::2], strict=True)}
    assert {(member, friend) for member, friends in FRIENDS.items() for friend in friends} == listed
    clubs = [line.rpartition(",")[2] for line in (PUBLISHED / "karate/club.csv").read_text().split("\n")[1:] if line]
    assert [number for number, club in enumerate(clubs) if club != "Mr. Hi"] == list(OFFICER)


def test_new_members_are_unknown_to_a_net_of_members() -> None:
    data = KarateClub(level="node")
    data.setup("fit")
    inputs, target = data.unlabelled({"edges": [[0, 33]]})
    assert target["asked"].nonzero()[:, 0].tolist() == [0, 33]
    assert inputs["edges"].shape == (2, 2 * 79)


def test_red_touches_blue_in_one_class_alone() -> None:
    for number in range(200):
        rows = make_tree(number, touches=bool(number % 2))
        colours = rows.columns["colour"]
        touching = sum({colours[a], colours[b]} == {"red", "blue"} for a, b in rows.edges.tolist())
        assert 1 <= touching <= 3 if number % 2 else touching == 0, (number, touching)
        assert len(rows.edges) == len(rows.nodes) - 1
        assert len({int(b) for _, b in rows.edges}) == len(rows.edges), "each node but the root hangs from one"


@pytest.mark.slow
def test_degrees_and_colours_do_not_tell_the_class() -> None:
    """A linear model of counts of degrees and colours is right in 0.6 of the trees; GraphSAGE in all."""
    content = ColouredTrees().load()
    counts = []
    for rows in content.graphs:
        degrees = np.bincount(rows.edges.flatten(), minlength=len(rows.nodes))
        colours = [rows.columns["colour"].count(colour) for colour in COLOURS]
        counts.append([*np.bincount(degrees.clip(max=10), minlength=11), *colours])
    size = SIZES["train"]
    model = LogisticRegression(max_iter=5000).fit(counts[:size], list(content.labels)[:size])
    score = model.score(counts[-SIZES["test"] :], list(content.labels)[-SIZES["test"] :])
    assert 0.4 < score < 0.65, score


def test_trees_are_always_the_same() -> None:
    first, again = make_tree(7, touches=True), make_tree(7, touches=True)
    assert first.edges.tolist() == again.edges.tolist()
    assert first.columns == again.columns

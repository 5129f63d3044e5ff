"""Blocks that are alive over the operations of a step, by hand."""

from playbook.insight.profile.memory import MIB, MOST_BLOCKS, at_peak, moment, timeline
from playbook.insight.profile.places import Place
from playbook.insight.profile.recorder import BACKWARD, Block, Operation


def block(size: float, kind: str, begin: int, end: int | None = None) -> Block:
    return Block(int(size * MIB), kind, Place("net.0", "net.py:3"), "relu", (2, 3), begin, end)


BLOCKS = [block(10, "parameters", -1), block(4, "activations", 0, 3), block(3, "temporary", 1, 2)]


def test_blocks_live_from_the_operation_that_allocates_them_until_they_are_freed() -> None:
    measured = timeline(BLOCKS, 4)
    assert measured.positions == [-1, 0, 1, 2, 3]
    assert measured.kinds == {
        "parameters": [10.0] * 5,
        "activations": [0, 4, 4, 4, 0],
        "temporary": [0, 0, 3, 0, 0],
    }
    assert (measured.peak, measured.peak_mib) == (1, 17)
    assert [entry.kind for entry in measured.at_peak] == ["parameters", "activations", "temporary"]


def test_the_peak_is_told_in_words() -> None:
    operations = [Operation("relu", Place("net.0"), BACKWARD, 1.0, 0, 0)] * 4
    assert moment(timeline(BLOCKS, 4), operations) == (
        "Memory is at its peak in the backward pass, at relu of net.0, with 17.0 MiB: parameters 10.0 MiB (59%), "
        "activations 4.0 MiB (24%), temporary 3.0 MiB (18%)."
    )
    before = moment(timeline(BLOCKS[:1], 4), operations)
    assert before == "Memory is at its peak before the step begins, at 10.0 MiB: parameters 10.0 MiB (100%)."


def test_the_rest_of_many_blocks_is_counted() -> None:
    rows = at_peak(timeline([block(1, "activations", 0) for _ in range(MOST_BLOCKS + 5)], 1))
    assert len(rows) == MOST_BLOCKS + 1
    assert rows[0]["shape"] == "2 × 3"
    assert rows[-1] == {"kind": "5 more", "MiB": 5.0}


def test_curves_of_many_operations_are_thinned_and_keep_the_peak() -> None:
    measured = timeline([*BLOCKS, block(100, "temporary", 7777, 7778)], 10_000)
    assert len(measured.positions) < 700
    assert measured.peak == 7777
    assert measured.peak in measured.positions

"""Batches of rows, and the rows of each member of an ensemble."""

import numpy as np
import torch

from src.data.tables.encoded_rows import EncodedRows


def rows(members: int = 1, seed: int = 0, count: int = 50) -> EncodedRows:
    numbers = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    targets = torch.arange(count) * 10
    return EncodedRows({"numbers": numbers}, targets, [f"t.csv:{line}" for line in range(count)], members, seed)


def test_a_batch_is_its_samples() -> None:
    inputs, targets = rows().__getitems__([(0, 7, 7), (0, 3, 3), 5])
    assert inputs["numbers"].tolist() == [[14, 15], [6, 7], [10, 11]]
    assert targets.tolist() == [70, 30, 50]
    assert rows()[7][0]["numbers"].tolist() == [14, 15]
    assert rows()[7][1].item() == 70


def test_each_member_sees_every_row_once() -> None:
    dataset = rows(members=4)
    inputs, targets = dataset.__getitems__(list(range(50)))
    assert inputs["numbers"].shape == (50, 4, 2)
    assert torch.equal(inputs["numbers"][..., 0] * 5, targets.float())  # inputs stay with their targets
    for member in targets.T:
        assert sorted(member.tolist()) == (torch.arange(50) * 10).tolist()
    assert len({tuple(member.tolist()) for member in targets.T}) == 4
    assert dataset[3][0]["numbers"].shape == (4, 2)


def test_the_members_rows_are_a_function_of_the_seed() -> None:
    assert torch.equal(rows(3, seed=1).rows, rows(3, seed=1).rows)
    assert not torch.equal(rows(3, seed=1).rows, rows(3, seed=2).rows)
    assert torch.equal(rows(3, seed=1).rows, rows(5, seed=1).rows[:, :3])

"""Windows, gathered from one tensor of all series."""

import pytest
import torch

from src.data.series.windows import Timelines, Windows


@pytest.fixture
def timelines() -> Timelines:
    """Two series of 10 rows, with 2 known covariates and 1 past one."""
    rows = torch.arange(20.0)
    owner = torch.arange(2).repeat_interleave(10)
    scales = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    covariates = torch.stack([rows + 100, rows + 200, rows + 300], dim=1)
    return Timelines(
        rows[:, None], covariates, 2, torch.tensor([[7.0], [8.0]]), scales, owner, rows.long() * 3600, ["a", "b"]
    )


def test_a_batch_is_the_samples_stacked(timelines: Timelines) -> None:
    windows = Windows(timelines, torch.tensor([3, 5, 14]), look_back=3, horizon=2)
    inputs, target = windows.__getitems__([2, (0, 1, 1)])  # as evaluation and training ask
    assert inputs["past"][:, :, 0].tolist() == [[11, 12, 13], [2, 3, 4]]
    assert inputs["past_covariates"][0].tolist() == [[111, 211, 311], [112, 212, 312], [113, 213, 313]]
    assert inputs["known_covariates"][1].tolist() == [[105, 205], [106, 206]]
    assert inputs["static"].tolist() == [[8], [7]]
    assert target[:, :, 0].tolist() == [[14, 15], [5, 6]]
    for number, key in enumerate([2, 1]):
        sample, own = windows[key]
        assert own.equal(target[number])
        assert all(sample[name].equal(value[number]) for name, value in inputs.items())


def test_prediction_adds_origin_and_scale(timelines: Timelines) -> None:
    windows = Windows(timelines, torch.tensor([3, 14]), look_back=3, horizon=2, is_prediction=True)
    target = windows.__getitems__([0, 1])[1]
    assert target["origin"].tolist() == [2 * 3600, 13 * 3600]
    assert target["scale"].equal(timelines.scales)
    assert target["steps"].tolist() == [2, 2]
    assert windows[1][1]["target"][:, 0].tolist() == [14, 15]
    assert windows.ids == ["a@1970-01-01 02:00:00", "b@1970-01-01 13:00:00"]


def test_inputs_without_columns_are_left_out(timelines: Timelines) -> None:
    bare = timelines._replace(covariates=torch.zeros(20, 0), num_known=0, static=torch.zeros(2, 0))
    assert list(Windows(bare, torch.tensor([3]), 3, 2)[0][0]) == ["past"]

import numpy as np
import torch

from torchdoctor.evidence import association


def test_the_linear_fit_is_ridge_regression_on_the_other_four_fifths() -> None:
    x = torch.randn(50, 6, dtype=torch.float64)
    y = x @ torch.randn(6, 2, dtype=torch.float64) + torch.randn(50, 2)
    predicted = association._linear(x @ x.T, y)
    for fold in range(5):
        part = torch.arange(50) % 5 == fold
        weights = torch.linalg.solve(x[~part].T @ x[~part] + 0.1 * torch.eye(6), x[~part].T @ y[~part])
        torch.testing.assert_close(predicted[part], x[part] @ weights)


def test_neighbours_are_the_five_nearest_others() -> None:
    x = torch.randn(20, 3, dtype=torch.float64)
    weights = association._neighbours(x @ x.T)
    for row in range(20):
        nearest = sorted(range(20), key=lambda other: float((x[row] - x[other]).norm()))[1:6]
        assert weights[row].nonzero()[:, 0].tolist() == sorted(nearest)
        assert weights[row, nearest].tolist() == [0.2] * 5


def test_labels_in_another_order_are_not_told_by_their_inputs() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    classes, numbers = (x[:, 0] > 0).astype(int), x @ rng.normal(size=5)
    assert association.association_strength(x, classes) > association.STRONG_ASSOCIATION
    assert association.association_strength(x, numbers) > association.STRONG_ASSOCIATION
    assert association.association_strength(x, rng.permutation(classes)) < 6
    assert association.association_strength(x, rng.permutation(numbers)) < 6
    assert association.association_strength(x, np.ones(300)) == np.inf


def test_tokens_are_counted_and_many_columns_are_thinned_out() -> None:
    np.testing.assert_array_equal(
        association.features(np.array([[1, 2, 2], [0, 3, 1]]))[:, :4], [[0, 1, 2, 0], [1, 1, 0, 1]]
    )
    assert association.features(np.zeros((2, 50, 100), dtype=np.float32)).shape == (2, 1667)

"""Losses of ensembles against the mean of each member's own loss, in float64."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from src.ops.members import flatten_members

B, MEMBERS, K = 5, 3, 3  # as many members as classes: shapes alone do not tell targets apart


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["shared", "own", "shared probabilities", "own probabilities"])
def test_the_loss_is_the_mean_of_the_losses_of_the_members(kind: str, smoothing: float) -> None:
    logits = normal(B, MEMBERS, K)
    is_probability = "probabilities" in kind
    labels = torch.randint(K, (B, MEMBERS), generator=torch.Generator().manual_seed(1))
    target = normal(B, MEMBERS, K).softmax(-1) if is_probability else labels
    target = target[:, 0] if "shared" in kind else target
    pairs = flatten_members(logits, target, int(is_probability))
    own = [
        cross_entropy(logits[:, i], target if "shared" in kind else target[:, i], label_smoothing=smoothing)
        for i in range(MEMBERS)
    ]
    torch.testing.assert_close(
        cross_entropy(*pairs, label_smoothing=smoothing), torch.stack(own).mean(), rtol=1e-12, atol=0
    )
    of_mean = cross_entropy(logits.mean(1), target if "shared" in kind else target[:, 0], label_smoothing=smoothing)
    assert abs(of_mean - torch.stack(own).mean()) > 1e-3, "the loss of the mean is another one"


@pytest.mark.parametrize("shared", [True, False])
def test_numbers(shared: bool) -> None:
    values, target = normal(B, MEMBERS, 1), normal(B, MEMBERS)
    target = target[:, 0] if shared else target
    outputs, flat = flatten_members(values, target)
    assert (outputs.shape, flat.shape) == ((B * MEMBERS, 1), (B * MEMBERS,))
    own = [mse_loss(values[:, i, 0], target if shared else target[:, i]) for i in range(MEMBERS)]
    torch.testing.assert_close(mse_loss(outputs[:, 0], flat), torch.stack(own).mean(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(B,), (B, K)])
def test_outputs_of_a_single_net_are_left_alone(shape: tuple[int, ...]) -> None:
    outputs, target = normal(*shape), normal(B)
    same = flatten_members(outputs, target)
    assert same[0] is outputs
    assert same[1] is target

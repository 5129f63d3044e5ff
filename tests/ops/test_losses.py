"""Losses against sums over single places in float64, against torchvision, and against all subsets of places."""

import math
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.ops import sigmoid_focal_loss

from src.ops.losses import cross_entropy_loss, dice_loss, distillation_loss, focal_loss, lovasz_softmax

LOSSES = [cross_entropy_loss, dice_loss, focal_loss, lovasz_softmax]
K, IGNORED = 4, 255
each_loss = pytest.mark.parametrize("loss", LOSSES)


def example(*shape: int, ignore: bool = True, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits in float64 and a target in which class 3 does not occur."""
    generator = torch.Generator().manual_seed(seed)
    shape = shape or (2, 3, 5)
    logits = 2 * torch.randn(shape[0], K, *shape[1:], generator=generator, dtype=torch.float64)
    target = torch.randint(K - 1, shape, generator=generator)
    if ignore:
        target[torch.rand(shape, generator=generator) < 0.3] = IGNORED
    return logits, target


def places(logits: Tensor, target: Tensor) -> list[tuple[list[float], int]]:
    """Probabilities and class of every place that counts."""
    rows = logits.movedim(1, -1).flatten(0, -2).tolist()
    found = []
    for row, k in zip(rows, target.flatten().tolist(), strict=True):
        if k != IGNORED:
            total = sum(math.exp(x) for x in row)
            found.append(([math.exp(x) / total for x in row], k))
    return found


def slow_cross_entropy(found: list[tuple[list[float], int]]) -> float:
    return -sum(math.log(p[k]) for p, k in found) / len(found)


def slow_dice(found: list[tuple[list[float], int]]) -> float:
    losses = []
    for c in {k for _, k in found}:
        hit = sum(p[c] for p, k in found if k == c)
        losses.append(1 - 2 * hit / (sum(p[c] for p, _ in found) + sum(k == c for _, k in found)))
    return sum(losses) / len(losses)


def slow_focal(found: list[tuple[list[float], int]]) -> float:
    return -sum((1 - p[k]) ** 2 * math.log(p[k]) for p, k in found) / len(found)


def jaccard_loss(mistaken: set[int], of_class: set[int]) -> float:
    """1 - |intersection| / |union| of a class and of what is predicted as it when the places of a set are mistaken."""
    predicted = of_class ^ mistaken
    return 1 - len(of_class & predicted) / len(of_class | predicted)


def slow_lovasz(found: list[tuple[list[float], int]]) -> float:
    """The extension as an integral: over a threshold, the Jaccard loss of the places whose error is above it."""
    losses = []
    for c in {k for _, k in found}:
        of_class = {i for i, (_, k) in enumerate(found) if k == c}
        errors = [1 - p[c] if k == c else p[c] for p, k in found]
        steps = [0.0, *sorted(errors)]
        losses.append(
            sum(
                (high - low) * jaccard_loss({i for i, error in enumerate(errors) if error >= high}, of_class)
                for low, high in pairwise(steps)
            )
        )
    return sum(losses) / len(losses)


SLOW = [slow_cross_entropy, slow_dice, slow_focal, slow_lovasz]


@pytest.mark.parametrize(("loss", "slow"), list(zip(LOSSES, SLOW, strict=True)))
@pytest.mark.parametrize("shape", [(2, 3, 5), (9,), (1, 4, 2, 3), (4, 2, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_values_are_sums_over_places(
    loss: Callable[..., Tensor], slow: Callable[..., float], shape: tuple[int, ...], seed: int
) -> None:
    logits, target = example(*shape, seed=seed)
    assert loss(logits, target, IGNORED).item() == pytest.approx(slow(places(logits, target)), rel=1e-12)
    target = target.clamp(max=K - 1)  # every place counts, and every class may occur
    assert loss(logits, target).item() == pytest.approx(slow(places(logits, target)), rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_lovasz_is_the_jaccard_loss_at_every_corner(size: int) -> None:
    """What makes it an extension: where every place is right or wrong beyond doubt, it is the set function."""
    for target in product(range(2), repeat=size):
        for mistaken in product([False, True], repeat=size):
            said = torch.tensor([[k ^ wrong for k, wrong in zip(target, mistaken, strict=True)]])
            logits = 100.0 * torch.nn.functional.one_hot(said, 2).movedim(-1, 1)
            found = lovasz_softmax(logits.double(), torch.tensor([target]))
            places = {i for i, wrong in enumerate(mistaken) if wrong}
            expected = [
                jaccard_loss(places, {i for i, k in enumerate(target) if k == c}) for c in (0, 1) if c in target
            ]
            assert found.item() == pytest.approx(sum(expected) / len(expected), abs=1e-12), (target, mistaken)


@each_loss
def test_gradients_are_those_of_finite_differences(loss: Callable[..., Tensor]) -> None:
    logits, target = example(2, 2, 3)
    assert torch.autograd.gradcheck(lambda x: loss(x, target, IGNORED), logits.requires_grad_())


@each_loss
def test_ignored_places_have_no_influence(loss: Callable[..., Tensor]) -> None:
    logits, target = example()
    value = loss(logits.requires_grad_(), target, IGNORED)
    value.backward()
    ignored = (target == IGNORED)[:, None].expand_as(logits)
    assert logits.grad is not None
    assert not logits.grad[ignored].any()
    assert logits.grad[~ignored].all()
    changed = torch.where(ignored, 50 * torch.randn_like(logits), logits)
    assert loss(changed, target, IGNORED).item() == pytest.approx(value.item(), rel=1e-12)


@each_loss
@pytest.mark.parametrize("shape", [(2, 3, 5), (0, 3, 5)])
def test_nothing_that_counts_costs_nothing(loss: Callable[..., Tensor], shape: tuple[int, ...]) -> None:
    logits, target = example(*shape)
    value = loss(logits.requires_grad_(), torch.full_like(target, IGNORED), IGNORED)
    value.backward()
    assert value.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()


@each_loss
def test_an_ignored_class_may_be_one_of_the_k(loss: Callable[..., Tensor]) -> None:
    logits, target = example()
    renamed = torch.where(target == IGNORED, 3, target)
    assert loss(logits, renamed, 3).item() == pytest.approx(loss(logits, target, IGNORED).item(), rel=1e-12)


@each_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_is_summed_in_float32(loss: Callable[..., Tensor], dtype: torch.dtype) -> None:
    logits, target = example(2, 30, 50)
    logits = logits.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(logits, target, IGNORED)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(loss(logits.double(), target, IGNORED).item(), rel=1e-5)


def test_a_perfect_prediction_costs_nothing_and_has_a_finite_gradient() -> None:
    _, target = example(ignore=False)
    logits = torch.nn.functional.one_hot(target, K).movedim(-1, 1) * 1000.0
    losses: dict[str, Any] = {loss.__name__: loss for loss in LOSSES}
    losses |= {f"focal {gamma}": lambda x, y, gamma=gamma: focal_loss(x, y, gamma=gamma) for gamma in (0, 0.5, 1, 5)}
    for name, loss in losses.items():
        x = logits.clone().requires_grad_()
        value = loss(x, target)
        value.backward()
        assert value.item() == pytest.approx(0, abs=1e-6), name
        assert x.grad is not None
        assert x.grad.isfinite().all(), name


def test_everything_wrong_costs_one() -> None:
    """Dice and Jaccard of what does not overlap are 0."""
    target = torch.arange(K)[None]
    logits = torch.nn.functional.one_hot((target + 1) % K, K).movedim(-1, 1) * 100.0
    assert dice_loss(logits, target).item() == pytest.approx(1)
    assert lovasz_softmax(logits, target).item() == pytest.approx(1)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 3.5])
def test_focal_loss_of_two_classes_is_torchvisions(gamma: float) -> None:
    """The softmax of (0, x) is the sigmoid of x."""
    torch.manual_seed(0)
    x, target = 3 * torch.randn(4, 6, dtype=torch.float64), torch.randint(2, (4, 6))
    expected = sigmoid_focal_loss(x, target.double(), alpha=-1, gamma=gamma, reduction="mean")
    found = focal_loss(torch.stack([torch.zeros_like(x), x], dim=1), target, gamma=gamma)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_cross_entropy_is_pytorchs() -> None:
    logits, target = example()
    expected = torch.nn.functional.cross_entropy(logits, target, ignore_index=IGNORED)
    torch.testing.assert_close(cross_entropy_loss(logits, target, IGNORED), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(focal_loss(logits, target, IGNORED, gamma=0), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("ignored", [IGNORED, 1])
def test_weights_of_classes_weigh_places(ignored: int, gamma: float) -> None:
    logits, target = example(ignore=ignored == IGNORED)
    weight = [0.5, 2.0, 0.0, 7.0]
    total = loss = 0.0
    for row, k in zip(logits.movedim(1, -1).flatten(0, -2).softmax(1).tolist(), target.flatten().tolist(), strict=True):
        if k != ignored:
            total += weight[k]
            loss -= weight[k] * (1 - row[k]) ** gamma * math.log(row[k])
    found = focal_loss(logits, target, ignored, torch.tensor(weight), gamma=gamma)
    assert found.item() == pytest.approx(loss / total, rel=1e-12)
    if gamma == 0:
        assert cross_entropy_loss(logits, target, ignored, torch.tensor(weight)).item() == pytest.approx(loss / total)


@pytest.mark.parametrize("loss", [cross_entropy_loss, focal_loss])
def test_places_that_weigh_nothing_cost_nothing(loss: Callable[..., Tensor]) -> None:
    logits, target = example()
    logits.requires_grad_()
    value = loss(logits, target.clamp(max=2), None, torch.tensor([0.0, 0.0, 0.0, 1.0]))
    value.backward()
    assert value == 0
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.slow
def test_lovasz_of_many_places_is_exact_in_float32() -> None:
    """300,000 places: differences of 1 - left / union themselves would be off by as much as they are."""
    logits, target = example(3, 250, 400, ignore=False)
    found, expected = lovasz_softmax(logits.float(), target).item(), lovasz_softmax(logits, target).item()
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("ignore", [False, True])
def test_distillation_is_the_divergence_place_by_place(temperature: float, ignore: bool) -> None:
    (logits, target), (taught, _) = example(ignore=ignore), example(seed=1)
    rows = zip(*(x.movedim(1, -1).flatten(0, -2).tolist() for x in (logits, taught)), strict=True)
    found = []
    for (student, teacher), k in zip(rows, target.flatten().tolist(), strict=True):
        q, p = ([math.exp(x / temperature) for x in row] for row in (student, teacher))
        q, p = [x / sum(q) for x in q], [x / sum(p) for x in p]
        if k != IGNORED:
            found.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    assert (len(found) < target.numel()) is ignore
    loss = distillation_loss(logits, taught, temperature, target != IGNORED if ignore else None)
    assert loss.item() == pytest.approx(temperature**2 * sum(found) / len(found), rel=1e-9)


def test_distillation_at_a_high_temperature_compares_logits() -> None:
    """Hinton et al. 2015, equation 4: for logits of mean 0 over the classes, the gradient nears (z - v) / (N K)."""
    torch.manual_seed(0)
    logits, taught = (x - x.mean(dim=1, keepdim=True) for x in torch.randn(2, 6, K, dtype=torch.float64))
    logits.requires_grad_()
    distillation_loss(logits, taught, 1e4).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, (logits.detach() - taught) / (6 * K), rtol=1e-3, atol=1e-5)


def test_distillation_has_nothing_to_teach_an_equal_or_where_nothing_counts() -> None:
    (logits, _), (taught, _) = example(), example(seed=1)
    assert distillation_loss(logits, logits, 3.0).item() == pytest.approx(0, abs=1e-12)
    assert distillation_loss(logits, taught, 3.0, torch.zeros(2, 3, 5, dtype=torch.bool)).item() == 0
    assert distillation_loss(logits.bfloat16(), taught.bfloat16(), 3.0).dtype == torch.float32

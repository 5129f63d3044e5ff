"""What is mixed against closed forms, in the right shares, and the same when a run is continued."""

from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook.testing.command import QUIET
from src.callbacks.mix import Mix
from src.tasks.classification import Classification

B, C, H, W, K = 6, 3, 16, 12, 4


def batch(batch_size: int = B) -> list[Tensor]:
    """Image i is i everywhere, so that a pixel tells which sample it came from."""
    image = torch.arange(batch_size, dtype=torch.float32)[:, None, None, None].expand(-1, C, H, W).clone()
    return [image, torch.arange(batch_size) % K]


def mixed(callback: Mix, seed: int, given: Any = None) -> list[Tensor]:
    given = batch() if given is None else given
    module: Any = SimpleNamespace(num_classes=K)
    torch.manual_seed(seed)
    callback.on_train_start(None, module)  # type: ignore[arg-type]
    callback.on_train_batch_start(None, module, given, 0)  # type: ignore[arg-type]
    return given


def shares_of(target: Tensor) -> Tensor:
    """What the own label makes up of each target; every one must hold the label before it as well."""
    own, former = torch.arange(B) % K, (torch.arange(B) % K).roll(1)
    share = target[torch.arange(B), own]
    expected = torch.zeros(B, K)
    expected[torch.arange(B), own] += share
    expected[torch.arange(B), former] += 1 - share
    torch.testing.assert_close(target, expected)
    return share


@pytest.mark.parametrize("seed", range(10))
def test_mixup_adds_the_sample_before(seed: int) -> None:
    image, target = mixed(Mix(mixup=0.8, cutmix=0), seed)
    share = shares_of(target)
    own = torch.arange(B, dtype=torch.float32)
    expected = share * own + (1 - share) * own.roll(1)
    torch.testing.assert_close(image, expected[:, None, None, None].expand_as(image))
    assert share.min() == share.max(), "one share a batch"


@pytest.mark.parametrize("seed", range(10))
def test_cutmix_pastes_a_rectangle_and_counts_its_area(seed: int) -> None:
    image, target = mixed(Mix(mixup=0, cutmix=1.0), seed)
    share = shares_of(target)
    own = torch.arange(B, dtype=torch.float32)[:, None, None, None]
    pasted = image != own
    assert torch.equal(image, torch.where(pasted, own.roll(1, 0), own)), "every pixel is of either sample"
    torch.testing.assert_close(share, 1 - pasted[:, 0].float().mean((1, 2)))
    rows, columns = pasted[0, 0].any(1), pasted[0, 0].any(0)
    assert torch.equal(pasted[0, 0], rows[:, None] & columns[None]), "a rectangle"
    assert torch.equal(pasted, pasted[:1, :1].expand_as(pasted)), "the same one for all samples and channels"


def test_targets_are_probabilities() -> None:
    for seed in range(20):
        _, target = mixed(Mix(), seed)
        assert target.shape == (B, K)
        assert target.min() >= 0
        torch.testing.assert_close(target.sum(1), torch.ones(B))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_are_drawn_from_beta(alpha: float) -> None:
    """Mean 1/2 and variance 1 / (4 (2 α + 1)), within four standard errors of 1,000 draws."""
    callback, shares = Mix(mixup=alpha, cutmix=0), []
    mixed(callback, 0)
    for _ in range(1000):
        _, target = given = batch(2)
        callback.on_train_batch_start(None, None, given, 0)  # type: ignore[arg-type]
        shares.append(given[1][0, 0].item())
        assert target.ndim == 1
    drawn, variance = torch.tensor(shares), 1 / (4 * (2 * alpha + 1))
    assert abs(drawn.mean() - 0.5) < 4 * (variance / 1000) ** 0.5
    assert drawn.var().item() == pytest.approx(variance, rel=0.15)


def test_probability_and_the_choice_of_both() -> None:
    callback, kinds = Mix(probability=0.6), {"plain": 0, "mixup": 0, "cutmix": 0}
    mixed(callback, 0)
    for _ in range(1000):
        given = batch()
        callback.on_train_batch_start(None, None, given, 0)  # type: ignore[arg-type]
        whole = bool((given[0][:, :, :1, :1] == given[0]).all())  # as MixUp leaves these images
        fractions = bool((given[0] % 1 != 0).any())
        kinds["plain" if given[1].ndim == 1 else "mixup" if whole and fractions else "cutmix"] += 1
    assert kinds["plain"] / 1000 == pytest.approx(0.4, abs=0.06)
    # a share of MixUp's may be 0 or 1 in float32, and the rectangle empty or whole: those few look alike
    assert kinds["mixup"] / 1000 == pytest.approx(0.3, abs=0.08)


def test_draws_from_the_global_generator_alone() -> None:
    first, second, other = mixed(Mix(), 1), mixed(Mix(), 1), mixed(Mix(), 2)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (tuple(batch()), "got a tuple of Tensor, Tensor"),
        ({"image": 1}, "got a dict of no parts"),
        ([{"tokens": torch.zeros(2, 3)}, torch.zeros(2)], "got a list of dict, Tensor"),
        ([torch.zeros(2, 3), torch.zeros(2).long()], r"got float32 \(2, 3\) and int64 \(2,\)"),
        ([torch.zeros(2, 3, 4, 4).byte(), torch.zeros(2).long()], r"got uint8 \(2, 3, 4, 4\) and int64 \(2,\)"),
        ([torch.zeros(2, 3, 4, 4), torch.zeros(2, 4)], r"got float32 \(2, 3, 4, 4\) and float32 \(2, 4\)"),
    ],
    ids=["tuple", "dict", "named inputs", "features", "bytes", "probabilities"],
)
def test_a_batch_of_another_form_is_an_error_in_words(given: Any, got: str) -> None:
    with pytest.raises(ValueError, match=rf"^trainer\.callbacks: Mix needs a list of float images .*, {got}$"):
        mixed(Mix(), 0, given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mixup": -0.1}, "mixup, cutmix: expected at least 0 and one of them above 0, got -0.1 and 1.0"),
        ({"mixup": 0.0, "cutmix": 0.0}, "mixup, cutmix: expected at least 0 and one of them above 0, got 0.0 and 0.0"),
        ({"probability": 0.0}, r"probability: expected a share in \(0, 1\], got 0.0"),
        ({"probability": 1.5}, r"probability: expected a share in \(0, 1\], got 1.5"),
        ({"num_classes": 1}, "num_classes: expected at least 2, got 1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Mix(**arguments)


def test_a_task_without_number_of_classes_needs_it_from_the_user() -> None:
    stranger: Any = SimpleNamespace()
    with pytest.raises(ValueError, match=r"^num_classes: expected the number of classes"):
        Mix().on_train_start(None, stranger)  # type: ignore[arg-type]
    Mix(num_classes=3).on_train_start(None, stranger)  # type: ignore[arg-type]


class Record(pl.Callback):
    """Notes the training batches and the loss of each."""

    def __init__(self) -> None:
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps.append((batch[0].clone(), batch[1].clone(), outputs["loss"].detach()))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_task_minimises_the_cross_entropy_of_the_shares(smoothing: float, precision: Any) -> None:
    torch.manual_seed(0)
    images = torch.randn(12, 1, 4, 4)
    data: Any = [(image, i % K) for i, image in enumerate(images)]
    net, record = nn.Sequential(nn.Flatten(), nn.Linear(16, K)), Record()
    task = Classification(net, K, optimizer=lambda p: torch.optim.SGD(p, lr=0.0), label_smoothing=smoothing)
    trainer = pl.Trainer(
        **QUIET, max_epochs=1, callbacks=[Mix(), record], enable_checkpointing=False, precision=precision
    )
    trainer.fit(task, DataLoader(data, batch_size=B), DataLoader(data, batch_size=B))
    low = precision == "bf16-true"
    hits = 0
    for image, target, loss in record.steps:
        logits = net(image).detach().double()
        wanted = (1 - smoothing) * target.double() + smoothing / K
        expected = -(wanted * (logits - logits.exp().sum(1, keepdim=True).log())).sum(1).mean()
        tolerance = 1e-5 if precision == "32-true" else 2e-2
        torch.testing.assert_close(loss.double(), expected, rtol=tolerance, atol=tolerance)
        hits += int((logits.argmax(1) == target.argmax(1)).sum())
    if not low:  # ties are common there
        assert trainer.callback_metrics["train/accuracy"].item() == pytest.approx(hits / 12, abs=1e-6)


def test_probabilities_of_other_classes_are_an_error_in_words() -> None:
    data: Any = [(torch.zeros(1, 4, 4), i % K) for i in range(B)]
    task = Classification(nn.Sequential(nn.Flatten(), nn.Linear(16, K)), K)
    trainer = pl.Trainer(**QUIET, max_epochs=1, callbacks=[Mix(num_classes=5)], enable_checkpointing=False)
    message = r"^num_classes: expected labels \(B,\) or probabilities \(6, 4\), got \(6, 5\)$"
    with pytest.raises(ValueError, match=message):
        trainer.fit(task, DataLoader(data, batch_size=B), DataLoader(data, batch_size=B))

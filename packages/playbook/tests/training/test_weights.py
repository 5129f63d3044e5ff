"""A step has the gradient of one large batch, whatever its losses are means over and however it is split."""

import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from example.data.digits import Digits
from example.nets.mlp import MLP
from example.tasks.classification import Classification
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection

from jobs import Group
from playbook.checkpoints.io import load
from playbook.data.base import Data
from playbook.task import Task
from playbook.testing.command import UNSAVED
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from playbook.training.microbatches import MicroBatches
from playbook.training.nonfinite.callback import NonFinite
from playbook.training.weights import scaled, weight_method
from running import PROJECT

K, PADDING = 3, -100


def sequences(num_sequences: int = 38, length: int = 6) -> tuple[Tensor, Tensor]:
    """Points (N, T, 2) and their classes (N, T), of which 0 to T count; the first and the last three have none."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_sequences, length, 2, generator=generator, dtype=torch.float64)
    target = torch.randint(K, (num_sequences, length), generator=generator)
    lengths = torch.randint(length + 1, (num_sequences,), generator=generator)
    lengths[:3], lengths[-3:] = 0, 0
    return inputs, target.masked_fill(torch.arange(length) >= lengths[:, None], PADDING)


class Sequences(Data):
    def __init__(self, batch_size: int = 4) -> None:
        super().__init__(batch_size)

    def setup(self, stage: str) -> None:
        self.train_set = self.val_set = TensorDataset(*sequences())


class Tokens(LightningModule):
    """A third-party module whose loss is a mean over tokens: not a number where there are none."""

    def __init__(self, lr: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, K)).double()
        self.lr = lr

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, target = batch
        return cross_entropy(self.net(inputs).flatten(0, 1), target.flatten(), ignore_index=PADDING)

    def weight(self, batch: Any) -> Tensor:
        return (batch[1] != PADDING).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Divided(Tokens):
    """Divides by the number of tokens itself, so where there are none its gradients are NaN, too."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, target = batch
        losses = cross_entropy(self.net(inputs).transpose(1, 2), target, ignore_index=PADDING, reduction="none")
        return losses.sum() / (target != PADDING).sum()

    def weight(self, batch: Any) -> Any:
        return int(super().weight(batch))


class Plain(Tokens):
    """A mean over samples, without a word on weights."""

    weight = None  # type: ignore[assignment]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.net(batch[0]).square().mean()


def classification() -> Classification:
    torch.manual_seed(0)
    net = MLP(K, 2, widths=[5], norm="layer", dropout=0.0)
    return Classification(net, K, lambda p: torch.optim.SGD(p, lr=0.0), label_smoothing=0.1).double()


def points() -> tuple[Tensor, Tensor]:
    inputs, target = sequences()
    return inputs[:, 0], target[:, 0].clamp(min=0)


MODULES: dict[str, Any] = {
    "tokens": (Tokens, sequences),
    "divided tokens": (Divided, sequences),
    "third-party": (Plain, sequences),
    "classification": (classification, points),
}


def large_batch_gradients(name: str, batches: list[Any]) -> list[list[Tensor]]:
    """By Lightning alone; zeros for a batch without tokens, whose loss is not a number."""
    build, _ = MODULES[name]
    empty = [[torch.zeros_like(p) for p in build().parameters()]]
    has_none = ["tokens" in name and bool((batch[1] == PADDING).all()) for batch in batches]
    return [
        (empty if nothing else step_gradients(build(), [batch], weighed=False))[0]
        for batch, nothing in zip(batches, has_none, strict=True)
    ]


@pytest.mark.parametrize("num_parts", [1, 2, 4])
@pytest.mark.parametrize("accumulate", [1, 2, 3, 50])
@pytest.mark.parametrize("name", MODULES)
def test_a_step_is_the_same_however_it_is_split(name: str, accumulate: int, num_parts: int) -> None:
    """Random batches that hold from no token to all of them; the last step of an epoch has fewer batches."""
    build, samples = MODULES[name]
    for seed in range(2):
        batches, large = random_split(samples(), seed, accumulate)
        assert_same_steps(step_gradients(build(), batches, accumulate, num_parts), large_batch_gradients(name, large))


class OnDevice(MicroBatches):
    """Keeps weights as tensors, as they are on an accelerator."""

    def weigh(self, trainer: Trainer, batch: Any) -> Tensor:
        return torch.tensor(super().weigh(trainer, batch), dtype=torch.float64)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("name", ["tokens", "third-party"])
def test_weights_may_stay_on_the_device(name: str, accumulate: int, num_parts: int) -> None:
    build, samples = MODULES[name]
    batches, large = random_split(samples(), 0, accumulate)
    found = step_gradients(build(), batches, accumulate, num_parts, weighed=OnDevice())
    assert_same_steps(found, large_batch_gradients(name, large))


@pytest.mark.parametrize("name", ["tokens", "third-party"])
def test_a_training_step_may_leave_a_batch_out(name: str) -> None:
    """By returning None; the step is then that of the other batches."""
    build, samples = MODULES[name]
    batches, _ = random_split(samples(), 0, 1)
    batches = batches[1:4]

    class Leaves(build):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return loss if batch_idx != 1 else None

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*training_step. returned .None.")
        found = step_gradients(Leaves(), batches, accumulate=3)
    joined = [torch.cat(fields) for fields in zip(batches[0], batches[2], strict=True)]
    assert_same_steps(found, large_batch_gradients(name, [joined]))


class Sparse(Tokens):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(K, 4, sparse=True), nn.Linear(4, K)).double()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        _, target = batch
        logits = self.net(target.clamp(min=0).roll(1, dims=1))
        return cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PADDING)


def test_sparse_gradients_are_weighed() -> None:
    batches, large = random_split(tuple(field[3:-3] for field in sequences()), 0, 3)
    found, expected = step_gradients(Sparse(), batches, 3), step_gradients(Sparse(), large, weighed=False)
    assert all(gradients[0].is_sparse for gradients in found)
    assert_same_steps(*([[g.to_dense() for g in gradients] for gradients in steps] for steps in (found, expected)))


def test_the_mean_of_means_is_another_gradient() -> None:
    """The trap: with batches sorted by length, Lightning's gradient is off by more than a tenth."""
    samples = sequences()
    order = (samples[1] != PADDING).sum(1).argsort()[-28:]
    batches = [[field[order[i : i + 7]] for field in samples] for i in range(0, 28, 7)]
    expected = step_gradients(Tokens(), [[field[order] for field in samples]], weighed=False)
    assert_same_steps(step_gradients(Tokens(), batches, accumulate=4), expected)
    [lightning] = step_gradients(Tokens(), batches, accumulate=4, weighed=False)
    assert (lightning[0] - expected[0][0]).norm() > 0.1 * expected[0][0].norm()


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("module", [Tokens, Plain])
def test_equal_weights_change_no_bit(module: type[Tokens], accumulate: int) -> None:
    """With dropout, over steps that move the weights; 7 is not a power of 2."""

    def trained(*callbacks: Callback) -> dict[str, Tensor]:
        model = module(lr=0.1)
        model.net.insert(1, nn.Dropout(0.5))
        batches: Any = DataLoader([[torch.randn(7, 1, 2).double(), torch.ones(7, 1).long()]] * 4, batch_size=None)  # type: ignore[arg-type]
        torch.manual_seed(1)
        trainer = Trainer(**UNSAVED, max_epochs=2, accumulate_grad_batches=accumulate, callbacks=[*callbacks])
        trainer.fit(model, batches)
        return model.state_dict()

    torch.manual_seed(0)
    ours = trained(MicroBatches())
    torch.manual_seed(0)
    theirs = trained()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


# what sees the gradients


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_gradients_are_clipped_after_they_are_weighed(algorithm: str) -> None:
    def trained(batches: list[Any], accumulate: int) -> Tensor:
        model = Tokens(lr=1.0)
        trainer = Trainer(
            **UNSAVED,
            max_epochs=1,
            accumulate_grad_batches=accumulate,
            gradient_clip_val=0.01,
            gradient_clip_algorithm=algorithm,
            callbacks=[MicroBatches()],
        )
        trainer.fit(model, DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    batches, large = random_split(sequences(), 0, 50)
    torch.testing.assert_close(trained(batches, 50), trained(large, 1), rtol=1e-10, atol=1e-12)


def test_gradients_are_weighed_whatever_scale_a_loss_has() -> None:
    """As with fp16, where losses are multiplied by a power of 2 and gradients divided by it before the optimizer."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    batches, large = random_split(sequences(), 0, 50)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    plugin.forward_context = nullcontext  # type: ignore[method-assign]  # float64 as in the reference
    found = step_gradients(Tokens(), batches, 50, plugins=[plugin])
    assert_same_steps(found, large_batch_gradients("tokens", large))


# nothing that counts


@pytest.mark.parametrize("module", [Tokens, Divided])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_what_has_weight_0_does_not_count(module: type[Tokens], accumulate: int) -> None:
    """Its loss is NaN, and the check of losses and gradients does not stop the training."""
    inputs, target = sequences(9)
    nothing = [inputs[:3], torch.full_like(target[:3], PADDING)]
    batches = [nothing, [inputs[3:5], target[3:5]], nothing]
    found = step_gradients(module(), batches, accumulate, callbacks=[NonFinite()])
    expected = step_gradients(module(), [batches[1]], weighed=False)[0]
    zeros = [torch.zeros_like(gradient) for gradient in expected]
    assert_same_steps(found, [expected] if accumulate == 3 else [zeros, expected, zeros])


def test_a_step_in_which_nothing_counts_has_gradients_of_0() -> None:
    """As one large batch whose loss is 0: momentum moves on."""
    inputs, target = sequences(9)
    nothing = [inputs[:3], torch.full_like(target[:3], PADDING)]
    for module in (Tokens(), Divided()):
        for accumulate in (1, 2):
            [gradients] = step_gradients(module, [nothing] * accumulate, accumulate)
            assert all(gradient.ndim and gradient.eq(0).all() for gradient in gradients)


@pytest.mark.parametrize("factor", [0.0, torch.tensor(0.0)])
def test_a_factor_of_0_hides_what_is_no_number(factor: Any) -> None:
    loss = torch.tensor(float("nan"), requires_grad=True)
    product = scaled(loss, factor)
    product.backward()
    assert product == 0
    assert loss.grad == 0


# losses that are no means


class NoMean(Plain):
    def weight(self, batch: Any) -> None:
        return None


def test_a_loss_without_weight_is_left_as_lightning_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    batches, _ = random_split(sequences(), 0, 1)
    batches = batches[:6]
    ours = step_gradients(NoMean(), batches, 2)
    assert capsys.readouterr().out.splitlines() == [
        "warning: the loss is not a mean over parts of a batch (its weight is None), so a step uses the mean loss of 2 "
        "batches, which differs from the loss of one large batch"
    ]
    theirs = step_gradients(NoMean(), batches, 2, weighed=False)
    for gradients, expected in zip(ours, theirs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(gradients, expected, strict=True))
    step_gradients(NoMean(), batches)
    assert "warning" not in capsys.readouterr().out  # a step of one batch is that of the batch


def test_halving_a_loss_without_weight_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    batches, _ = random_split(sequences(), 0, 1)
    step_gradients(NoMean(), [batches[0]], num_parts=2)
    size = len(batches[0][0])
    assert f"out of memory with {size} samples" in (out := capsys.readouterr().out)
    assert out.rstrip().endswith("whose mean loss differs from the batch's")


# the method


class Property(Plain):
    @property
    def weight(self) -> int:
        raise AssertionError("a property says nothing of batches")


class OtherArguments(Plain):
    def weight(self, batch: Any, layer: str) -> float:
        raise AssertionError("a method with other arguments says nothing of batches")


@pytest.mark.parametrize("module", [Plain, Property, OtherArguments])
def test_other_things_of_that_name_are_ignored(module: type[Plain]) -> None:
    assert weight_method(module()) is None


def test_a_parameter_of_that_name_is_ignored() -> None:
    class Scale(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

    assert weight_method(Scale()) is None


def test_tasks_weigh_samples_unless_they_say_otherwise() -> None:
    task = classification()
    assert task.weight(points()) == 38
    assert task.weight(({"a": torch.zeros(4, 2)}, torch.zeros(4))) == 4
    assert weight_method(task) is None  # known ahead by the loader
    assert weight_method(Tokens()) is not None
    tokens: Any = Tokens()
    tokens.weighs_samples = True
    assert weight_method(tokens) is None


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(4), r"expected a number, a scalar tensor or None for a batch, got Tensor of shape \(4,\)"),
        ("7", "expected a number, a scalar tensor or None for a batch, got str"),
        (-1, "expected a finite number of at least 0 for a batch, got -1"),
        (torch.tensor(float("inf")), "expected a finite number of at least 0 for a batch, got inf"),
    ],
)
def test_a_weight_that_is_none_is_an_error(weight: Any, message: str) -> None:
    class Wrong(Tokens):
        def weight(self, batch: Any) -> Any:
            return weight

    batches, _ = random_split(sequences(), 0, 1)
    with pytest.raises((TypeError, ValueError), match=f"^weight: {message}$"):
        step_gradients(Wrong(), batches)


def test_continuing_keeps_the_unit_of_weights() -> None:
    """Rounding is then that of the run that was not interrupted."""
    callback, batches = MicroBatches(), random_split(sequences(), 0, 1)[0][1:]
    trainer = Trainer(**UNSAVED, max_epochs=1, accumulate_grad_batches=2, callbacks=[callback])
    trainer.fit(Tokens(), DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
    unit = next(weight for batch in batches if (weight := (batch[1] != PADDING).sum().item()))
    restored = MicroBatches()
    restored.load_state_dict(callback.state_dict())
    assert restored.unit_weight == unit
    assert MicroBatches().state_dict() == {}


# metrics


class Measured(Task):
    """Tokens as a task."""

    def __init__(self) -> None:
        super().__init__(Tokens().net, None, None, MetricCollection({}))

    def weight(self, batch: Any) -> Tensor:
        return (batch[1] != PADDING).sum()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._step("train", batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._step("val", batch)

    def _step(self, stage: str, batch: Any) -> Tensor:
        loss = cross_entropy(self(batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=PADDING)
        self.log_step(stage, loss, self.weight(batch))
        return loss


@pytest.mark.parametrize("batch_size", [1, 3, 7, 38])
def test_mean_losses_are_over_tokens_whatever_the_batch_size(batch_size: int) -> None:
    inputs, target = sequences()
    task = Measured()
    expected = cross_entropy(task(inputs).flatten(0, 1), target.flatten(), ignore_index=PADDING).item()
    loader = DataLoader(TensorDataset(inputs, target), batch_size)
    [found] = Trainer(**UNSAVED).validate(task, loader, verbose=False)
    assert found["val/loss"] == pytest.approx(expected, rel=1e-6)


# several processes

OWN = __name__


class TokensAtRate(Tokens):
    """For the command line."""

    def __init__(self) -> None:
        super().__init__(lr=0.5)


class NoMeanAtRate(NoMean):
    def __init__(self) -> None:
        super().__init__(lr=0.5)


def trained_weights(folder: Path, module: str, world: int, batch_size: int, accumulate: int) -> tuple[Any, str]:
    run = f"{module}-{world}-{batch_size}-{accumulate}"
    options = ("--trainer.strategy", "ddp") if world > 1 else ()
    out = Group(
        world, "fit", "--model", f"{OWN}.{module}", "--data", f"{OWN}.Sequences", "--data.batch_size", str(batch_size),
        "--trainer.accumulate_grad_batches", str(accumulate), "--trainer.devices", str(world), *options,
        "--trainer.accelerator", "cpu", "--trainer.max_epochs", "3", "--run_dir", run, "--trainer.limit_val_batches",
        "0", cwd=folder,
    ).finish()  # fmt: skip
    checkpoint = torch.load(folder / run / "checkpoints/last.ckpt", weights_only=True)
    return checkpoint["state_dict"], out


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return trained_weights(tmp_path_factory.mktemp("one"), "TokensAtRate", 1, 12, 1)[0]


@pytest.mark.parametrize(
    ("batch_size", "accumulate"),
    [(2, 3), pytest.param(6, 1, marks=pytest.mark.slow), pytest.param(1, 6, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_processes_together_take_the_steps_of_one(
    tmp_path: Path, one_process: dict[str, Tensor], batch_size: int, accumulate: int
) -> None:
    """38 sequences by twelves. Each process has other numbers of tokens, some batches none."""
    weights, _ = trained_weights(tmp_path, "TokensAtRate", 2, batch_size, accumulate)
    for name, value in one_process.items():
        error = (weights[name] - value).abs().max()
        assert error <= 1e-9, f"{name} differs by {error:.2g}"


class Uneven(Digits):
    """203 images, which no batch size and no number of processes divides."""

    def setup(self, stage: str) -> None:
        super().setup(stage)
        for name in ("train_set", "val_set", "test_set"):
            whole: Any = getattr(self, name)
            setattr(self, name, TensorDataset(*(tensor[:203] for tensor in whole.tensors)))


class OfSomeClasses(Classification):
    """The mean over the images of the first seven digits: its weight is a number that no loader knows."""

    def weight(self, batch: Any) -> Tensor:
        return (batch[1] < 7).sum()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        image, target = batch
        losses = cross_entropy(self(image), target, reduction="none") * (target < 7)
        return losses.sum() / (target < 7).sum()


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["ddp", "fsdp2", "tensor-parallel"])
def test_a_mesh_of_processes_takes_the_steps_of_one(tmp_path: Path, mesh: str) -> None:
    args = (
        "fit", "--config", str(PROJECT / "configs/vision/transformer-digits.yaml"), "--model", f"{OWN}.OfSomeClasses",
        "--data", f"{OWN}.Uneven", "--model.net.dim", "16", "--model.net.depth", "2", "--trainer.accelerator", "cpu",
        "--trainer.max_epochs", "2", "--trainer.limit_val_batches", "0", "--data.shift", "0",
        "--checkpoint.monitor", "null",
        "--model.optimizer", "SGD", "--model.optimizer.lr", "0.1", "--model.schedule", "null",
    )  # fmt: skip
    config = ("--config", str(PROJECT / f"configs/trainer/{mesh}.yaml"), "--trainer.devices", "2")
    size = 8 if mesh == "tensor-parallel" else 4  # processes of one tensor-parallel group share their batches
    split = ("--data.batch_size", str(size), "--trainer.accumulate_grad_batches", "3")
    Group(1, *args, "--data.batch_size", "24", "--run_dir", "one", cwd=tmp_path).finish()
    Group(2, *args, *config, *split, "--run_dir", "split", cwd=tmp_path).finish()
    expected, weights = (load(tmp_path / run / "checkpoints/last.ckpt")["state_dict"] for run in ("one", "split"))
    for name, value in expected.items():
        error = (weights[name] - value).abs().max()
        assert error <= 1e-5, f"{name} differs by {error:.2g}"


@pytest.mark.slow
def test_processes_tell_once_that_a_step_differs(tmp_path: Path) -> None:
    _, out = trained_weights(tmp_path, "NoMeanAtRate", 2, 4, 1)
    assert out.count("so a step uses the mean loss of 2 batches") == 1

"""Gradients of optimizer steps, whatever they are made of, against the mean loss over their samples."""

import copy
import csv
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from example.nets.mlp import MLP
from example.tasks.classification import Classification
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from playbook.data.base import Data
from playbook.errors import UserError
from playbook.testing.command import UNSAVED, Cli
from playbook.training.microbatches import MicroBatches
from running import MLP_DIGITS, cli_process
from tight import Tight


class Points(Data):
    """38 points of two features and two classes: by fours, nine whole batches and one of 2."""

    def __init__(self, batch_size: int = 4) -> None:
        super().__init__(batch_size)

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(38, 2, generator=generator, dtype=torch.float64)
        self.train_set = self.val_set = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())


class Kept(Callback):
    """Keeps the gradient and the weights of every optimizer step, and the inputs that it was made of."""

    def __init__(self) -> None:
        self.steps: list[tuple[list[Tensor], dict[str, Tensor], list[Tensor]]] = []
        self.inputs: list[Tensor] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        while not isinstance(batch, Tensor):
            batch = batch["a"] if isinstance(batch, dict) else batch[0]
        self.inputs.append(batch)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        gradients = [parameter.grad.clone() for parameter in pl_module.parameters() if parameter.grad is not None]
        self.steps.append((gradients, copy.deepcopy(pl_module.state_dict()), self.inputs))
        self.inputs = []


def task(**net: Any) -> Classification:
    torch.manual_seed(0)
    return Classification(MLP(2, 2, widths=[5], **{"norm": "layer", "dropout": 0.0, **net}), 2).double()


def train(model: LightningModule, data: Any, *callbacks: Callback, **trainer: Any) -> LightningModule:
    settings: dict[str, Any] = {
        **UNSAVED,
        "max_epochs": 2,
        "num_sanity_val_steps": 0,
        "limit_val_batches": 0,
        **trainer,
    }
    runner = Trainer(**settings, callbacks=[MicroBatches(), *callbacks])
    if isinstance(data, Data):
        runner.fit(model, datamodule=data)
    else:
        runner.fit(model, data)
    return model


def assert_close(found: LightningModule, expected: LightningModule, tolerance: float = 1e-6) -> None:
    for name, value in expected.state_dict().items():
        assert (found.state_dict()[name] - value).abs().max() <= tolerance, name


# every sample counts the same


@pytest.mark.parametrize("accumulate", [1, 3, 4])
def test_gradients_are_means_over_the_samples_of_a_step(accumulate: int) -> None:
    kept, model = Kept(), task()
    train(model, Points(), kept, accumulate_grad_batches=accumulate)
    sizes = [sum(len(inputs) for inputs in step[2]) for step in kept.steps]
    assert sizes == 2 * {1: [4] * 9 + [2], 3: [12, 12, 12, 2], 4: [16, 16, 6]}[accumulate]
    assert_means_over_samples(kept, model)


def assert_means_over_samples(kept: Kept, model: LightningModule) -> None:
    for gradients, weights, batches in kept.steps:
        model.load_state_dict(weights)
        inputs = torch.cat(batches)
        loss = cross_entropy(model(inputs), (inputs.sum(dim=1) > 0).long())
        for found, expected in zip(gradients, torch.autograd.grad(loss, list(model.parameters())), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_otherwise_nothing_changes(accumulate: int) -> None:
    """Ten batches, even or not, with dropout and batch norm: bitwise as in Lightning's own loop."""
    data = Points()
    ours, theirs = (task(norm="batch", dropout=0.5) for _ in range(2))
    limit: dict[str, Any] = {"limit_train_batches": 8, "accumulate_grad_batches": accumulate}
    torch.manual_seed(1)
    train(ours, data, **limit)
    torch.manual_seed(1)
    Trainer(**UNSAVED, max_epochs=2, num_sanity_val_steps=0, limit_val_batches=0, **limit).fit(theirs, datamodule=data)
    assert_close(ours, theirs, tolerance=0.0)


class Faulty(Points):
    """Two samples cannot be loaded, and are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.on_error = "skip"

    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.augment = self.fail

    def fail(self, sample: Any) -> Any:
        faulty: Any = [self.train_set[3], self.train_set[20]]
        if any(torch.equal(sample[0], inputs) for inputs, _ in faulty):
            raise ValueError("a broken file")
        return sample


def test_samples_that_are_left_out_do_not_count() -> None:
    kept = Kept()
    model = task()
    train(model, Faulty(), kept, accumulate_grad_batches=3)
    assert sum(len(inputs) for step in kept.steps for inputs in step[2]) == 2 * 36
    assert_means_over_samples(kept, model)


def weights_of(run: Path) -> dict[str, Tensor]:
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "accumulate"), [(2, 3), (4, 1)])
def test_processes_together_train_like_one(workdir: Path, processes: int, accumulate: int) -> None:
    """1,078 samples leave 54 for the last of 17 global batches, and accumulation by threes two of them."""
    runs = {}
    for number in (1, processes):
        args = (
            "--trainer.devices",
            str(number),
            "--data.batch_size",
            str(64 // number),
            "--trainer.accelerator",
            "cpu",
        )
        ddp = ("--trainer.strategy", "ddp") if number > 1 else ()
        exact = ("--model.net.norm", "layer", "--model.net.dropout", "0", "--model.net.widths", "[8]")
        runs[number] = cli_process(
            "fit", "--config", MLP_DIGITS, "--trainer.max_epochs", "3", "--run_dir", f"run-{number}",
            "--trainer.accumulate_grad_batches", str(accumulate), *args, *ddp, *exact, cwd=workdir,
        )  # fmt: skip
    for process in runs.values():
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    found, expected = weights_of(workdir / f"run-{processes}"), weights_of(workdir / "run-1")
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= 1e-6, name


# batches that do not fit


CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB."
CPU = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"


class Read(Callback):
    """Keeps the metrics of the last epoch."""

    metrics: dict[str, float]

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize(
    "tight",
    [
        {"limit": 9},
        {"limit": 3},
        {"limit": 5, "error": CPU},
        {"limit": 3, "amid": True},
        {"limit": 3, "first_batch": 2},
        {"limit": 3, "amid": True, "first_batch": 1},
        {"limit": 7, "amid": True, "first_batch": 2},
    ],
    ids=" ".join,
)
def test_the_run_is_the_same_as_with_memory_enough(
    tight: dict[str, Any], accumulate: int, capsys: pytest.CaptureFixture[str]
) -> None:
    read, expected = Read(), Read()
    limit = {"accumulate_grad_batches": accumulate, "max_epochs": 1}
    found = train(task(), Points(10), Tight(**tight), read, **limit)
    told = [line for line in capsys.readouterr().out.splitlines() if line]
    parts = 2 if tight["limit"] >= 5 else 4
    assert len(told) == {2: 1, 4: 2}[parts], told
    assert told[-1] == (
        f"out of memory with 10 samples: continuing with {parts} parts of at most {-(-10 // parts)}, "
        "whose gradients add up to the same step"
    )
    assert_close(found, train(task(), Points(10), expected, **limit), 1e-12)
    assert read.metrics.keys() == {"train/accuracy", "train/loss"}
    assert read.metrics == pytest.approx(expected.metrics, abs=1e-6)


def test_the_message_says_what_sees_thesplit(capsys: pytest.CaptureFixture[str]) -> None:
    train(task(norm="batch", dropout=0.1), Points(10), Tight(5), max_epochs=1)
    assert capsys.readouterr().out.rstrip().endswith("; batch norms and dropouts see the parts")


class Steps(LightningModule):
    """A linear model on whatever batch and output its `step` knows."""

    def __init__(self, step: Any, automatic: bool = True, optimizer: Any = torch.optim.SGD) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 1).double()
        self.step, self.optimizer = step, optimizer
        self.automatic_optimization = automatic

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(self, batch, batch_idx)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer(self.parameters(), lr=0.1)


Pair = namedtuple("Pair", ["inputs", "target"])
INPUTS = torch.randn(9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def loss_of(module: Steps, inputs: Tensor, target: Tensor) -> Tensor:
    return mse_loss(module.linear(inputs).squeeze(-1), target)


def of_images(module: Steps, batch: Any, batch_idx: int) -> Tensor:
    """As in detection: a list of inputs of any sizes, and a list of dicts."""
    images, targets = batch
    assert len(images) == len(targets)
    means = torch.stack([image.mean(dim=0) for image in images])
    return loss_of(module, means, torch.stack([target["value"] for target in targets]))


def collated(kind: str) -> Any:
    def collate(samples: list[tuple[Tensor]]) -> Any:
        inputs = torch.stack([sample[0] for sample in samples])
        target = inputs.sum(dim=1)
        return {
            "tensor": inputs,
            "list": [inputs, target],
            "named": Pair(inputs, target),
            "dict": {"inputs": inputs, "target": target, "names": ["a"] * len(inputs), "scale": torch.tensor(1.0)},
            "nested": ({"inputs": inputs}, target),
            "inputs": [[inputs[:, :1], inputs[:, 1:]], target],
            "images": (
                [row.expand(1 + i, 2) for i, row in enumerate(inputs)],
                [{"value": value, "boxes": torch.zeros(len(samples), 4)} for value in target],
            ),
        }[kind]

    return collate


STEPS: dict[str, Any] = {
    "tensor": lambda module, batch, _: loss_of(module, batch, batch.sum(dim=1)),
    "list": lambda module, batch, _: loss_of(module, *batch),
    "named": lambda module, batch, _: loss_of(module, batch.inputs, batch.target),
    "dict": lambda module, batch, _: loss_of(module, batch["inputs"], batch["target"]) * batch["scale"],
    "nested": lambda module, batch, _: loss_of(module, batch[0]["inputs"], batch[1]),
    "inputs": lambda module, batch, _: loss_of(module, torch.cat(batch[0], dim=1), batch[1]),
    "images": of_images,
}


@pytest.mark.parametrize("batch_size", [2, 3, 5])
@pytest.mark.parametrize("kind", STEPS)
def test_batches_of_many_kinds_can_be_split(kind: str, batch_size: int) -> None:
    def trained(*callbacks: Callback) -> LightningModule:
        loader = DataLoader(TensorDataset(INPUTS), batch_size, collate_fn=collated(kind))
        return train(Steps(STEPS[kind]), loader, *callbacks)

    assert_close(trained(Tight(batch_size // 2)), trained(), 1e-12)


class Graph:
    """Nobody but its model knows what is in it."""


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            torch.ones(1, 2, dtype=torch.float64),
            "--data.batch_size: out of memory even with one sample at a time .CUDA",
        ),
        (Graph(), "--data.batch_size: out of memory, and a Graph cannot be split .CUDA out of memory.$"),
    ],
)
def test_what_cannot_be_split_further_is_the_end(batch: Any, message: str) -> None:
    def step(module: Steps, batch: Any, _: int) -> Tensor:
        return module.linear(batch if isinstance(batch, Tensor) else torch.ones(2, dtype=torch.float64)).sum()

    loader = DataLoader([batch], batch_size=None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        train(Steps(step), loader, Tight(0))


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        train(task(), Points(), Tight(3, error="mat1 and mat2"))


# through the command line

TIGHT = "--trainer.callbacks+=tight.Tight"


def rows(run: str) -> list[dict[str, float]]:
    table = csv.DictReader(Path(run, "metrics.csv").read_text().splitlines())
    return [{name: float(value) for name, value in row.items() if value} for row in table]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.slow
def test_metrics_of_a_run_and_its_continuation(cli: Cli, precision: str) -> None:
    args = ("fit", "--config", MLP_DIGITS, "--data.batch_size", "250", "--model.net.widths", "[16]",
            "--model.net.norm", "layer", "--model.net.dropout", "0", "--model.schedule", "null",
            "--trainer.precision", precision, "--ckpt_path", "last")  # fmt: skip
    assert cli(*args, "--run_dir", "whole", "--trainer.max_epochs", "3").code == 0
    first = cli(*args, "--run_dir", "run", "--trainer.max_epochs", "2", TIGHT, "--trainer.callbacks.limit", "100")
    assert first.out.count("out of memory with 250 samples: continuing with") == 2, first.out + first.err
    second = cli(*args, "--run_dir", "run", "--trainer.max_epochs", "3")
    assert "out of memory before: continuing with 4 parts per batch" in second.out
    assert "out of memory with" not in second.out
    if precision == "32-true":
        assert len(rows("run")) == len(rows("whole"))
        for found, expected in zip(rows("run"), rows("whole"), strict=True):
            assert found == pytest.approx(expected, abs=1e-5)


def test_one_sample_too_many_is_one_line(cli: Cli) -> None:
    done = cli("fit", "--config", MLP_DIGITS, "--data.batch_size", "2", TIGHT, "--trainer.callbacks.limit", "0")
    assert done.code == 2
    assert done.err.strip() == (
        "error: --data.batch_size: out of memory even with one sample at a time (CUDA out of memory)"
    )


@pytest.mark.slow
def test_several_processes_are_told_what_to_do(workdir: Path) -> None:
    process = cli_process(
        "fit", "--config", MLP_DIGITS, "--trainer.strategy", "ddp", "--trainer.devices", "2", TIGHT,
        "--trainer.callbacks.limit", "32", "--trainer.accelerator", "cpu", cwd=workdir,
    )  # fmt: skip
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert err.strip() == (
        "error: --data.batch_size: out of memory; 32 with --trainer.accumulate_grad_batches 2 gives the same step with "
        "half of the memory (CUDA out of memory)"
    )


# other kinds of training


def quadratic(module: Steps, batch: Any, batch_idx: int) -> Tensor:
    return loss_of(module, batch[0], batch[0].sum(dim=1))


def loader_of(batch_size: int = 4, **options: Any) -> DataLoader:
    return DataLoader(TensorDataset(INPUTS), batch_size, **options)


def test_lbfgs_calls_the_closure_many_times() -> None:
    ours, theirs = (Steps(quadratic, optimizer=torch.optim.LBFGS) for _ in range(2))
    train(ours, loader_of(9))
    Trainer(**UNSAVED, max_epochs=2).fit(theirs, loader_of(9))
    assert_close(ours, theirs, 0.0)
    assert_close(train(Steps(quadratic, optimizer=torch.optim.LBFGS), loader_of(9), Tight(5)), theirs, 1e-9)


def test_manual_optimization_is_left_alone() -> None:
    def step(module: Steps, batch: Any, batch_idx: int) -> None:
        optimizer: Any = module.optimizers()
        optimizer.zero_grad()
        module.manual_backward(quadratic(module, batch, batch_idx))
        optimizer.step()

    assert_close(train(Steps(step, automatic=False), loader_of()), train(Steps(quadratic), loader_of()), 0.0)
    with pytest.raises(torch.OutOfMemoryError):
        train(Steps(step, automatic=False), loader_of(), Tight(2))


def test_a_dict_with_a_loss_does() -> None:
    def step(module: Steps, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": quadratic(module, batch, batch_idx), "rows": len(batch[0])}

    for tight in (99, 2):
        assert_close(train(Steps(step), loader_of(), Tight(tight)), train(Steps(quadratic), loader_of()), 1e-12)


@pytest.mark.filterwarnings("ignore:.*training_step. returned .None.")
def test_none_leaves_a_batch_out() -> None:
    def step(module: Steps, batch: Any, batch_idx: int) -> Tensor | None:
        return quadratic(module, batch, batch_idx) if batch_idx != 1 else None

    two = train(Steps(quadratic), DataLoader(TensorDataset(INPUTS[[0, 1, 2, 3, 8]]), 4))
    assert_close(train(Steps(step), loader_of()), two, 1e-12)
    assert_close(train(Steps(step), loader_of(), Tight(2)), two, 1e-12)


def test_what_is_logged_is_counted_once() -> None:
    """Also where the first part of the first batch fits and the second does not."""

    def step(module: Steps, batch: Any, batch_idx: int) -> Tensor:
        loss = quadratic(module, batch, batch_idx)
        module.log("mean", batch[0].sum(dim=1).mean(), on_step=False, on_epoch=True, batch_size=len(batch[0]))
        return loss

    expected = pytest.approx({"mean": INPUTS.sum(dim=1).mean().item()})
    for tight in (Tight(9), Tight(1), Tight(2, amid=True), Tight(1, amid=True, first_batch=1)):
        read = Read()
        train(Steps(step), loader_of(3), read, tight, max_epochs=1)
        assert read.metrics == expected


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        return iter(INPUTS)


class Sized(Endless):
    def __len__(self) -> int:
        return len(INPUTS)


class Ready:
    """Batches, and nothing that says how large they are."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[list[Tensor]]:
        return iter([[INPUTS[:5]], [INPUTS[5:8]], [INPUTS[8:]]])


FOREIGN: dict[str, Any] = {
    "plain": loader_of(4),
    "short": loader_of(6),
    "drop_last": loader_of(2, drop_last=True),
    "shuffle": loader_of(5, shuffle=True),
    "no batch_size": DataLoader([(INPUTS[:5],), (INPUTS[5:8],), (INPUTS[8:],)], batch_size=None),  # type: ignore[arg-type]
    "batch_sampler": DataLoader(TensorDataset(INPUTS), batch_sampler=BatchSampler(SequentialSampler(INPUTS), 4, False)),
    "iterable": DataLoader(Endless(), 4),
    "iterable with length": DataLoader(Sized(), 4),
    "no DataLoader": Ready(),
    "combined": CombinedLoader({"a": loader_of(4), "b": loader_of(4)}, "max_size_cycle"),
}


def mean_of_inputs(module: Steps, batch: Any, batch_idx: int) -> Tensor:
    """A loss whose gradient is the mean of the inputs."""
    while not isinstance(batch, Tensor):
        batch = batch["a"] if isinstance(batch, dict) else batch[0]
    return (module.linear.weight * batch).sum(dim=1).mean()


@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *[(name, {}) for name in FOREIGN],
        *[(name, {"limit_train_batches": 3}) for name in FOREIGN],
        *[(name, {"overfit_batches": 3}) for name in ("plain", "short", "batch_sampler", "no batch_size")],
    ],
    ids=str,
)
def test_samples_of_third_party_loaders_count_the_same(name: str, settings: dict[str, Any]) -> None:
    kept = Kept()
    train(Steps(mean_of_inputs), FOREIGN[name], kept, accumulate_grad_batches=2, max_epochs=1, **settings)
    assert kept.steps
    for gradients, _, batches in kept.steps:
        torch.testing.assert_close(gradients[0][0], torch.cat(batches).mean(dim=0), rtol=1e-12, atol=1e-12)


def test_a_second_fit_goes_on_counting_steps() -> None:
    trainer = Trainer(**UNSAVED, max_epochs=1, callbacks=[MicroBatches()])
    model = Steps(quadratic)
    trainer.fit(model, loader_of())
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, loader_of())
    assert trainer.global_step == 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_memory_of_a_real_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """The 20 activations of 4,096 rows of 64 KiB are 5 GiB, of which 1 GiB is given."""
    activations = nn.Sequential(*[nn.Sequential(nn.GELU(), nn.Tanh()) for _ in range(10)])
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2**14), activations, nn.Linear(2**14, 2))

    def trained(share: float) -> LightningModule:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(share)
        model = Classification(copy.deepcopy(net), 2)
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(4096, 2, generator=generator)
        loader = DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), 4096)
        return train(model, loader, accelerator="cuda", devices=1).cpu()

    total = torch.cuda.get_device_properties(0).total_memory
    try:
        found = trained(2**30 / total)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory with 4096 samples" in capsys.readouterr().out
    assert_close(found, trained(1.0), 1e-5)


class Pairwise(Steps):
    """Compares all samples of a batch, so that parts of it have another loss."""

    can_split_batches = False


def test_a_loss_of_whole_batches_is_not_accumulated_or_split() -> None:
    loader = DataLoader(TensorDataset(INPUTS), 4, collate_fn=collated("tensor"))
    with pytest.raises(UserError, match=r"^--trainer.accumulate_grad_batches 2: Pairwise compares all samples of a b"):
        train(Pairwise(STEPS["tensor"]), loader, accumulate_grad_batches=2)
    with pytest.raises(UserError, match=r"^--data.batch_size: out of memory with 4 samples, and Pairwise compares all"):
        train(Pairwise(STEPS["tensor"]), loader, Tight(2))
    train(Pairwise(STEPS["tensor"]), loader)

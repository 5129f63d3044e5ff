"""The step against its formula, however it is cut; the teacher stays outside of what trains and of what is saved."""

import math
import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from playbook import Trainer, UserError
from playbook.checkpoints.io import AtomicCheckpointIO, load
from playbook.facts import pack
from playbook.testing.command import UNSAVED
from playbook.testing.line import Line, points
from src.callbacks.compile import Compile
from src.callbacks.distill import Distill
from src.callbacks.mix import Mix
from src.tasks.classification import Classification
from src.tasks.segmentation import Segmentation

B, D, K, IGNORED = 6, 5, 4, 255
NAMES = ["ant", "bee", "cat", "dog"]


class Linear(nn.Module):
    """A 1 × 1 convolution, or a linear layer, behind a dropout that a teacher must not apply."""

    def __init__(self, num_classes: int = K, in_channels: int = D, is_dense: bool = False) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.layer = nn.Conv2d(in_channels, num_classes, 1) if is_dense else nn.Linear(in_channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x if self.layer.weight.requires_grad else self.dropout(x))


def write_teacher(
    file: Path, seed: int = 1, task: type[pl.LightningModule] = Classification, facts: Any = None, **options: Any
) -> Linear:
    """A checkpoint as `fit` would leave it; returns its net."""
    torch.manual_seed(seed)
    net = Linear(**options)
    num_classes = options.get("num_classes", K)
    values = {
        "_class_path": f"{task.__module__}.{task.__qualname__}",
        "_instantiator": "lightning.pytorch.cli.instantiate_module",
        "net": {"class_path": f"{__name__}.Linear", "init_args": options},
        "num_classes": num_classes,
    }
    content = {"state_dict": {f"net.{name}": value for name, value in net.state_dict().items()}}
    content |= {"hyper_parameters": values} | ({"facts": pack(facts)} if facts else {})
    AtomicCheckpointIO().save_checkpoint(content, file)
    return net


def rename_net(file: Path, name: str) -> None:
    """Has a checkpoint say that its net is of another class of this file, which takes no arguments."""
    content = load(file)
    content["hyper_parameters"]["net"] = {"class_path": f"{__name__}.{name}", "init_args": {}}
    AtomicCheckpointIO().save_checkpoint(content, file)


SETTINGS: dict[str, Any] = {"max_epochs": 1, "limit_val_batches": 0, "run_dir": False}


def student(is_dense: bool = False, **options: Any) -> Any:
    torch.manual_seed(0)
    task: Any = Segmentation if is_dense else Classification
    return task(Linear(is_dense=is_dense), K, optimizer=lambda p: torch.optim.SGD(p, lr=1.0), **options)


def samples(num: int = B, is_dense: bool = False) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    shape = (4, 3) if is_dense else ()
    target = torch.randint(K, (num, *shape), generator=generator)
    if is_dense:
        target[torch.rand(target.shape, generator=generator) < 0.4] = IGNORED
    return TensorDataset(torch.randn(num, D, *shape, generator=generator), target)


class Doubles(TensorDataset):
    """In float64, as the reference is."""

    def __getitem__(self, index: int) -> Any:
        x, target = super().__getitem__(index)
        return x.double(), target


def train(module: Any, *callbacks: Any, data: Any = None, batch_size: int = B, **settings: Any) -> pl.Trainer:
    trainer = Trainer(**{**UNSAVED, **SETTINGS, "callbacks": list(callbacks), **settings})
    loader = DataLoader(data or samples(), batch_size)
    trainer.fit(module, loader, loader)
    return trainer


def change(module: Any, *callbacks: Any, **settings: Any) -> Tensor:
    """What the training subtracts from the weights: with a rate of 1, the gradient of its only step."""
    before = module.net.layer.weight.detach().clone()
    train(module, *callbacks, **settings)
    return before.to(module.net.layer.weight.dtype) - module.net.layer.weight.detach()


def divergence(logits: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """T² Σ p log(p / q) of every place, logits (P, K)."""
    q, p = ((x / temperature).exp() / (x / temperature).exp().sum(1, keepdim=True) for x in (logits, taught))
    return temperature**2 * (p * (p / q).log()).sum(1)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("is_dense", [False, True], ids=["classification", "segmentation"])
def test_a_step_minimises_the_weighted_sum(tmp_path: Path, is_dense: bool, weight: float) -> None:
    """In float64, to which the teacher's weights are converted like the student's; ignored pixels do not count."""
    kind = Segmentation if is_dense else Classification
    teacher = write_teacher(tmp_path / "teacher.ckpt", task=kind, is_dense=is_dense).eval().double()
    module = student(is_dense, **({"ignore_index": IGNORED} if is_dense else {}))
    net = Linear(is_dense=is_dense).double()
    net.load_state_dict(module.net.state_dict())
    tensors = samples(is_dense=is_dense).tensors
    callback = Distill(str(tmp_path / "teacher.ckpt"), temperature=3.0, weight=weight)
    found = change(module, callback, data=Doubles(*tensors), precision="64-true")

    x, target = tensors[0].double(), tensors[1]
    logits, taught = (n(x).movedim(1, -1).reshape(-1, K) for n in (net, teacher))
    counts = target.flatten() != IGNORED
    distillation = divergence(logits, taught.detach(), 3.0)[counts].mean()
    loss = (1 - weight) * cross_entropy(logits[counts], target.flatten()[counts]) + weight * distillation
    loss.backward()
    torch.testing.assert_close(found, net.layer.weight.grad)


def test_what_is_logged(tmp_path: Path) -> None:
    """The task's own loss stays comparable; the divergence is a column of its own, a mean over samples."""
    teacher = write_teacher(tmp_path / "teacher.ckpt").eval()
    module = student()
    x, target = samples().tensors
    logits = module(x).detach()
    callback = Distill(str(tmp_path / "teacher.ckpt"), temperature=2.0)
    module.optimizer = lambda p: torch.optim.SGD(p, lr=0.0)
    metrics = train(module, callback, batch_size=4).callback_metrics  # a batch of 4 and one of 2
    assert metrics["train/loss"].item() == pytest.approx(cross_entropy(logits, target).item(), rel=1e-5)
    expected = divergence(logits, teacher(x).detach(), 2.0).mean().item()
    assert metrics["train/distillation_loss"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("is_dense", [False, True], ids=["classification", "segmentation"])
def test_accumulated_batches_make_the_same_step(tmp_path: Path, is_dense: bool) -> None:
    file = tmp_path / "teacher.ckpt"
    write_teacher(file, task=Segmentation if is_dense else Classification, is_dense=is_dense)
    options = {"ignore_index": IGNORED} if is_dense else {}
    data = samples(10, is_dense)
    whole = change(student(is_dense, **options), Distill(str(file)), data=data, batch_size=10)
    parts = change(student(is_dense, **options), Distill(str(file)), data=data, batch_size=4, accumulate_grad_batches=3)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


def test_micro_batches_make_the_same_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A teacher that has no memory for more than 2 samples."""
    write_teacher(tmp_path / "teacher.ckpt")
    whole = change(student(), Distill(str(tmp_path / "teacher.ckpt")))

    class Tight(Distill):
        def _teach(self, inputs: Tensor) -> Tensor:
            if len(inputs) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory. A.")
            return super()._teach(inputs)

    parts = change(student(), Tight(str(tmp_path / "teacher.ckpt")))
    assert "continuing with 4 parts of at most 2" in capsys.readouterr().out
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


def test_compiled_and_mixed(tmp_path: Path) -> None:
    """Hooks of a compiled net would be compiled with it; the teacher sees the images that Mix has blended."""
    file = tmp_path / "teacher.ckpt"
    write_teacher(file, in_channels=D * 64)
    rename_net(file, "Flat")
    x, target = samples().tensors
    image = TensorDataset(x[..., None, None].repeat(1, 1, 8, 8), target)
    changes = []
    for compiled in ([], [Compile(backend="eager")]):
        torch.manual_seed(0)
        module: Any = Classification(Flat(), K, optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
        torch.manual_seed(1)  # of what Mix draws
        changes.append(change(module, Mix(), Distill(str(file)), *compiled, data=image))
    torch.testing.assert_close(*changes)


class Flat(Linear):
    """Takes images."""

    def __init__(self) -> None:
        super().__init__(in_channels=D * 64)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


def test_the_teacher_is_no_part_of_the_student(tmp_path: Path) -> None:
    file = tmp_path / "teacher.ckpt"
    net = write_teacher(file)
    plain, module = student(), student()
    callback = Distill(str(file))

    class Look(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
            assert callback._run is not None
            for name, value in callback._run.module.state_dict().items():
                assert torch.equal(value, net.state_dict()[name.removeprefix("net.")]), "the teacher was trained"
            assert all(parameter.grad is None for parameter in callback._run.module.parameters())

    settings = {"enable_checkpointing": True, "max_epochs": 2}
    for task, callbacks, run in ((plain, [], "plain"), (module, [callback, Look()], "distilled")):
        train(task, *callbacks, **settings, run_dir=tmp_path / run)
    saved, expected = (load(tmp_path / run / "checkpoints/last.ckpt") for run in ("distilled", "plain"))
    assert saved["state_dict"].keys() == expected["state_dict"].keys()
    assert saved["optimizer_states"][0]["param_groups"] == expected["optimizer_states"][0]["param_groups"]
    assert not any("Distill" in key for key in saved["callbacks"])
    assert "training_step" not in vars(module)
    assert callback._run is None


def test_a_training_that_fails_leaves_the_module_as_it_was(tmp_path: Path) -> None:
    write_teacher(tmp_path / "teacher.ckpt")
    module = student()

    class Fail(pl.Callback):
        def on_before_backward(self, *_: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(module, Distill(str(tmp_path / "teacher.ckpt")), Fail())
    assert "training_step" not in vars(module)


class Facts(pl.LightningDataModule):
    """Data that says what its classes are called."""

    def __init__(self, classes: list[str] | None) -> None:
        super().__init__()
        self.facts = {"classes": classes} if classes else {}

    def train_dataloader(self) -> DataLoader:
        return DataLoader(samples(), B)

    val_dataloader = train_dataloader


def change_with(classes: list[str] | None, file: Path) -> Tensor:
    module = student()
    before = module.net.layer.weight.detach().clone()
    trainer = Trainer(**UNSAVED, **SETTINGS, callbacks=[Distill(str(file), weight=1.0)])
    trainer.fit(module, datamodule=Facts(classes))
    return before - module.net.layer.weight.detach()


def test_classes_are_matched_by_name(tmp_path: Path) -> None:
    """In another order, and as some of the teacher's: as if the rows of its layer had been put in place by hand."""
    net = write_teacher(tmp_path / "same.ckpt", facts={"classes": NAMES})
    expected = change_with(NAMES, tmp_path / "same.ckpt")
    torch.testing.assert_close(change_with(None, tmp_path / "same.ckpt"), expected)
    shuffled = ["dog", "ant", "eel", "cat", "bee"]
    other = write_teacher(tmp_path / "other.ckpt", facts={"classes": shuffled}, num_classes=5)
    content, rows = load(tmp_path / "other.ckpt"), [NAMES.index(name) if name in NAMES else 0 for name in shuffled]
    content["state_dict"] = {f"net.{name}": value[rows] for name, value in net.state_dict().items()}
    assert content["state_dict"].keys() == {f"net.{name}" for name in other.state_dict()}
    AtomicCheckpointIO().save_checkpoint(content, tmp_path / "other.ckpt")
    torch.testing.assert_close(change_with(NAMES, tmp_path / "other.ckpt"), expected)


def test_a_teacher_of_other_classes(tmp_path: Path) -> None:
    file = tmp_path / "teacher.ckpt"
    write_teacher(file, facts={"classes": ["ant", "bee", "cow", "dog"]})
    message = f"--trainer.callbacks.teacher {file}: lacks cat, classes of the data; it was trained on ant, bee, "
    with pytest.raises(UserError, match=f"^{re.escape(message)}cow, dog$"):
        change_with(NAMES, file)
    write_teacher(file, num_classes=7)
    with pytest.raises(UserError, match=rf"^--trainer.callbacks.teacher {file}: has 7 classes, this run 4$"):
        change_with(NAMES, file)


def test_a_teacher_of_other_inputs(tmp_path: Path) -> None:
    write_teacher(tmp_path / "teacher.ckpt", in_channels=9)
    message = r"teacher.ckpt: does not accept inputs of shape \(5,\) of this data: .*mat1 and mat2 .*$"
    with pytest.raises(UserError, match=message) as raised:
        train(student(), Distill(str(tmp_path / "teacher.ckpt")))
    assert "\n" not in str(raised.value)


class Half(nn.Module):
    """Logits of half the resolution."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(D, K, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def test_a_teacher_of_another_resolution(tmp_path: Path) -> None:
    write_teacher(tmp_path / "teacher.ckpt", task=Segmentation, is_dense=True)
    rename_net(tmp_path / "teacher.ckpt", "Half")
    message = r"expected logits of shape \(4, 4, 3\) for each sample, got \(4, 2, 2\)$"
    with pytest.raises(UserError, match=message):
        train(student(True, ignore_index=IGNORED), Distill(str(tmp_path / "teacher.ckpt")), data=samples(B, True))


def test_a_task_that_it_does_not_know() -> None:
    message = "^trainer.callbacks: Distill needs the task Classification or Segmentation, got Line$"
    trainer = Trainer(**UNSAVED, **SETTINGS, callbacks=[Distill("teacher")])
    with pytest.raises(UserError, match=message):
        trainer.fit(Line(), points(), points())


def test_a_step_that_calls_its_net_in_another_way(tmp_path: Path) -> None:
    write_teacher(tmp_path / "teacher.ckpt")

    class Twice(Classification):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return super().training_step(batch, batch_idx) + super().training_step(batch, batch_idx)

    with pytest.raises(UserError, match=r"calls self\(inputs\) once .*that of Twice calls it 2 times"):
        train(Twice(Linear(), K), Distill(str(tmp_path / "teacher.ckpt")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "temperature: expected a number above 0, got 0.0"),
        ({"temperature": -1.0}, "temperature: expected a number above 0, got -1.0"),
        ({"temperature": math.inf}, "temperature: expected a number above 0, got inf"),
        ({"temperature": math.nan}, "temperature: expected a number above 0, got nan"),
        ({"weight": -0.1}, r"weight: expected a share in \[0, 1\], got -0.1"),
        ({"weight": 1.1}, r"weight: expected a share in \[0, 1\], got 1.1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Distill("teacher", **arguments)

"""What every net must satisfy. A new file in src/nets is picked up by itself; it needs an `example` in its own test.

That example is a function in the test of the net's file, as tests/nets/vision/test_cnn.py:

    def example(batch_size: int) -> tuple[Tensor, dict[str, Any]]:
        return torch.randn(batch_size, 1, 8, 8), {"widths": [4, 8]}

It returns random inputs (a tensor, or a dict by the names of `forward`) and the arguments of a small net. A detector's
inputs are lists with an entry a sample, and so are its outputs; in training mode it returns losses.
"""

import inspect
import json
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader

from playbook.command.discovery import Entry, classes
from playbook.testing.command import Cli, sampled
from src.tasks.classification import Classification

Inputs = Tensor | dict[str, Any]

# those with a backbone of torchvision take most of the time
LARGE = [entry for entry in classes("nets") if entry.name in ("TorchvisionSegmentation", "FasterRCNN", "RetinaNet")]
# need another net, or files of a model, so they have no example; their own tests ask the same of them
WITHOUT_EXAMPLE = ("LoRA", "HuggingFace", "Pruned")
SMALL = [entry for entry in classes("nets") if entry not in LARGE and entry.name not in WITHOUT_EXAMPLE]
each_net = pytest.mark.parametrize("entry", sampled(SMALL + LARGE, SMALL), ids=lambda entry: entry.name)


def net_class(entry: Entry) -> Callable[..., nn.Module]:
    module, _, name = entry.path.rpartition(".")
    return getattr(import_module(module), name)


def example_of(entry: Entry, batch_size: int) -> tuple[Inputs, dict[str, Any]]:
    *folders, file, _ = entry.path.split(".")[1:]
    test = ".".join(["tests", *folders, f"test_{file}"])
    try:
        example = getattr(import_module(test), "example", None)
    except ModuleNotFoundError as error:
        if error.name != test:
            raise
        example = None
    if example is None:
        pytest.fail(
            f"{test.replace('.', '/')}.py: add a function example(batch_size) that returns random inputs of "
            f"{entry.name} and a dict of the arguments that make it small",
            pytrace=False,
        )
    torch.manual_seed(0)
    return example(batch_size, entry.name) if len(inspect.signature(example).parameters) > 1 else example(batch_size)


def build(entry: Entry, seed: int = 0) -> nn.Module:
    """A small net as it is after some training: nothing at zero, where an initialisation would hide a mistake."""
    inputs, arguments = example_of(entry, 4)
    torch.manual_seed(seed)
    net = net_class(entry)(**arguments)
    with torch.no_grad():
        for parameter in net.parameters():
            size = min(0.1, parameter[0].numel() ** -0.5) if parameter.ndim > 1 else 0.1  # outputs keep their size
            parameter.add_(size * torch.randn_like(parameter))
        run(net.train(), inputs)  # moves running statistics
    return net


def run(net: nn.Module, inputs: Inputs) -> Any:
    return net(**inputs) if isinstance(inputs, dict) else net(inputs)


def evaluate(net: nn.Module, inputs: Inputs) -> list[Any]:
    """In float64, where rounding stays far below any mistake, however deep the net."""
    with torch.no_grad():
        return parts(run(deepcopy(net).double().eval(), double(inputs)))


def parts(outputs: Any) -> list[Any]:
    """Tensors with a row for every sample, or one list with an entry for each."""
    return [outputs] if isinstance(outputs, list) else tree_leaves(outputs)


def rows(value: Any, index: list[int]) -> Any:
    """The samples with these numbers."""
    if isinstance(value, dict):
        return {name: rows(entry, index) for name, entry in value.items()}
    return [value[i] for i in index] if isinstance(value, list) else value[index]


def double(inputs: Inputs) -> Any:
    return tree_map(lambda x: x.double() if x.is_floating_point() else x, inputs)


def differ(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return any(x.shape != y.shape or not torch.allclose(x, y, rtol=0, atol=tolerance) for x, y in pairs)


@each_net
def test_every_argument_has_a_type_and_a_default(entry: Entry) -> None:
    net_class(entry)()
    for name, parameter in inspect.signature(net_class(entry)).parameters.items():
        assert parameter.kind is not parameter.VAR_KEYWORD, f"{name}: no option on the command line is made of this"
        assert parameter.annotation is not parameter.empty, f"{name}: no type"
        assert parameter.default is not parameter.empty, f"{name}: no default"


@each_net
def test_outputs_are_finite_and_one_for_every_sample(entry: Entry) -> None:
    inputs, _ = example_of(entry, 4)
    for mode in (True, False):
        for output in parts(run(build(entry).train(mode), inputs)):
            assert all(leaf.isfinite().all() for leaf in tree_leaves(output))
            is_loss = mode and isinstance(output, Tensor) and output.ndim == 0
            assert is_loss or len(output) == 4, f"{len(output)} outputs for a batch of 4"


@each_net
def test_num_classes_is_the_second_dimension(entry: Entry) -> None:
    inputs, arguments = example_of(entry, 4)
    if "num_classes" not in inspect.signature(net_class(entry)).parameters:
        pytest.skip(f"{entry.name} has no num_classes")
    (output,) = evaluate(net_class(entry)(**{**arguments, "num_classes": 7}), inputs)
    if isinstance(output, list):
        pytest.skip(f"{entry.name} is a detector")
    assert output.shape[:2] == (4, 7), tuple(output.shape)


@each_net
def test_every_parameter_gets_a_gradient(entry: Entry) -> None:
    """In float64, where the rounding of a gradient that cancels is far below any that does not."""
    net = build(entry).double().train()
    inputs, _ = example_of(entry, 4)
    outputs = tree_leaves(run(net, double(inputs)))
    torch.autograd.backward(outputs, [torch.randn_like(output) for output in outputs])  # a sum could cancel
    sizes = {
        name: 0.0 if parameter.grad is None else parameter.grad.abs().max().item()
        for name, parameter in net.named_parameters()
        if parameter.requires_grad
    }
    unused = [name for name, size in sizes.items() if not size > 1e-10 * max(sizes.values())]
    assert sizes, "no parameter is trained"
    assert not unused, f"no gradient: {unused}"


@each_net
def test_eval_mode_is_deterministic(entry: Entry) -> None:
    net = build(entry)
    inputs, _ = example_of(entry, 4)
    assert not differ(evaluate(net, inputs), evaluate(net, inputs))


@each_net
def test_samples_do_not_mix_in_eval_mode(entry: Entry) -> None:
    net = build(entry)
    inputs, _ = example_of(entry, 4)
    repeated = rows(inputs, [0, 2, 2, 3])  # sample 1 replaced by sample 2
    for before, after in zip(evaluate(net, inputs), evaluate(net, repeated), strict=True):
        torch.testing.assert_close(after, rows(before, [0, 2, 2, 3]), rtol=0, atol=1e-5)
        assert differ(before[1], before[2], tolerance=1e-3), "two samples with the same output prove nothing"


@each_net
def test_a_batch_equals_its_samples_one_by_one(entry: Entry) -> None:
    net = build(entry)
    inputs, _ = example_of(entry, 4)
    alone = [evaluate(net, rows(inputs, [i])) for i in range(4)]
    for together, *singles in zip(evaluate(net, inputs), *alone, strict=True):
        for i, single in enumerate(singles):
            torch.testing.assert_close(single, rows(together, [i]), rtol=0, atol=1e-5)


@each_net
@pytest.mark.slow
def test_state_dict_round_trips_through_a_file(entry: Entry, tmp_path: Path) -> None:
    net, fresh = build(entry), build(entry, seed=1)
    inputs, _ = example_of(entry, 4)
    assert differ(evaluate(net, inputs), evaluate(fresh, inputs)), "two seeds, one net: nothing would be restored"
    torch.save(net.state_dict(), tmp_path / "net.pt")
    fresh.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True))
    assert not differ(evaluate(net, inputs), evaluate(fresh, inputs))


@each_net
def test_reload_from_a_checkpoint_made_in_python(entry: Entry, tmp_path: Path) -> None:
    inputs, arguments = example_of(entry, 4)
    net = net_class(entry)(**arguments)
    num_classes = _num_classes(entry, net, inputs)
    samples = [tree_map(lambda x, i=i: x[i], inputs) for i in range(4)]
    batches = DataLoader([(sample, i % num_classes) for i, sample in enumerate(samples)], batch_size=4)  # type: ignore[arg-type]
    task = Classification(net=net.train(), num_classes=num_classes)
    trainer = Trainer(
        accelerator="cpu",
        max_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    before = {name: value.clone() for name, value in net.state_dict().items()}
    trainer.fit(task, batches, batches)
    assert any(not torch.equal(value, before[name]) for name, value in net.state_dict().items()), "it did not train"
    path = tmp_path / "python.ckpt"
    trainer.save_checkpoint(path)
    torch.load(path, weights_only=True)

    loaded = Classification.load_from_checkpoint(path, net=net_class(entry)(**arguments))
    assert loaded.num_classes == num_classes
    assert not differ(evaluate(loaded.net, inputs), evaluate(net, inputs))


@each_net
def test_reload_from_a_checkpoint_made_on_the_command_line(entry: Entry, cli: Cli) -> None:
    inputs, arguments = example_of(entry, 4)
    net = net_class(entry)(**arguments)
    shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else None
    if shape != (1, 8, 8) or _num_classes(entry, net, inputs) != 10:
        pytest.skip(f"the example of {entry.name} is no classifier of (1, 8, 8) into 10 classes")
    options = [word for name, value in arguments.items() for word in (f"--model.net.{name}", json.dumps(value))]
    done = cli(
        *("fit", "--model", "Classification", "--model.net", entry.name, *options, "--data", "tests.squares.Squares"),
        *("--trainer.max_steps", "2", "--trainer.limit_val_batches", "1", "--run_dir", "run"),
    )
    assert done.code == 0, done.err

    path = "run/checkpoints/last.ckpt"
    weights = torch.load(path, weights_only=True)["state_dict"]
    net.load_state_dict({name.removeprefix("net."): value for name, value in weights.items() if name[:4] == "net."})
    alone = Classification.load_from_checkpoint(path)
    assert not differ(evaluate(alone.net, inputs), evaluate(net, inputs))


def _num_classes(entry: Entry, net: nn.Module, inputs: Inputs) -> int:
    outputs = evaluate(net, inputs)
    if len(outputs) != 1 or not isinstance(outputs[0], Tensor) or outputs[0].ndim != 2:
        shapes = [tuple(output.shape) for output in tree_leaves(outputs)]
        pytest.skip(f"{entry.name} is no classifier: its outputs are {shapes}")
    return outputs[0].shape[1]

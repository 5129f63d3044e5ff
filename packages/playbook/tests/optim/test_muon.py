"""Updates against torch's own Muon and AdamW, and which parameters get which."""

import io
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW, lr_scheduler

from playbook.optim import muon
from playbook.optim.groups import parameter_groups
from playbook.optim.muon import Muon
from playbook.optim.schedules import ReduceLROnPlateau, WarmupCosine
from playbook.testing.command import Cli
from playbook.testing.processes import run_in_processes
from playbook.testing.resume import BATCHES, assert_same_ending, cut, fit, resume
from running import CNN_DIGITS

SETTINGS: dict[str, Any] = {"lr": 0.02, "weight_decay": 0.1}


def parameters(*shapes: tuple[int, ...], seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def draw_gradients(step: int, *models: list[nn.Parameter]) -> None:
    """The same for every model, by order; a kernel and its matrix have the same numbers."""
    for model in models:
        generator = torch.Generator().manual_seed(step)
        for parameter in model:
            parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("iterations", [1, 5])
def test_hidden_matrices_move_as_in_torch_muon(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "_precision", lambda update: torch.bfloat16)  # as torch has it on CPUs too
    shapes = (8, 8), (16, 4), (5, 24), (1, 7), (7, 1)
    ours, theirs = parameters(*shapes), parameters(*shapes)
    our = Muon([{"params": ours, "hidden": True}], momentum=0.9, iterations=iterations, **SETTINGS)
    their = torch.optim.Muon(
        theirs, momentum=0.9, ns_steps=iterations, adjust_lr_fn="match_rms_adamw", **SETTINGS
    )  # fmt: skip
    for step in range(6):
        draw_gradients(step, ours, theirs)
        for optimizer in (our, their):
            optimizer.param_groups[0]["lr"] = 0.02 / (step + 1)
            optimizer.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b), f"step {step}, {tuple(a.shape)}: {(a - b).abs().max():.3g}"


def test_the_rest_moves_as_in_torch_adamw() -> None:
    shapes = (8, 4), (4,), (3, 2, 3, 3), ()
    ours, theirs, hidden = parameters(*shapes), parameters(*shapes), parameters((4, 4))
    our = Muon(
        [{"params": hidden, "hidden": True}, {"params": ours[:2]}, {"params": ours[2:], "weight_decay": 0.0}],
        betas=(0.8, 0.95), eps=1e-6, **SETTINGS,
    )  # fmt: skip
    their = AdamW(
        [{"params": theirs[:2]}, {"params": theirs[2:], "weight_decay": 0.0}], betas=(0.8, 0.95), eps=1e-6, **SETTINGS
    )
    for step in range(6):
        draw_gradients(step, ours, theirs, hidden)
        our.step()
        their.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b), f"step {step}, {tuple(a.shape)}"


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_kernel_is_a_matrix_of_its_outputs(layout: torch.memory_format) -> None:
    [kernel], [matrix] = parameters((6, 4, 3, 3)), parameters((6, 36))
    kernel.data = kernel.data.contiguous(memory_format=layout)
    for step in range(3):
        draw_gradients(step, [kernel], [matrix])
    optimizers = [Muon([{"params": [p], "hidden": True}], **SETTINGS) for p in (kernel, matrix)]
    for step in range(3):
        draw_gradients(step, [kernel], [matrix])
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(kernel.flatten(1), matrix)


@pytest.mark.parametrize("shape", [(12, 12), (30, 10), (10, 30)])
def test_update_keeps_the_singular_vectors_and_levels_the_values(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    rotated = u.T @ muon.orthogonal([matrix.float()], 5)[0].double() @ vh.T
    values = rotated.diag()
    assert 0.3 < values.min() < values.max() < 1.3, values
    torch.testing.assert_close(rotated, values.diag(), atol=1e-4, rtol=0)


def test_update_has_the_size_of_adamws() -> None:
    """Liu et al. 2025: a root mean square of 0.2, whatever the shape."""
    for shape in ((64, 64), (32, 128), (16, 8, 3, 3)):
        [weight] = parameters(shape)
        before = weight.detach().clone()
        optimizer = Muon([{"params": [weight], "hidden": True}], lr=1.0, weight_decay=0.0)
        draw_gradients(0, [weight])
        optimizer.step()
        assert (weight - before).square().mean().sqrt().item() == pytest.approx(0.2, rel=0.25), shape


def test_a_parameter_without_gradient_stays() -> None:
    inner, outer = parameters((3, 3)), parameters((3,))
    before = [p.detach().clone() for p in (*inner, *outer)]
    Muon([{"params": inner, "hidden": True}, {"params": outer}], **SETTINGS).step()
    assert all(torch.equal(a, b) for a, b in zip(before, (*inner, *outer), strict=True))


def hidden_of(optimizer: Muon) -> list[tuple[int, ...]]:
    return [tuple(p.shape) for group in optimizer.param_groups if group["hidden"] for p in group["params"]]


def test_plain_parameters_are_split_by_order_and_dimensions() -> None:
    given = parameters((8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (4, 4, 4), (20, 16), (20,), (10, 20), (10,))
    for params in (given, iter(given)):
        optimizer = Muon(params)
        assert hidden_of(optimizer) == [(16, 8, 3, 3), (20, 16)]
        assert sum(len(group["params"]) for group in optimizer.param_groups) == len(given)


def test_groups_of_a_stranger_keep_their_options() -> None:
    body, head = parameters((4, 4), (4,), (5, 4), (6, 5)), parameters((2, 6), (2,))
    optimizer = Muon([{"params": body, "lr": 0.5}, {"params": head, "weight_decay": 0.25}], lr=0.1, weight_decay=0.0)
    assert hidden_of(optimizer) == [(5, 4), (6, 5)]
    assert [(group["lr"], group["weight_decay"], group["hidden"]) for group in optimizer.param_groups] == [
        (0.5, 0.0, True), (0.5, 0.0, False), (0.1, 0.25, False)
    ]  # fmt: skip
    optimizer.add_param_group({"params": parameters((3, 3))})  # as when layers are unfrozen: AdamW unless it says more
    assert not optimizer.param_groups[-1]["hidden"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -0.1}, "lr: expected at least 0, got -0.1"),
        ({"weight_decay": -1.0}, "weight_decay: expected at least 0, got -1.0"),
        ({"eps": -1.0}, "eps: expected at least 0, got -1.0"),
        ({"momentum": 1.0}, r"momentum: expected a share in \[0, 1\), got 1.0"),
        ({"betas": (0.9, 1.0)}, r"betas: expected two shares in \[0, 1\), got \(0.9, 1.0\)"),
        ({"iterations": 0}, "iterations: expected at least 1, got 0"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Muon(parameters((2, 2), (2, 2), (2, 2)), **arguments)


def test_a_net_without_hidden_matrix_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^optimizer: no matrix between the first and the last layer"):
        Muon(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)).parameters())


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def train(module: nn.Module, optimizer: Any, steps: range, schedule: Any = None) -> None:
    for step in steps:
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def test_state_goes_through_a_file_bitwise() -> None:
    whole = net()
    train(whole, Muon(parameter_groups(whole, split_hidden=True)), range(6))
    begun = net()
    optimizer = Muon(parameter_groups(begun, split_hidden=True))
    train(begun, optimizer, range(3))
    file = io.BytesIO()
    torch.save({"net": begun.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    resumed = net()
    resumed.load_state_dict(state["net"])
    optimizer = Muon(parameter_groups(resumed, split_hidden=True))
    optimizer.load_state_dict(state["optimizer"])
    train(resumed, optimizer, range(3, 6))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: WarmupCosine(optimizer, total_steps=8, warmup=0.25),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=8),
    ],
    ids=["WarmupCosine", "OneCycleLR"],
)
def test_schedules_move_both_parts(make: Any) -> None:
    module = net()
    optimizer = Muon(parameter_groups(module, split_hidden=True), lr=0.1)
    schedule, rates = make(optimizer), []
    for step in range(8):
        rates.append([group["lr"] for group in optimizer.param_groups])
        train(module, optimizer, range(step, step + 1), schedule if step < 7 else None)
    assert all(len(set(groups)) == 1 for groups in rates), "one rate serves both parts"
    assert len({groups[0] for groups in rates}) == 8, rates


def test_a_plateau_cuts_both_parts() -> None:
    optimizer = Muon(parameter_groups(net(), split_hidden=True), lr=0.1)
    plateau = ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    for _ in range(3):
        plateau.step(1.0)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.025] * 3)


def test_a_rate_of_zero_changes_nothing() -> None:
    module = net()
    train(module, Muon(parameter_groups(module, split_hidden=True), lr=0.0), range(2))
    for name, value in net().state_dict().items():
        assert torch.equal(value, module.state_dict()[name]), name


@pytest.mark.slow
def test_command_line_takes_ours_and_continues_exactly(cli: Cli) -> None:
    """The short name; the recipe's schedule; the widened net has one hidden kernel."""
    args = ("--model.optimizer", "Muon", "--model.optimizer.lr", "3e-3")
    assert fit(cli, CNN_DIGITS, "whole", *args).code == 0
    cut(cli, CNN_DIGITS, "cut", BATCHES + 3, "--checkpoint.every_n_steps", "1", *args)
    assert resume(cli, CNN_DIGITS, "cut", *args).code == 0
    assert_same_ending("cut", "whole")
    [state] = torch.load("whole/checkpoints/last.ckpt", weights_only=True)["optimizer_states"]
    assert [(len(g["params"]), g["hidden"], g["weight_decay"]) for g in state["param_groups"]] == [
        (1, True, 0.01), (2, False, 0.01), (5, False, 0.0)
    ]  # fmt: skip
    assert "playbook.optim.muon.Muon" in Path("whole/config.yaml").read_text()


def _sharded(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    module = nn.Sequential(*net(), nn.Unflatten(1, (2, 1, 1)), nn.Conv2d(2, 5, 1))
    whole = nn.Sequential(*net(), nn.Unflatten(1, (2, 1, 1)), nn.Conv2d(2, 5, 1))
    whole.load_state_dict(module.state_dict())
    fully_shard(module)
    for each in (module, whole):
        train(each, Muon(parameter_groups(each, split_hidden=True), lr=0.01), range(3))
    for (name, a), b in zip(module.named_parameters(), whole.parameters(), strict=True):
        full: Tensor = a.full_tensor()  # type: ignore[attr-defined]
        torch.testing.assert_close(full, b, msg=lambda text, name=name: f"{name}: {text}")
    dist.destroy_process_group()
    os._exit(0)  # the interpreter's own end aborts now and then, where a thread of gloo's still runs (torch 2.15)


@pytest.mark.slow
def test_sharded_weights_move_as_whole_ones(tmp_path: Path) -> None:
    """FSDP2 over two processes, with an odd number of rows to shard."""
    run_in_processes(_sharded, (str(tmp_path),), 2, tmp_path / "store")


def test_scale_is_the_root_of_the_longer_side() -> None:
    """One step from zero momentum, by hand: x - lr (wd x + 0.2 √max(m, n) O)."""
    [weight] = parameters((4, 9))
    draw_gradients(0, [weight])
    assert weight.grad is not None
    before, direction = weight.detach().clone(), muon.orthogonal([weight.grad], 5)[0]
    Muon([{"params": [weight], "hidden": True}], lr=0.1, weight_decay=0.5).step()
    expected = before * (1 - 0.1 * 0.5) - 0.1 * 0.2 * math.sqrt(9) * direction
    torch.testing.assert_close(weight.detach(), expected)

"""Trains a step on real processes, and compares everything with a step of one process.

The cases stand in a dict `CASES` of the calling file, by name. What must fail stands in a dict `REFUSED`: for a layout,
functions by name that are called with the mesh. Each process runs that file.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from playbook.parallel import run_step, spread, spread_module
from playbook.testing.processes import run_in_processes

LAYOUTS = {"fsdp2": (2, 1), "tensor parallel": (1, 2), "both": (2, 2)}
CLIP = 0.1  # norm of the gradients of a step
Step = Callable[[Any, int, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Case:
    """What is trained.

    Args:
        build: builds a net, or a LightningModule.
        step: from the net, the number of a share of the batch and the number of shares to the outputs of that share,
            with a row for each sample, and its loss.
        is_mean: whether the loss of the batch is the mean of the losses of equal shares of it.
        prepare: called with a net that was spread.
        deviation: of the noise that is added to the parameters, so that none is at zero.
    """

    build: Callable[[], nn.Module]
    step: Step
    is_mean: bool = True
    prepare: Callable[[nn.Module], Any] | None = None
    deviation: float = 0.1


def _built(case: Case) -> nn.Module:
    torch.manual_seed(0)
    net = case.build().eval()  # batch norms take the statistics of their own rank in training
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(case.deviation * torch.randn_like(parameter))
    return net


def assert_equal_to_one_process(file: str, layout: str, names: Iterable[str], folder: Path) -> list[dict[str, Any]]:
    """Trains a step of each case on the processes of a layout, and asserts that it equals that of one process.

    Equal are outputs, gradients, their norm, the weights after a clipped step, and the names in the state dict; and
    no process holds more than three quarters of the parameters.

    Args:
        file: with the cases.
        layout: one of LAYOUTS.
        names: of the cases.
        folder: empty one, for files that the processes exchange.

    Returns:
        by process, the messages of what failed in REFUSED.
    """
    names = list(names)
    shares, splits = LAYOUTS[layout]
    count = shares * splits
    run_in_processes(_work, (file, str(folder), layout, names), count, folder / "store")
    ranks = [torch.load(folder / f"{rank}.pt") for rank in range(count)]
    cases = run_path(file)["CASES"]
    for name in names:
        outputs, expected = _one_process(cases[name], shares)
        for rank in ranks:
            _compare(name, rank["results"][name], outputs, expected)
    return [rank["refusals"] for rank in ranks]


def _compare(name: str, result: dict[str, Any], outputs: list[Tensor], expected: dict[str, Any]) -> None:
    close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(result["outputs"], outputs[result["share"]], **close, msg=lambda m: f"{name}: {m}")
    torch.testing.assert_close(result["norm"], expected["norm"], **close, msg=lambda m: f"norm of {name}: {m}")
    assert result["norm"] > CLIP, f"{name}: nothing was clipped, norm {result['norm']}"
    whole = expected["numel"]
    assert result["numel"] < 0.75 * whole, f"{name}: {result['numel']} of {whole} parameters on one rank"
    for part in ("gradients", "weights"):
        assert list(result[part]) == list(expected[part]), f"{name}: other names"
        for key, value in expected[part].items():
            message = f"{part} of {name}, {key}"
            torch.testing.assert_close(result[part][key], value, **close, msg=lambda m, w=message: f"{w}: {m}")


def _one_process(case: Case, shares: int) -> tuple[list[Tensor], dict[str, Any]]:
    net = _built(case)
    if case.is_mean:
        whole, loss = case.step(net, 0, 1)
        outputs = list(whole.detach().chunk(shares))
    else:
        steps = [case.step(net, share, shares) for share in range(shares)]
        outputs = [output.detach() for output, _ in steps]
        loss = torch.stack([loss for _, loss in steps]).mean()
    return outputs, {"numel": _num_held(net), **_trained(net, loss)}


def _num_held(net: nn.Module) -> int:
    """Number of values that this process holds of all parameters."""
    return sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in net.parameters())


def _trained(net: nn.Module, loss: Tensor) -> dict[str, Any]:
    """Backward pass and a clipped step; everything gathered."""
    loss.backward()
    trained = [(name, parameter) for name, parameter in net.named_parameters() if parameter.requires_grad]
    gradients = {name: _full(parameter.grad) for name, parameter in trained if parameter.grad is not None}
    norm = nn.utils.clip_grad_norm_([parameter for _, parameter in trained], CLIP)
    torch.optim.SGD([parameter for _, parameter in trained], lr=1.0).step()
    weights = {name: _full(value) for name, value in net.state_dict().items()}
    return {"gradients": gradients, "norm": _full(norm), "weights": weights}


def _full(value: Tensor) -> Tensor:
    return (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()


def _work(rank: int, file: str, folder: str, layout: str, names: list[str]) -> None:
    """What one process does: every case, one after the other, then its results in a file."""
    torch.set_num_threads(1)
    sizes = LAYOUTS[layout]
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=sizes[0] * sizes[1])
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("data_parallel", "tensor_parallel"))
    content = run_path(file)
    results = {name: _on_mesh(content["CASES"][name], mesh) for name in names}
    refusals = {}
    for name, act in content.get("REFUSED", {}).get(layout, {}).items():
        try:
            act(mesh)
        except ValueError as error:
            refusals[name] = str(error)
    torch.save({"results": results, "refusals": refusals}, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()
    os._exit(0)  # the interpreter's own end aborts now and then, where a thread of gloo's still runs (torch 2.15)


def _on_mesh(case: Case, mesh: Any) -> dict[str, Any]:
    net = _built(case)
    share, shares = mesh["data_parallel"].get_local_rank(), mesh["data_parallel"].size()
    if isinstance(net, LightningModule):
        spread_module(net, mesh)
    else:
        spread(net, mesh)
    if case.prepare is not None:
        case.prepare(net)
    numel = _num_held(net)
    if isinstance(net, LightningModule):
        outputs, loss = run_step(net, lambda: case.step(net, share, shares))
    else:
        outputs, loss = case.step(net, share, shares)
    return {"outputs": outputs.detach(), "share": share, "numel": numel, **_trained(net, loss)}

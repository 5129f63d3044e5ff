"""Spreads nets and whole LightningModules over a mesh of devices, by tensor parallelism and FSDP2."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.utils._pytree import tree_map
from torchmetrics import Metric, MetricCollection

from playbook.block import blocks, has_forward
from playbook.errors import UserError
from playbook.network import networks
from playbook.tensor_parallel import split, split_layers

DIMENSIONS = ("data_parallel", "tensor_parallel")
RECORD = "_spread"  # attribute of a LightningModule that was spread, a _Record
CALL = "_call_gathered"  # method of a net that was sharded: calls a function as if it were the forward pass


def spread(net: nn.Module, mesh: DeviceMesh) -> None:
    """Splits layers over "tensor_parallel" by the plan on the net's class, then shards the net over "data_parallel".

    Both happen in place; names of parameters stay as they were. Batch norms keep the statistics of their own rank.

    Args:
        net: net that can be called.
        mesh: with the dimensions "data_parallel" and "tensor_parallel"; a dimension of size 1 has no effect.

    Raises:
        UserError: "tensor_parallel" is larger than 1 and there is no plan, or the net cannot be split by it; a
            parameter is a scalar, which cannot be sharded.
    """
    size = mesh["tensor_parallel"].size()
    styles = split_layers(net) if size > 1 else {}
    if size > 1 and not styles:
        raise UserError(
            f"tensor_parallel_size: {type(net).__name__} has no plan for splitting its layers; expected 1, got {size}. "
            "Use data_parallel_size to shard it"
        )
    _split_and_shard(net, mesh, styles)


def _split_and_shard(net: nn.Module, mesh: DeviceMesh, styles: dict[str, str]) -> None:
    if mesh["tensor_parallel"].size() > 1:
        split(net, mesh["tensor_parallel"], styles)
    if mesh["data_parallel"].size() > 1:
        if scalars := [name for name, parameter in net.named_parameters() if parameter.ndim == 0]:
            raise UserError(
                f"strategy: {scalars[0]} of {type(net).__name__} is a scalar, which FSDP2 cannot shard; "
                "expected shape (1,), or another --trainer.strategy"
            )
        for unit in [*units(net).values(), net]:
            unit.register_forward_hook(_copy_views)
            fully_shard(unit, mesh=mesh["data_parallel"])
        setattr(net, CALL, lambda function: function())
        register_fsdp_forward_method(net, CALL)


def _copy_views(module: nn.Module, args: Any, output: Any) -> Any:
    """FSDP2 hooks into the gradients of outputs; changing a view in place would lose the hook."""
    return tree_map(lambda x: x.clone() if isinstance(x, Tensor) and x._base is not None else x, output)


def units(net: nn.Module) -> dict[str, nn.Module]:
    """The modules that FSDP2 gathers one at a time in the forward and in the backward pass, by name.

    These are the net's blocks. The rest of the net is gathered for the whole of both passes, and includes blocks
    without a matrix, such as a norm in a Sequential, which are not worth a communication of their own, and blocks
    that share a parameter with something outside, where it would be missing.

    Args:
        net: any module.
    """
    modules = list(net.named_modules(remove_duplicate=False))
    users: dict[nn.Parameter, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        users.setdefault(parameter, []).append(name)

    def is_unit(block: nn.Module) -> bool:
        parameters = list(block.parameters())
        names = tuple(f"{name}." for name, module in modules if module is block)
        own = all(user.startswith(names) for parameter in parameters for user in users[parameter])
        return own and any(parameter.ndim > 1 for parameter in parameters)

    return {name: block for name, block in blocks(net).items() if is_unit(block)}


@dataclass
class _Record:
    """What was done to a LightningModule: nets that are sharded, and parameters that every device holds whole."""

    nets: list[nn.Module]
    whole: list[tuple[nn.Module, str]]  # a module, and the name of its parameter
    data_mesh: DeviceMesh


def spread_module(module: LightningModule, mesh: DeviceMesh) -> None:
    """Spreads the networks of a LightningModule, and what else of it is trained, such as a loss with weights.

    At least one network must have a plan for a mesh with "tensor_parallel" larger than 1; the others stay whole.
    Trained parameters of the LightningModule itself are held whole by every device, and their gradients averaged.
    Call `run_step` to run its steps.

    Args:
        module: module that was not split yet.
        mesh: as for `spread`.

    Raises:
        UserError: as for `spread`, or two networks share a parameter.
    """
    nets, whole = _trained_parts(module)
    _require_separate(module, nets, whole)
    if mesh["tensor_parallel"].size() > 1:
        plans = [split_layers(net) for net in nets]
        if nets and not any(plans):
            spread(nets[0], mesh)  # raises
    else:
        plans = [{} for _ in nets]
    for net, styles in zip(nets, plans, strict=True):
        _split_and_shard(net, mesh, styles)
    dimensions = tuple(name for name in DIMENSIONS if mesh[name].size() > 1)
    if not dimensions:
        return
    grid = mesh[dimensions]
    for owner, name in whole:
        value = distribute_tensor(owner.get_parameter(name).detach(), grid, [Replicate()] * grid.ndim)
        owner.register_parameter(name, nn.Parameter(value))
    sharded = nets if "data_parallel" in dimensions else []
    setattr(module, RECORD, _Record(sharded, whole, mesh["data_parallel"]))


def _trained_parts(module: nn.Module) -> tuple[list[nn.Module], list[tuple[nn.Module, str]]]:
    """Nets that can be called, and parameters that are in none; metrics and what is frozen beside a net are left out.

    A module that only gives another name to parts of the nets before it, as in `self.encoder = self.net.encoder`, is
    left out as well.
    """
    trained = [child for child in module.children() if any(p.requires_grad for p in child.parameters())]
    nets: list[nn.Module] = []
    whole = _own_parameters(module)
    covered: set[nn.Module] = set()
    for candidate in dict.fromkeys([*networks(module), *trained]):
        owners = {part for part in candidate.modules() if any(True for _ in part.parameters(recurse=False))}
        if isinstance(candidate, Metric | MetricCollection) or owners <= covered:
            continue
        covered |= owners
        for part in _called(candidate):
            if has_forward(part):
                nets.append(part)
            else:
                whole += _own_parameters(part)
    return nets, whole


def _called(module: nn.Module) -> Iterator[nn.Module]:
    """The module; if it is a container, which cannot be called, also what it contains."""
    yield module
    if not has_forward(module):
        for child in module.children():
            yield from _called(child)


def _own_parameters(module: nn.Module) -> list[tuple[nn.Module, str]]:
    return [(module, name) for name, p in module.named_parameters(recurse=False) if p.requires_grad]


def _require_separate(module: nn.Module, nets: list[nn.Module], whole: list[tuple[nn.Module, str]]) -> None:
    names = {parameter: name for name, parameter in module.named_parameters()}
    users: set[nn.Parameter] = set()
    for parameters in [*(set(net.parameters()) for net in nets), *({owner.get_parameter(n)} for owner, n in whole)]:
        if shared := users & parameters:
            raise UserError(
                f"strategy: {names[shared.pop()]} belongs to several networks of {type(module).__name__}, which are "
                "sharded separately; expected them in one module, such as its `net`"
            )
        users |= parameters


def run_step(module: LightningModule, step: Callable[[], Any]) -> Any:
    """Runs a step of a LightningModule that may be spread; call its backward pass afterwards.

    FSDP2 gathers the parameters outside of blocks when a net is called. A step may also use a net in other ways, as by
    `net.features(x)` or `net.head.weight`, so these parameters are gathered for the whole step.

    Args:
        module: whose step it is.
        step: computes the step, and returns what the step returns.
    """
    record: _Record | None = vars(module).get(RECORD)
    if record is None:
        return step()
    for net in record.nets:
        step = partial(getattr(net, CALL), step)
    with _as_tensors(record):
        outputs = step()
    if not torch.is_grad_enabled():  # otherwise the backward pass does it
        reshard(module)
    return outputs


def reshard(module: nn.Module) -> None:
    """Frees gathered parameters, so that the module has its own shares again, as before a step."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def any_process(net: nn.Module, condition: bool) -> bool:
    """Whether a condition holds on any process that this one shares a sharded net with.

    Every process must take part in each forward pass of the others. A loop whose length differs between processes, as
    in generation, goes on while it does on any of them; every process must ask at the same place.

    Args:
        net: any module; one that is not sharded needs no other process.
        condition: on this process.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return condition
    mesh = next((parameter.device_mesh for parameter in net.parameters() if isinstance(parameter, DTensor)), None)
    if mesh is None or "data_parallel" not in (mesh.mesh_dim_names or ()):
        return condition
    value = torch.tensor(int(condition), device=mesh.device_type)
    distributed.all_reduce(value, distributed.ReduceOp.MAX, mesh.get_group("data_parallel"))
    return bool(value)


@contextmanager
def _as_tensors(record: _Record) -> Iterator[None]:
    """Replaces whole parameters by plain tensors, for computation with others."""
    parameters = [owner.get_parameter(name) for owner, name in record.whole]
    for (owner, name), parameter in zip(record.whole, parameters, strict=True):
        value: Any = parameter
        tensor: Tensor = value.to_local()
        if tensor.requires_grad and record.data_mesh.size() > 1:
            tensor.register_hook(partial(_averaged, record.data_mesh))
        owner._parameters[name] = tensor  # type: ignore[assignment]  # not a leaf: its gradient goes to the parameter
    try:
        yield
    finally:
        for (owner, name), parameter in zip(record.whole, parameters, strict=True):
            owner._parameters[name] = parameter


def _averaged(mesh: DeviceMesh, gradient: Tensor) -> Tensor:
    mean = gradient / mesh.size()  # gloo has no mean
    distributed.all_reduce(mean, group=mesh.get_group())
    return mean

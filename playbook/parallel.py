"""Spreads a net over a mesh of devices: splits layers by a plan, and shards parameters by FSDP2."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from playbook.errors import UserError


def spread(
    net: nn.Module, mesh: DeviceMesh, units: Iterable[nn.Module], plan: Mapping[str, ParallelStyle] | None = None
) -> None:
    """Splits layers by the plan over "tensor_parallel", then shards the units and the net over "data_parallel".

    Both happen in place; names of parameters stay what they were. Batch norms keep the statistics of their own rank.

    Args:
        net: net to spread.
        mesh: with the dimensions "data_parallel" and "tensor_parallel"; a dimension of size 1 has no effect.
        units: modules gathered one at a time in the forward and the backward pass; each must be called, not only
            contained.
        plan: how to split layers, by name; it must cover every parameter, as clipping cannot mix split parameters with
            others. None if the net cannot be split.

    Raises:
        ValueError: "tensor_parallel" is larger than 1 and there is no plan.
    """
    tensor_mesh, data_mesh = mesh["tensor_parallel"], mesh["data_parallel"]
    if tensor_mesh.size() > 1:
        if plan is None:
            raise UserError(
                f"tensor_parallel_size: {type(net).__name__} has no plan for splitting its layers; "
                f"expected 1, got {tensor_mesh.size()}. Use data_parallel_size to shard it"
            )
        tied_names = _tied_names(net)
        parallelize_module(net, tensor_mesh, dict(plan))
        for first, *others in tied_names:  # each module was given a parameter of its own
            for name in others:
                owner, _, leaf = name.rpartition(".")
                net.get_submodule(owner).register_parameter(leaf, net.get_parameter(first))
    if data_mesh.size() > 1:
        for unit in units:
            fully_shard(unit, mesh=data_mesh)
        fully_shard(net, mesh=data_mesh)


def _tied_names(net: nn.Module) -> list[list[str]]:
    """Names of each parameter that several modules share."""
    names: dict[int, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [several for several in names.values() if len(several) > 1]


class Replicated(ParallelStyle):
    """In a plan, a module that every rank computes whole, on plain tensors that are the same on all of them."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, input_fn=_to_mesh, output_fn=_from_mesh)


def _to_mesh(module: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
    return tuple(DTensor.from_local(x, mesh, [Replicate()], run_check=False) for x in inputs)


def _from_mesh(module: nn.Module, output: Any, mesh: DeviceMesh) -> Any:
    return output.to_local().clone()  # FSDP2 warns of views, which hide its hook if someone changes them in place

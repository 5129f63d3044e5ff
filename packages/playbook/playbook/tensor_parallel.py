"""Splits the layers of a net over devices, as a plain dict on its class says."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_leaves, tree_map

from playbook.block import has_forward
from playbook.errors import UserError, nearest

PLAN = "tensor_parallel"  # name of the dict
STYLES = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
SPLIT_FEATURES = {"colwise": "out_features", "rowwise": "in_features"}
# Styles of transformers for layers that take whole inputs and give whole outputs. They stay whole here: the results are
# the same, and most share their weight with another layer, from which a split would part them.
WHOLE = (
    "colwise_gather_output",
    "colwise_rep",
    "rowwise_split_input",
    "rowwise_rep",
    "embedding_rowwise",
    "embedding_colwise",
    "replicate",
)
HEADS = ("num_heads", "num_kv_heads", "num_attention_heads", "num_key_value_heads")
SAME = 1e-3  # relative difference of two sums up to which only their rounding differs


def split_layers(net: nn.Module) -> dict[str, str]:
    """Reads which layers of a net are split: colwise by their output features, or rowwise by their input features.

    The net's class, or that of a module inside of it, says so in a dict, such as
    `tensor_parallel = {"blocks.*.attention.qkv": "colwise", "blocks.*.attention.out": "rowwise"}`. A `*` stands for one
    part of a name. A name may belong to a layer that some nets of the class lack, if they hold None in its place.
    Models of Hugging Face's transformers have such a dict as `tp_plan`.

    Args:
        net: any module.

    Returns:
        colwise or rowwise for the full name of each split layer; empty if no class has a dict.

    Raises:
        UserError: a value is neither colwise nor rowwise, or a name matches no linear layer.
    """
    styles: dict[str, str] = {}
    owners: list[str] = []
    for name, module in net.named_modules():
        prefix = f"{name}." if name else ""
        if any(name.startswith(owner) for owner in owners):
            continue  # the plan of a module covers what is inside of it
        plan = getattr(type(module), PLAN, None)
        is_own = plan is not None
        if not is_own and hasattr(type(module), "tp_plan"):
            plan = module.tp_plan
        if plan:
            owners.append(prefix)
            styles |= {f"{prefix}{layer}": style for layer, style in _matched(module, plan, is_own).items()}
    return styles


def _matched(module: nn.Module, plan: Any, is_own: bool) -> dict[str, str]:
    title = f"{PLAN if is_own else 'tp_plan'} of {type(module).__name__}"
    if not isinstance(plan, Mapping):
        raise UserError(f"{title}: expected a dict, got {plan!r}")
    children: dict[str, nn.Module | None] = {}
    for parent, owner in module.named_modules(remove_duplicate=False):
        absent = {key: None for key, value in [*vars(owner).items(), *owner._modules.items()] if value is None}
        children |= {
            f"{parent}.{key}" if parent else key: child for key, child in [*absent.items(), *owner.named_children()]
        }
    styles: dict[str, str] = {}
    for pattern, style in plan.items():
        if not is_own and style in WHOLE:
            continue
        if style not in STYLES:
            raise UserError(f"{title}: expected colwise or rowwise for {pattern}, got {style!r}")
        parts = re.compile(r"[^.]+".join(map(re.escape, pattern.split("*"))))
        names = [name for name in children if parts.fullmatch(name)]
        if not names and is_own:  # a plan of transformers is for all models of a kind, whatever their options
            raise UserError(f"{title}: no layer is named {pattern}{nearest(pattern, [*children])}")
        for name in names:
            layer = children[name]
            if layer is None:
                continue
            if not isinstance(layer, nn.Linear):
                kind = f"{type(layer).__module__}.{type(layer).__name__}"
                raise UserError(f"{title}: {name} is a {kind}, expected a torch.nn.Linear")
            styles[name] = style
    return styles


def split(net: nn.Module, mesh: DeviceMesh, styles: Mapping[str, str]) -> None:
    """Splits layers over devices that compute on the same samples, in place; names of parameters stay as they were.

    A layer that is split colwise gives each device some of the features, with which it computes alone up to a layer
    that is split rowwise. What is not split is computed whole on every device. Its parameters become DTensors too, as
    clipping and optimizers cannot mix those with plain tensors. Weights that layers share stay shared.

    Args:
        net: net to split.
        mesh: the devices, a mesh of one dimension.
        styles: colwise or rowwise by the names of linear layers, as `split_layers` returns them; none of them leaves
            the net whole.

    Raises:
        UserError: heads or features cannot be divided by the number of devices, there is dropout, or a module has both
            parameters of its own and split layers.
    """
    _check(net, mesh.size(), styles)
    names: dict[int, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    if styles:
        parallelize_module(net, mesh, {name: STYLES[style]() for name, style in styles.items()})
    for name, module in list(_whole_modules(net, "", styles)):
        _compute_whole(module, name or type(net).__name__, mesh)
    for first, *others in names.values():  # each module was given a parameter of its own
        for name in others:
            owner, _, leaf = name.rpartition(".")
            net.get_submodule(owner).register_parameter(leaf, net.get_parameter(first))


def _check(net: nn.Module, size: int, styles: Mapping[str, str]) -> None:
    for name, module in net.named_modules():
        prefix = f"{name}." if name else ""
        if not any(layer.startswith(prefix) for layer in styles):
            continue
        config = getattr(module, "config", None)  # of a model of transformers
        for owner, heads in ((owner, heads) for owner in (module, config) for heads in HEADS):
            count = getattr(owner, heads, None)
            if isinstance(count, int) and count % size:
                raise UserError(f"{prefix}{heads}: expected a multiple of tensor_parallel_size {size}, got {count}")
        if own := [key for key, _ in module.named_parameters(recurse=False)]:
            raise UserError(
                f"{PLAN}: {prefix}{own[0]} is a parameter beside split layers of one module, expected it in a module "
                "of its own"
            )
    for name, style in styles.items():
        features = SPLIT_FEATURES[style]
        if (count := getattr(net.get_submodule(name), features)) % size:
            raise UserError(f"{name}.{features}: expected a multiple of tensor_parallel_size {size}, got {count}")
    for name, share in _dropouts(net) if styles else ():
        # its random numbers would differ between devices
        raise UserError(f"{name}: expected 0 with tensor_parallel_size {size}, got {share}")


def _dropouts(net: nn.Module) -> Iterator[tuple[str, float]]:
    """Probabilities of dropping anything, with the names of modules or of their attributes."""
    for name, module in net.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, _DropoutNd) and module.p > 0:
            yield (last if "dropout" in last else f"{name} (dropout)"), module.p
        for key, share in vars(module).items():
            if "dropout" in key and isinstance(share, int | float) and not isinstance(share, bool) and share > 0:
                yield key, share


def _whole_modules(module: nn.Module, name: str, styles: Mapping[str, str]) -> Iterator[tuple[str, nn.Module]]:
    """The outermost modules with parameters and without a split layer."""
    prefix = f"{name}." if name else ""
    if not any(True for _ in module.parameters()) or name in styles:
        return
    if has_forward(module) and not any(layer.startswith(prefix) for layer in styles):
        yield name, module
        return
    if own := [key for key, _ in module.named_parameters(recurse=False)]:
        raise UserError(f"{PLAN}: {prefix}{own[0]} is a parameter of a container, expected it in a module with forward")
    for key, child in module.named_children():
        yield from _whole_modules(child, f"{prefix}{key}", styles)


def _compute_whole(module: nn.Module, name: str, mesh: DeviceMesh) -> None:
    """Has every device compute a module on its own, with parameters and inputs that are the same on all of them."""
    distribute_module(module, mesh)
    is_checked = False

    def to_mesh(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal is_checked
        if not is_checked:
            _require_same_inputs(name, [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)], mesh)
            is_checked = True
        return tree_map(lambda x: _replicated(x, mesh) if isinstance(x, Tensor) else x, (args, kwargs))

    def from_mesh(module: nn.Module, args: Any, output: Any) -> Any:
        return tree_map(lambda x: x.to_local() if isinstance(x, DTensor) else x, output)

    module.register_forward_pre_hook(to_mesh, with_kwargs=True)
    module.register_forward_hook(from_mesh)


def _replicated(x: Tensor, mesh: DeviceMesh) -> DTensor:
    return DTensor.from_local(x, mesh, [Replicate()], run_check=False)


@torch.no_grad()
def _require_same_inputs(name: str, inputs: list[Tensor], mesh: DeviceMesh) -> None:
    """Fails where devices compute on different values, which would train different weights without an error."""
    if not inputs:
        return
    sums = [total for x in inputs for total in (x.double().sum(), x.double().abs().sum())]
    highest = torch.stack(sums).nan_to_num()
    lowest = highest.clone()
    for values, choice in ((highest, distributed.ReduceOp.MAX), (lowest, distributed.ReduceOp.MIN)):
        distributed.all_reduce(values, choice, mesh.get_group())
    if ((highest - lowest) > SAME * highest[1::2].repeat_interleave(2)).any():
        raise UserError(
            f"{PLAN}: inputs of {name}, which is not split, differ between devices; expected a rowwise layer after "
            "each colwise one, and the same samples on all devices of a tensor-parallel group"
        )

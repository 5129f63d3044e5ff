"""Structured pruning of any net: removes whole channels, so that the net is smaller and faster on any device."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from playbook import UserError, is_restored, load_run

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)


class Pruned(nn.Module):
    """A net without the weakest channels of its layers, to fine-tune, by torch-pruning (Fang et al. 2023).

    Layers that are joined by a shortcut or a concatenation lose the same channels. The weakest ones have the smallest
    squared weights, averaged over the convolutions, linear layers and norms that write or read a channel. The channels
    of the output remain. Checkpoints hold the pruned net, and no longer need the base.

    Args:
        net: net to prune.
        amount: share of the channels that each layer loses, in [0, 1).
        input_shape: shape of one sample, such as [1, 28, 28], to trace the net with.
        base: run directory or checkpoint with the trained weights of the net. Without one, random weights are pruned.

    Shapes:
        As those of the net.

    Raises:
        ValueError: the amount is out of range, or the net cannot be pruned or traced with such an input.
        UserError: there is no such base, or it does not fit the net.
    """

    def __init__(self, net: nn.Module, amount: float, input_shape: Sequence[int], base: str | None = None) -> None:
        super().__init__()
        if not 0 <= amount < 1:
            raise ValueError(f"amount: expected a share in [0, 1), got {amount}")
        self.net = net
        if base is not None and not is_restored():
            _load(net, base)
        sample = torch.zeros(1, *input_shape)
        try:
            before = _size(net, sample)
            _prune(net, amount, sample)
            after = _size(net, sample)
        except ImportError as error:
            raise ValueError("Pruned needs torch-pruning: uv sync --extra prune") from error
        except Exception as error:  # of any kind: it depends on the net what a sample or missing channels lead to
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"net: {type(net).__name__} cannot be pruned with input_shape {list(input_shape)}: {reason}"
            ) from error
        if not is_restored() and os.environ.get("LOCAL_RANK", "0") == "0":
            text = f"Pruned: {after[0]:,} of {before[0]:,} parameters, {after[1]:,} of {before[1]:,} FLOPs per sample"
            print(text, file=sys.stderr)  # standard output may be a report in JSON

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # those of whichever net it is
        return self.net(*args, **kwargs)


def _prune(net: nn.Module, amount: float, sample: Tensor) -> None:
    import torch_pruning

    mode = net.training
    graph = torch_pruning.DependencyGraph().build_dependency(net, sample, verbose=False)  # in evaluation mode
    strength = torch_pruning.importance.GroupMagnitudeImportance()
    num_groups = 0
    for group in graph.get_all_groups(root_module_types=LAYERS):
        if any(graph.is_out_channel_pruning_fn(dep.handler) and not dep.target.outputs for dep, _ in group):
            continue  # these channels are the net's outputs
        num_groups += 1
        ascending = strength(group).argsort(stable=True)
        group.prune(ascending[: int(amount * len(ascending))].tolist())
    if not num_groups:
        raise ValueError("every layer writes the output")
    net.train(mode)


def _size(net: nn.Module, sample: Tensor) -> tuple[int, int]:
    """Parameters, and floating-point operations of a sample, two for a multiplication and addition."""
    mode = net.training
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = net.eval()(sample)
    net.train(mode)
    if not isinstance(output, Tensor):
        raise TypeError(f"expected one tensor as output, got a {type(output).__name__}")
    return sum(parameter.numel() for parameter in net.parameters()), counter.get_total_flops()


def _load(net: nn.Module, base: str) -> None:
    run = load_run(base, "--model.net.base")
    weights, own = getattr(run.module, "net", run.module).state_dict(), net.state_dict()
    for name in {**own, **weights}:
        expected, actual = _shape(own, name), _shape(weights, name)
        if expected != actual:
            raise UserError(f"--model.net.base {base}: expected {name} of shape {expected}, got {actual}")
    net.load_state_dict(weights)


def _shape(weights: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(weights[name].shape) if name in weights else None

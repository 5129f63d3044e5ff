"""Structured pruning: removes whole channels, so that a net is smaller and faster on any device."""

import os
import sys
from collections.abc import Mapping, Sequence

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
        net: net of images to prune.
        amount: share of the channels that each layer loses, in [0, 1).
        image_shape: channels, height and width of an image, such as [1, 28, 28], to trace the net with.
        base: run directory or checkpoint with the trained weights of the net. Without one, random weights are pruned.

    Shapes:
        image (B, C, H, W) → the output of the net, one tensor.

    Raises:
        ValueError: the amount is out of range, or the net cannot be traced with such an image or pruned.
        UserError: there is no such base, or it does not fit the net.
    """

    def __init__(self, net: nn.Module, amount: float, image_shape: Sequence[int], base: str | None = None) -> None:
        super().__init__()
        if not 0 <= amount < 1:
            raise ValueError(f"amount: expected a share in [0, 1), got {amount}")
        self.net = net
        if base is not None and not is_restored():
            _load(net, base)
        image = torch.zeros(1, *image_shape)
        try:
            before = _size(net, image)
            _prune(net, amount, image)
            after = _size(net, image)
        except ImportError as error:
            raise ValueError("Pruned needs torch-pruning: uv sync --extra prune") from error
        except Exception as error:  # of any kind: it depends on the net what an image or missing channels lead to
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"net: {type(net).__name__} cannot be pruned with image_shape {list(image_shape)}: {reason}"
            ) from error
        if not is_restored() and os.environ.get("LOCAL_RANK", "0") == "0":
            text = f"Pruned: {after[0]:,} of {before[0]:,} parameters, {after[1]:,} of {before[1]:,} FLOPs per image"
            print(text, file=sys.stderr)  # standard output may be a report in JSON

    def forward(self, image: Tensor) -> Tensor:
        return self.net(image)


@torch.enable_grad()  # the graph is that of autograd
def _prune(net: nn.Module, amount: float, image: Tensor) -> None:
    import torch_pruning

    mode = net.training
    graph = torch_pruning.DependencyGraph().build_dependency(net, image, verbose=False)  # in evaluation mode
    strength = torch_pruning.importance.GroupMagnitudeImportance()
    num_groups = 0
    for group in graph.get_all_groups(root_module_types=LAYERS):
        if any(graph.is_out_channel_pruning_fn(dep.handler) and not dep.target.outputs for dep, _ in group):
            continue  # these channels are the net's outputs
        num_groups += 1
        scores = strength(group)
        assert scores is not None, f"{group} has no weights"
        ascending = scores.argsort(stable=True)
        group.prune(ascending[: int(amount * len(ascending))].tolist())
    if not num_groups:
        raise ValueError("every layer writes the output")
    net.train(mode)


def _size(net: nn.Module, image: Tensor) -> tuple[int, int]:
    """Parameters, and floating-point operations for an image, two for a multiplication and addition."""
    mode = net.training
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = net.eval()(image)
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

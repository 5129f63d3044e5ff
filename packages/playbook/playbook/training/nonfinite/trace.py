"""Finds the first NaN or infinite tensor of a training step by running it under hooks."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves  # private; what is public gives no names
from torchmetrics import Metric

from playbook.training.lightning.optimization import loss_of
from playbook.training.nonfinite.unchanged import unchanged

Kind = Literal["parameter", "batch", "input", "output", "loss", "gradient", "nothing"]


@dataclass(frozen=True)
class Finding:
    """The first tensor of a training step that was not finite.

    Args:
        kind: kind of tensor; `nothing` if all were finite.
        name: qualified name of the parameter or the module, or the batch's key; empty for the loss.
        cls: class of that module.
        value: NaN or infinite.
        rows: positions of the affected samples in the batch, if the tensor has a row per sample.
        detail: further details, in words.
    """

    kind: Kind
    name: str = ""
    cls: str = ""
    value: str = ""
    rows: list[int] = field(default_factory=list)
    detail: str = ""

    def __str__(self) -> str:
        module = f"{self.name or 'the module'} ({self.cls})"
        text = {
            "parameter": f"parameter {self.name} is {self.value} before the step",
            "batch": f"the batch holds {self.value} in {self.name or 'its tensor'}",
            "input": f"the input of {module} is {self.value}, computed between modules",
            "output": f"the output of {module} is {self.value}, its inputs are finite",
            "loss": f"the loss is {self.value}, the outputs of all modules are finite",
            "gradient": f"the gradient of {self.name} is {self.value}, the loss is finite",
            "nothing": "not reproduced by replaying the batch",
        }[self.kind]
        return f"{text}{f'; {self.detail}' if self.detail else ''}"


def trace(module: LightningModule, batch: Any, batch_idx: int) -> Finding:
    """Runs one training step and its backward pass without an update, and returns the first non-finite tensor.

    The step always runs to its end, as other processes may wait in a collective of the net. An input of a module or of
    the batch whose only non-finite values are -inf is taken for a mask.

    Args:
        module: in the state before the step.
        batch: as training_step takes it.
        batch_idx: likewise.
    """
    leaves = [(keystr(path), leaf) for path, leaf in tree_flatten_with_path(batch)[0] if isinstance(leaf, Tensor)]
    watch = _Watch(module, next((len(leaf) for _, leaf in leaves if leaf.dim()), 0))
    for name, parameter in module.named_parameters():
        watch.look("parameter", name, "", parameter)
    for name, leaf in leaves:
        watch.look("batch", name, "", leaf, masks=True)
    takes_index = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
    with unchanged(module), torch.compiler.set_stance("force_eager"), torch.enable_grad(), watch:
        output = module.training_step(*([batch, batch_idx] if takes_index else [batch]))
        watch.forward = False
        loss = loss_of(output)
        if isinstance(loss, Tensor):
            watch.look("loss", "", "", loss)
            watch.look_back(loss)
    return watch.found[0] if watch.found else Finding("nothing")


@dataclass
class _Call:
    """A module at work, and when the gradient of an input or an output of it was first seen to be bad."""

    name: str
    cls: str
    inputs_bad: int | None = None
    outputs_bad: int | None = None


class _Watch:
    """Hooks on every module that look at each input, output and gradient in the order in which they come.

    Args:
        module: is watched while this is entered.
        batch_size: a tensor with so many rows has one for each sample.
    """

    def __init__(self, module: nn.Module, batch_size: int) -> None:
        self.module = module
        self.batch_size = batch_size
        self.found: list[Finding] = []
        self.forward = True  # afterwards, a module that runs again is recomputed by activation checkpointing
        self._calls: list[_Call] = []
        self._open: list[_Call] = []
        self._time = 0

    def __enter__(self) -> None:
        self._hooks = ExitStack()
        for name, part in self.module.named_modules():
            if not isinstance(part, Metric):
                before = partial(self._before, _Call(name, type(part).__name__))
                for handle in (
                    part.register_forward_pre_hook(before, with_kwargs=True),
                    part.register_forward_hook(self._after),
                ):
                    self._hooks.callback(handle.remove)

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def look(self, kind: Kind, name: str, cls: str, tensor: Tensor, masks: bool = False) -> None:
        """Notes a tensor that is not finite."""
        if not _is_bad(tensor, masks):
            return
        rows = []
        if kind not in ("parameter", "loss", "gradient") and tensor.dim() and len(tensor) == self.batch_size:
            rows = (~tensor.detach().isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
        self.found.append(Finding(kind, name, cls, "NaN" if tensor.isnan().any() else "infinite", rows))

    def look_back(self, loss: Tensor) -> None:
        """Runs the backward pass, and notes the first parameter whose gradient is bad, and the module that did it."""
        trained = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        for name, parameter in trained:
            hook = parameter.register_hook(partial(self._look_at_gradient, name))
            self._hooks.callback(hook.remove)
        if not loss.requires_grad:
            return
        # not backward(): that would step optimizers that live in hooks, and fill .grad
        try:
            torch.autograd.grad(loss, [parameter for _, parameter in trained], allow_unused=True)
        except RuntimeError as error:  # activation checkpointing of the reentrant kind refuses it
            self.found.append(Finding("nothing", detail=f"the backward pass could not be repeated: {error}"))
        makers = [call for call in self._calls if call.inputs_bad is not None and call.outputs_bad is None]
        inner = [call for call in makers if not any(other.name.startswith(f"{call.name}.") for other in makers)]
        first = next((i for i, finding in enumerate(self.found) if finding.kind == "gradient"), None)
        if first is not None and inner:
            maker = min(inner, key=lambda call: call.inputs_bad or 0)
            detail = f"it comes out of the backward pass of {maker.name} ({maker.cls})"
            self.found[first] = replace(self.found[first], detail=detail)

    def _look_at_gradient(self, name: str, gradient: Tensor) -> None:
        self.look("gradient", name, "", gradient)

    def _before(self, empty: _Call, part: nn.Module, args: Any, kwargs: Any) -> None:
        if self.forward:
            call = replace(empty)
            self._calls.append(call)
            self._open.append(call)
            for tensor in _tensors((args, kwargs)):
                self.look("input", call.name, call.cls, tensor, masks=True)
                self._look_later(call, "inputs_bad", tensor)

    def _after(self, part: nn.Module, args: Any, output: Any) -> None:
        if self.forward:
            call = self._open.pop()
            for tensor in _tensors(output):
                self.look("output", call.name, call.cls, tensor)
                self._look_later(call, "outputs_bad", tensor)

    def _look_later(self, call: _Call, side: str, tensor: Tensor) -> None:
        def look(gradient: Tensor) -> None:
            self._time += 1
            if getattr(call, side) is None and _is_bad(gradient):
                setattr(call, side, self._time)

        if tensor.requires_grad:
            tensor.register_hook(look)


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _is_bad(tensor: Tensor, masks: bool = False) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    values = tensor.detach()
    if tensor.is_sparse:
        values = values.coalesce().values()
    bad = ~values.isfinite()
    if masks and not values.is_complex():
        bad &= ~values.isneginf()
    return bool(bad.any())

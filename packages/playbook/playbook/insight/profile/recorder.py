"""Records each operation of one training step: where it stands, how long it takes, what it computes and allocates."""

import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from playbook.insight.profile.places import ModuleStack, Place, Places

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
RANGE = "playbook operation "  # with its number: how an operation is named in a trace


@dataclass
class Operation:
    """One operation of the step.

    Args:
        name: of ATen's, such as `convolution`.
        place: where it stands.
        phase: forward, backward or optimizer.
        seconds: on the host, where the CPU computes it, or launches it.
        flops: floating-point operations, a multiply-add counted as two; 0 of one that only moves or compares.
        bytes: read and written, each tensor once.
        device_seconds: of its kernels on the device; None without one.
    """

    name: str
    place: Place
    phase: str
    seconds: float
    flops: int
    bytes: int
    device_seconds: float | None = None


@dataclass
class Block:
    """Memory of one tensor, or of several that share it.

    Args:
        size: in bytes.
        kind: parameters, gradients, optimizer, batch, activations or temporary.
        place: where it was allocated.
        operation: that allocated it.
        shape: of the first tensor in it.
        begin: number of the operation that allocated it; -1 before the step.
        end: number of the operation after which it was freed; None if it outlives the step.
    """

    size: int
    kind: str
    place: Place
    operation: str
    shape: tuple[int, ...]
    begin: int
    end: int | None = None


class Recorder(TorchDispatchMode):
    """Sees every operation of a step; enter it before the forward pass, and tell it of each phase.

    Views cost nothing and are left out. The operations run as they are written: without torch.compile, and slower in
    between, as Python stands before each.

    Args:
        model: the LightningModule.
        optimizers: whose states count as theirs.
        batch: of the step.
        device: whose memory is counted.
    """

    def __init__(self, model: nn.Module, optimizers: list[Any], batch: Any, device: torch.device) -> None:
        super().__init__()
        from torch.utils.flop_counter import flop_registry  # imports for seconds

        self._formulas: Mapping[Any, Any] = flop_registry
        self.operations: list[Operation] = []
        self.blocks: list[Block] = []
        self.phase = FORWARD
        self.starts: dict[str, int] = {FORWARD: 0}  # number of the first operation of each phase
        self.model = model
        self._device = device
        self._known: dict[int, Block] = {}  # by the address of a storage that lives
        self._contexts = ExitStack()
        self._modules = ModuleStack(model)
        self._places = Places(self._modules)
        places = {parameter: Place(name) for name, parameter in [*model.named_parameters(), *model.named_buffers()]}
        for parameter, place in places.items():
            self._add(parameter, "parameters", place)
            self._add(parameter.grad, "gradients", place)
        for optimizer in optimizers:
            for parameter, state in optimizer.state.items():
                for value in tree_leaves(dict(state)):
                    self._add(value, "optimizer", places.get(parameter, Place()))
        for value in tree_leaves(batch):
            self._add(value, "batch")

    def __enter__(self) -> "Recorder":
        for context in (torch.compiler.set_stance("force_eager"), self._modules, self._places):
            self._contexts.enter_context(context)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._contexts.close()

    def begin(self, phase: str) -> None:
        """A phase begins: the forward pass of a further batch does not."""
        if phase == BACKWARD:
            for block in self._known.values():
                if block.begin >= 0 and block.kind == "temporary":
                    block.kind = "activations"  # what the backward pass finds alive
        if phase == OPTIMIZER:
            for parameter in self.model.parameters():
                if parameter.grad is not None and (block := self._known.get(_address(parameter.grad))):
                    block.kind = "gradients"
        self.phase = phase
        self.starts.setdefault(phase, len(self.operations))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.is_view:
            return func(*args, **kwargs)
        place, is_backward = self._places.place()
        number = len(self.operations)
        with torch.profiler.record_function(f"{RANGE}{number}"):
            began = time.perf_counter()
            outputs = func(*args, **kwargs)
            seconds = time.perf_counter() - began
        name = func.overloadpacket.__name__
        formula = self._formulas.get(func.overloadpacket)
        flops = formula(*args, **kwargs, out_val=outputs) if formula is not None else 0
        inputs, results = tree_leaves((args, kwargs)), tree_leaves(outputs)
        tensors = {_address(value): value for value in [*inputs, *results] if _is_stored(value)}
        moved = sum(value.numel() * value.element_size() for value in tensors.values())
        phase = BACKWARD if is_backward else self.phase
        self.operations.append(Operation(name, place, phase, seconds, int(flops), moved))
        for value in results:
            self._add(value, "temporary", place, name, number)
        return outputs

    def _add(self, value: Any, kind: str, place: Place = Place(), operation: str = "", begin: int = -1) -> None:  # noqa: B008  # never changed
        if not _is_stored(value) or value.device.type != self._device.type:
            return
        storage = value.untyped_storage()
        address = storage._cdata
        if address in self._known:
            return
        block = Block(storage.nbytes(), kind, place, operation, tuple(value.shape), begin)
        self._known[address] = block
        self.blocks.append(block)
        weakref.finalize(storage, self._free, address).atexit = False

    def _free(self, address: int) -> None:
        block = self._known.pop(address, None)
        if block is not None:
            block.end = len(self.operations)


def _is_stored(value: Any) -> bool:
    return type(value) in (Tensor, nn.Parameter) and value.layout == torch.strided


def _address(value: Tensor) -> int:
    return value.untyped_storage()._cdata

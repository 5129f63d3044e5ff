"""Copies of a module's buffers, so that a training step can be taken back."""

from typing import Any

import torch
from torch import Tensor, nn

SMALL = 65_536  # elements of a buffer


_Pairs = list[tuple[tuple[Tensor, ...] | list[Tensor], list[Tensor]]]


class Buffers:
    """The buffers of a module as they were before a step: a NaN in BatchNorm's averages never goes away again.

    A large one, such as a mask or a queue, is copied only where its version says that it has changed since. Small ones
    always are: torch's batch norm changes its averages without counting a version. Three private names of torch have
    no public equal: `_buffers`, as `named_buffers` leaves out those that are None, `_version`, and `_foreach_copy_`,
    one kernel for all buffers of a device.

    Args:
        module: whose buffers they are.
    """

    def __init__(self, module: nn.Module) -> None:
        self._owners = [(part._buffers, name) for part in module.modules() for name in part._buffers]
        # each buffer with its version at the time of its copy
        self._copies: list[tuple[Tensor | None, int, Tensor | None]] = [(None, 0, None)] * len(self._owners)
        self._small: _Pairs | None = None  # copies and buffers, where all are small

    def save(self) -> None:
        """Copies what has changed since the former call."""
        if self._small is not None and all(
            owner[name] is copied[0] for (owner, name), copied in zip(self._owners, self._copies, strict=True)
        ):
            changed = self._small
        else:
            changed = self._changed()
            is_small = all(buffer is None or buffer.numel() <= SMALL for buffer, _, _ in self._copies)
            self._small = changed if is_small else None
        for copies, buffers in changed:
            torch._foreach_copy_(copies, buffers)

    def _changed(self) -> _Pairs:
        """Copies, and the buffers of which they are to get the values, for each device and type."""
        changed: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        for index, (buffers_of_owner, name) in enumerate(self._owners):
            buffer = buffers_of_owner[name]
            former, version, copy = self._copies[index]
            if buffer is None or (buffer is former and buffer.numel() > SMALL and buffer._version == version):
                continue
            if copy is None or buffer is not former:
                copy = torch.empty_like(buffer)
            copies, buffers = changed.setdefault((buffer.device, buffer.dtype), ([], []))
            copies.append(copy)
            buffers.append(buffer.detach())
            self._copies[index] = buffer, buffer._version, copy
        return list(changed.values())

    def restore(self) -> None:
        """Gives all buffers the values, and the module the tensors, of the newest `save`."""
        for (buffers_of_owner, name), (buffer, _, copy) in zip(self._owners, self._copies, strict=True):
            buffers_of_owner[name] = buffer
            if buffer is not None and copy is not None:
                buffer.detach().copy_(copy)

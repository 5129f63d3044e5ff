"""Counts, in a few steps of a training, where values are read from tensors and how many operators a loss has."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from playbook.project import is_user_file

# what waits for the device when it is called
READS = ("item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__")
MOST_OPERATORS = 20_000  # of a loss; counting more would take longer than a step


class StepWatch:
    """Replaces some methods of torch.Tensor while a few steps run; what another program has replaced stays.

    Reads count where they would wait: of tensors on a device, and on the CPU of those with a gradient, such as the
    loss, which elsewhere would be on a device. Calls from installed packages, and while a batch is loaded, do not.

    Args:
        is_loading: whether a batch is being loaded.

    Attributes:
        reads: calls of each line of the user's code, by file, line and method.
        num_operators: nodes of the backward graph of a step, on average; None if no backward was seen.
        backward_s: seconds that this thread computed in the backward of a step, on average. On a busy machine, less
            than the time it took; on a GPU, other threads launch the kernels.
        num_steps: that were watched.
    """

    def __init__(self, is_loading: Callable[[], bool]) -> None:
        self.reads: Counter[tuple[str, int, str]] = Counter()
        self.num_operators: float | None = None
        self.backward_s = 0.0
        self.num_steps = 0
        self._is_loading = is_loading
        self._replaced: dict[str, Any] = {}  # names of methods, and the method if torch.Tensor itself has it

    def begin(self) -> None:
        """Replaces the methods; not where something was compiled, as what is compiled meanwhile would call them."""
        if _has_compiled():
            return
        own = vars(torch.Tensor)
        for name in (*READS, "backward"):
            original = getattr(torch.Tensor, name)
            if getattr(original, "__module__", None) in ("torch._tensor", None):
                self._replaced[name] = own.get(name)
                watched = self._backward(original) if name == "backward" else self._read(name, original)
                setattr(torch.Tensor, name, watched)

    def end(self, num_steps: int) -> None:
        """Gives torch.Tensor its methods back.

        Args:
            num_steps: that were watched; 0 if the training failed meanwhile.
        """
        for name, method in self._replaced.items():
            if method is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, method)
        if self._replaced:
            self.num_steps = num_steps
            if self.num_operators is not None and num_steps:
                self.num_operators /= num_steps
                self.backward_s /= num_steps
        self._replaced = {}

    def lines_of_every_step(self) -> list[tuple[str, int, str]]:
        """File, line and method of what was called in each of the steps, the most frequent first."""
        return [line for line, count in self.reads.most_common() if count >= max(1, self.num_steps)]

    def _read(self, name: str, original: Any) -> Any:
        @wraps(original)
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            file = frame.f_code.co_filename
            waits = tensor.requires_grad or tensor.device.type != "cpu"
            if waits and is_user_file(file) and not self._is_loading():
                self.reads[file, frame.f_lineno, name.strip("_")] += 1
            return original(tensor, *args, **kwargs)

        return read

    def _backward(self, original: Any) -> Any:
        @wraps(original)
        def backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.num_operators = (self.num_operators or 0) + num_nodes(loss)
            start = time.thread_time()
            try:
                return original(loss, *args, **kwargs)
            finally:
                self.backward_s += time.thread_time() - start

        return backward


def _has_compiled() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])


def num_nodes(loss: torch.Tensor) -> int:
    """Operators that the backward of a loss runs, without those that add gradients to parameters."""
    waiting = [loss.grad_fn] if loss.grad_fn is not None else []
    nodes = set(waiting)  # holds them, so that none is made anew and counted twice
    while waiting and len(nodes) < MOST_OPERATORS:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in nodes and not node.name().endswith("AccumulateGrad"):
                nodes.add(node)
                waiting.append(node)
    return len(nodes)

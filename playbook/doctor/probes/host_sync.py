"""Lines of the training step that wait for the accelerator in every step."""

import ast
from collections.abc import Callable, Iterator, Sequence
from sys import _getframe
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from playbook.doctor import source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.subject import Subject

HOST_SYNC = Defect(
    "host-sync",
    "warning",
    "An accelerator is waited for in every step instead of being kept busy.",
    section="Performance",
    shown_by=Evidence("measured", "the lines that read values were noted over several training steps"),
)
DEFECTS = (HOST_SYNC,)
LIGHT = True

_INDICES = (1, 2, 3, 5, 7)  # so that "every 10 steps" does not count
_READS = {
    "item": ".item()",
    "tolist": ".tolist()",
    "numpy": ".numpy()",
    "cpu": ".cpu()",
    "__array__": "a conversion to NumPy",
    "__bool__": "a Python branch on a tensor",
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "a Python index",
    "__format__": "formatting",
    "__repr__": "printing",
    "is_nonzero": "a Python branch on a tensor",
    "equal": "torch.equal",
    "allclose": "torch.allclose",
}
_BRANCHES = ("__bool__", "is_nonzero", "equal", "allclose")
_BETWEEN = ("_tensor.py", "_tensor_str.py", "overrides.py", "_device.py", "_contextlib.py")


def host_sync(subject: Subject) -> Iterator[Finding | str]:
    """Runs steps 1, 2, 3, 5 and 7 with the hooks of a batch, and keeps the user's own lines that read values in each.

    What is read must come from the model, or be a fraction or a branch on the batch: whole numbers of a batch alone
    are lengths and counts that shapes need. Reading for packing, and for an environment that is stepped, is spared.
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    rounds: list[dict[Place, list[str]]] = []
    for number, index in enumerate(_INDICES):
        watch = _Watch(subject, subject.batches[number % len(subject.batches)])
        _at(subject, index)
        torch.manual_seed(index)
        with watch:
            _step(subject, watch.batch, index)
        rounds.append(watch.reads)
        if number and not set(rounds[0]).intersection(*rounds[1:]):
            break
    every = set(rounds[0]).intersection(*rounds[1:])
    for place in sorted(every):
        calls = " and ".join(dict.fromkeys(_READS[name] for name in rounds[0][place]))
        times = len(rounds[0][place])
        often = "here" if times == 1 else f"{times} times here"
        message = f"{calls} {often} in every training step: each time, an accelerator must finish all its work first"
        yield Finding(HOST_SYNC, place, message, _fix(place, rounds[0][place]))
    if not every:
        yield "no line of the training step reads a tensor's value in every step"


class _Watch(TorchFunctionMode):
    """Keeps the lines that read a value, and which tensors come from the model's weights or the batch."""

    def __init__(self, subject: Subject, batch: Any) -> None:
        super().__init__()
        self.batch = batch
        self.reads: dict[Place, list[str]] = {}
        self.weights = {id(parameter) for parameter in subject.model.parameters()}
        self.given = {id(leaf) for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)}
        self.alive: list[Any] = [batch]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name == "to" and any(str(item) == "cpu" for item in (*args[1:], *kwargs.values())):
            name = "cpu"
        if name in _READS and inputs:
            place = _user_line(_getframe(1))
            if place is not None and self._counts(name, inputs[0], place):
                self.reads.setdefault(place, []).append(name)
        out = func(*args, **kwargs)
        if name not in _READS or name == "cpu":
            self._pass_on(inputs, out)
        return out

    def _pass_on(self, inputs: list[Tensor], out: Any) -> None:
        outputs = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor)]
        self.alive.append(outputs)
        for kind in (self.weights, self.given):
            if any(id(leaf) in kind for leaf in inputs):
                kind.update(id(leaf) for leaf in outputs)
        self.weights.update(id(leaf) for leaf in outputs if leaf.requires_grad)

    def _counts(self, name: str, tensor: Tensor, place: Place) -> bool:
        if name == "cpu" and "cpu" not in place.code:  # `.to(device)`, which is the CPU only here
            return False
        of_model = id(tensor) in self.weights or tensor.requires_grad
        if not of_model and id(tensor) not in self.given:
            return False
        whole = not tensor.is_floating_point() and tensor.dtype != torch.bool
        if not of_model and (whole or tensor.dtype == torch.bool) and name not in _BRANCHES:
            return False
        return not _asserts(place) and not _plays(place)


def _user_line(frame: FrameType | None) -> Place | None:
    """The user's line, if only the tensor's own methods and NumPy stand between."""
    while frame is not None:
        file = frame.f_code.co_filename
        if source.is_user(file):
            return Place(file, frame.f_lineno)
        own = file.endswith("host_sync.py") or file.startswith("<")
        if not own and not (source.is_torch(file) and file.endswith(_BETWEEN)) and "numpy" not in file:
            return None
        frame = frame.f_back
    return None


def _asserts(place: Place) -> bool:
    """An assertion is a check that `python -O` leaves out."""
    nodes = ast.walk(source.tree(place.file))
    return any(isinstance(node, ast.Assert) and node.lineno <= place.line <= (node.end_lineno or 0) for node in nodes)


def _plays(place: Place) -> bool:
    """Whether the function steps an environment, whose `env.step(action)` needs values; `self.step(batch)` is none."""
    function = source.function_at(place)
    steps = source.calls(function, "step") if function is not None else ()
    return any(call.args and ast.unparse(call.func) != "self.step" for call in steps)


def _at(subject: Subject, index: int) -> None:
    """Sets the counters that `global_step % 50 == 0` and `current_epoch == 0` ask."""
    loop = subject.trainer.fit_loop
    loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed = index
    loop.epoch_loop.manual_optimization.optim_step_progress.total.completed = index
    loop.epoch_loop.batch_progress.current.ready = index + 1
    setattr(loop.epoch_progress.current, "processed", 1)  # noqa: B010 - typed as its base class


def _step(subject: Subject, batch: Any, index: int) -> None:
    model = subject.model
    model.on_train_batch_start(batch, index)
    loss = subject.train(batch, index)
    if model.automatic_optimization and loss is not None:
        loss.backward()
        model.on_after_backward()
        model.on_before_optimizer_step(subject.trainer.optimizers[0])
        for optimizer in subject.trainer.optimizers:
            optimizer.zero_grad()
    model.on_train_batch_end(loss if loss is None else {"loss": loss.detach()}, batch, index)


def _fix(place: Place, names: list[str]) -> str:
    if set(names) & set(_BRANCHES):
        return "torch.where(condition, one, other)  # decides on the device, without waiting"
    if set(names) & {"__repr__", "__format__"}:
        return 'self.log("loss", loss)  # Lightning reads it when it writes'
    return "….detach()  # keep the tensor, add up on the device; self.log reads it when it writes"

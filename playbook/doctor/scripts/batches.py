"""The batches of a step: what its loaders give, or the variables that its loss depends on."""

import ast
import os
import signal
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from playbook.doctor import sandbox
from playbook.doctor.record import Record, tensors
from playbook.doctor.scripts.hold import own_nodes
from playbook.doctor.scripts.module import Step
from playbook.doctor.scripts.notes import Backward
from playbook.doctor.scripts.silence import silenced
from playbook.doctor.scripts.unit import Unit
from playbook.doctor.subject import NUM_TRAIN

_EVENTS_S, _PAUSE_S, _FETCH_S = 20.0, 3.0, 3.0


def first_batch(unit: Unit) -> Any:
    """What a unit can be run on at once: a batch of its loaders, or its variables as they are."""
    given = [next(iter(loader)) for loader in unit.loaders]
    return given[0] if len(given) == 1 else tuple(given) if given else {}


def events(unit: Unit, things: list[Any], file: Path) -> list[Optimizer | None]:
    """What one real run of a step does, in a copy of the process: None for `backward`, an optimizer for its step.

    Args:
        unit: of the step.
        things: optimizers and schedules.
        file: that the copy writes to as it goes, so that a long end of the step can be cut off.
    """
    written = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    start = time.monotonic()

    def note(text: str) -> None:
        os.write(written, f"{text}\n".encode())
        signal.setitimer(signal.ITIMER_REAL, max(_PAUSE_S, 2 * (time.monotonic() - start)))  # what follows evaluates

    def backward(*args: Any, **kwargs: Any) -> None:
        Backward.original(*args, **kwargs)
        note("backward")

    def run() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        index = {id(thing): number for number, thing in enumerate(things)}
        with silenced(things, backward, lambda optimizer: note(str(index[id(optimizer)])), real=True):
            unit.run(first_batch(unit))

    error = None
    try:
        sandbox.call(run, _EVENTS_S)
    except sandbox.SandboxError as raised:
        error = raised
    os.close(written)
    found = [None if line == "backward" else things[int(line)] for line in file.read_text().split()]
    if error is not None and None not in found:
        raise error
    return found


def batches_of(step: Step) -> Any:
    """The batches of a training step: its loader, or a list of up to NUM_TRAIN; an empty one if it takes none."""
    unit = step.unit
    if len(unit.loaders) == 1:
        return unit.loaders[0]
    if unit.loaders:
        return list(islice(zip(*unit.loaders, strict=False), NUM_TRAIN))
    with Record() as record:
        losses = step.losses({}, 0, [])
    needed = set().union(*[record.ancestors(loss) for loss in losses])
    return _of_variables(unit, lambda tensor: id(tensor) in needed, NUM_TRAIN)


def val_batches_of(unit: Unit, number: int, run: Callable[[], None]) -> Any:
    """The batches of a validation step; likewise."""
    if len(unit.loaders) == 1:
        return unit.loaders[0]
    if unit.loaders:
        return list(islice(zip(*unit.loaders, strict=False), number))
    with Record() as record:
        run()
    used = {id(tensor) for op in record.ops for tensor in op.inputs}
    return _of_variables(unit, lambda tensor: id(tensor) in used, number)


def _of_variables(unit: Unit, counts: Callable[[Tensor], bool], number: int) -> list[dict[str, Any]]:
    names = [name for name in _read(unit.after) if _is_data(unit.value(name)) and name not in unit.carried]
    names = [name for name in names if any(counts(tensor) for tensor in tensors(unit.value(name)))]
    if not names:
        return []
    batches = [{name: unit.value(name) for name in names}]
    made = {node.id for part in _head(unit) for node in ast.walk(part) if _is_stored(node)}  # type: ignore[attr-defined]
    if made.intersection(names) and number > 1:
        batches += unit.fetched(names, number - 1, _FETCH_S)
    return batches


def _head(unit: Unit) -> list[ast.AST]:
    loop = unit.spot.loop
    return [*unit.before, *([loop.target] if isinstance(loop, ast.For) else [])]


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _read(statements: list[ast.stmt]) -> list[str]:
    """Names that statements read, outside of functions defined in them."""
    nodes = [node for statement in statements for node in (statement, *own_nodes(statement))]
    return list(dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)))


def _is_data(value: Any) -> bool:
    found = tensors(value) if isinstance(value, Tensor | list | tuple | dict) else []
    return bool(found) and not any(isinstance(leaf, nn.Parameter) or leaf.requires_grad for leaf in found)

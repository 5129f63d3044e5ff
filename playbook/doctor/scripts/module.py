"""A script as a LightningModule, whose training step replays the script's own."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from playbook.doctor.scripts import notes
from playbook.doctor.scripts.notes import Backward
from playbook.doctor.scripts.silence import silenced
from playbook.doctor.scripts.unit import Leave, Unit


class Step:
    """A training step of a script.

    Args:
        unit: its statements.
        events: what it does, in order: None for a `backward`, an optimizer for its step.
        leaves: parameters that its first loss depends on.
    """

    def __init__(self, unit: Unit, events: list[Optimizer | None], leaves: list[Tensor]) -> None:
        self.unit = unit
        self.num_losses = events.count(None)
        self.num_events = len(events)
        self.optimizers = list({id(event): event for event in events if event is not None}.values())
        self.things = living_things()
        optimizers = [thing for thing in self.things if isinstance(thing, Optimizer)]
        self.owned = [
            *leaves,
            *(p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]),
        ]

    def losses(self, batch: Any, index: int, parameters: list[nn.Parameter]) -> list[Tensor]:
        """What the step calls `backward` on, without doing it: nothing is optimised.

        Args:
            batch: of the unit.
            index: of the batch.
            parameters: that get a gradient of zeros for the rest of the step, which a script may read.
        """
        losses: list[Tensor] = []

        def note(loss: Tensor, gradient: Any = None, *_: Any, **__: Any) -> None:
            losses.append(loss if gradient is None else (loss * gradient).sum())
            _fill(without)
            event()

        without = _without_gradient([*parameters, *self.owned])
        event = self._counting()
        try:
            with silenced(self.things, note, event):
                self._run(batch, index)
        finally:
            _fill(without, is_zero=False)
        return losses

    def skip(self, *_: Any, **__: Any) -> None:
        """In place of `backward`: gives parameters a gradient of zeros, which a script may read."""
        _fill(_without_gradient(self.owned))

    def optimize(self, batch: Any, index: int, backward: Callable[..., None]) -> None:
        """Runs the step with its own optimizers; `backward` is called with each loss and the arguments of torch's."""
        event = self._counting()

        def really(loss: Tensor, gradient: Any = None, retain_graph: Any = None, *_: Any, **__: Any) -> None:
            Backward.act = Backward.original
            try:
                backward(loss, gradient=gradient, retain_graph=retain_graph)
            finally:
                Backward.act = really
            event()

        with silenced(self.things, really, event, real=True):
            self._run(batch, index)

    def _run(self, batch: Any, index: int) -> None:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # this is no call of the script's
            seed = int(torch.randint(2**32, ()))  # whoever seeds torch means all of these; steps differ
        random.seed(seed)
        np.random.seed(seed)
        with suppress(Leave):
            self.unit.run(batch, index)

    def _counting(self) -> Callable[..., None]:
        """A function that leaves the step when it is called for its last event: what follows evaluates and prints."""
        turns = count(1)

        def event(_: Any = None) -> None:
            if next(turns) == self.num_events:
                raise Leave

        return event


def living_things() -> list[Any]:
    """Optimizers and schedules that exist now."""
    return [*notes.living(Optimizer), *notes.living(LRScheduler)]


def _without_gradient(parameters: Sequence[Tensor]) -> list[Tensor]:
    with torch._C.DisableTorchFunction():  # this is no call of the script's
        return [parameter for parameter in parameters if parameter.grad is None]


def _fill(parameters: list[Tensor], is_zero: bool = True) -> None:
    """Gives parameters a gradient of zeros, or none."""
    with torch._C.DisableTorchFunction():
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter) if is_zero else None


class _Batches:
    """Batches for the Trainer, to whom a list would be several loaders."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


class Script(pl.LightningModule):
    """Replays a script's training step on the batches it is given.

    One loss a step is returned, and nothing is optimised. A step with several losses or optimizers optimizes itself, as
    the script does: later losses may depend on earlier steps.

    Args:
        parts: the script's models by their names.
        step: to replay.
        batches: of the step: a loader, or a list.
    """

    def __init__(self, parts: dict[str, nn.Module], step: Step, batches: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name if not hasattr(pl.LightningModule, name) else f"{name}_", part)
        self.automatic_optimization = step.num_losses == 1 and len(step.optimizers) <= 1  # as Lightning wants it
        batches = batches if isinstance(batches, DataLoader) else _Batches(batches)
        main = getattr(sys.modules["__main__"], "__file__", None)
        self.sources = tuple({file for file in (main, step.unit.globals.get("__file__")) if file})
        self.replay = (step, batches)  # a tuple, so that nothing in it is registered

    def train(self, mode: bool = True) -> "Script":
        for part in self.modules():  # whose own `train` may mean something else
            part.training = mode
        return self

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        step, _ = self.replay
        optimizes = not self.automatic_optimization and self.training and torch.is_grad_enabled()
        if optimizes:
            step.optimize(batch, batch_idx, self.manual_backward)
            return None
        losses = step.losses(batch, batch_idx, list(self.parameters()))
        return losses[-1] if losses and self.automatic_optimization else None

    def configure_optimizers(self) -> Any:
        step, _ = self.replay
        made = []
        for optimizer in step.optimizers:
            schedules = [
                thing for thing in step.things if isinstance(thing, LRScheduler) and thing.optimizer is optimizer
            ]
            schedules = [schedule for schedule in schedules if not isinstance(schedule, ReduceLROnPlateau)]
            made.append({"optimizer": optimizer} | ({"lr_scheduler": schedules[-1]} if schedules else {}))
        return made or None

    def train_dataloader(self) -> Any:
        return self.replay[1]


class ValidatedScript(Script):
    """A script that validates as well.

    Args:
        parts: as of Script.
        step: as of Script.
        batches: as of Script.
        val_unit: statements of a validation step.
        val_batches: a loader, or a list of batches.
    """

    def __init__(self, parts: dict[str, nn.Module], step: Step, batches: Any, val_unit: Unit, val_batches: Any) -> None:
        super().__init__(parts, step, batches)
        if not isinstance(val_batches, DataLoader):
            val_batches = DataLoader(val_batches, batch_size=None, collate_fn=_same)
        self.validation = (val_unit, val_batches)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        unit, _ = self.validation
        quiet = silenced(self.replay[0].things, lambda *_, **__: None, lambda _: None)
        with torch.set_grad_enabled(unit.gradients), quiet:
            unit.run(batch, batch_idx)

    def val_dataloader(self) -> Any:
        return self.validation[1]


def _same(batch: Any) -> Any:
    return batch


def find_parts(unit: Unit, parameters: list[Tensor]) -> dict[str, nn.Module]:
    """The outermost modules that own parameters, by the names that the script has for them."""
    names = dict(_names(unit))
    return {
        names.get(id(root), f"{type(root).__name__.lower()}{number or ''}"): root
        for number, root in enumerate(roots_of(parameters))
    }


def roots_of(parameters: list[Tensor]) -> list[nn.Module]:
    """The outermost modules that own parameters."""
    wanted = {id(parameter) for parameter in parameters}
    modules: list[nn.Module] = [module for module in notes.living(nn.Module) if "_parameters" in vars(module)]
    parents: dict[int, list[nn.Module]] = {}
    for module in modules:
        for child in module._modules.values():
            parents.setdefault(id(child), []).append(module)
    todo = [module for module in modules if any(id(own) in wanted for own in module._parameters.values())]
    roots: dict[int, nn.Module] = {}
    seen: set[int] = set()
    while todo:
        module = todo.pop()
        if id(module) not in seen:
            seen.add(id(module))
            above = parents.get(id(module), [])
            todo += above
            if not above:
                roots[id(module)] = module
    return list(roots.values())


def _names(unit: Unit) -> Iterator[tuple[int, str]]:
    for scope in (unit.globals, unit.variables):
        for name, value in list(scope.items()):
            if isinstance(value, nn.Module) and not name.startswith("_") and "." not in name:
                yield id(value), name
            elif hasattr(value, "__dict__") and name == "self":
                yield from ((id(part), key) for key, part in vars(value).items() if isinstance(part, nn.Module))


def keep_weights(parts: dict[str, nn.Module]) -> Callable[[], None]:
    """A function that gives the models the weights, buffers and modes that they have now."""
    modules = [module for part in parts.values() for module in part.modules()]
    tensors = [tensor for part in parts.values() for tensor in (*part.parameters(), *part.buffers())]
    values = [tensor.detach().clone() for tensor in tensors]
    modes = [module.training for module in modules]

    def restore() -> None:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data.copy_(value)
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode

    return restore

"""Wraps a script as a LightningModule whose steps replay the script's own."""

import sys
from collections import UserList
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from torchdoctor.running.subject import Replay
from torchdoctor.scripts import notes
from torchdoctor.scripts.step import Step
from torchdoctor.scripts.unit import Unit
from torchdoctor.source import imported


class Script(Replay):
    """Replays a script's training step on the batches it is given, and its validation step if it has one.

    One loss a step is returned, and nothing is optimised. A step with several losses or optimizers optimizes itself, as
    the script does: later losses may depend on earlier steps.

    Args:
        parts: the script's models by their names.
        step: to replay.
        batches: of the step: a loader, or a list.
        val_unit: statements of a validation step.
        val_batches: a loader, or a list; an empty one without a validation step.
    """

    def __init__(
        self, parts: dict[str, nn.Module], step: Step, batches: Any, val_unit: Unit | None, val_batches: Any
    ) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name if not hasattr(pl.LightningModule, name) else f"{name}_", part)
        self.automatic_optimization = step.num_losses == 1 and len(step.optimizers) <= 1  # as Lightning wants it
        scopes = (vars(sys.modules["__main__"]), step.unit.globals)
        self.sources = tuple(dict.fromkeys(scope["__file__"] for scope in scopes if "__file__" in scope))
        beside = [file for file in imported() if Path(self.sources[0]).parent in Path(file).parents]
        self.files = tuple(dict.fromkeys([*self.sources, *sorted(beside)]))
        if not isinstance(batches, DataLoader):
            batches = UserList(batches)  # which the Trainer does not take for several loaders
        if isinstance(val_batches, list) and val_batches:
            val_batches = DataLoader(val_batches, batch_size=None, collate_fn=lambda batch: batch)  # type: ignore[arg-type]
        self.carries, self.optimizes = bool(step.unit.carried), step.optimizes
        self.reads_state = step.unit.reads_state
        self.replay = (step, batches, val_unit, val_batches)  # a tuple, so that nothing in it is registered
        own = set(self.modules())
        step.others = [
            each for each in notes.living_objects(nn.Module) if "_parameters" in vars(each) and each not in own
        ]

    @property
    def others(self) -> list[nn.Module]:
        return self.replay[0].others

    @property
    def loaders(self) -> list[Any]:
        return self.replay[0].unit.loaders

    def train(self, mode: bool = True) -> "Script":
        for part in self.modules():  # whose own `train` may mean something else
            part.training = mode
        for other in self.others:
            other.training &= mode
        return self

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        step = self.replay[0]
        if self.automatic_optimization or not self.training or not torch.is_grad_enabled():
            losses = step.losses(batch, batch_idx)
            return losses[-1] if losses and self.automatic_optimization else None
        step.optimize(batch, batch_idx, self.manual_backward)
        return None

    def ending_backwards(self) -> Any:
        return self.replay[0].ending_backwards()

    def optimize(self, batch: Any, index: int, note: Callable[[Tensor], None]) -> None:
        def backward(loss: Tensor, **options: Any) -> None:
            note(loss)
            loss.backward(**options)

        self.replay[0].optimize(batch, index, backward)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        step, _, unit, _ = self.replay
        if unit is not None:
            step.validate(unit, batch, batch_idx)

    def configure_optimizers(self) -> Any:
        step = self.replay[0]
        schedules = [thing for thing in step.things if isinstance(thing, LRScheduler)]
        schedules = [schedule for schedule in schedules if not isinstance(schedule, ReduceLROnPlateau)]
        last = {id(schedule.optimizer): {"lr_scheduler": schedule} for schedule in schedules}
        return [{"optimizer": optimizer} | last.get(id(optimizer), {}) for optimizer in step.optimizers] or None

    def train_dataloader(self) -> Any:
        return self.replay[1]

    def val_dataloader(self) -> Any:
        return self.replay[3]


def find_parts(unit: Unit, parameters: list[Tensor]) -> dict[str, nn.Module]:
    """The outermost modules that own parameters, by their names in the script."""
    scopes = (unit.globals, unit.variables, getattr(unit.value("self"), "__dict__", {}))
    known = [item for scope in scopes for item in scope.items() if item[0] != "_" and isinstance(item[1], nn.Module)]
    names = {id(module): name for name, module in known}
    return {
        names.get(id(root), f"{type(root).__name__.lower()}{number or ''}"): root
        for number, root in enumerate(roots_of(parameters))
    }


def roots_of(parameters: list[Tensor]) -> list[nn.Module]:
    """The fewest outermost modules that own all these parameters, largest first.

    A network may live on beside another one that is made of its layers.
    """
    wanted = set(map(id, parameters))
    modules: list[nn.Module] = [module for module in notes.living_objects(nn.Module) if "_parameters" in vars(module)]
    inner = {id(child) for module in modules for child in module._modules.values()}
    outermost = [module for module in modules if id(module) not in inner]
    owned = {root: set(map(id, nn.Module.parameters(root))) for root in outermost}
    roots: list[nn.Module] = []
    for root in sorted(outermost, key=lambda root: (-len(owned[root] & wanted), len(owned[root]))):
        if not wanted.isdisjoint(owned[root]):
            roots.append(root)
            wanted -= owned[root]
    return [root for root in outermost if root in roots]

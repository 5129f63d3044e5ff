"""Optimizers that are recreated for the same weights and lose their state."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.data import sized_len
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchdoctor.evidence import origins
from torchdoctor.findings import TRAINING, Defect, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import parameters_of, weights_of

OPTIMIZER_RECREATED = Defect(
    "optimizer-recreated",
    "warning",
    "Its averages of gradients begin at zero again and again, so that steps are noisier than they are meant to be.",
    shown_by=TRAINING,
)
_LEAST = 3  # optimizers that a finding needs


def recreated_optimizers(subject: Subject) -> Iterator[Finding | str]:
    """Trains a few real steps and compares the optimizers that take them.

    Three or more that one line makes for the same weights are reported, if each begins without averages where the one
    before has left the weights. It is advice if an optimizer lives for longer than it remembers, 1 / (1 - beta) steps
    for its largest beta (Kingma and Ba 2015, "Adam"), or if their rates differ. Optimizers of different data or of
    several epochs each, as for the tasks of a curriculum, are not reported.
    """
    yield from rehearsal_notes(subject, RecreationWatch).look()


@dataclass
class _Life:
    """The steps of an optimizer.

    Args:
        options: its rates and the like.
        round: the iteration of its latest step over a loader, which comes first, if known.
        is_short: whether it has stepped in one iteration only.
        num_steps: in all.
        norm: of its weights after the last one.
        gathers: whether it has averages by then.
    """

    options: dict[str, Any]
    round: tuple[Any, Any]
    is_short: bool = True
    num_steps: int = 0
    norm: Tensor | None = None
    gathers: bool = False

    @property
    def data(self) -> Any:
        """The data set that it trains on, if known."""
        return getattr(self.round[0], "dataset", None)

    def most_steps(self, later: "_Life") -> int:
        """Steps that it takes until a later one: as many as batches, of which the review may have cut off some."""
        return max(self.num_steps, sized_len(self.round[0]) or 0 if self.round is not later.round else 0)

    @property
    def memory(self) -> float:
        """Steps that its averages go back."""
        betas = [*self.options.get("betas", ()), *(self.options.get(name, 0.0) for name in ("momentum", "alpha"))]
        return 1 / (1 - max(betas)) if any(betas) else inf


class RecreationWatch(Watch):
    """Follows optimizers and the weights that each of them steps."""

    def __init__(self, subject: Subject | None = None) -> None:
        self.round: Callable[[], tuple[Any, Any]] = lambda: (None, object())  # as of _Life
        self.lives: WeakKeyDictionary[Optimizer, _Life] = WeakKeyDictionary()
        self.last: dict[frozenset[int], _Life] = {}  # of those that trained the same weights
        self.pairs: dict[Place, list[tuple[_Life, _Life]]] = {}  # the second goes on where the first has ended

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Takes notes from here on; the process is a copy."""
        self.begin()

    def on_train_batch_start(self, *_: Any) -> None:
        batch = None, object()
        self.round = lambda: batch

    def begin(self) -> None:
        """Takes notes of optimizers' steps in this process, for good."""
        register_optimizer_step_pre_hook(lambda optimizer, *_: self.before_step(optimizer))
        register_optimizer_step_post_hook(lambda optimizer, *_: self.after_step(optimizer))

    def before_step(self, optimizer: Optimizer) -> None:
        latest = self.round()
        if optimizer in self.lives:
            life = self.lives[optimizer]
            life.is_short &= life.round is latest
            life.round = latest
            return
        life = self.lives[optimizer] = _Life(optimizer.defaults, latest)
        weights = frozenset(weights_of(optimizer))
        before, self.last[weights] = self.last.get(weights), life
        place = origins.maker(optimizer)
        if before is None or place is None or before.norm is None or optimizer.state:
            return
        goes_on = torch.equal(before.norm, _norm(optimizer)) and before.data is life.data
        if goes_on and before.gathers and before.is_short:
            self.pairs.setdefault(place, []).append((before, life))

    def after_step(self, optimizer: Optimizer) -> None:
        life = self.lives.get(optimizer)
        if life is None:  # the notes begin amid its step
            return
        life.num_steps += 1
        life.norm = _norm(optimizer)
        life.gathers = any(_has_average(state) for state in optimizer.state.values())

    def look(self) -> Iterator[Finding | str]:
        """What the steps mean."""
        for place, pairs in self.pairs.items():
            if len(pairs) < _LEAST - 1:
                continue
            life, later = pairs[-1]
            defect, most = OPTIMIZER_RECREATED, life.most_steps(later)
            steps = f"{most} steps at most" if most > 1 else "one step"
            message = f"{len(pairs) + 1} optimizers are made here for the same weights in turn, each for {steps}"
            if most > life.memory or life.options != later.options:
                defect = replace(defect, severity="advice")
            yield Finding(defect, place, message, f"{place.code}  # once, before the first epoch")
            return
        if self.lives and not self.pairs:
            yield "optimizers keep their state"


PROBE = Probe(
    look=recreated_optimizers,
    defects=(OPTIMIZER_RECREATED,),
    needs=(Need.LIGHTNING,),
    watch=RecreationWatch,
    by_rehearsal=(OPTIMIZER_RECREATED,),
)


def _norm(optimizer: Optimizer) -> Tensor:
    return get_total_norm([weight.detach() for weight in parameters_of([optimizer])])


def _has_average(state: Any) -> bool:
    return any(isinstance(value, Tensor) and value.ndim > 0 for value in state.values())

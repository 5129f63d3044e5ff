"""Gradient clipping without effect."""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import lightning.pytorch as pl
from torch import Tensor
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchdoctor import source
from torchdoctor.evidence.scaled_losses import Scaling, may_scale
from torchdoctor.findings import TRAINING, Defect, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.graph import call_before
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.subject import Subject

INEFFECTIVE_CLIPPING = Defect(
    "ineffective-clipping",
    "warning",
    "The optimizer takes gradients as they are: clipping does nothing.",
    shown_by=TRAINING,
)
_FIX = "torch.nn.utils.clip_grad_norm_(parameters, 1.0)  # after backward(), before optimizer.step()"
_SCALED = "Gradients of the scaled loss are thousands of times larger: clipping leaves almost nothing of each step."
_UNSCALE = "scaler.unscale_(optimizer)  # before this line, so that the limit is one of the gradients themselves"
_LEAST = 4  # steps that a finding needs
_MOST = 1000  # calls that are remembered
_READS = 1e5  # a limit this high only reads the norm; public programs clip at 1e3 and below, and read with 1e6 and up


def clipping(subject: Subject) -> Iterator[Finding | str]:
    """Trains a few real steps and follows each clipped gradient until an optimizer takes it, or it is zeroed.

    A line does nothing if its weights have no gradient yet at each call, or one that is zeroed before their optimizer's
    next step. Gradients that are zeroed before any step at all are not judged: the program may have added them up
    itself (Abadi et al. 2016, "Deep Learning with Differential Privacy"), or a scaler has skipped the step. Weights
    that another line clips in time are not reported, nor are networks that are clipped in turns. Gradients that a
    GradScaler has multiplied, and not divided again by `unscale_`, are clipped to another limit than the one that is
    written; without an accelerator the scaler is off, but its methods are called in the same order.
    """
    yield from rehearsal_notes(subject, ClippingWatch).look()


@dataclass(eq=False)
class _Clipping:
    """A call that clips gradients, until a step shows what became of them.

    Args:
        place: the user's line.
        number: of the steps before it.
        weights: that it was called with, by identity.
        clipped: those of them that had a gradient then, and still have it.
        is_empty: whether none had.
        is_scaled: whether a GradScaler's factor was in them; None where the scaler is off by an option.
        is_late: whether none had, or a step has used the gradients before they were clipped, or left them out since.
    """

    place: Place | None
    number: int
    weights: dict[int, Tensor]
    clipped: dict[int, Tensor]
    is_empty: bool
    is_scaled: bool | None
    is_late: bool


class ClippingWatch(Watch):
    """Follows gradients from where they are clipped to the step that takes them."""

    def __init__(self, subject: Subject | None = None) -> None:
        self.num_steps = 0
        self.pending: list[_Clipping] = []
        self.used: dict[int, Tensor] = {}  # weights whose gradient an optimizer has used, until it is zeroed
        self.ineffective: list[_Clipping] = []
        self.scaled: list[_Clipping] = []
        self.scaling = Scaling()
        self.in_time: set[int] = set()  # weights, by identity, that some line clips before their optimizer's step

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Puts itself before each backward pass as well; the process is a copy."""
        call_before("backward", self.forget_zeroed)
        self.begin()

    def begin(self) -> None:
        """Takes notes of clipping and of optimizers' steps in this process, for good."""
        for function in (clip_grads_with_norm_, clip_grad_value_):  # clip_grad_norm_ calls the first
            for cell in getattr(function, "__closure__", None) or ():  # programs may have imported the function itself
                if inspect.isfunction(cell.cell_contents):
                    cell.cell_contents = self._noting(cell.cell_contents)
        self.scaling.begin()
        register_optimizer_step_pre_hook(lambda *_: self.forget_zeroed())
        register_optimizer_step_post_hook(lambda optimizer, *_: self.after_step(optimizer))

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def clip(*args: Any, **kwargs: Any) -> Any:
            call = inspect.signature(original).bind(*args, **kwargs)
            (name, weights), (_, limit), *_ = call.arguments.items()
            call.arguments[name] = weights = [weights] if isinstance(weights, Tensor) else list(weights)
            original(*call.args, **call.kwargs)
            if weights and float(limit) < _READS:
                self.after_clipping({id(weight): weight for weight in weights})

        return clip

    def after_clipping(self, weights: dict[int, Tensor]) -> None:
        places, _ = source.callers(sys._getframe(1))
        clipped = _with_gradient(weights)
        is_late = clipped.keys() <= self.used.keys()
        place = next(iter(places), None)
        scaler = self.scaling.scaler_of(clipped)
        is_scaled = may_scale(scaler) if scaler is not None else False
        self.pending.append(_Clipping(place, self.num_steps, weights, clipped, not clipped, is_scaled, is_late))
        del self.pending[:-_MOST]

    def forget_zeroed(self) -> None:
        self.used = _with_gradient(self.used)
        for clipping in self.pending:
            clipping.clipped = _with_gradient(clipping.clipped)
        self.pending = [clipping for clipping in self.pending if clipping.clipped or clipping.is_late]

    def after_step(self, optimizer: Optimizer) -> None:
        self.num_steps += 1
        own = {id(weight): weight for group in optimizer.param_groups for weight in group["params"]}
        with_gradient = _with_gradient(own)
        pending, self.pending = self.pending, []
        for clipping in pending:
            if own.keys() & clipping.clipped.keys() and clipping.is_scaled is not False:
                self.scaled.append(clipping)
            elif own.keys() & clipping.clipped.keys():
                self.in_time |= clipping.weights.keys()
            elif not clipping.clipped and with_gradient.keys() & clipping.weights.keys():
                self.ineffective.append(clipping)
            else:
                clipping.is_late = True
                self.pending.append(clipping)
        del self.ineffective[_MOST:], self.scaled[_MOST:]
        self.used |= with_gradient

    def look(self) -> Iterator[Finding | str]:
        """What the notes mean."""
        yield from self._look_at_scaled()
        if self.in_time:
            yield "gradients are clipped before an optimizer takes them"
        for place in dict.fromkeys(clipping.place for clipping in self.ineffective):
            calls = [clipping for clipping in self.ineffective if clipping.place == place]
            num_steps = len({clipping.number for clipping in calls})
            if place is None or num_steps < _LEAST or any(self.in_time & clipping.weights.keys() for clipping in calls):
                continue
            is_early = 2 * sum(clipping.is_empty for clipping in calls) > len(calls)
            reason = "before there are any" if is_early else "and zeroed before an optimizer takes them"
            message = f"gradients are clipped here {reason}, in all {num_steps} steps"
            yield Finding(INEFFECTIVE_CLIPPING, place, message, _FIX)

    def _look_at_scaled(self) -> Iterator[Finding]:
        scaled = [clipping for clipping in self.scaled if not self.in_time & clipping.weights.keys()]
        for place in dict.fromkeys(clipping.place for clipping in scaled):
            calls = [clipping for clipping in scaled if clipping.place == place]
            is_sure = all(clipping.is_scaled for clipping in calls)
            message = "gradients are clipped here while the factor of the GradScaler is in them"
            message += f", in all {len(calls)} steps" if is_sure else " if it is enabled, which it is not in this run"
            severity = INEFFECTIVE_CLIPPING.severity if is_sure else "advice"
            yield Finding(replace(INEFFECTIVE_CLIPPING, impact=_SCALED, severity=severity), place, message, _UNSCALE)


PROBE = Probe(
    look=clipping,
    defects=(INEFFECTIVE_CLIPPING,),
    needs=(Need.LIGHTNING,),
    watch=ClippingWatch,
    by_rehearsal=(INEFFECTIVE_CLIPPING,),
)


def _with_gradient(weights: dict[int, Tensor]) -> dict[int, Tensor]:
    return {key: weight for key, weight in weights.items() if weight.grad is not None and weight.grad.any()}

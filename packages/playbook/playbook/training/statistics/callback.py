"""Norms of gradients, weights and updates by layer, and dead units, as a training goes on."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from torch import Tensor
from torch.optim import Optimizer

from playbook.errors import UserError
from playbook.runs.loggers import MetricsCSV
from playbook.training.lightning.results import logged_step
from playbook.training.statistics.layers import grouped, layer_of
from playbook.training.statistics.norms import norms
from playbook.training.statistics.units import Units

FILE = "statistics.csv"
LARGE, SMALL = 1e-1, 1e-6  # update ratios beyond which a layer is told; 1e-3 is usual
IN_A_ROW = 3  # observations
MOST_DEAD = 0.5  # share of a module's units
MOST_NAMED = 3  # layers in a message


@dataclass
class _Step:
    """An optimizer step that is observed: its parameters, with what is known before they change."""

    number: int  # of the optimizer step
    parameters: list[Tensor]
    weights: list[Tensor]  # copies
    gradient_norms: Tensor  # (P,), a parameter without a gradient has 0
    rate: float  # learning rate, as a share of that before its schedule


class Statistics(Callback):
    """Logs norms of gradients and weights, update ratios and dead units by layer.

    `statistics.csv` in the run directory and all loggers but metrics.csv, which stays readable, get four quantities of
    a layer, and the first three of all layers together; the report draws them:

    - `gradient_norm/LAYER`: Euclidean norm of the gradients, after accumulation, all-reduce and unscaling, before
      clipping.
    - `weight_norm/LAYER`: that of the weights before the step.
    - `update_ratio/LAYER`: norm of the change of the weights in the step over the norm of the weights, usually about
      1e-3. A layer whose weights are all 0 has none.
    - `dead_units/MODULE`: share of the units of ReLU, ReLU6, GELU, SiLU, Hardswish and Mish that were not positive for
      any sample of the step, in the first process. Compiled nets, and functions in place of modules, have none.

    A layer is a module with parameters that are trained; nets with more than 50 show their blocks. An unusual layer
    is named in a warning. With manual optimization, each optimizer is observed at its last step in a batch.

    On a ResNet-18 with 128 images of 32 × 32 pixels and one CPU thread, an observation took 64 ms of CPU time (mean of
    3), and a step 5.6 s: 0.02 % at the default interval.

    Args:
        every_n_steps: steps between two observations, at least 1; the first step is observed.

    Raises:
        ValueError: the interval is out of range, or the model is sharded.
    """

    def __init__(self, every_n_steps: int = 50) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps: expected at least 1, got {every_n_steps}")
        self.every_n_steps = every_n_steps
        self._table: MetricsCSV | None = None
        self._units: Units | None = None
        self._observes = self._is_compiled = False
        self._steps: dict[int, _Step] = {}  # by the identity of the optimizer
        self._unusual: Counter[tuple[str, str]] = Counter()  # observations in a row, by kind and layer
        self._told: set[str] = set()
        self._dead: dict[str, float] = {}  # share of dead units at the last observation

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        is_sharded = isinstance(trainer.strategy, FSDPStrategy | DeepSpeedStrategy | ModelParallelStrategy)
        if is_sharded or any(hasattr(parameter, "full_tensor") for parameter in pl_module.parameters()):
            raise UserError("trainer.strategy: Statistics does not support sharded weights; expected auto or ddp")
        self._forget()
        run = getattr(trainer, "run", None)
        self._table = None if run is None else MetricsCSV(run.path / FILE, is_alone=False)
        if self._table is not None:
            self._table.continue_from(logged_step(trainer))
        self._is_compiled = any(_compiled(module) for module in pl_module.modules())

    def _forget(self) -> None:
        self._stop()
        self._unusual.clear()
        self._told.clear()
        self._dead = {}

    def _stop(self) -> dict[str, tuple[Tensor, int]]:
        counts = {} if self._units is None else self._units.close()
        self._observes, self._units, self._steps = False, None, {}
        return counts

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        is_due = trainer.is_global_zero and logged_step(trainer) % self.every_n_steps == 0
        if is_due and not self._observes:  # accumulated gradients keep the number for several batches
            self._observes = True
            self._units = None if self._is_compiled else Units(trainer, pl_module)
        self._begin_forward()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        self._begin_forward()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin_forward()  # activation checkpointing has called modules again

    def _begin_forward(self) -> None:
        if self._units is not None:
            self._units.begin_forward()

    @torch.no_grad()
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        former = self._steps.get(id(optimizer))
        if not self._observes or (former is not None and former.number == trainer.global_step):  # LBFGS asks again
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad and p.numel()]
        if not parameters:
            return
        gradient_norms = norms([torch.zeros(1).to(p) if p.grad is None else p.grad for p in parameters])
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        # private to torch, and what its own GradScaler asks: a fused optimizer unscales within its step
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            gradient_norms /= scaler.scale(torch.ones((), device=gradient_norms.device))
        weights = [parameter.detach().clone() for parameter in parameters]
        self._steps[id(optimizer)] = _Step(trainer.global_step, parameters, weights, gradient_norms, _rate(optimizer))

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if not self._steps:
            return
        steps = list(self._steps.values())
        units = self._stop()
        rows = [(step.gradient_norms, norms(step.weights), norms(_changes(step))) for step in steps]
        device = rows[0][0].device
        tensors = [tensor.to(device) for tensor in (torch.cat(column) for column in zip(*rows, strict=True))]
        dead = [count.to(device)[None] for count, _ in units.values()]
        values = torch.cat([*tensors, *dead]).tolist()  # the one wait for the device
        parameters = [parameter for step in steps for parameter in step.parameters]
        layers, size = _layers(pl_module, parameters), len(parameters)
        order = _in_order(pl_module, parameters)
        columns = [values[number * size : (number + 1) * size] for number in range(3)]
        gradients, weights, changes = (
            _sums([layers[place] for place in order], [column[place] for place in order]) for column in columns
        )
        ratios = {layer: change / weights[layer] for layer, change in changes.items() if weights[layer]}
        self._dead = _shares(units, values[3 * size :])
        metrics = {
            **_named("gradient_norm", gradients),
            **_named("weight_norm", weights),
            **_named("update_ratio", ratios),
            **{f"dead_units/{name}": share for name, share in self._dead.items()},
        }
        self._log(trainer, metrics)
        if all(map(math.isfinite, gradients.values())):  # else a loss scaler has left out the step
            slow = SMALL * min(1.0, *(step.rate for step in steps))  # at the end of a schedule, all layers are slow
            self._watch({layer: ratio for layer, ratio in ratios.items() if layer}, slow)

    def _log(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        row = {"epoch": trainer.current_epoch, **metrics}
        others = [logger for logger in trainer.loggers if not isinstance(logger, MetricsCSV)]
        for logger in [*([] if self._table is None else [self._table]), *others]:
            logger.log_metrics(row, step=logged_step(trainer))

    def _watch(self, ratios: Mapping[str, float], slow: float) -> None:
        """Warns once of layers that change too fast, and once of those that hardly change."""
        kinds = {
            "fast": ({layer for layer, ratio in ratios.items() if ratio > LARGE}, "; a lower learning rate helps"),
            "slow": (
                {layer for layer, ratio in ratios.items() if ratio < slow},
                "; its learning rate or its gradient is too small to train it",
            ),
        }
        for kind, (layers, advice) in kinds.items():
            for layer in ratios:
                self._unusual[kind, layer] = self._unusual[kind, layer] + 1 if layer in layers else 0
            lasting = {layer: ratios[layer] for layer in ratios if self._unusual[kind, layer] >= IN_A_ROW}
            if lasting and kind not in self._told:
                self._told.add(kind)
                first = f"a step changes weights by {_list(lasting)} of their norm, where 1e-3 is usual"
                _warn(f"{first}, in {IN_A_ROW} observations in a row{advice}")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop()
        if dead := {name: share for name, share in self._dead.items() if share > MOST_DEAD}:
            share = _list(dead, ".0%")
            _warn(f"units that were not positive for any sample of the last observed step: {share}; {HELPS}")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()


HELPS = "a lower learning rate, another initialization or LeakyReLU keeps them alive"


def _compiled(module: Any) -> bool:
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")


def _rate(optimizer: Optimizer) -> float:
    """The learning rate as a share of that before its schedule: the smallest of all groups."""
    groups = [group for group in optimizer.param_groups if group.get("initial_lr")]  # set by schedules
    return min((float(group["lr"]) / float(group["initial_lr"]) for group in groups), default=1.0)


def _changes(step: _Step) -> list[Tensor]:
    return [weight.sub_(parameter.detach()) for weight, parameter in zip(step.weights, step.parameters, strict=True)]


def _layers(module: LightningModule, parameters: list[Tensor]) -> list[str]:
    """The layer of each parameter."""
    names = {id(parameter): layer_of(name) for name, parameter in module.named_parameters()}
    paths = [names.get(id(parameter), "other") for parameter in parameters]
    layers = grouped([*names.values(), *paths])
    return [layers[path] for path in paths]


def _in_order(module: LightningModule, parameters: list[Tensor]) -> list[int]:
    """Places of the parameters in the order of the module, as groups of an optimizer mix the layers."""
    order = {id(parameter): place for place, parameter in enumerate(module.parameters())}
    return sorted(range(len(parameters)), key=lambda place: order.get(id(parameters[place]), len(order)))


def _sums(layers: list[str], values: Iterable[float]) -> dict[str, float]:
    """Norm of each layer, and under the empty name that of all, from the norms of their parameters."""
    squares: dict[str, float] = {"": 0.0}
    for layer, value in zip(layers, values, strict=True):
        squares[""] += value * value
        squares[layer] = squares.get(layer, 0.0) + value * value
    return {layer: math.sqrt(square) for layer, square in squares.items()}


def _named(quantity: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{quantity}/{layer}" if layer else quantity: value for layer, value in values.items()}


def _shares(units: Mapping[str, tuple[Tensor, int]], dead: Iterable[float]) -> dict[str, float]:
    """Share of dead units of each layer with activations."""
    layers = grouped(units)
    counts: dict[str, list[float]] = {}
    for (name, (_, total)), count in zip(units.items(), dead, strict=True):
        layer = counts.setdefault(layers[name], [0.0, 0.0])
        layer[0] += count
        layer[1] += total
    return {layer: count / total for layer, (count, total) in counts.items()}


def _list(values: Mapping[str, float], form: str = ".1e") -> str:
    text = ", ".join(f"{value:{form}} ({layer})" for layer, value in list(values.items())[:MOST_NAMED])
    rest = len(values) - MOST_NAMED
    return text if rest <= 0 else f"{text} and {rest} more"


def _warn(text: str) -> None:
    print(f"\nwarning: Statistics: {text}", file=sys.stderr, flush=True)

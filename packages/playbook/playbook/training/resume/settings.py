"""Settings of optimizers and schedules, and their changes when a run resumes."""

import copy
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from lightning.pytorch import Trainer
from torch import Tensor
from torch.optim import Optimizer

from playbook.errors import UserError
from playbook.optim.schedules import scale_rates
from playbook.training.resume.options import Change

# entries of a parameter group that schedules write; a former value of them says nothing about what was configured
SCHEDULED = {"lr", "initial_lr", "max_lr", "min_lr", "betas", "momentum", "base_momentum", "max_momentum"}
SCORE = ("best", "num_bad_epochs", "cooldown_counter")  # state of ReduceLROnPlateau that belongs to its metric
# settings that need an entry of the optimizer's state, which is made at the first step alone
NEEDED_STATE = {"amsgrad": "max_exp_avg_sq", "centered": "grad_avg", "momentum": "momentum_buffer"}
SAMPLED_STEPS = [0, *(factor * 10**power for power in range(7) for factor in (1, 2, 5))]  # of a function of the step


class Settings:
    """The parameter groups and schedules that `configure_optimizers` has made, before a checkpoint is restored.

    An option takes effect in a continued run if what was made now differs from what was made for the checkpoint.
    Everything else stays as it was restored: a rate that a plateau or NonFinite has cut is not raised again.

    Args:
        trainer: whose optimizers are made, and not restored yet.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._groups = [
            [{key: copy.deepcopy(value) for key, value in group.items() if key != "params"} for group in groups]
            for groups in (optimizer.param_groups for optimizer in trainer.optimizers)
        ]
        self._states = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
        self._positions: list[int | None] = [None] * len(self._states)  # where schedules go on that are made anew
        self._is_rebuilt: set[int] = set()  # optimizers whose schedules are made anew
        self.values = plain(
            {
                "seed": os.environ.get("PL_GLOBAL_SEED"),
                "data": _name_of(getattr(trainer, "datamodule", None)),
                "optimizers": [
                    {"class": type(optimizer).__name__, "sizes": _sizes(optimizer), "groups": groups}
                    for optimizer, groups in zip(trainer.optimizers, self._groups, strict=True)
                ],
                "schedules": [
                    {
                        "class": type(config.scheduler).__name__,
                        "optimizer": _index(trainer.optimizers, config.scheduler.optimizer),
                        "cadence": [config.interval, config.frequency],
                        "monitor": config.monitor if config.reduce_on_plateau else None,
                        "state": _state(config.scheduler),
                    }
                    for config in trainer.lr_scheduler_configs
                ],
            }
        )

    def prepare(self, trainer: Trainer, former: dict[str, Any], checkpoint: dict[str, Any]) -> None:
        """Checks that the optimizers fit and keeps the state of schedules out that are to be made anew.

        Args:
            trainer: of this run.
            former: `values` of the run that the checkpoint is of.
            checkpoint: what is about to be restored.

        Raises:
            UserError: another optimizer, or other groups of parameters.
        """
        now = self.values
        require_same_optimizers(former["optimizers"], now["optimizers"])
        states = list(checkpoint.get("lr_schedulers", []))
        for number in range(len(now["optimizers"])):
            schedules = [[s for s in values["schedules"] if s["optimizer"] == number] for values in (former, now)]
            if self._differ(*schedules):
                self._is_rebuilt.add(number)
        restored: list[Any] = []
        for number, (config, schedule) in enumerate(zip(trainer.lr_scheduler_configs, now["schedules"], strict=True)):
            state = states[number] if number < len(states) else None
            if schedule["optimizer"] in self._is_rebuilt:
                had = former["schedules"][number] if number < len(former["schedules"]) else {}
                in_place = had.get("cadence") == schedule["cadence"] and had.get("monitor") is None
                self._positions[number] = _position(state) if in_place and isinstance(state, Mapping) else None
                state = config.scheduler.state_dict()
            restored.append(state)
        checkpoint["lr_schedulers"] = restored

    @staticmethod
    def _differ(former: list[dict[str, Any]], now: list[dict[str, Any]]) -> bool:
        """Whether schedules must be made anew; one that follows a metric cannot be replayed, and is only changed."""
        if [(s["class"], s["cadence"]) for s in former] != [(s["class"], s["cadence"]) for s in now]:
            return True
        pairs = zip(former, now, strict=True)
        return any(one["monitor"] is None and _changed(one["state"], two["state"]) for one, two in pairs)

    def apply(self, trainer: Trainer, former: dict[str, Any]) -> None:
        """Changes what was restored, where the settings differ.

        Args:
            trainer: with everything restored.
            former: `values` of the run that the checkpoint is of.

        Raises:
            UserError: a change that the state of the optimizer, or its schedule, does not admit.
        """
        pairs = zip(former["optimizers"], self.values["optimizers"], strict=True)
        for number, (optimizer, (then, now)) in enumerate(zip(trainer.optimizers, pairs, strict=True)):
            changed = [_changed(*groups) for groups in zip(then["groups"], now["groups"], strict=True)]
            _require_state(optimizer, changed, now["groups"])
            if number in self._is_rebuilt:
                was_cut = any(s["optimizer"] == number and s["monitor"] for s in former["schedules"])
                self._rebuild(trainer, number, changed, 1.0 if was_cut else _lowering(optimizer, then, now))
                continue
            for group, fresh, keys in zip(optimizer.param_groups, self._groups[number], changed, strict=False):
                group.update({key: copy.deepcopy(fresh[key]) for key in keys})
        for config, state, then, now in zip(
            trainer.lr_scheduler_configs, self._states, former["schedules"], self.values["schedules"], strict=False
        ):
            if now["monitor"] is not None and now["optimizer"] not in self._is_rebuilt:
                keys = [*_changed(then["state"], now["state"])]
                if then["monitor"] != now["monitor"] or "mode" in keys:
                    keys += SCORE  # a score of another metric, or for the other direction
                if keys:
                    config.scheduler.load_state_dict({key: copy.deepcopy(state[key]) for key in keys if key in state})

    def _rebuild(self, trainer: Trainer, number: int, changed: list[set[str]], lowering: float) -> None:
        """Takes the schedules of an optimizer as they were made, through the steps that were done before."""
        optimizer, module = trainer.optimizers[number], trainer.lightning_module
        if len(optimizer.param_groups) != len(self._groups[number]):
            raise UserError("schedule: cannot change if a callback has added parameter groups to the optimizer")
        for group, fresh, keys in zip(optimizer.param_groups, self._groups[number], changed, strict=True):
            for key in SCHEDULED & group.keys() - fresh.keys():
                del group[key]
            group.update({key: copy.deepcopy(fresh[key]) for key in fresh if key in SCHEDULED | keys})
        own = [
            (config, position)
            for config, position in zip(trainer.lr_scheduler_configs, self._positions, strict=True)
            if config.scheduler.optimizer is optimizer
        ]
        for config, position in own:
            # without one, there was no schedule before, or it moved at another cadence
            moves = trainer.global_step if config.interval == "step" else trainer.current_epoch
            num_steps = moves // config.frequency if position is None else position
            try:
                with warnings.catch_warnings():  # that no step of the optimizer comes between
                    warnings.simplefilter("ignore")
                    for _ in range(0 if config.reduce_on_plateau else num_steps):
                        module.lr_scheduler_step(config.scheduler, None)
            except ValueError as error:
                name = type(config.scheduler).__name__
                raise UserError(f"schedule: {name} cannot continue from step {num_steps:,}: {error}") from error
        if lowering != 1:
            scale_rates([optimizer], [config.scheduler for config, _ in own], lowering)


def changed_settings(former: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
    """Names what differs in optimizers and schedules, once for all parameter groups.

    Args:
        former: `Settings.values` of the run that the checkpoint is of.
        now: those of this run.
    """
    for old, new in zip(former["optimizers"], now["optimizers"], strict=True):
        seen_keys: set[str] = set()
        for one, two in zip(old["groups"], new["groups"], strict=True):
            keys = _changed(one, two)
            if "initial_lr" in one and "initial_lr" in two:  # the others follow from the schedule
                keys -= SCHEDULED - {"initial_lr", "betas", "momentum"}
            for key in sorted(keys - seen_keys):
                yield Change(f"optimizer.{'lr' if key == 'initial_lr' else key}", one[key], two[key])
            seen_keys |= keys
    schedules = [{s["optimizer"]: s for s in values["schedules"]} for values in (former, now)]
    for number in sorted(schedules[0].keys() | schedules[1].keys()):
        one, two = (by_number.get(number, {}) for by_number in schedules)
        if one.get("class") != two.get("class"):
            yield Change("schedule", one.get("class"), two.get("class"))
            continue
        keys = {key for key in _changed(one["state"], two["state"]) if not key.startswith("_")} - {"base_lrs"}
        for key in sorted(keys - {"lr_lambdas"}):
            yield Change(f"schedule.{key}", one["state"][key], two["state"][key])
        if keys == {"lr_lambdas"}:
            yield Change("schedule", one["class"], f"{two['class']} with other arguments")


def require_same_optimizers(former: list[dict[str, Any]], now: list[dict[str, Any]]) -> None:
    """Compares classes and sizes of groups, which the state of an optimizer depends on.

    Raises:
        UserError: they differ.
    """
    anew = "--init_from loads only the weights"
    names, wanted = [", ".join(optimizer["class"] for optimizer in each) for each in (now, former)]
    if names != wanted:
        raise UserError(f"optimizer: expected {wanted} as in the checkpoint, got {names}; {anew}")
    sizes, wanted_sizes = [[optimizer["sizes"] for optimizer in each] for each in (now, former)]
    if sizes != wanted_sizes:
        shown, expected = (" and ".join(map(str, each)) for each in (sizes, wanted_sizes))
        raise UserError(
            f"optimizer: expected groups of {expected} parameters, as in the checkpoint, got {shown}; {anew}"
        )


def _require_state(optimizer: Optimizer, changed: list[set[str]], groups: list[dict[str, Any]]) -> None:
    for keys, group in zip(changed, groups, strict=True):
        for key in sorted(keys & NEEDED_STATE.keys()):
            missing = any(state and NEEDED_STATE[key] not in state for state in optimizer.state.values())
            if group[key] and missing:
                raise UserError(
                    f"optimizer: {key} {group[key]} needs averages since the first step, which the checkpoint lacks; "
                    "--init_from loads only the weights"
                )


def _lowering(optimizer: Optimizer, then: dict[str, Any], now: dict[str, Any]) -> float:
    """What the rates were multiplied by during training, as NonFinite does; a rate that the user changes stands."""
    bases = [group.get("initial_lr", group["lr"]) for group in (then["groups"][0], now["groups"][0])]
    group = optimizer.param_groups[0]
    if bases[0] != bases[1] or not bases[0]:
        return 1.0
    return float(group.get("initial_lr", group["lr"])) / bases[0]


def _position(state: Mapping[str, Any]) -> int | None:
    """How often a schedule was stepped; of ChainedScheduler, its parts know."""
    if "last_epoch" in state:
        return state["last_epoch"]
    positions = [_position(inner) for inner in state.get("_schedulers", [])]
    return max((position for position in positions if position is not None), default=None)


def _state(scheduler: Any) -> dict[str, Any]:
    """The state of a schedule as it was made, with functions of the step sampled."""
    state = dict(scheduler.state_dict())
    if functions := getattr(scheduler, "lr_lambdas", None):
        state["lr_lambdas"] = [_samples(function) for function in functions]
    if inner := getattr(scheduler, "_schedulers", None):
        state["_schedulers"] = [_state(part) for part in inner]
    return state


def _samples(function: Any) -> list[Any]:
    values: list[Any] = []
    for step in SAMPLED_STEPS:
        try:
            values.append(function(step))
        except Exception:  # a function that knows the steps of a training alone
            break
    return values


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts, which any checkpoint can hold; of anything else, its class."""
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(entry) for entry in value]
    if isinstance(value, float):  # also one of NumPy
        return "nan" if math.isnan(value) else float(value)  # a text equals itself
    return value if value is None or type(value) in (bool, int, str) else type(value).__name__


def _changed(former: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """Entries that both have: another version of torch may have more."""
    return {key for key in now if key in former and former[key] != now[key]}


def _sizes(optimizer: Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def _index(optimizers: list[Optimizer], optimizer: Optimizer) -> int | None:
    return next((number for number, other in enumerate(optimizers) if other is optimizer), None)


def _name_of(value: Any) -> str | None:
    return None if value is None else type(value).__name__

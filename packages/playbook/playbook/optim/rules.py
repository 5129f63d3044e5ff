"""The option parameter_groups: learning rates, weight decay and freezing by patterns of parameter names."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from playbook.errors import UserError, nearest
from playbook.network import networks
from playbook.optim.layers import layer_numbers

WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}  # in names of wrapped modules


@dataclass(frozen=True)
class Rule:
    """Settings for the parameters that match a pattern; others come from an earlier rule or the optimizer.

    Fine-tuning from Fashion-MNIST to 500 digits, test/accuracy is 0.9285 ± 0.0049 without and 0.9062 ± 0.0032 with
    layer_decay 0.75 (vit-mnist-500, seeds 1, 2, 3; benchmarks/LOG.md): it does not help if the data differ a lot.

    Args:
        pattern: glob over the names of parameters and modules, in which * also matches dots: `net.head`, `net.head.*`
            and `*.head.*` all match the parameters of the module net.head.
        lr_factor: factor of the optimizer's learning rate, above 0.
        lr: peak learning rate that replaces the optimizer's, above 0; a schedule keeps the ratio of the two.
        layer_decay: factor of the rate from each layer to the one below it, in (0, 1], as in BEiT and ELECTRA. The last
            layer with a matching parameter keeps the full rate. `layer_numbers` defines the layers.
        weight_decay: weight decay of the weights, at least 0; norms, biases and embeddings always have none.
        frozen: true freezes the parameters, and keeps the batch norms of completely frozen modules in evaluation mode;
            false trains parameters that an earlier rule, or the net itself, has frozen.

    Raises:
        ValueError: a value is out of range, or the rule sets nothing.
    """

    pattern: str
    lr_factor: float | None = None
    lr: float | None = None
    layer_decay: float | None = None
    weight_decay: float | None = None
    frozen: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str) or not self.pattern:
            raise ValueError(f"pattern: expected a glob over parameter names, got {self.pattern!r}")
        for name in ("lr_factor", "lr", "layer_decay", "weight_decay"):
            value, expected = getattr(self, name), EXPECTED[name]
            if value is not None and not (_is_number(value) and _is_in_range(name, value)):
                raise ValueError(f"{name}: expected {expected}, got {value!r}")
        if not isinstance(self.frozen, bool | None):
            raise ValueError(f"frozen: expected true or false, got {self.frozen!r}")  # noqa: TRY004  # see CONTRIBUTING
        if self.lr is not None and self.lr_factor is not None:
            raise ValueError("lr, lr_factor: expected one of them")
        if all(getattr(self, name) is None for name in SETTINGS):
            raise ValueError(f"expected at least one of {', '.join(SETTINGS)}")

    def covers(self, name: str) -> bool:
        """Whether the pattern matches this parameter, or a module that contains it."""
        return fnmatchcase(name, self.pattern) or fnmatchcase(name, f"{self.pattern}.*")


SETTINGS = [field.name for field in fields(Rule) if field.name != "pattern"]
EXPECTED = {
    "lr_factor": "a number above 0 (frozen: true trains nothing)",
    "lr": "a number above 0 (frozen: true trains nothing)",
    "layer_decay": "a number in (0, 1]",
    "weight_decay": "a number of at least 0",
}


@dataclass(frozen=True)
class Setting:
    """Settings of one parameter after all rules.

    Args:
        lr: peak learning rate; None for the optimizer's.
        factor: factor of the optimizer's rate.
        layer_factor: factor of the rate for the parameter's layer.
        weight_decay: None for the optimizer's.
        frozen: None if no rule sets it.
    """

    lr: float | None = None
    factor: float = 1.0
    layer_factor: float = 1.0
    weight_decay: float | None = None
    frozen: bool | None = None

    def share(self, peak: float) -> float:
        """The learning rate as a share of the optimizer's peak rate.

        Raises:
            ValueError: the peak rate is 0.
        """
        if self.lr is not None and peak <= 0:
            raise ValueError(f"parameter_groups: lr needs an optimizer whose own lr is above 0, got {peak:g}")
        return (self.factor if self.lr is None else self.lr / peak) * self.layer_factor


def read_rules(entries: Iterable[Mapping[str, Any]] | None) -> list[Rule]:
    """Checks the rules of a configuration, except that their patterns match a parameter.

    Raises:
        ValueError: a key is unknown, a pattern is missing, or a value is out of range.
    """
    rules = []
    for entry in entries or []:
        if not isinstance(entry, Mapping) or "pattern" not in entry:
            raise ValueError(f"parameter_groups: expected a mapping with a pattern, got {entry!r}")
        if unknown := [key for key in entry if key not in ("pattern", *SETTINGS)]:
            close = nearest(str(unknown[0]), SETTINGS) or f". Expected some of {', '.join(SETTINGS)}"
            raise ValueError(f"parameter_groups: no such key {unknown[0]}{close}")
        try:
            rules.append(Rule(**entry))
        except ValueError as error:
            raise ValueError(f"parameter_groups: {entry['pattern']}: {error}") from None
    return rules


def settings_of(module: nn.Module, rules: Iterable[Rule]) -> dict[int, Setting]:
    """Applies rules to the parameters of a module; for each setting, the last matching rule applies.

    Args:
        module: module with the parameters.
        rules: the rules, in order.

    Returns:
        Settings by the id of each parameter.

    Raises:
        UserError: a pattern matches no parameter.
    """
    names = {_clean(name): parameter for name, parameter in module.named_parameters(remove_duplicate=False)}
    settings = {id(parameter): Setting() for parameter in names.values()}
    for rule in rules:
        covered = {id(parameter) for name, parameter in names.items() if rule.covers(name)}
        if not covered:
            raise UserError(f"parameter_groups: no parameter matches {rule.pattern}{_suggestion(rule.pattern, names)}")
        factors = _layer_factors(module, rule.layer_decay, covered) if rule.layer_decay is not None else {}
        for key in covered:
            settings[key] = _changed(settings[key], rule, factors.get(key))
    return settings


def freeze(module: nn.Module, settings: Mapping[int, Setting]) -> None:
    """Freezes or unfreezes parameters, and sets the batch norms of completely frozen modules to evaluation mode."""
    for parameter in module.parameters():
        frozen = settings[id(parameter)].frozen
        if frozen is not None:
            parameter.requires_grad_(not frozen)
    if any(setting.frozen for setting in settings.values()):
        hold_frozen_norms(module)
        warnings.filterwarnings("ignore", r".*module\(s\) in eval mode at the start.*")  # these are meant to be


def hold_frozen_norms(module: nn.Module) -> None:
    """Sets the batch norms of modules without a trained parameter to evaluation mode: they keep their statistics."""
    for part in module.modules():
        parameters = list(part.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            for norm in part.modules():
                if isinstance(norm, _BatchNorm):
                    norm.eval()


def describe(
    module: nn.Module, rules: Iterable[Rule], groups: Iterable[Mapping[str, Any]], rates: Iterable[float]
) -> str:
    """«parameter_groups: net.* 52, lr 0.0007 to 0.003, decay 0.05 · net.stem 3 frozen · 2 others, lr 0.003».

    Args:
        module: whose parameters they are.
        rules: that made the groups.
        groups: of the optimizer.
        rates: the peak learning rate of each group.
    """
    trained = {
        id(parameter): (rate, float(group.get("weight_decay", 0.0)))
        for group, rate in zip(groups, rates, strict=True)
        for parameter in group["params"]
    }
    names = {_clean(name): id(parameter) for name, parameter in module.named_parameters(remove_duplicate=False)}
    others, parts = set(names.values()), []
    for rule in rules:
        covered = {key for name, key in names.items() if rule.covers(name)}
        others -= covered
        parts.append(f"{rule.pattern} {_in_words(covered, trained)}")
    if others:
        parts.append(f"others {_in_words(others, trained)}")
    return f"parameter_groups: {' · '.join(parts)}"


def _in_words(keys: set[int], trained: Mapping[int, tuple[float, float]]) -> str:
    values = [trained[key] for key in keys if key in trained]
    parts = [f"{len(values)}"] if values else []
    for name, numbers in zip(("lr", "decay"), zip(*values, strict=True), strict=False):
        low, high = min(numbers), max(numbers)
        if name == "lr" and low < high:
            parts.append(f"lr {low:.3g} to {high:.3g}")
        elif name == "lr" or high > 0:  # without the zeros of norms and biases
            parts.append(f"{name} {high:.3g}")
    if len(values) < len(keys):
        parts.append(f"{len(keys) - len(values)} frozen")
    return ", ".join(parts)


def _changed(setting: Setting, rule: Rule, layer_factor: float | None) -> Setting:
    changes: dict[str, Any] = {
        name: value for name in ("weight_decay", "frozen") if (value := getattr(rule, name)) is not None
    }
    if rule.lr is not None:
        changes |= {"lr": rule.lr, "factor": 1.0}
    if rule.lr_factor is not None:
        changes |= {"lr": None, "factor": rule.lr_factor}
    if layer_factor is not None:
        changes["layer_factor"] = layer_factor
    return replace(setting, **changes)


def _layer_factors(module: nn.Module, decay: float, covered: set[int]) -> dict[int, float]:
    """By layers from the last one among those that hold these parameters."""
    numbers = layer_numbers(module, networks(module))
    places = {number: place for place, number in enumerate(sorted({numbers[key] for key in covered}, reverse=True))}
    return {key: decay ** places[numbers[key]] for key in covered}


def _suggestion(pattern: str, names: Iterable[str]) -> str:
    """Names that are like a pattern: of modules and parameters at the same place, or deeper inside."""
    wanted = pattern.rstrip(".*")
    paths = list(
        dict.fromkeys(".".join(parts[:end]) for parts in map(_parts, names) for end in range(1, len(parts) + 1))
    )
    inner = [path for path in paths if path.endswith(f".{wanted}")]
    if inner:
        return f". Nearest: {', '.join(inner[:3])}"
    if close := nearest(wanted, paths):
        return close
    tops = [path for path in paths if path.count(".") == 1]
    return f". Names begin with {', '.join(tops[:8])}{', …' if len(tops) > 8 else ''}"


def _parts(name: str) -> list[str]:
    return name.split(".")


def _clean(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_in_range(name: str, value: float) -> bool:
    if name == "weight_decay":
        return 0 <= value < float("inf")
    return 0 < value <= 1 if name == "layer_decay" else 0 < value < float("inf")

"""Which options differ between two configurations, by the names that the command line gives them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """One option, or one setting of an optimizer or a schedule, that a continued run changes."""

    option: str
    former: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.option} {_shown(self.now)} (was {_shown(self.former)})"

    @property
    def name(self) -> str:
        """The last part of the option's name."""
        return self.option.rpartition(".")[2]

    def entry(self, step: int) -> dict[str, Any]:
        """The entry of metrics.json; `step` counts the optimizer steps before the change."""
        values = asdict(self)
        return {"step": step, "option": values["option"], "from": values["former"], "to": values["now"]}


def changed_options(former: Any, now: Any, option: str = "") -> Iterator[Change]:
    """Compares two configurations; an option that only one of them has is left out.

    Args:
        former: configuration of the checkpoint, as plain values.
        now: configuration of this run.
        option: name of the option that the two are values of.
    """
    if former == now:
        return
    if _are_classes(former) or _are_classes(now):
        yield from _changed_list(_as_list(former), _as_list(now), option)
    elif _is_class(former) and _is_class(now) and _class_name(former) == _class_name(now):
        yield from changed_options(former.get("init_args") or {}, now.get("init_args") or {}, option)
        yield from changed_options(former.get("dict_kwargs") or {}, now.get("dict_kwargs") or {}, option)
    elif _is_class(former) or _is_class(now):
        yield Change(option, _class_name(former), _class_name(now))
    elif isinstance(former, dict) and isinstance(now, dict):
        for key in now:
            if key in former:
                yield from changed_options(former[key], now[key], f"{option}.{key}".removeprefix("."))
    else:
        yield Change(option, former, now)


def _changed_list(former: list[Any], now: list[Any], option: str) -> Iterator[Change]:
    """Of callbacks, loggers or plugins: those that came or went, then the options of those that stayed."""
    former_names, names = [_class_name(entry) for entry in former], [_class_name(entry) for entry in now]
    if sorted(former_names) != sorted(names):
        yield Change(option, ", ".join(former_names) or None, ", ".join(names) or None)
    for entry, name in zip(now, names, strict=True):
        if names.count(name) == 1 == former_names.count(name):
            yield from changed_options(former[former_names.index(name)], entry, f"{option}.{name}")


def _is_class(value: Any) -> bool:
    return isinstance(value, dict) and "class_path" in value


def _are_classes(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_class(entry) for entry in value)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value in (None, True, False) else [value]


def _class_name(value: Any) -> Any:
    """Without its module, which may have moved since."""
    return value["class_path"].rpartition(".")[2] if _is_class(value) else value


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

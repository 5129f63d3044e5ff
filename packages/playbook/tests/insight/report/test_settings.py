"""Which options of a configuration are told to differ from their defaults."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbook.insight.report import settings
from playbook.insight.report.blocks import Table


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Range:
    low: float = 0.0
    ends: tuple[int, int] = (1, 2)


class Base:
    def __init__(self, batch_size: int = 32, shuffle: bool = True) -> None: ...


class Inner:
    def __init__(self, width: int, depth: int = 3) -> None: ...


class Outer(Base):
    def __init__(
        self,
        net: Any,
        size: Size = Size.SMALL,
        spread: Range = Range(),  # noqa: B008  # as jsonargparse takes it
        folder: Path = Path("a/b"),
        widths: tuple[int, ...] = (8, 16),
        make: Any = Inner,
        parts: list[Any] | None = None,
        **options: Any,
    ) -> None: ...


INNER, OUTER = f"{__name__}.Inner", f"{__name__}.Outer"
DEFAULTS: dict[str, Any] = {
    "size": "SMALL",
    "spread": {"low": 0.0, "ends": [1, 2]},
    "folder": "a/b",
    "widths": [8, 16],
    "make": INNER,
    "parts": None,
    "batch_size": 32,
    "shuffle": True,
}


def differing(config: Any) -> dict[str, tuple[str, str]]:
    [table] = settings.blocks(config)
    assert isinstance(table, Table)
    return {row["option"]: (row["value"], row["default"]) for row in table.rows}


def model(**arguments: Any) -> dict[str, Any]:
    net = {"class_path": INNER, "init_args": {"width": 4, "depth": 3}}
    return {"model": {"class_path": OUTER, "init_args": {"net": net, **DEFAULTS, **arguments}}}


ALWAYS = {"model": (OUTER, ""), "model.net": (INNER, "required"), "model.net.width": ("4", "required")}


def test_defaults_are_left_out_in_whichever_form_a_configuration_holds_them() -> None:
    assert differing(model()) == ALWAYS


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"size": "LARGE"}, {"model.size": ("LARGE", "SMALL")}),
        ({"widths": [8]}, {"model.widths": ("8", "8, 16")}),
        ({"batch_size": 64, "shuffle": False}, {"model.batch_size": ("64", "32"), "model.shuffle": ("false", "true")}),
        ({"folder": "c"}, {"model.folder": ("c", "a/b")}),
        ({"make": None}, {"model.make": ("none", INNER)}),
        ({"other": 1}, {"model.other": ("1", "unknown")}),
        ({"widths": list(range(100))}, {"model.widths": (", ".join(map(str, range(100)))[:120] + " …", "8, 16")}),
        (
            {"parts": [{"class_path": INNER, "init_args": {"width": 1, "depth": 9}}]},
            {
                "model.parts": ("Inner", "none"),
                "model.parts.Inner.width": ("1", "required"),
                "model.parts.Inner.depth": ("9", "3"),
            },
        ),
    ],
)
def test_other_values_stand_beside_their_defaults(
    arguments: dict[str, Any], expected: dict[str, tuple[str, str]]
) -> None:
    assert differing(model(**arguments)) == ALWAYS | expected


def test_sections_of_the_command_line() -> None:
    text = """
    seed_everything: 1
    trainer: {max_epochs: 3, logger: false, enable_model_summary: false, gradient_clip_val: null, accelerator: auto}
    checkpoint: {monitor: val/loss, every_n_minutes: 10.0}
    data: null
    """
    assert differing(yaml.safe_load(text)) == {
        "seed_everything": ("1", "0"),
        "trainer.max_epochs": ("3", "none"),
        "checkpoint.monitor": ("val/loss", "auto"),
    }
    assert settings.blocks({}) == [], "a training from Python"
    assert settings.blocks({"seed_everything": 0, "trainer": {"logger": None}}) == []


def test_a_class_that_is_gone_has_unknown_defaults() -> None:
    config = {"data": {"class_path": "nowhere.Nothing", "init_args": {"a": 1}}}
    assert differing(config) == {"data": ("nowhere.Nothing", ""), "data.a": ("1", "unknown")}

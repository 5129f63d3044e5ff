"""Defaults of a class that is no longer chosen do not stand for those of the one that is."""

from pathlib import Path

import pytest
from jsonargparse import Namespace

from playbook.command import arguments
from playbook.command.defaults import drop_former_defaults, keep_own_defaults
from playbook.testing.command import model_verb

CLASSES = """
class Former:
    def __init__(self, size: int = 8, share: float = 0.0) -> None: ...


class Chosen:
    def __init__(self, size: int = 16, share: float = 0.1) -> None: ...
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--data", "written.Chosen"], {"size": 4}),
        (["--data.class_path", "written.Chosen"], {"size": 4}),
        (["--data", "written.Former"], {"size": 4, "share": 0.0}),
        ([], {"size": 4, "share": 0.0}),
    ],
)
def test_data_of_another_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: dict[str, float]
) -> None:
    (tmp_path / "written.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(tmp_path)
    config = {"data": {"class_path": "written.Former", "init_args": {"size": 4, "share": 0.0}}}
    drop_former_defaults(config, arguments.read(model_verb("test"), options))
    assert config["data"]["init_args"] == expected


DATACLASSES = """
from dataclasses import dataclass, field

@dataclass
class Options:
    lr: float = 0.1

@dataclass
class Arrays:
    size: int = 1
    table: object = field(default_factory=object)

class Model:
    def __init__(self, options: Options = Options(), arrays: Arrays = Arrays()) -> None: ...
"""


def test_a_dataclass_that_a_configuration_can_hold_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of an earlier command as well, which a resumed run reads from its checkpoint."""
    (tmp_path / "holders.py").write_text(DATACLASSES)
    monkeypatch.syspath_prepend(tmp_path)
    values = {"options": Namespace(lr=0.2), "arrays": Namespace(size=2, table=None)}
    part = Namespace(class_path="holders.Model", init_args=Namespace(**values))
    keep_own_defaults(part, "model", arguments.read(model_verb("fit"), []), {"model": {"init_args": {"arrays": {}}}})
    assert part.init_args == Namespace(**values)
    keep_own_defaults(part, "model", arguments.read(model_verb("fit"), []), None)
    assert part.init_args == Namespace(options=Namespace(lr=0.2))

"""Defaults of a class that is no longer chosen do not stand for those of the one that is."""

from pathlib import Path

import pytest

from playbook.command import arguments
from playbook.command.defaults import drop_former_defaults
from tests.playbook.running import model_verb

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

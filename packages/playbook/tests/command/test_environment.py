"""Environment variables and ~ in values, on the command line and in configs; other text stays as it is."""

from pathlib import Path

import pytest
import yaml

from playbook import UserError
from playbook.command import arguments
from playbook.command.environment import expand_values, expanded
from playbook.testing.command import model_verb


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", "/data")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("UNSET", raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$DATA", "/data"),
        ("$DATA/images", "/data/images"),
        ("${DATA}/images", "/data/images"),
        ("a/${DATA}", "a//data"),
        ("${oc.env:DATA}/x", "/data/x"),
        ("${oc.env:UNSET,other}/x", "other/x"),
        ("~/x", "/home/me/x"),
        ("~", "~"),
        ("costs $5", "costs $5"),
        ("pay $DATA now", "pay $DATA now"),
        ("^a$", "^a$"),
        ("${data.batch_size}", "${data.batch_size}"),
        ("$DATAx y", "$DATAx y"),
    ],
)
def test_references(text: str, expected: str) -> None:
    assert expanded(text) == expected


def test_words_of_a_command() -> None:
    read = arguments.read(model_verb("fit"), ["--data.root=$DATA", "--data.folder", "~/x", "--run_dir", "${DATA}/run"])
    assert read.args == ["--data.root=/data", "--data.folder", "/home/me/x"]
    assert read.settings["run_dir"] == "/data/run"


def test_values_of_a_config(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("run_dir: $DATA/run\ndata: {root: '${oc.env:DATA}', names: [~/a, b]}\n")
    read = arguments.read(model_verb("fit"), ["--config", str(file)])
    assert read.settings["run_dir"] == "/data/run"
    values = yaml.SafeLoader("").construct_document(read.nodes[0][1])
    assert values["data"] == {"root": "/data", "names": ["/home/me/a", "b"]} == expand_values(values["data"])


def test_one_line_for_a_variable_that_is_not_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--data.root: \$UNSET/x: the environment variable UNSET is not set$"):
        arguments.read(model_verb("fit"), ["--data.root", "$UNSET/x"])
    file = tmp_path / "a.yaml"
    file.write_text("data:\n  root: ${UNSET}\n")
    with pytest.raises(UserError, match=r"a.yaml:2: data.root: \$\{UNSET\}: the environment variable UNSET is not set"):
        arguments.read(model_verb("fit"), ["--config", str(file)])

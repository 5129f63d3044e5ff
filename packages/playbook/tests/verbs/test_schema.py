"""The command `schema`: prints or writes it, and says what is wrong."""

import json
from pathlib import Path

import pytest

from playbook.testing.command import Cli


@pytest.mark.slow
def test_prints_it(cli: Cli) -> None:
    done = cli("schema")
    assert (done.code, done.err) == (0, "")
    assert {"trainer", "model", "data", "checkpoint", "config"} <= json.loads(done.out)["properties"].keys()


@pytest.mark.parametrize("args", [["--output", ".vscode/recipe.json"], ["--output=.vscode/recipe.json"]])
@pytest.mark.slow
def test_writes_it(cli: Cli, args: list[str]) -> None:
    done = cli("schema", *args)
    assert (done.code, done.out, done.err) == (0, "wrote  .vscode/recipe.json\n", "")
    assert Path(".vscode/recipe.json").read_text(encoding="utf-8") == cli("schema").out


def test_help_says_how_an_editor_takes_it(cli: Cli) -> None:
    out = cli("schema", "--help").out
    assert "python -m example schema --output .vscode/recipe.schema.json" in out
    assert '{"yaml.schemas": {".vscode/recipe.schema.json": "configs/**/*.yaml"}}' in out
    assert "# yaml-language-server: $schema=" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--out", "x"], "error: schema --out: no such option, expected --output FILE\n"),
        (["x.json"], "error: schema x.json: no such option, expected --output FILE\n"),
        (["--output"], "error: schema --output: expected one file, got none\n"),
        (["--output", "a", "b"], "error: schema --output: expected one file, got a b\n"),
        (["--output", "."], "error: schema --output .: Is a directory\n"),
    ],
)
def test_mistakes(cli: Cli, args: list[str], message: str) -> None:
    done = cli("schema", *args)
    assert (done.code, done.out, done.err) == (2, "", message)

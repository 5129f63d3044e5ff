"""`--format json`: the report of a verb alone on standard output, where a program can read it."""

import json
from pathlib import Path
from typing import Any

import pytest

from playbook.command import arguments
from playbook.command.reports import print_json
from playbook.testing.command import Cli, model_verb
from running import MLP_DIGITS

EPOCH = ("--trainer.max_epochs", "1")


@pytest.fixture
def run(cli: Cli) -> dict[str, Any]:
    done = cli("fit", "--config", MLP_DIGITS, *EPOCH, "--run_dir", "run", "--format", "json")
    assert done.code == 0, done.err
    assert "epoch 1/1" in done.err, "what is for people goes to standard error"
    return json.loads(done.out)


def test_fit_gives_the_run(run: dict[str, Any], cli: Cli) -> None:
    assert run == {"run": "run", **json.loads(Path("run/metrics.json").read_text())}
    assert "format" not in Path("run/config.yaml").read_text()
    again = cli("fit", "--run_dir", "run", "--ckpt_path", "last", *EPOCH, "--format=json")
    assert (again.code, json.loads(again.out)) == (0, run), "there is nothing left to do"


def test_test_and_validate_give_metrics_and_checkpoint(run: dict[str, Any], cli: Cli) -> None:
    tested = json.loads(cli("test", "--ckpt_path", "run", "--format", "json").out)
    assert tested == {"run": "run", "checkpoint": "run/checkpoints/best.ckpt", "metrics": run["test"]}
    validated = json.loads(cli("validate", "--ckpt_path", "run", "--format", "json").out)
    assert validated["metrics"]["val/accuracy"] == pytest.approx(run["metrics"]["val/accuracy"])


def test_finders_give_the_option_to_set(cli: Cli) -> None:
    rate = json.loads(cli("find_lr", "--config", MLP_DIGITS, "--format", "json").out)
    assert rate["option"] == "--model.optimizer.lr"
    assert 1e-6 < rate["suggestion"] < 1
    assert Path(rate["run"], "find_lr.csv").is_file()
    size = ("--max_batch_size", "128", "--steps_per_trial", "3")
    trials = json.loads(cli("find_batch_size", "--config", MLP_DIGITS, *size, "--format", "json").out)
    assert [trial["batch_size"] for trial in trials["trials"]] == [64, 128]
    assert trials["suggestion"] in (64, 128)


def test_list_gives_names_and_paths(cli: Cli) -> None:
    done = cli("list", "nets", "--format", "json")
    assert {"name": "MLP", "path": "example.nets.mlp.MLP"}.items() <= json.loads(done.out)["nets"][1].items()
    assert json.loads(cli("list", "--format=json").out).keys() >= {"recipes", "nets", "data"}
    assert cli("list", "nets", "--format", "terminal").out == cli("list", "nets").out
    assert cli("list", "--format", "xml").err == "error: --format xml: expected terminal or json\n"


@pytest.mark.parametrize(
    ("verb", "args", "expected"),
    [
        ("test", ["--format", "json"], True),
        ("test", ["--format=json"], True),
        ("test", ["--format", "terminal"], False),
        ("test", ["--format", "json", "--format", "terminal"], False),
        ("test", [], False),
        ("predict", ["--format", "csv"], False),
    ],
)
def test_when_a_program_reads_the_report(verb: str, args: list[str], expected: bool) -> None:
    assert arguments.read(model_verb(verb), args).report_is_for_programs is expected


def test_what_is_not_finite_becomes_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"loss": float("nan"), "rates": [1.0, float("inf")], "classes": ("a",)})
    assert json.loads(capsys.readouterr().out) == {"loss": None, "rates": [1.0, None], "classes": ["a"]}

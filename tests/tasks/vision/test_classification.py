"""Classification against plain loops in float64."""

import json
from pathlib import Path

import pytest

from playbook.testing.command import Cli
from tests.conftest import MLP_DIGITS


@pytest.mark.slow
def test_weights_and_balanced_sampling_on_the_command_line(cli: Cli) -> None:
    short = ("--config", MLP_DIGITS, "--trainer.max_epochs", "1", "--model.macro_accuracy", "true")
    assert cli("fit", *short, "--model.class_weights", "auto", "--run_dir", "auto").code == 0
    assert cli("fit", *short, "--model.class_weights", "{3: 2.0}", "--run_dir", "named").code == 0
    assert cli("fit", *short, "--data.balanced", "true", "--run_dir", "balanced").code == 0
    for run in ("auto", "named", "balanced"):
        metrics = json.loads(Path(run, "metrics.json").read_text())
        assert "test/macro_accuracy" in str(metrics)
        assert len(metrics["facts"]["class_counts"]) == 10
        assert sum(metrics["facts"]["class_counts"]) == 1078
    for options, message in {
        (
            "--model.class_weights",
            "{33: 2.0}",
        ): "class_weights: no class is called 33, expected 0, 1, 2, 3, 4 and 5",
        ("--model.class_weights", "{3: -1}"): "class_weights: expected finite weights of at least 0, got -1.0 for 3",
        (
            "--model.class_weights",
            "auto",
            "--data.balanced",
            "true",
        ): "class_weights: auto and --data.balanced true",
    }.items():
        result = cli("fit", *short, *options, "--run_dir", "bad")
        assert result.code == 2
        assert message in result.err
        assert "Traceback" not in result.err

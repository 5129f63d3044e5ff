"""The card of a real recipe for the Hugging Face hub."""

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from playbook.testing.command import Cli
from tests.conftest import MLP_DIGITS


@pytest.mark.slow
def test_front_matter_of_a_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)  # nobody is logged in
    fitted = cli("fit", "--config", MLP_DIGITS, "--trainer.max_epochs", "1", "--run_dir", "run")
    assert fitted.code == 0, fitted.err
    done = cli("export", "--ckpt_path", "run", "--output", "hub:ann/mlp-digits")
    assert (done.code, done.err) == (0, "")
    card: Any = ModelCard.load(Path("run/exports/mlp-digits/README.md")).data
    assert (card.library_name, card.pipeline_tag) == ("playbook", "image-classification")
    assert card.tags == ["playbook", "pytorch-lightning", "MLP", "safetensors"]
    known = json.loads(Path("run/metrics.json").read_text())
    metrics = {**known["best"]["metrics"], **known["test"]}
    expected = {name.replace("val", "validation"): metrics[name] for name in metrics if not name.startswith("train")}
    results = card.eval_results or []
    assert {f"{row.dataset_split}/{row.metric_type}": row.metric_value for row in results} == expected
    assert {"validation/accuracy", "test/accuracy"} <= expected.keys()
    assert {(row.task_type, row.dataset_type, row.dataset_name) for row in results} == {
        ("image-classification", "digits", "Digits")
    }

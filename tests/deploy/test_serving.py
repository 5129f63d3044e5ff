"""A run and its export, served: their answers are those of `predict --input`."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import CNN_DIGITS, Cli, cli_process
from tests.playbook.deploy.test_server import ask

FIT = ["--config", CNN_DIGITS, "--trainer.max_epochs", "2", "--run_dir", "run"]


@pytest.mark.slow
@pytest.mark.parametrize("served", ["run", "artefact"])
def test_answers_are_those_of_predict(cli: Cli, workdir: Path, served: str) -> None:
    picture = Path("digit.png")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 16, 3), np.uint8)).save(picture)
    assert cli("fit", *FIT).code == 0
    exported = cli("export", "--ckpt_path", "run", "--format", "onnx", "--output", "artefact", "--speed", "false")
    assert exported.code == 0, exported.err
    assert cli("predict", "--ckpt_path", "run", "--input", str(picture), "--format", "jsonl").code == 0
    [line] = next(Path("run/predictions").rglob("*.jsonl")).read_text().splitlines()
    answer = ask(cli_process("serve", served, "--port", "0", cwd=workdir), picture, "image/png")
    assert len(answer) == 10
    for name, value in answer.items():
        assert json.loads(line)[name] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)

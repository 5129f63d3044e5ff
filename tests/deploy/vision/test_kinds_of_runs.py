"""Adapters, averaged weights, sharded checkpoints and compiled runs export to the same plain artefact."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from playbook import load_run
from playbook.checkpoints.io import load
from playbook.deploy.runtime import Artefact
from playbook.testing.command import Cli
from playbook.testing.serving import ask
from src.callbacks.average_views import AverageViews
from tests.conftest import CNN_DIGITS, ROOT, cli_process

SHORT = ["--config", CNN_DIGITS, "--trainer.max_epochs", "2"]
EXPORT = ["--format", "onnx", "--output", "artefact", "--speed", "false"]


def difference(run: str, **inputs: np.ndarray) -> float:
    """Largest difference between the artefact, read from disk, and the module that the checkpoint holds."""
    module = load_run(run).module
    with torch.inference_mode():
        expected = module.net(**{name: torch.from_numpy(value) for name, value in inputs.items()})  # type: ignore[operator]  # any net
    [output] = Artefact("artefact").run(inputs).values()
    return float(np.abs(output - expected.numpy()).max())


@pytest.mark.parametrize(
    "partial", ["callbacks/ema.yaml", pytest.param("trainer/compile.yaml", marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_averaged_and_compiled(cli: Cli, partial: str) -> None:
    fitted = cli("fit", *SHORT, "--config", str(ROOT / "configs" / partial), "--run_dir", "run")
    assert fitted.code == 0, fitted.err
    done = cli("export", "--ckpt_path", "run", *EXPORT)
    assert (done.code, done.err) == (0, "")
    image = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    assert difference("run", image=image) < 1e-5
    if "ema" in partial:  # not the weights that kept training
        raw = load(Path("run/checkpoints/best.ckpt"))["current_model_state"]
        averaged = load_run("run").module.state_dict()
        assert any(not torch.equal(value, raw[name]) for name, value in averaged.items())


@pytest.mark.slow
def test_sharded_checkpoint(cli: Cli, workdir: Path) -> None:
    """Two processes wrote it, each its part of the weights."""
    sharded = ["--config", str(ROOT / "configs/trainer/fsdp2.yaml"), "--trainer.devices", "2"]
    process = cli_process("fit", *SHORT, *sharded, "--trainer.accelerator", "cpu", "--run_dir", "run", cwd=workdir)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert Path("run/checkpoints/best.ckpt").is_dir()
    done = cli("export", "--ckpt_path", "run", *EXPORT)
    assert (done.code, done.err) == (0, "")
    image = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    assert difference("run", image=image) < 1e-5


@pytest.mark.slow
def test_averaged_views(cli: Cli) -> None:
    """What is exported and served answers as `predict` does, with all views."""
    views = ("--trainer.callbacks+", "AverageViews", "--trainer.callbacks.num_views", "6")
    fitted = cli("fit", *SHORT, *views, "--run_dir", "run")
    assert fitted.code == 0, fitted.err
    done = cli("export", "--ckpt_path", "run", *EXPORT)
    assert (done.code, done.err) == (0, "")
    image = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    assert difference("run", image=image) > 1e-3, "one view"
    net = load_run("run").module.net
    with torch.inference_mode():
        expected = AverageViews(6).evaluation_net(net)(torch.from_numpy(image))  # type: ignore[arg-type]  # any net
    [output] = Artefact("artefact").run({"image": image}).values()
    np.testing.assert_allclose(output, expected.numpy(), atol=1e-5)
    example = Path("artefact/example/input.png")
    assert cli("predict", "--ckpt_path", "run", "--input", str(example), "--format", "jsonl").code == 0
    [table] = Path("run/predictions").rglob("predictions.jsonl")
    [row] = table.read_text().splitlines()
    server = cli_process("serve", "--ckpt_path", str(Path("run").absolute()), "--port", "0", cwd=Path.cwd())
    assert ask(server, example, "image/png")["probability"] == pytest.approx(json.loads(row)["probability"], abs=1e-5)

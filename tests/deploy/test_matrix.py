"""Every recipe in every format: the artefact answers what the model answers, or one line says why it cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest

from playbook.testing.artefacts import load_py
from playbook.testing.command import Cli, seldom
from tests.conftest import ROOT, SHRUNK
from tests.test_configs import ONE_A_NET, ONE_A_TASK, SMALLER

FORMATS = ("onnx", "torch_export", "torchscript")
IMPOSSIBLE = {  # and why
    ("retinanet-scenes", "onnx"): "RetinaNet selects a different number of boxes at each step",
    ("retinanet-scenes", "torch_export"): "RetinaNet selects a different number of boxes at each step",
    ("retinanet-scenes", "torchscript"): "RetinaNet selects a different number of boxes at each step",
    ("lstm-sst2", "torch_export"): "torch.export unrolls LSTM to a fixed length",
    ("lstm-etth1", "torch_export"): "torch.export unrolls LSTM to a fixed length",
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", seldom(ONE_A_NET, ONE_A_TASK))
@pytest.mark.usefixtures("published")
def test_recipe_in_each_format(cli: Cli, recipe: str) -> None:
    name = Path(recipe).stem
    options = [*SMALLER.get(recipe, ())]
    if name == "lora-sst2":
        options = ["--model.net.base", "base", "--data.vocabulary_of", "base"]
        mlm = str(ROOT / "configs/language/mlm-sst2.yaml")
        assert cli("fit", "--config", mlm, *SHRUNK, "--run_dir", "base").code == 0
    assert cli("fit", "--config", str(ROOT / recipe), *SHRUNK, *options, "--run_dir", "run").code == 0
    for kind in FORMATS:
        done = cli("export", "--ckpt_path", "run", "--format", kind, "--output", kind, "--speed", "false")
        reason = IMPOSSIBLE.get((name, kind))
        if reason is not None:
            assert (done.code, len(done.err.splitlines())) == (2, 1)
            assert reason in done.err
            assert not Path(kind).exists()
            continue
        assert done.code == 0, done.err
        manifest = json.loads(Path(kind, "artefact.json").read_text())
        parity = manifest["parity"]
        assert parity["max_error"] <= 1e-3 * parity["scale"]
        assert parity["metrics"], "the task's own metrics were measured"
        if manifest["preprocessing"] is not None and manifest["postprocessing"]["kind"] != "generate":
            assert parity["answers"]["equal"] == parity["answers"]["compared"] > 0
        [answer] = load_py(Path(kind))
        expected = json.loads(Path(kind, manifest["example"]["answer"]).read_text())
        assert answer.keys() == expected.keys()
        for key, value in expected.items():
            assert_close(answer[key], value)


def assert_close(actual: Any, expected: Any) -> None:
    """Numbers are equal within the precision of float32 on another engine, at any depth of lists; all else is equal."""
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected, strict=True):
            assert_close(*pair)
    else:
        assert actual == (pytest.approx(expected, rel=1e-5, abs=1e-5) if isinstance(expected, float) else expected)

"""A run and its export, served: their answers are those of `predict --input`, for each task."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from playbook.testing.command import Cli, seldom
from playbook.testing.serving import ask
from tests.conftest import ROOT, SHRUNK, cli_process, present
from tests.test_configs import SMALLER

RECIPES = present(  # one for each task and kind of input
    "vision/cnn-digits",
    "vision/unet-scenes",
    "vision/yolo-n-scenes",
    "language/encoder-sst2",
    "language/gpt-questions",
    "language/gpt-shakespeare",
    "language/mlm-sst2",
    "multimodal/clip-digits",
)
OFTEN = present("vision/cnn-digits", "vision/unet-scenes", "language/gpt-shakespeare")


def payload(example: Path, folder: Path) -> tuple[Path, str]:
    """File and media type that ask a server for what `predict --input EXAMPLE` is asked."""
    if example.suffix != ".jsonl":
        return example, {".png": "image/png", ".txt": "text/plain"}[example.suffix]
    request = folder / "request.json"
    request.write_text(json.dumps({"input": json.loads(example.read_text())}))
    return request, "application/json"


def comparable(value: Any) -> Any:
    """A mask as numbers of classes; other values as they are."""
    if isinstance(value, dict) and "png" in value:
        value = io.BytesIO(base64.b64decode(value["png"]))
    elif not isinstance(value, Path):
        return value
    return np.asarray(Image.open(value)).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", seldom(RECIPES, OFTEN))
@pytest.mark.usefixtures("published")
def test_answers_of_each_task_are_those_of_predict(cli: Cli, workdir: Path, recipe: str) -> None:
    config = str(ROOT / recipe)
    epochs = "80" if "yolo" in recipe else "1"  # boxes of an untrained net are ties, which rounding decides
    options = ("--config", config, *SHRUNK, *SMALLER.get(recipe, ()), "--trainer.max_epochs", epochs)
    assert cli("fit", *options, "--run_dir", "run").code == 0
    exported = cli("export", "--ckpt_path", "run", "--format", "onnx", "--output", "artefact", "--speed", "false")
    assert exported.code == 0, exported.err
    [example] = (path for path in Path("artefact/example").iterdir() if path.name != "answer.json")
    assert cli("predict", "--ckpt_path", "run", "--input", str(example), "--format", "jsonl").code == 0
    [rows] = Path("run/predictions").rglob("predictions.jsonl")
    [line] = rows.read_text().splitlines()
    expected = json.loads(line)
    if "mask" in expected:
        expected["mask"] = comparable(rows.parent / expected["mask"])
    path, media_type = payload(example, workdir)
    for served in ("run", "artefact"):
        answer = ask(cli_process("serve", served, "--port", "0", cwd=workdir), path, media_type)
        assert answer.keys() == expected.keys() - {"id"}
        for name, value in answer.items():
            assert_close(comparable(value), expected[name])


def assert_close(value: Any, expected: Any) -> None:
    """Equal, but for rounding of numbers."""
    if isinstance(expected, dict):
        assert value.keys() == expected.keys()
        for name in expected:
            assert_close(value[name], expected[name])
    elif isinstance(expected, list):
        assert len(value) == len(expected) > 0
        for pair in zip(value, expected, strict=True):
            assert_close(*pair)
    else:
        assert value == (pytest.approx(expected, rel=1e-4, abs=1e-5) if isinstance(expected, float) else expected)

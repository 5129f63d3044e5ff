"""Real nets, exported to ONNX, answer raw files and texts as `predict` does."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import default_collate

from playbook.deploy.runtime import Artefact
from playbook.testing.artefacts import write_artefact
from src.data.vision.digits import Digits
from src.nets.vision.cnn import CNN
from src.tasks.classification import Classification


def export(net: nn.Module, inputs: dict[str, Tensor], file: Path, **dims: tuple[int, int | None]) -> None:
    """Writes a net as ONNX, with dynamic dimensions by name, the first ones of every input."""
    axes = [torch.export.Dim(name, min=low, max=high) for name, (low, high) in dims.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            net.eval(),
            kwargs=inputs,
            input_names=list(inputs),
            output_names=["logits"],
            dynamic_shapes={name: dict(enumerate(axes)) for name in inputs},
        )
    assert program is not None
    program.save(file)


def answers_of(task: Any, data: Any, sources: list[Any], collate: Any) -> list[dict[str, Any]]:
    with torch.no_grad():
        batch = collate([data.unlabelled(source) for source in sources])
        return task.answer(task.predict_step(batch, 0), data.facts)


def assert_same(answers: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for answer, own in zip(answers, expected, strict=True):
        assert list(answer) == list(own)
        for key, value in own.items():
            assert answer[key] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)


@pytest.mark.slow
def test_digits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    task, data = Classification(CNN(widths=[8, 16])).eval(), Digits()
    data.setup("predict")
    export(task.net, {"image": torch.rand(2, 1, 8, 8)}, tmp_path / "model.onnx", B=(1, 1024))
    inputs = {"image": ("float32", ["B", 1, 8, 8])}
    plans = {"preprocessing": data.preprocessing(), "postprocessing": task.postprocessing(data.facts)}
    model = Artefact(write_artefact(tmp_path, inputs, ["logits"], {"B": [1, 1024]}, "model.onnx", **plans), 1)
    rng, files = np.random.default_rng(0), []
    for number, shape in enumerate([(8, 8), (50, 40, 3), (9, 120), (300, 211, 4)]):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(files[-1])
    assert_same(model.predict(files), answers_of(task, data, files, default_collate))

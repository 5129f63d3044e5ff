"""Each engine runs the same small net, and returns its outputs by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deploy.programs import Two, write_program
from playbook.deploy.runtime import Artefact, load_engine
from playbook.testing.artefacts import write_artefact

SHAPES = {"left": ("float32", ["B", 3]), "right": ("float32", ["B", 3])}


SUFFIXES = {"onnx": "onnx", "torch_export": "pt2", "torchscript": "ts", "aoti": "pt2"}
KINDS = ["onnx", "torch_export", "torchscript", pytest.param("aoti", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_outputs_equal_those_of_the_net(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"model.{SUFFIXES[kind]}"
    write_program(kind, file)
    rng = np.random.default_rng(0)
    for size in (1, 5):
        inputs = {name: rng.normal(size=(size, 3)).astype(np.float32) for name in ("left", "right")}
        logits, sums = Two()(*map(torch.from_numpy, inputs.values()))
        engine = load_engine(kind, file, 1, ["logits", "sums"])
        outputs = engine(inputs)
        assert list(outputs) == ["logits", "sums"]
        np.testing.assert_allclose(outputs["logits"], logits.detach(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(outputs["sums"], sums, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_an_artefact_answers_with_arrays_by_name(kind: str, tmp_path: Path) -> None:
    file = f"model.{SUFFIXES[kind]}"
    write_program(kind, tmp_path / file)
    model = Artefact(
        write_artefact(tmp_path, SHAPES, ["logits", "sums"], {"B": [1, None]}, file, format=kind), num_threads=1
    )
    answers = model.predict([{"left": [1, 2, 3], "right": [0.5, 0, 1]}, {"left": [0, 0, 0], "right": [1, 1, 1]}])
    assert [answer["sums"] for answer in answers] == [1.5, 3.0]
    with torch.no_grad():
        logits, _ = Two()(torch.tensor([[1.0, 2, 3]]), torch.tensor([[0.5, 0, 1]]))
    np.testing.assert_allclose(answers[0]["logits"], logits[0], rtol=1e-5)


def test_names_of_outputs_default_to_numbers(tmp_path: Path) -> None:
    write_program("torch_export", tmp_path / "model.pt2")
    outputs = load_engine("torch_export", tmp_path / "model.pt2")({name: np.ones((1, 3), np.float32) for name in "ab"})
    assert list(outputs) == ["output_0", "output_1"]


class Half(nn.Module):
    def __init__(self, is_dict: bool) -> None:
        super().__init__()
        self.is_dict = is_dict

    def forward(self, x: Tensor) -> Any:
        return {"y": x.bfloat16()} if self.is_dict else x.bfloat16()


@pytest.mark.parametrize("is_dict", [False, True])
def test_bfloat16_becomes_float32(is_dict: bool, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Half(is_dict), (torch.ones(1, 2),)), tmp_path / "model.pt2")
    outputs = load_engine("torch_export", tmp_path / "model.pt2", outputs=["y"])({"x": np.ones((1, 2), np.float32)})
    assert outputs["y"].dtype == np.float32
    assert (outputs["y"] == 1).all()


def test_executorch_names_its_package(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format executorch: needs the package executorch"):
        load_engine("executorch", tmp_path / "model.pte")


def test_executorch_runs_the_method_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against its documented interface, as the package is not installed here."""
    import sys
    from types import SimpleNamespace

    method = SimpleNamespace(execute=lambda values: [Two()(*values)[1]])
    program = SimpleNamespace(load_method=lambda name: {"forward": method}[name])
    runtime = SimpleNamespace(load_program=lambda path: {str(tmp_path / "model.pte"): program}[path])
    module = SimpleNamespace(Runtime=SimpleNamespace(get=lambda: runtime))
    monkeypatch.setitem(sys.modules, "executorch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "executorch.runtime", module)
    engine = load_engine("executorch", tmp_path / "model.pte", outputs=["sums"])
    outputs = engine({name: np.ones((2, 3), np.float32) for name in ("left", "right")})
    assert outputs["sums"].tolist() == [3, 3]


@pytest.mark.parametrize("kind", ["onnx", "torch_export", "torchscript"])
def test_a_damaged_file_is_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=f"model: cannot be loaded as {kind}"):
        load_engine(kind, tmp_path / "model")


def test_an_unknown_format_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"format: expected one of onnx, .*, got tensorrt"):
        load_engine("tensorrt", tmp_path / "model")

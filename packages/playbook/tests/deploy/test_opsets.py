"""The lowest version of the format that the operators need, and the oldest runtime that an artefact names."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from deploy.test_export import EXPORT, Foreign, exported, run
from playbook.deploy import opsets
from playbook.deploy.opsets import OLDEST_RUNTIMES, finish, in_words, oldest_runtime, runtime_of_torch
from playbook.deploy.runtime import Artefact, artefact
from playbook.errors import UserError
from playbook.testing.artefacts import write_artefact
from playbook.testing.command import Cli

__all__ = ["run"]


def model_of(opset: int, *further: Any) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *further])


@pytest.mark.parametrize(
    ("opset", "ir", "oldest"), [(12, 7, "1.15"), (18, 8, "1.15"), (20, 9, "1.17"), (22, 10, "1.21")]
)
def test_the_lowest_format_that_the_operators_need(opset: int, ir: int, oldest: str, tmp_path: Path) -> None:
    """microsoft/onnxruntime#20559: a file of a newer format than its operators need. Unused domains need none."""
    file = tmp_path / "model.onnx"
    onnx.save(model_of(opset, helper.make_opsetid("ai.onnx.ml", 5), helper.make_opsetid("com.microsoft", 1)), file)
    found = finish(file, ["Löwe", "b"], opset)
    assert found == {"package": "onnxruntime", "oldest": oldest, "opset": opset, "ir_version": ir}
    model = onnx.load(file)
    assert (model.ir_version, [entry.domain for entry in model.opset_import]) == (ir, [""])
    metadata = onnxruntime.InferenceSession(file).get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == ["Löwe", "b"]
    with pytest.raises(UserError, match=f"--opset 17: this model cannot be written so, expected {opset}"):
        finish(file, [], 17)


def test_domains_within_a_node_are_kept(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["z"], domain="com.microsoft")],
        "inner", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = model_of(18, helper.make_opsetid("com.microsoft", 1))
    condition = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
    model.graph.node.extend([condition, helper.make_node("If", ["c"], ["w"], then_branch=inner, else_branch=inner)])
    onnx.save(model, tmp_path / "model.onnx")
    finish(tmp_path / "model.onnx", [], None)
    assert {entry.domain for entry in onnx.load(tmp_path / "model.onnx").opset_import} == {"", "com.microsoft"}


def test_a_runtime_that_is_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opsets, "version", lambda package: "7.8.9")
    assert oldest_runtime(max(OLDEST_RUNTIMES) + 1) == "7.8"
    assert in_words(runtime_of_torch()) == "PyTorch 7.8 or newer"


@pytest.mark.parametrize("opset", [13, 18])
def test_an_artefact_of_another_opset(opset: int, tmp_path: Path) -> None:
    manifest = exported(Foreign(), tmp_path / "artefact", opset=opset)
    assert (manifest["runtime"]["opset"], manifest["runtime"]["oldest"]) == (opset, "1.15")
    assert f"ONNX Runtime 1.15 or newer (opset {opset}," in (tmp_path / "artefact/README.md").read_text()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--opset", "18"], "--opset 18: needs --format onnx, got none"),
        (["--opset", "18", "--format", "torchscript"], "--opset 18: needs --format onnx, got torchscript"),
        (["--opset", "99", "--format", "onnx"], "--opset 99: expected a number in [9, 25]"),
        (
            ["--opset", "12", "--format", "onnx", "--quantize", "int8-static"],
            "--opset 12: --quantize int8-static needs at least 13",
        ),
    ],
)
def test_mistakes(cli: Cli, run: Path, options: list[str], text: str) -> None:
    done = cli(*EXPORT, *options)
    assert (done.code, done.err.strip()) == (2, f"error: {text}")


def test_an_older_runtime_is_named_with_its_whole_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "x" * 500 + " Unsupported model IR version: 10, max supported IR version: 9"

    def refuse(*_: Any) -> Any:
        raise RuntimeError(reason)

    monkeypatch.setattr("playbook.deploy.runtime.engines.ENGINES", {"onnx": (refuse, "onnxruntime")})
    needed = {"package": "onnxruntime", "oldest": "1.17", "opset": 20, "ir_version": 9}
    folder = write_artefact(tmp_path, {"x": ("float32", ["B", 2])}, ["y"], runtime=needed)
    for installed, end in (("1.16.3", "; it needs onnxruntime 1.17 or newer, 1.16.3 is installed"), ("1.32.0", "")):
        monkeypatch.setattr(artefact, "version", lambda package, installed=installed: installed)
        with pytest.raises(ValueError, match=f"{re.escape(reason + end)}$"):
            Artefact(folder)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 20, 22])
def test_the_oldest_runtime_runs_it(cli: Cli, run: Path, tmp_path: Path, opset: int) -> None:
    """Each, quantized or not, where that version can be installed."""
    oldest = oldest_runtime(opset)
    python = tmp_path / "old/bin/python"
    if (uv := shutil.which("uv")) is None:
        pytest.skip("needs uv")
    packages = [f"onnxruntime=={oldest}.*", "numpy<2", "pillow"]
    made = subprocess.run(
        [uv, "venv", "-q", "--python", "3.11", str(tmp_path / "old")], check=False, capture_output=True
    )
    command = [uv, "pip", "install", "-q", "--python", str(python), *packages]
    if made.returncode or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip(f"ONNX Runtime {oldest} cannot be installed here")
    for kind in ("none", "int8-static", "int8-dynamic", "int8-weight"):
        limits = ["--min_agreement", "0.5", "--max_drop", "1"] if kind != "none" else []
        done = cli(*EXPORT, "--format", "onnx", "--opset", str(opset), "--quantize", kind, "--output", kind, *limits)
        assert done.code == 0, done.err
        manifest = json.loads(Path(kind, "artefact.json").read_text())
        if kind == "int8-dynamic":  # its ConvInteger is not in all of them
            assert manifest["runtime"]["oldest"] == ".".join(onnxruntime.__version__.split(".")[:2])
            continue
        assert manifest["runtime"]["oldest"] == oldest
        answer = subprocess.run([str(python), f"{kind}/load.py"], check=False, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        [found], wanted = json.loads(answer.stdout), json.loads(Path(kind, "example/answer.json").read_text())
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():  # outputs of numbers
            assert np.allclose(found[name], values, atol=0.05)

"""Artefacts answer as the model does, in every format, and nothing is written where they would not."""

import json
import os
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook.deploy import artefact, formats
from playbook.deploy.export import Request, export, program_of
from playbook.deploy.parity import Parity, Tolerance, compare
from playbook.deploy.program import Program, build_program
from playbook.deploy.requests import checkpoint_metrics
from playbook.deploy.runtime import Artefact
from playbook.errors import UserError
from playbook.runs.directory import write_atomically
from playbook.testing.command import Cli
from running import CNN_DIGITS

SHORT = ["--config", CNN_DIGITS, "--trainer.max_epochs", "3", "--trainer.logger", "false", "--run_dir", "run"]
EXPORT = ["export", "--ckpt_path", "run", "--speed", "false"]


@pytest.fixture
def run(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run, the same for all tests of a process."""
    shared = tmp_path_factory.getbasetemp() / "trained-cnn-digits"
    if not shared.exists():
        assert cli("fit", *SHORT).code == 0
        shutil.copytree("run", shared)
    elif not Path("run").exists():
        shutil.copytree(shared, "run")
    return Path("run")


class Foreign(pl.LightningModule):
    """A module that knows nothing of Playbook, with two inputs and two outputs."""

    def __init__(self, num_features: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(num_features, 2)

    def forward(self, x: Tensor, scale: Tensor) -> dict[str, Tensor]:
        y = self.layer(x) * scale[:, None]
        return {"y": y, "total": y.sum(dim=1)}

    def val_dataloader(self) -> DataLoader:
        rows = [{"scale": torch.tensor(float(i)), "x": torch.full((3,), i / 7)} for i in range(8)]
        return DataLoader(rows, batch_size=4)  # type: ignore[arg-type]  # a list is a data set


def exported(model: pl.LightningModule, place: Path, **options: Any) -> dict[str, Any]:
    request = Request(
        **{"format": "onnx", "quantization": "none", "output": place, "tolerance": Tolerance(), "speed": False}
        | options
    )
    return export(program_of(model, None, {}), None, {}, request)


def test_artefact_of_a_run(cli: Cli, run: Path) -> None:
    done = cli(*EXPORT, "--format", "onnx")
    assert (done.code, done.err) == (0, "")
    place = run / "exports/best-onnx"
    assert done.out.startswith(f"exported  {place} (")
    manifest = json.loads((place / "artefact.json").read_text())
    assert manifest["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["B", 1, 8, 8]}]
    assert manifest["outputs"][0]["shape"] == ["B", 10]
    assert manifest["metrics"].keys() >= {"test/accuracy"}
    assert manifest["parity"]["metrics"].keys() == {"val/accuracy", "val/loss"}
    before, after = manifest["parity"]["metrics"]["val/accuracy"]
    assert before == after
    card = (place / "README.md").read_text()
    assert "| val/accuracy |" in card
    assert "--minShapes=image:1x1x8x8 --optShapes=image:8x1x8x8 --maxShapes=image:32x1x8x8" in card
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str((place / "load.py").absolute())]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/")
    assert len(json.loads(shown.stdout)) == 1


@pytest.mark.parametrize("kind", ["torch_export", "torchscript"])
def test_other_formats(cli: Cli, run: Path, kind: str) -> None:
    done = cli(*EXPORT, "--format", kind, "--output", "artefact")
    assert (done.code, done.err) == (0, "")
    image = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)
    assert Artefact("artefact").run({next(iter(Artefact("artefact")._inputs)): image}).popitem()[1].shape == (5, 10)


@pytest.mark.slow
def test_compiled_ahead_of_time(cli: Cli, run: Path) -> None:
    done = cli(*EXPORT, "--format", "aoti", "--output", "artefact")
    assert (done.code, done.err) == (0, "")
    with pytest.raises(ValueError, match="expected"):  # the compiled program itself would accept it
        Artefact("artefact").run({"image": np.zeros((2, 1, 4, 4), np.float32)})


@pytest.mark.slow
def test_all_formats(cli: Cli, run: Path) -> None:
    done = cli(*EXPORT, "--format", "all", "--output", "artefacts")
    assert done.code == 0
    assert {place.name for place in Path("artefacts").iterdir()} >= {
        "onnx",
        "torch_export",
        "torchscript",
        "safetensors",
    }
    assert "executorch: impossible: --format executorch: needs executorch: uv pip install executorch" in done.out


def test_one_of_all_formats_differs(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named as failed, the others are written, and the exit code tells."""
    write = formats.FORMATS["torch_export"].write

    def spoil(program: Program, file: Path) -> None:
        other = deepcopy(program.module)
        torch.nn.init.ones_(next(other.parameters()))
        write(replace(program, module=other), file)

    kinds = {"torchscript": formats.FORMATS["torchscript"], "torch_export": formats.Format("model.pt2", spoil)}
    for module in ("requests", "export"):
        monkeypatch.setattr(f"playbook.deploy.{module}.FORMATS", kinds)
    done = cli(*EXPORT, "--format", "all", "--output", "artefacts")
    assert done.code == 2
    assert done.err == "error: --format all: torch_export: differs from the model by more than the limits allow\n"
    assert "torch_export: failed: export of torch_export: outputs differ by up to" in done.out
    assert {place.name for place in Path("artefacts").iterdir()} == {"torchscript", "safetensors"}
    assert {file.name for file in Path("artefacts/safetensors").iterdir()} == {"model.safetensors", "README.md"}


def test_metrics_are_those_of_the_checkpoint() -> None:
    best = {"monitor": "val/loss", "score": 1.0, "metrics": {"val/loss": 1.0, "val/accuracy": 0.5, "train/loss": 0.9}}
    known = {"best": best, "metrics": {"val/loss": 2.0}, "test": {"test/loss": 1.5}}
    assert checkpoint_metrics(known, "best") == {"val/loss": 1.0, "val/accuracy": 0.5, "test/loss": 1.5}
    assert checkpoint_metrics(known, "last") == {}
    assert checkpoint_metrics({"best": None, "test": {"test/loss": 1.5}}, "last") == {"test/loss": 1.5}
    assert checkpoint_metrics({}, "best") == {}


@pytest.mark.parametrize("kind", ["int8-static", "int8-dynamic", "int8-weight"])
@pytest.mark.slow
def test_quantized(cli: Cli, run: Path, kind: str) -> None:
    done = cli(*EXPORT, "--format", "onnx", "--quantize", kind, "--max_drop", "0.05", "--min_agreement", "0.9")
    assert (done.code, done.err) == (0, "")
    manifest = json.loads((run / f"exports/best-onnx-{kind}/artefact.json").read_text())
    assert manifest["files"]["model.onnx"]["bytes"] < 0.4 * manifest["eager_bytes"]
    assert 0 < manifest["parity"]["max_error"] < 0.2 * manifest["parity"]["scale"]


@pytest.mark.slow
def test_speed_is_measured(cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.deploy.speed._compiled", lambda program, inputs: None)
    monkeypatch.setattr("playbook.deploy.speed.ROUNDS", 1)
    done = cli(*EXPORT[:-2], "--format", "onnx")
    assert done.code == 0
    rows = json.loads((run / "exports/best-onnx/artefact.json").read_text())["speed"]
    assert {(row["way"], row["batch"]) for row in rows} == {
        (way, batch) for way in ("eager", "eager, channels last", "onnx") for batch in (1, 32)
    }
    assert all(
        row["samples_per_second"] == pytest.approx(1e3 * row["batch"] / row["milliseconds"], rel=0.1) for row in rows
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--format", "onx"], "--format onx: expected one of torch_export, aoti, onnx, torchscript, executorch, "),
        (["--format", "onnx", "--quantize", "int4"], "--quantize int4: expected one of none, int8-dynamic"),
        (["--format", "aoti", "--quantize", "int8-static"], "--quantize int8-static: needs --format onnx, got aoti"),
        (["--quantize", "int8-static"], "--quantize int8-static: needs --format onnx"),
        (["--format", "onnx", "--output", "full"], "--output full: is not empty"),
        (["--format", "onnx", "--output", "file"], "--output file: is a file"),
        (["--format", "onnx", "--output", "x.safetensors"], "--output x.safetensors: --format onnx writes a folder"),
        (["--format", "onnx", "--min_agreement", "2"], "--min_agreement 2.0: expected a share in [0, 1]"),
        (["--format", "onnx", "--tolerance", "0"], "outputs differ by up to"),
        (["--format", "executorch"], "--format executorch: needs executorch: uv pip install executorch"),
    ],
)  # fmt: skip
def test_mistakes(cli: Cli, run: Path, options: list[str], text: str) -> None:
    write_atomically(Path("file"), "")
    Path("full").mkdir()
    write_atomically(Path("full/entry"), "")
    done = cli(*EXPORT, *options)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert text in done.err
    assert sorted(place.name for place in Path().iterdir()) == ["file", "full", "run"]
    assert not (run / "exports").exists() or not any((run / "exports").iterdir())


def test_foreign_module(tmp_path: Path) -> None:
    """Inputs in the order of forward, outputs by their names."""
    model = Foreign()
    manifest = exported(model, tmp_path / "artefact")
    assert [spec["name"] for spec in manifest["inputs"]] == ["x", "scale"]
    assert [spec["name"] for spec in manifest["outputs"]] == ["y", "total"]
    loaded = Artefact(tmp_path / "artefact")
    x, scale = torch.randn(5, 3), torch.randn(5)
    outputs = loaded.run({"scale": scale.numpy(), "x": x.numpy()})
    for name, value in model(x, scale).items():
        np.testing.assert_allclose(outputs[name], value.detach().numpy(), atol=1e-6)


def test_model_is_not_changed(tmp_path: Path) -> None:
    model = Foreign().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    exported(model, tmp_path / "artefact")
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_cannot_be_traced() -> None:
    class Unreliable(Foreign):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return self.layer(x)[: int(scale.sum())]

    program = build_program(Unreliable(), Foreign().val_dataloader(), {})
    with pytest.raises(UserError, match=r"^torch.export cannot trace Unreliable: "):
        formats.exported(program)


def test_a_fixed_batch_size_is_explained() -> None:
    class Fixed(Foreign):
        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return self.layer(x) + torch.zeros(1, 2).expand(len(x), -1) * scale[:, None]

    program = build_program(Fixed(), Foreign().val_dataloader(), {})
    with pytest.raises(UserError, match=r"fixes the size of B that it was traced with; use x\.shape"):
        formats.exported(program)


@pytest.mark.parametrize(
    ("batches", "text"),
    [([], "the validation set has no batch"), (["text"], "forward needs x, scale, but a batch has 1 entries")],
)
def test_no_inputs(batches: list[Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        build_program(Foreign(), batches, {})


def test_inputs_that_forward_does_not_take() -> None:
    with pytest.raises(UserError, match="Foreign: forward needs scale, but a batch has x, other"):
        build_program(Foreign(), [{"x": torch.zeros(2, 3), "other": torch.zeros(2)}], {})


def test_outputs_that_are_no_tensors() -> None:
    class Words(Foreign):
        def forward(self, x: Tensor, scale: Tensor) -> list[str]:
            return ["a"] * len(x)

    with pytest.raises(UserError, match="outputs are no tensors"):
        build_program(Words(), Foreign().val_dataloader(), {})


def test_what_varies_has_a_name() -> None:
    class Texts(Foreign):
        context_length = 9

        def forward(self, x: Tensor) -> Tensor:
            return x.sum(dim=-1)

    batches = [torch.zeros(4, 7, 3), torch.zeros(2, 5, 3)]
    program = build_program(Texts(), batches, {"context_length": 8})
    assert program.shapes == {"x": ["B", "T", 3]}
    assert program.limits == {"B": (1, None), "T": (1, 8)}
    assert artefact.describe(program, None, {})["outputs"][0]["shape"] == ["B", "T"]


def test_dimensions_that_differ() -> None:
    with pytest.raises(UserError, match="x: has a different number of dimensions"):
        build_program(nn_only(), [torch.zeros(2, 3), torch.zeros(2, 3, 1)], {})


def nn_only() -> pl.LightningModule:
    class Plain(Foreign):
        def forward(self, x: Tensor) -> Tensor:
            return x

    return Plain()


@pytest.mark.parametrize(
    ("parity", "text"),
    [
        (Parity(max_error=0.1, scale=1.0), "outputs differ by up to 0.1, 0.1 of the largest; --tolerance allows 0.001"),
        (Parity(max_error=float("inf"), scale=1.0), "outputs are not finite where those of the model are"),
        (Parity(agreement=0.9), "90.00% of the decisions agree; --min_agreement asks for 99.90%"),
        (Parity(metrics={"a": (0.9, 0.8)}, monitor="a", mode="max"), "a goes from 0.9 to 0.8; --max_drop allows 0.50%"),
        (Parity(metrics={"a": (1.0, 1.1)}, monitor="a"), "a goes from 1 to 1.1"),
        (Parity(metrics={"a": (1.0, float("nan"))}, monitor="a"), "a goes from 1 to nan"),
        (Parity(metrics={"a": (0.8, 0.9)}, monitor="a", mode="max", max_error=1e-4, scale=1.0, agreement=1.0), None),
    ],
)
def test_tolerance(parity: Parity, text: str | None) -> None:
    fault = parity.fault(Tolerance())
    assert fault is None if text is None else text in (fault or "")


def test_only_boxes_that_are_likely_decide() -> None:
    """Of two candidates the first is a box; the other one's classes are noise."""
    scores = torch.tensor([[[0.9, 0.1], [0.01, 0.02]]])
    noisy = torch.tensor([[[0.8, 0.1], [0.02, 0.01]]])
    program = build_program(Foreign(), Foreign().val_dataloader(), {})
    program = replace(program, outputs=["scores"], reference=lambda **_: scores)
    assert compare(program, lambda _: {"scores": noisy.numpy()}).agreement == 1.0
    assert compare(program, lambda _: {"scores": noisy.flip(2).numpy()}).agreement == 0.0
    program = replace(program, reference=lambda **_: scores / 9)
    assert compare(program, lambda _: {"scores": noisy.numpy()}).agreement is None


def test_a_wrong_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another model: same shapes, other weights."""
    write = formats.FORMATS["onnx"].write

    def spoil(program: Program, file: Path) -> None:
        other = build_program(Foreign(), Foreign().val_dataloader(), {})
        write(other, file)

    monkeypatch.setitem(formats.FORMATS, "onnx", formats.Format("model.onnx", spoil))
    with pytest.raises(UserError, match=r"export of onnx: outputs differ by up to .* nothing was written"):
        exported(Foreign(), tmp_path / "artefact")
    assert not any(tmp_path.iterdir())


def test_a_program_that_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(inputs: Any) -> Any:
        raise RuntimeError("bad node")

    monkeypatch.setattr("playbook.deploy.export.load_engine", lambda *_: fail)
    with pytest.raises(UserError, match="fails on a batch of B = 4: bad node"):
        exported(Foreign(), tmp_path / "artefact")


def test_an_exporter_that_writes_into_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = formats.FORMATS["onnx"].write

    def spoil(program: Program, file: Path) -> None:
        write(program, file)
        next(program.module.parameters()).data += 1e-9 + 1.0

    monkeypatch.setitem(formats.FORMATS, "onnx", formats.Format("model.onnx", spoil))
    with pytest.raises((AssertionError, UserError)):
        exported(Foreign(), tmp_path / "artefact")
    assert not any(tmp_path.iterdir())


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="--format aoti: needs a C\\+\\+ compiler"):
        formats.FORMATS["aoti"].require("aoti")


def test_nothing_to_quantize(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--quantize int8-weight: found no layer to quantize"):
        exported(Foreign(), tmp_path / "artefact", quantization="int8-weight")


def test_stacks_of_matrices_stay_in_floats(tmp_path: Path) -> None:
    """ONNX Runtime would quantize those of an ensemble, and then refuse to run them."""

    class Members(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(3, 512)
            self.heads = nn.Parameter(torch.randn(2, 512, 2) / 16)

        def forward(self, x: Tensor) -> Tensor:
            return (self.layer(x) @ self.heads).mean(dim=0)  # (k, B, 2) → (B, 2)

        def val_dataloader(self) -> DataLoader:
            rows = [{"x": torch.full((3,), i / 7)} for i in range(8)]
            return DataLoader(rows, batch_size=4)  # type: ignore[arg-type]  # a list is a data set

    tolerance = Tolerance(error=0.05)
    manifest = exported(Members(), tmp_path / "artefact", quantization="int8-dynamic", tolerance=tolerance)
    assert 0 < manifest["parity"]["max_error"] < 0.05 * manifest["parity"]["scale"]

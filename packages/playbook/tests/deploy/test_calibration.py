"""Training samples set the ranges of activations, validation samples judge the result, and few of either are said."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from deploy.test_export import Foreign
from playbook.deploy import calibration
from playbook.deploy.calibration import calibration_of, warn_of_few
from playbook.deploy.program import build_program
from playbook.testing.command import Cli

from deploy.test_export import EXPORT, run  # isort: skip

__all__ = ["run"]


class Trained(Foreign):
    """Its training inputs are all 5, those of validation below 1.2."""

    num_rows, num_features, fails = 150, 3, False

    def train_dataloader(self) -> DataLoader:
        if self.fails:
            raise OSError("no such folder")
        row = {"scale": torch.tensor(1.0), "x": torch.full((self.num_features,), 5.0)}
        return DataLoader([row] * self.num_rows, batch_size=10, shuffle=True)  # type: ignore[arg-type]  # a list


def calibrated(**attributes: Any) -> calibration.Calibration:
    model: Any = type("Model", (Trained,), attributes)()
    program = build_program(model, model.val_dataloader(), {})
    calibrated = calibration_of(program, model, None)
    warn_of_few(program, "int8-static", calibrated)
    return calibrated


def test_training_samples_set_the_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated()
    assert (found.split, found.num_samples) == ("train", 150)
    assert all(bool((inputs["x"] == 5).all()) for inputs in found.batches)
    assert capsys.readouterr().err.splitlines() == [
        "warning: --quantize int8-static: only 8 validation samples judge the result, expected at least 100"
    ]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"fails": True}, "no such folder"),
        ({"num_rows": 0}, "there are no training samples"),
        ({"num_features": 4}, "x of a training batch has the shape (10, 4), the program takes ['B', 3]"),
    ],
)
def test_validation_samples_where_there_are_no_others(
    attributes: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    attributes = {"train_dataloader": lambda self: []} if "num_rows" in attributes else attributes
    found = calibrated(**attributes)
    assert (found.split, found.num_samples) == ("val", 8)
    first, few, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith(f"come from validation samples, which also judge them: {reason}")
    assert "only 8 validation samples set the ranges of activations" in few


def test_large_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "MOST_BYTES", 100)
    assert calibrated().num_samples == 100
    monkeypatch.setattr(calibration, "MOST_BYTES", 10**9)
    monkeypatch.setattr(calibration, "NUM_CALIBRATED", 120)
    assert calibrated().num_samples == 120


def test_members_of_an_ensemble_with_rows_of_their_own() -> None:
    """Batches (B, k, …) in training are B k samples of a program that takes (B, …)."""

    class Ensemble(Trained):
        def train_dataloader(self) -> DataLoader:
            rows = [{"scale": torch.full((2,), float(i)), "x": torch.full((2, 3), float(i))} for i in range(60)]
            return DataLoader(rows, batch_size=10)  # type: ignore[arg-type]  # a list is a data set

    model = Ensemble()
    found = calibration_of(build_program(model, model.val_dataloader(), {}), model, None)
    assert (found.split, found.num_samples) == ("train", 120)
    first = found.batches[0]
    assert (first["x"].shape, first["scale"].shape) == ((20, 3), (20,))
    assert bool((first["x"] == first["scale"][:, None]).all())


def test_samples_that_are_judged() -> None:
    batches = [{"x": torch.zeros(4, 3), "scale": torch.zeros(4)}] * 50
    assert calibration.count(build_program(Foreign(), batches, {}).batches) == 16
    assert calibration.count(build_program(Foreign(), batches, {}, num_samples=90).batches) == 92


def test_the_same_samples_at_every_export() -> None:
    class Shuffled(Trained):
        def train_dataloader(self) -> DataLoader:
            rows = [{"scale": torch.tensor(1.0), "x": torch.full((3,), float(i))} for i in range(600)]
            return DataLoader(rows, batch_size=8, shuffle=True)  # type: ignore[arg-type]  # a list is a data set

    model = Shuffled()
    program = build_program(model, model.val_dataloader(), {})

    def samples() -> Tensor:
        return torch.cat([inputs["x"] for inputs in calibration_of(program, model, None).batches])

    state = torch.get_rng_state()
    assert torch.equal(samples(), samples())
    assert torch.equal(state, torch.get_rng_state())


def test_counts_stand_in_the_manifest(cli: Cli, run: Any) -> None:
    import json

    done = cli(*EXPORT, "--format", "onnx", "--quantize", "int8-static", "--output", "int8", "--min_agreement", "0.5")
    assert (done.code, done.err) == (0, "")
    with open("int8/artefact.json") as file:
        manifest = json.load(file)
    assert manifest["calibration"] == {"split": "train", "samples": 512}
    assert manifest["parity"]["samples"] == 256
    assert "ranges    of activations by 512 samples of train" in done.out

"""What a running training notes for its report."""

import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from playbook import Data, TestReport, Trainer, chart_axes
from playbook.insight.report import collect, live
from playbook.insight.report.blocks import Chart
from playbook.insight.report.collect import Collect
from playbook.testing.line import Line, points


class Told(Line):
    """A line that says all that a task can say."""

    def test_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        super().test_step(batch, batch_idx)
        return {"value": self.net(batch[0])[:, 0], "target": batch[1][:, 0]}

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        error = (outputs["value"] - outputs["target"]).square()
        figure, axes = chart_axes()
        axes.plot(outputs["target"].tolist(), outputs["value"].tolist())
        return TestReport(
            samples={"loss": error},
            rankings={"Largest errors": error.masked_fill(error < error.max(), -torch.inf)},
            tables={"Ends": [{"least": float(error.min()), "most": float(error.max())}]},
            figures={"Line": (figure, "A line")},
        )

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.net(batch[0])[:, 0]

    def answer(self, outputs: Tensor, facts: dict[str, Any], top: int = 5) -> list[dict[str, Any]]:
        return [{"value": value, "top": top, "all": {"a": 1}, "parts": [1, 2]} for value in outputs.tolist()]


class Drawn(Told):
    """Draws its answers."""

    def draw(self, inputs: Tensor, answer: dict[str, Any]) -> Image.Image:
        assert inputs.shape == (1,)
        return Image.new("RGB", (400, 100))


class Named(Data):
    """Points with ids."""

    def setup(self, stage: str) -> None:
        self.train_set = self.val_set = self.test_set = points().dataset

    def ids(self, dataset: Any) -> list[str]:
        return [f"points.csv:{number + 1}" for number in range(len(dataset))]


def trained(model: Any, data: Any, folder: Path, **settings: Any) -> tuple[Trainer, Collect]:
    torch.manual_seed(0)
    collected = Collect()
    trainer = Trainer(
        run_dir=folder / "run", accelerator="cpu", callbacks=[collected], enable_progress_bar=False, **settings
    )
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)
    return trainer, collected


def noted(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run/report.json").read_text())


def test_all_that_a_task_says_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = Told(), Named(batch_size=4)
    trainer, collected = trained(model, data, tmp_path, max_epochs=3)
    live.conclude(trainer, model, collected)
    assert capsys.readouterr().out.endswith(f"report         {(tmp_path / 'run/report.html').as_posix()}\n")
    values = noted(tmp_path)
    assert [block["title"] for block in values["results"]] == ["Line", "Ends"]
    assert [block["title"] for block in values["training"]] == [
        "Learning rate",
        "Time of each epoch, with its validation",
        "Data: Named",
    ]
    assert [row["split"] for row in values["training"][2]["rows"]] == ["train", "val", "test"]
    first, worst = values["examples"]
    assert first["title"] == "First test samples"
    assert first["rows"][0] | {"value": 0, "loss": 0} == {
        "id": "points.csv:1",
        "value": 0,
        "loss": 0,
        "top": 1,
        "all": "",
        "parts": "2 parts",
    }
    assert len(worst["rows"]) == 1, "the others are ranked out"
    rows = list(csv.DictReader((tmp_path / "run/test.csv").read_text().splitlines()))
    errors = [float(row["loss"]) for row in rows]
    assert sum(errors) / len(errors) == pytest.approx(trainer.callback_metrics["test/loss"].item(), rel=1e-4)
    assert max(rows, key=lambda row: float(row["loss"]))["id"] == worst["rows"][0]["id"]


def test_pictures_are_small_and_named(tmp_path: Path) -> None:
    model, data = Drawn(), Named(batch_size=4)
    trainer, collected = trained(model, data, tmp_path, max_epochs=1)
    live.note(trainer, model, collected)
    source, text = noted(tmp_path)["examples"][0]["pictures"][0]
    assert source.startswith("data:image/jpeg;base64,")
    assert text.startswith("points.csv:1: value ")


def test_loaders_without_a_data_module(tmp_path: Path) -> None:
    model, collected = Told(), Collect()
    trainer = Trainer(
        run_dir=tmp_path / "run", accelerator="cpu", callbacks=[collected], max_epochs=1, enable_progress_bar=False
    )
    trainer.fit(model, points(), points())
    trainer.test(model, points(), verbose=False)
    live.note(trainer, model, collected)
    assert noted(tmp_path)["examples"][0]["rows"][0]["id"] == "0"


def test_rates_are_thinned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(collect, "MOST_POINTS", 4)
    _, collected = trained(Line(), Named(batch_size=1), tmp_path, max_epochs=10)
    steps = [step for step, _ in collected.rates]
    assert len(steps) < 8
    assert steps[0] == 0
    assert len({later - earlier for earlier, later in pairwise(steps)}) == 1


def test_outputs_that_are_too_many_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(collect, "MOST_ELEMENTS", 3)
    model, data = Told(), Named(batch_size=4)
    trainer, collected = trained(model, data, tmp_path, max_epochs=1)
    live.note(trainer, model, collected)
    [text] = noted(tmp_path)["results"]
    assert text["text"] == "The test has no part for each sample: the outputs have more than 3 numbers."


def test_several_test_sets_and_steps_without_outputs_are_told(tmp_path: Path) -> None:
    class Silent(Told):
        def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return super().test_step(batch, batch_idx) if self.speaks else None

    for speaks, fault in ((True, "there are several test sets"), (False, "test_step returns no tensors by name")):
        model, collected = Silent(), Collect()
        model.speaks = speaks  # type: ignore[assignment]
        trainer = Trainer(run_dir=False, accelerator="cpu", callbacks=[collected], enable_progress_bar=False)
        trainer.test(model, [points(), points()], verbose=False)
        assert not collected.outputs
        assert collected.fault.startswith(fault)


def test_memory_is_that_of_the_process() -> None:
    assert live.peak_memory(torch.device("cpu")).endswith("GiB of the process")


def test_class_counts_are_drawn() -> None:
    facts = {"classes": [str(k) for k in range(50)], "class_counts": list(range(50))}

    class Trained:
        lightning_module = train_dataloader = val_dataloaders = None

    [chart] = [block for block in live._data(Trained(), facts) if isinstance(block, Chart)]
    assert chart.title == "Training samples of each class (the 40 largest of 50)"
    assert ">49<" in chart.svg
    assert ">9<" not in chart.svg

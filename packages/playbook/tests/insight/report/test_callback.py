"""A training from Python that ends with a report."""

import json
from pathlib import Path

import pytest
import torch

from playbook import Report, Trainer
from playbook.testing.line import Line, points


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_REPORT", "true")


def trained(folder: Path | None) -> tuple[Trainer, Line]:
    torch.manual_seed(0)
    model = Line()
    trainer = Trainer(
        run_dir=folder or False, accelerator="cpu", max_epochs=1, enable_progress_bar=False, callbacks=[Report()]
    )
    trainer.fit(model, points(), points())
    return trainer, model


def test_the_report_is_written_after_fit_and_again_after_the_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, model = trained(tmp_path / "run")
    page = tmp_path / "run/report.html"
    assert capsys.readouterr().out.count(f"report         {page.as_posix()}\n") == 1
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["status"] == "finished", "before the report"
    text = page.read_text()
    assert "finished · " in text
    assert "<td>test/loss</td>" not in text
    trainer.test(model, points(), ckpt_path="best")
    assert capsys.readouterr().out.count(f"report         {page.as_posix()}\n") == 1
    assert "<td>test/loss</td>" in page.read_text()


def test_a_test_alone_leaves_the_report_of_its_training(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    before = (tmp_path / "run/report.json").read_bytes()
    trainer = Trainer(run_dir=tmp_path / "run", accelerator="cpu", callbacks=[Report()], enable_progress_bar=False)
    trainer.test(Line(), points(), ckpt_path=tmp_path / "run")
    assert (tmp_path / "run/report.json").read_bytes() == before


def test_without_a_run_directory_there_is_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer, model = trained(None)
    trainer.test(model, points())
    assert list(tmp_path.rglob("report*")) == []


def test_the_environment_leaves_it_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_REPORT", "false")
    trained(tmp_path / "run")
    assert not (tmp_path / "run/report.html").exists()

"""What loggers get of a report, read back from what they left on disk."""

import base64
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loggers.mlflow import _MLFLOW_AVAILABLE
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from playbook import charts
from playbook.insight.report.blocks import Chart, Gallery, Section, Table, Text
from playbook.insight.report.publish import Content, content, publish, taker_of
from playbook.runs.loggers import MetricsCSV
from playbook.testing.command import Cli
from running import MLP_DIGITS, PROJECT

TABLE = Table("Classes", [{"class": "one", "value": 1.0, "mixed": "a"}, {"class": "two", "value": None, "mixed": 2}])


def red() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (3, 2), (255, 0, 0)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def values(tmp_path: Path) -> Content:
    with charts.keep_rasters() as rasters:
        chart = Chart("Loss, each step", charts.lines({"a": ([0, 1], [1, 2])}, "step"), "a rises")
    source = f"data:image/png;base64,{base64.b64encode(red()).decode()}"
    sections = [
        Section("Results", [Text("word"), chart, TABLE]),
        Section("Examples", [Gallery("First", [(source, "0")])]),
    ]
    page = tmp_path / "report.html"
    page.write_text("<p>report</p>")
    return content(sections, rasters, [page], step=7)


def test_charts_galleries_and_tables_are_named_by_their_section(values: Content) -> None:
    assert {name: text for name, (_, text) in values.pictures.items()} == {
        "report/Results/Loss, each step": "a rises",
        "report/Examples/First/1": "0",
    }
    assert values.pictures["report/Examples/First/1"][0] == red()
    assert values.tables == {"report/Results/Classes": TABLE}


def test_pictures_have_the_colours_of_the_light_page(values: Content) -> None:
    pixels = np.asarray(Image.open(io.BytesIO(values.pictures["report/Results/Loss, each step"][0])).convert("RGB"))
    colours = {f"#{r:02x}{g:02x}{b:02x}" for r, g, b in pixels.reshape(-1, 3).tolist()}
    assert {"#ffffff", charts.LIGHT[charts.SERIES[0]], charts.LIGHT[charts.LINE]} <= colours
    style = (Path(charts.__file__).parent / "pages/style.css").read_text()
    for colour, variable in charts.VARIABLES.items():
        assert f"{variable}: {charts.LIGHT[colour]};" in style.partition("@media")[0]


def test_no_picture_is_drawn_where_nobody_takes_it() -> None:
    with charts.keep_rasters() as rasters:
        pass
    charts.lines({"a": ([0, 1], [1, 2])}, "step")
    assert rasters == {}


def test_tensorboard(tmp_path: Path, values: Content) -> None:
    logger = TensorBoardLogger(tmp_path, "", "")
    publish([logger], values)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["images"]) == set(values.pictures)
    [image] = events.Images("report/Examples/First/1")
    assert (image.step, image.width, image.height) == (7, 3, 2)
    [text] = events.Tensors("report/Results/Classes/text_summary")
    assert text.tensor_proto.string_val[0].decode() == TABLE.markdown()


class Service:
    """A logger of somebody's own, with methods as W&B's has them."""

    def __init__(self) -> None:
        self.images: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}

    def log_image(self, key: str, images: list[Any], step: int | None = None, **kwargs: Any) -> None:
        self.images[key] = images[0].size, kwargs["caption"]

    def log_table(self, key: str, columns: list[str], data: list[list[Any]]) -> None:
        self.tables[key] = columns, data


def test_a_logger_of_ones_own(values: Content) -> None:
    service = Service()
    publish([service], values)
    assert service.images["report/Examples/First/1"] == ((3, 2), ["0"])
    assert service.tables == {
        "report/Results/Classes": (["class", "value", "mixed"], [["one", 1.0, "a"], ["two", None, "2"]])
    }


class Pictures(Service):
    """Takes no tables."""

    log_table = None  # type: ignore[assignment]


def test_a_logger_of_pictures_alone(values: Content) -> None:
    service = Pictures()
    publish([service], values)
    assert len(service.images) == 2


class Client:
    """The client of a store without pandas, as MLflow's."""

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}

    def log_artifact(self, run_id: str, path: str, folder: str) -> None:
        self.files[f"{folder}/{Path(path).name}"] = Path(path).read_text()

    def log_image(self, run_id: str, image: Any, file: str) -> None:
        self.files[file] = image.size

    def log_dict(self, run_id: str, rows: Any, file: str) -> None:
        self.files[file] = rows


def test_a_client_gets_files(values: Content, monkeypatch: pytest.MonkeyPatch) -> None:
    class Remote:
        experiment, run_id = Client(), "1"

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    publish([Remote()], values)
    assert set(Remote.experiment.files) == {
        "report/report.html",
        "report/Results/Loss-each-step.png",
        "report/Examples/First/1.png",
        "report/Results/Classes.json",
    }
    assert Remote.experiment.files["report/Results/Classes.json"]["data"][1] == ["two", None, "2"]


def test_loggers_of_numbers_alone_are_passed_over(tmp_path: Path) -> None:
    assert taker_of(CSVLogger(tmp_path)) is None
    assert taker_of(MetricsCSV(tmp_path / "metrics.csv")) is None


def test_a_service_that_fails_is_told(values: Content, capsys: pytest.CaptureFixture[str]) -> None:
    class Down(Service):
        def log_image(self, *args: Any, **kwargs: Any) -> None:
            raise ConnectionError("no route\nto host")

    service = Service()
    publish([Down(), service], values)
    assert capsys.readouterr().err == "warning: Down did not take the report: ConnectionError: no route\n"
    assert service.images


@pytest.mark.slow
def test_fit_hands_its_report_to_tensorboard(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_REPORT", "true")
    logger = str(PROJECT / "configs/logger/tensorboard.yaml")
    args = ("--config", MLP_DIGITS, "--config", logger, "--run_dir", "run", "--trainer.max_epochs", "2")
    done = cli("fit", *args, "--trainer.callbacks+", "Statistics", "--trainer.callbacks.every_n_steps", "5")
    assert done.code == 0, done.err
    events = EventAccumulator("run")
    events.Reload()
    tags = events.Tags()
    assert {"report/Results/loss", "report/Training/Gradient norm, before clipping"} <= set(tags["images"])
    assert "report/Optimization/How it was computed/text_summary" in tags["tensors"]
    assert "update_ratio/net.head" in tags["scalars"]


@pytest.mark.slow
@pytest.mark.skipif(not _MLFLOW_AVAILABLE, reason="needs MLflow: the extra `mlflow`")
@pytest.mark.filterwarnings("ignore")  # of MLflow's own use of SQLAlchemy and pandas
def test_mlflow_has_one_run_with_metrics_and_the_report(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_REPORT", "true")
    args = ("--config", MLP_DIGITS, "--config", str(PROJECT / "configs/logger/mlflow.yaml"), "--run_dir", "run")
    for epochs in ("1", "2"):
        done = cli("fit", *args, "--trainer.max_epochs", epochs, "--ckpt_path", "last")
        assert done.code == 0, done.err
        assert "warning" not in done.err.lower()
    with closing(sqlite3.connect("run/mlflow.db")) as database:
        [(run, name, status)] = database.execute("SELECT run_uuid, name, status FROM runs").fetchall()
        keys = {key for (key,) in database.execute("SELECT DISTINCT key FROM metrics")}
    assert (name, status) == ("run", "FINISHED")
    assert {"val/accuracy", "train/loss", "test/accuracy"} <= keys
    folder = Path("run/mlflow", run, "artifacts/report")
    assert (folder / "report.html").read_text() == Path("run/report.html").read_text()
    assert Image.open(folder / "Results/loss.png").size == (780, 435)
    assert json.loads((folder / "Optimization/How-it-was-computed.json").read_text())["columns"] == ["setting", "value"]
    assert "sqlite" not in Path("run/config.yaml").read_text(), "another run of it has a store of its own"

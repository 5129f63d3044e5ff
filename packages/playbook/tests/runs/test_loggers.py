"""metrics.csv, TensorBoard and W&B, read back from what they left on disk."""

import csv
import json
import sqlite3
import struct
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jsonargparse import Namespace
from lightning.pytorch.loggers.mlflow import _MLFLOW_AVAILABLE
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from playbook.runs.directory import Run
from playbook.runs.loggers import MetricsCSV, _wandb_logged_in, place_in_run
from playbook.testing.command import Cli
from running import CNN_DIGITS, PROJECT

RECORD: Any = vars(wandb_internal_pb2)["Record"]  # made at run time, unknown to type checkers
TINY = ("--model.net.widths", "[4, 4]", "--trainer.limit_train_batches", "3", "--trainer.log_every_n_steps", "1")


def test_columns_are_added_and_rows_keep_their_place(tmp_path: Path) -> None:
    logger = MetricsCSV(tmp_path / "metrics.csv")
    logger.log_metrics({"epoch": 0, "a": 0.5}, step=0)
    logger.log_metrics({"epoch": 0, "b": 1 / 3}, step=1)
    logger.log_metrics({"epoch": 1, "a": 2}, step=2)
    expected = "epoch,step,a,b\n0,0,0.5,\n0,1,,0.333333333\n1,2,2,\n"
    assert (tmp_path / "metrics.csv").read_text() == expected


NAMES = ("acc, top 5", 'q"uoted', "new\nline", "carriage\rreturn", "=1+1", "a/b", "Güte ≥ ½", "", "#", " padded ", "'")


@pytest.mark.parametrize("name", NAMES)
def test_any_name_survives_a_new_column_and_a_continuation(tmp_path: Path, name: str) -> None:
    """Lightning-AI/pytorch-lightning#4468: a comma in a name lost the whole history."""
    path = tmp_path / "metrics.csv"
    logger = MetricsCSV(path)
    logger.log_metrics({"epoch": 0, name: 0.25}, step=0)
    logger.log_metrics({"epoch": 1, "later": 2}, step=1)
    logger.log_metrics({"epoch": 2, name: 0.5}, step=2)
    logger = MetricsCSV(path)
    logger.continue_from(2)
    logger.log_metrics({"epoch": 2, name: 0.75}, step=2)
    expected = [
        {"epoch": "0", "step": "0", name: "0.25", "later": ""},
        {"epoch": "1", "step": "1", name: "", "later": "2"},
        {"epoch": "2", "step": "2", name: "0.75", "later": ""},
    ]
    assert logger.read() == expected
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == expected


def test_text_is_one_cell_of_one_line(tmp_path: Path) -> None:
    logger = MetricsCSV(tmp_path / "metrics.csv")
    logger.log_metrics({"note": 'a, "b"\nc', "step": 7}, step=1)
    assert logger.read() == [{"step": "1", "note": 'a, "b" c'}]


def test_continuing_drops_rows_that_are_repeated(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    first = MetricsCSV(path)
    for step in range(4):
        first.log_metrics({"epoch": 0, "a": step}, step=step)
    first.log_metrics({"epoch": 0, "late": 1}, step=3)
    with path.open("a") as file:
        file.write("0,")  # a crash in the middle of a row
    second = MetricsCSV(path)
    second.continue_from(2)
    second.log_metrics({"epoch": 0, "a": 7}, step=2)
    assert path.read_text() == "epoch,step,a\n0,0,0\n0,1,1\n0,2,7\n"


def test_csv_replaces_a_validation_that_is_repeated(tmp_path: Path) -> None:
    """A run that was stopped amid a validation begins it anew, at the step before the one it goes on from."""
    path = tmp_path / "metrics.csv"
    first = MetricsCSV(path)
    for step in range(2):
        first.log_metrics({"epoch": 0, "a": step}, step=step)
    first.log_metrics({"epoch": 0, "val": 5}, step=1)
    once = path.read_text()
    second = MetricsCSV(path)
    second.continue_from(2, num_rows=2)
    second.log_metrics({"epoch": 0, "val": 5}, step=1)
    assert (first.num_rows, second.num_rows) == (3, 3)
    assert path.read_text() == once


def test_tensorboard(cli: Cli) -> None:
    logger = str(PROJECT / "configs/logger/tensorboard.yaml")
    args = ("--config", CNN_DIGITS, "--config", logger, "--run_dir", "run", "--trainer.max_epochs", "2", *TINY)
    done = cli("fit", *args)
    assert done.code == 0, done.err
    assert done.err == ""
    events = EventAccumulator("run")
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss_step")] == list(range(6))
    assert len(events.Scalars("val/accuracy")) == 2


def wandb_records(run: str) -> list[Any]:
    """Every record of every offline file of a run, oldest first."""
    records = []
    for path in sorted(Path(run, "wandb").glob("offline-run-*/*.wandb")):
        content, position, message = path.read_bytes(), 7, b""
        while position + 7 <= len(content):  # LevelDB's log: blocks of 32 KiB; checksum (4), length (2), kind (1), data
            if (left := 32768 - position % 32768) < 7:
                position += left
                continue
            length, kind = struct.unpack_from("<HB", content, position + 4)
            message += content[position + 7 : position + 7 + length]
            position += 7 + length
            if kind in (1, 4):  # a whole record, or the last part of one
                records.append(RECORD.FromString(message))
                message = b""
    return records


@pytest.mark.slow
def test_wandb_offline_has_metrics_and_config_and_goes_on_with_its_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    logger = str(PROJECT / "configs/logger/wandb.yaml")
    args = ("--config", CNN_DIGITS, "--config", logger, "--run_dir", "run", *TINY, "--ckpt_path", "last")
    for epochs in ("1", "2"):
        done = cli("fit", *args, "--trainer.max_epochs", epochs)
        assert done.code == 0, done.err
        assert "wandb" not in done.out + done.err, done.out + done.err
    deadline = time.monotonic() + 30  # W&B's own process writes the files
    while sum(record.HasField("exit") for record in wandb_records("run")) < 2:
        assert time.monotonic() < deadline, "a file of a run that does not end"
        time.sleep(0.1)
    records = wandb_records("run")
    runs = [record.run for record in records if record.HasField("run")]
    assert len({run.run_id for run in runs}) == 1, "the second start continues the first one's run"
    assert runs[0].project == "playbook"
    assert runs[0].display_name == "run"
    updates = [update for record in records for part in (record.run.config, record.config) for update in part.update]
    config = {(update.key or ".".join(update.nested_key), update.value_json) for update in updates}
    assert any('"example.nets.cnn.CNN"' in value for name, value in config if name == "model"), config
    assert 1 in {json.loads(value)["max_epochs"] for name, value in config if name == "trainer"}
    keys = {item.key or ".".join(item.nested_key) for record in records for item in record.history.item}
    assert {"val/accuracy", "train/loss_step", "test/accuracy"} <= keys


def mlflow_arguments(**given: Any) -> Namespace:
    """What MLFlowLogger gets in the run directory `run`."""
    names = ("tracking_uri", "artifact_location", "run_name", "run_id")
    arguments = Namespace(**{name: given.get(name) for name in names})
    place_in_run(Namespace(class_path="lightning.pytorch.loggers.MLFlowLogger", init_args=arguments), Run(Path("run")))
    return arguments


def test_mlflow_writes_to_the_run_and_goes_on_with_its_own(workdir: Path) -> None:
    arguments = mlflow_arguments()
    folder = Path("run").absolute()
    assert arguments["tracking_uri"] == f"sqlite:///{folder.as_posix()}/mlflow.db"
    assert arguments["artifact_location"] == (folder / "mlflow").as_uri()
    assert (arguments["run_name"], arguments["run_id"]) == ("run", None)
    folder.mkdir()
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.execute("CREATE TABLE runs (run_uuid TEXT, start_time INTEGER)")
        assert mlflow_arguments()["run_id"] is None
        database.executemany("INSERT INTO runs VALUES (?, ?)", [("former", 1), ("later", 2)])
    assert mlflow_arguments()["run_id"] == "later"


def test_mlflow_keeps_a_store_that_is_named(workdir: Path) -> None:
    arguments = mlflow_arguments(tracking_uri="https://example.org", run_name="mine")
    assert vars(arguments) == {
        "tracking_uri": "https://example.org",
        "artifact_location": None,
        "run_name": "mine",
        "run_id": None,
    }


@pytest.mark.skipif(bool(_MLFLOW_AVAILABLE), reason="MLflow is installed")
def test_a_missing_mlflow_names_its_extra(cli: Cli) -> None:
    done = cli("fit", "--config", CNN_DIGITS, "--config", str(PROJECT / "configs/logger/mlflow.yaml"))
    assert (done.code, done.err) == (
        2,
        "error: mlflow is not installed: uv run --extra mlflow python -m example fit …\n",
    )


def test_wandb_is_offline_unless_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    credentials = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(credentials))
    assert not _wandb_logged_in()
    credentials.write_text("machine api.wandb.ai\n  login user\n  password " + "0" * 40 + "\n")
    credentials.chmod(0o600)
    assert _wandb_logged_in()
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert not _wandb_logged_in()
    monkeypatch.setenv("WANDB_MODE", "online")
    credentials.unlink()
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert _wandb_logged_in()

"""`predict --input` and `test` with recordings, through the command line."""

import csv
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from playbook.testing.command import Cli
from tests.data.audio.files import tone, write, write_folder

NET = ("--model.net", "AudioCNN", "--model.net.widths", "[4]", "--trainer.max_epochs", "1", "--run_dir", "run")


@pytest.fixture
def run(cli: Cli, workdir: Path) -> Path:
    write_folder(workdir / "own", {"high": 10, "low": 10})
    done = cli("fit", "--data", "AudioFolder", "--data.root", "own", "--model", "Classification", *NET)
    assert done.code == 0, done.err
    assert "from the data: num_classes 2, sample_rate 8000" in done.out
    return workdir / "run"


def rows_of(folder: str) -> list[dict[str, str]]:
    with Path("run/predictions", folder, "predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_own_recordings_from_fit_to_predict(cli: Cli, run: Path) -> None:
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 0, tested.err
    assert "test/accuracy" in tested.out
    write(Path("long.wav"), torch.cat([tone(8000, 200), tone(8000, 400)]))
    write(Path("mixed/short.flac"), tone(700, 400))
    write(Path("mixed/stereo.wav"), torch.stack([tone(4800), tone(4800)], dim=1), 48_000)
    for source in ("long.wav", "mixed"):
        done = cli("predict", "--ckpt_path", "run", "--input", source)
        assert done.code == 0, done.err
    rows = rows_of("long.wav")
    seconds = float(rows[0]["end"])
    assert (rows[0]["start"], rows[-1]["end"]) == ("0.0", "2.0")
    for row, following in pairwise(rows):
        assert float(row["end"]) - float(row["start"]) == pytest.approx(seconds, abs=2e-3)
        assert float(following["start"]) <= float(row["start"]) + seconds / 2 + 1e-3
    assert {row["class"] for row in rows} <= {"high", "low"}
    assert [(row["id"], row["end"]) for row in rows_of("mixed")] == [("short.flac", "0.087"), ("stereo.wav", "0.1")]


@pytest.mark.slow
def test_inputs_that_cannot_be_read(cli: Cli, run: Path) -> None:
    write(Path("in/good.wav"), tone(700))
    bad = write(Path("in/bad.wav"), tone(700))
    bad.write_bytes(bad.read_bytes()[:400])
    done = cli("predict", "--ckpt_path", "run", "--input", "in")
    assert done.code == 2
    expected = "in/bad.wav): is truncated: its header announces 1,400 bytes of samples, the file has 356"
    assert f"{expected}; --data.on_error skip leaves such inputs out" in done.err
    done = cli("predict", "--ckpt_path", "run", "--input", "in", "--data.on_error", "skip")
    assert done.code == 0, done.err
    assert [row["id"] for row in rows_of("in")] == ["good.wav"]
    assert "skipped  1 sample that could not be read" in done.out

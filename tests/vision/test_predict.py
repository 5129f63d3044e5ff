"""predict for real: a small classifier of pictures, its table, raw inputs, broken files, and an interruption."""

import csv
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from playbook.command.main import run as run_command
from playbook.testing.command import Cli, Result
from src.data.vision.image_folder import ImageFolder

CLASSES = {"blue": (30, 40, 200), "green": (20, 190, 40), "red": (210, 30, 20)}
RECIPE = """
seed_everything: 3
model:
  class_path: Classification
  init_args:
    num_classes: 3
    net: {class_path: CNN, init_args: {num_classes: 3, in_channels: 3, widths: [4]}}
data: {class_path: ImageFolder, init_args: {image_size: 14, batch_size: 4}}
checkpoint: {monitor: val/accuracy, mode: max}
trainer: {max_epochs: 1, logger: false, enable_progress_bar: false}
"""
TABLE = Path("run/predictions/predictions.csv")


def write_pictures(root: Path, counts: dict[str, int]) -> None:
    """Noise around a colour of the class, so that a net may learn something and no two pictures are alike."""
    generator = np.random.default_rng(0)
    for split, count in counts.items():
        for name, colour in CLASSES.items():
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = generator.normal(colour, 60, (16, 20, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures and a run of one epoch on them."""
    folder = tmp_path_factory.mktemp("trained")
    write_pictures(folder / "pictures", {"train": 10, "test": 3})
    (folder / "recipe.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        command = ["fit", "--config", "recipe.yaml", "--data.root", "pictures", "--run_dir", "run"]
        assert run_command(command, "src") == 0
    return folder


@pytest.fixture
def folder(trained: Path, workdir: Path) -> Path:
    """A copy of it to work in."""
    return shutil.copytree(trained, workdir, dirs_exist_ok=True)


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def done(result: Result) -> Result:
    assert result.code == 0, result.err
    return result


def refused(result: Result) -> str:
    assert result.code == 2, result.err
    assert "Traceback" not in result.err
    return result.err


@pytest.mark.slow
def test_raw_inputs_have_the_answers_of_the_test_data(cli: Cli, folder: Path) -> None:
    whole = done(cli("predict", "--ckpt_path", "run"))
    assert TABLE.as_posix() in whole.out
    labelled = table(folder / TABLE)
    assert [row["id"] for row in labelled] == [f"test/{name}/{i}.png" for name in CLASSES for i in range(3)]
    assert [row["target"] for row in labelled] == [name for name in CLASSES for _ in range(3)]
    done(cli("predict", "--ckpt_path", "run", "--input", "pictures/test"))
    raw = table(folder / "run/predictions/test/predictions.csv")
    for row, known in zip(raw, labelled, strict=True):
        assert f"test/{row.pop('id')}" == known.pop("id")
        known.pop("target")
        assert row == known
    for row in raw:
        assert {row["class"], row["class_2"], row["class_3"]} == set(CLASSES)
        shares = [float(row[name]) for name in ("probability", "probability_2", "probability_3")]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1, abs=1e-5)


def test_one_photo_with_only_the_best_checkpoint(cli: Cli, folder: Path) -> None:
    done(cli("predict", "--ckpt_path", "run", "--top", "1"))
    known = table(folder / TABLE)[0]
    shutil.move(folder / "run/checkpoints/best.ckpt", folder / "best.ckpt")
    shutil.move(folder / "pictures/test/blue/0.png", folder / "photo.png")
    shutil.rmtree(folder / "pictures")
    shutil.rmtree(folder / "run")
    result = done(cli("predict", "--ckpt_path", "best.ckpt", "--input", "photo.png", "--output", "out", "--top", "1"))
    [row] = table(folder / "out/predictions.csv")
    assert row == {"id": "photo.png", "class": known["class"], "probability": known["probability"]}
    assert f"photo.png  {row['class']} {float(row['probability']):.3f}\n" in result.out


@pytest.mark.slow
def test_the_table_in_every_format(cli: Cli, folder: Path) -> None:
    from pyarrow import parquet

    for kind in ("csv", "parquet", "jsonl"):
        done(cli("predict", "--ckpt_path", "run", "--top", "2", "--format", kind))
    rows = parquet.read_table(folder / TABLE.with_suffix(".parquet")).to_pylist()
    assert list(rows[0]) == ["id", "class", "probability", "class_2", "probability_2", "target"]
    lines = (folder / TABLE.with_suffix(".jsonl")).read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert table(folder / TABLE) == [{name: str(cell) for name, cell in row.items()} for row in rows]


def test_draw_leaves_a_picture_of_every_answer(cli: Cli, folder: Path) -> None:
    done(cli("predict", "--ckpt_path", "run", "--input", "pictures/test", "--draw"))
    drawn = folder / "run/predictions/test/drawn"
    files = sorted(file.relative_to(drawn).as_posix() for file in drawn.rglob("*.*"))
    assert files == [f"{name}/{i}.png" for name in CLASSES for i in range(3)]
    source = np.asarray(Image.open(folder / "pictures/test/red/1.png"))
    picture = np.asarray(Image.open(drawn / "red/1.png"))
    factor = round(256 / 20)
    assert picture.shape[0] > 16 * factor, "no room for a caption"
    shown = picture[-16 * factor :, : 20 * factor]
    assert np.array_equal(shown[factor // 2 :: factor, factor // 2 :: factor], source)


def test_accuracy_on_some_of_the_classes_is_that_of_the_table(cli: Cli, folder: Path) -> None:
    """Their numbers are those of training, though the folder has fewer."""
    for split in ("train", "val", "test"):
        shutil.rmtree(folder / "pictures" / split / "blue", ignore_errors=True)
    done(cli("test", "--ckpt_path", "run"))
    measured = json.loads((folder / "run/metrics.json").read_text())["test"]["test/accuracy"]
    done(cli("predict", "--ckpt_path", "run"))
    rows = table(folder / TABLE)
    assert len(rows) == 6
    assert {row["target"] for row in rows} == {"green", "red"}
    assert measured == pytest.approx(sum(row["class"] == row["target"] for row in rows) / 6)


@pytest.mark.slow
def test_an_unknown_class_is_named(cli: Cli, folder: Path) -> None:
    (folder / "pictures/test/green").rename(folder / "pictures/test/greens")
    for verb in ("test", "predict"):
        told = refused(cli(verb, "--ckpt_path", "run"))
        assert "pictures/test/greens: training had no class of that name, but blue, green, red" in told
        assert "Nearest: green" in told
    done(cli("predict", "--ckpt_path", "run", "--input", "pictures/test"))
    assert len(table(folder / "run/predictions/test/predictions.csv")) == 9  # without labels, any folder will do


@pytest.mark.parametrize("source", [(), ("--input", "pictures/test")], ids=["data", "input"])
def test_a_broken_file_is_left_out_and_the_others_keep_their_names(
    cli: Cli, folder: Path, source: tuple[str, ...]
) -> None:
    file = TABLE.parent / ("test" if source else "") / TABLE.name
    command = ("predict", "--ckpt_path", "run", *source)
    done(cli(*command))
    whole = table(folder / file)
    broken = folder / "pictures/test/blue/1.png"
    broken.write_bytes(broken.read_bytes()[:100])
    done(cli(*command, "--data.on_error", "skip"))
    del whole[1]
    assert table(folder / file) == whole


@pytest.mark.slow
def test_predict_goes_on_after_a_broken_file_is_mended(cli: Cli, folder: Path) -> None:
    command = ("predict", "--ckpt_path", "run", "--input", "pictures/test")
    output = folder / "run/predictions/test"
    done(cli(*command))
    whole = table(output / "predictions.csv")
    shutil.rmtree(output)
    broken = folder / "pictures/test/green/2.png"  # the sixth, in the second batch
    content = broken.read_bytes()
    broken.write_bytes(content[:100])
    told = refused(cli(*command))
    assert "pictures/test/green/2.png" in told
    assert "kept  4 rows in" in told
    assert "repeat the command to continue" in told
    assert not (output / "predictions.csv").exists()
    broken.write_bytes(content)
    assert "continuing after 4 rows\n" in done(cli(*command)).out
    assert table(output / "predictions.csv") == whole
    assert sorted(file.name for file in output.iterdir()) == ["about.json", "predictions.csv"]
    about = json.loads((output / "about.json").read_text())
    assert (about["rows"], about["facts"]["classes"]) == (9, ["blue", "green", "red"])


@pytest.mark.parametrize("change", ["file", "option"])
@pytest.mark.slow
def test_predict_starts_anew_where_something_has_changed(cli: Cli, folder: Path, change: str) -> None:
    command = ["predict", "--ckpt_path", "run", "--input", "pictures/test"]
    broken = folder / "pictures/test/green/2.png"
    content = broken.read_bytes()
    broken.write_bytes(content[:100])
    assert "kept  4 rows in" in refused(cli(*command))
    broken.write_bytes(content)
    first = folder / "pictures/test/blue/0.png"
    if change == "file":
        first.write_bytes((folder / "pictures/test/red/0.png").read_bytes())
    else:
        command += ["--data.mean", "[0.1, 0.1, 0.1]"]
    again = done(cli(*command)).out
    assert "going on" not in again
    rows = table(folder / "run/predictions/test/predictions.csv")
    assert len(rows) == 9
    if change == "file":
        same = next(row for row in rows if row["id"] == "red/0.png")
        assert {**rows[0], "id": ""} == {**same, "id": ""}


@pytest.mark.slow
def test_inputs_of_one_name_have_a_folder_each(cli: Cli, folder: Path) -> None:
    other = folder / "other/test"
    other.mkdir(parents=True)
    shutil.copy(folder / "pictures/test/red/0.png", other / "only.png")
    for spec in ("pictures/test", "other/test", "other/../other/test", "pictures/test"):
        done(cli("predict", "--ckpt_path", "run", "--input", spec))
    assert len(table(folder / "run/predictions/test/predictions.csv")) == 9
    assert [row["id"] for row in table(folder / "run/predictions/test-2/predictions.csv")] == ["only.png"]


@pytest.mark.slow
def test_an_output_that_cannot_be_made_is_told(cli: Cli, folder: Path) -> None:
    (folder / "taken").write_text("")
    told = refused(cli("predict", "--ckpt_path", "run", "--input", "pictures/test", "--output", "taken"))
    assert told == "error: --output taken: cannot be written to: File exists\n"
    assert refused(cli("predict", "--ckpt_path", "run", "--input", "")).startswith("error: --input")


def test_predict_goes_on_where_only_broken_files_are_left(cli: Cli, folder: Path) -> None:
    """The ninth picture is alone in its batch."""
    (folder / "pictures/test/red/2.png").write_bytes(b"")
    command = ("predict", "--ckpt_path", "run", "--input", "pictures/test", "--output", "out")
    assert "kept  8 rows in" in refused(cli(*command))
    assert "skipped input sample 8" in done(cli(*command, "--data.on_error", "skip")).err
    assert len(table(folder / "out/predictions.csv")) == 8


def test_going_on_predicts_nothing_twice(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read = ImageFolder.read

    def fails_once(data: Any, source: Any) -> Any:
        reads.append(source.name)
        if len(reads) == 6:
            raise RuntimeError("a disk that failed")
        return read(data, source)

    monkeypatch.setattr(ImageFolder, "read", fails_once)
    command = ("predict", "--ckpt_path", "run", "--input", "pictures/test", "--output", "out")
    stopped = cli(*command)
    assert stopped.code == 2
    assert "a disk that failed" in stopped.err
    reads = []
    done(cli(*command))
    assert len(reads) == 5
    assert [row["id"] for row in table(folder / "out/predictions.csv")] == [
        f"{name}/{i}.png" for name in CLASSES for i in range(3)
    ]


def test_another_request_starts_anew(cli: Cli, folder: Path) -> None:
    command = ("predict", "--ckpt_path", "run", "--output", "out", "--input", "pictures/test")
    broken = folder / "pictures/test/green/2.png"
    content = broken.read_bytes()
    broken.write_bytes(b"")
    refused(cli(*command))
    broken.write_bytes(content)
    assert "going on" not in done(cli(*command, "--top", "1")).out
    assert list(table(folder / "out/predictions.csv")[0]) == ["id", "class", "probability"]


def test_a_file_through_standard_input(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(cli("predict", "--ckpt_path", "run", "--top", "1"))
    content = (folder / "pictures/test/blue/0.png").read_bytes()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    done(cli("predict", "--ckpt_path", "run", "--input", "-", "--top", "1"))
    [row] = table(folder / "run/predictions/stdin/predictions.csv")
    known = table(folder / TABLE)[0]
    assert (row["id"], row["class"], row["probability"]) == ("-", known["class"], known["probability"])


OPTIONS = {
    ("--score", "0.5"): "--score: Classification.answer takes --top",
    ("--tile", "128", "--input", "pictures/test"): "--tile: only segmentation and detection support tiles",
    ("--tile", "128"): "--tile: needs --input",
    ("--top", "0"): "--top: expected at least 1 class, got 0",
    ("--input", "pictures/tests"): "--input pictures/tests: no such file or folder. Nearest: pictures/test",
    ("--format", "xlsx"): "--format: expected one of csv, parquet, jsonl, got xlsx",
}


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_options_that_do_not_fit_are_told(cli: Cli, folder: Path, options: tuple[str, ...]) -> None:
    told = refused(cli("predict", "--ckpt_path", "run", *options))
    assert OPTIONS[options] in told
    assert len(told.strip().splitlines()) == 1, told

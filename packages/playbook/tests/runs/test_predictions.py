"""Everything that a predict_step may return ends as rows that a person can open."""

import csv
import json
from collections import deque, namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from playbook import UserError
from playbook.runs import predictions
from playbook.runs.outputs import line_of
from playbook.runs.predictions import WritePredictions, make_folder, paths_below
from playbook.testing.command import QUIET

Detection = namedtuple("Detection", ["label", "score"])  # as models return them


class Replay(pl.LightningModule):
    """Returns what it is given, loader by loader and batch by batch."""

    def __init__(self, outputs: list[list[Any]]) -> None:
        super().__init__()
        self.outputs = outputs

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        output = self.outputs[dataloader_idx][batch_idx]
        return output() if callable(output) else output


def predict(folder: Path, *loaders: list[Any]) -> list[Path]:
    """Runs Lightning's predict over batches that come out as given; returns the files."""
    writer = WritePredictions(folder)
    trainer = pl.Trainer(**QUIET, callbacks=[writer], default_root_dir=folder)
    batches = [DataLoader(range(len(outputs)), batch_size=1) for outputs in loaders]  # type: ignore[arg-type]
    try:
        trainer.predict(Replay(list(loaders)), batches, return_predictions=False)
    finally:
        if writer._file is not None:
            writer._file.close()
    return writer.files


def rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


FLAT = {
    "a tensor (B,)": (
        [torch.tensor([1, 2]), torch.tensor([3])],
        ["id,prediction", "0,1", "1,2", "2,3"],
    ),
    "a tensor (B, K)": (
        [torch.tensor([[0.25, 0.75], [1.0, 0.0]])],
        ["id,prediction_0,prediction_1", "0,0.25,0.75", "1,1.0,0.0"],
    ),
    "a tensor (1, K)": ([torch.tensor([[0.5, 2.0]])] * 2, ["id,prediction_0,prediction_1", "0,0.5,2.0", "1,0.5,2.0"]),
    "a dict": (
        [{"label": torch.tensor([1, 0]), "p": torch.tensor([[0.5, 0.5], [1.0, 0.0]]), "name": ["a,b", "c"]}],
        ["id,label,p_0,p_1,name", '0,1,0.5,0.5,"a,b"', "1,0,1.0,0.0,c"],
    ),
    "a tuple": (
        [(torch.tensor([1, 2]), torch.tensor([True, False]))],
        ["id,output_0,output_1", "0,1,True", "1,2,False"],
    ),
    "a named tuple": (
        [Detection(torch.tensor([7]), torch.tensor([0.5]))],
        ["id,label,score", "0,7,0.5"],
    ),
    "scalars of a batch": ([torch.tensor(0.5), 2.5], ["id,prediction", "0,0.5", "1,2.5"]),
    "a scalar beside samples": (
        [{"x": torch.tensor([1, 2]), "temperature": 0.5, "bias": torch.tensor(3)}],
        ["id,x,temperature,bias", "0,1,0.5,3", "1,2,0.5,3"],
    ),
    "bfloat16": ([torch.tensor([1.5, -2.0], dtype=torch.bfloat16)], ["id,prediction", "0,1.5", "1,-2.0"]),
    "float16": ([torch.tensor([[0.5]], dtype=torch.float16)], ["id,prediction_0", "0,0.5"]),
    "with a gradient": ([torch.ones(1, requires_grad=True)], ["id,prediction", "0,1.0"]),
    "text": ([["a", "b"], ["ü"]], ["id,prediction", "0,a", "1,b", "2,ü"]),
    "lists of numbers": ([[1, 2.5], [None]], ["id,prediction", "0,1", "1,2.5", "2,"]),
    "another object": ([[Path("x")]], ["id,prediction", "0,x"]),
    "not a number": ([torch.tensor([float("nan"), float("inf")])], ["id,prediction", "0,nan", "1,inf"]),
}


@pytest.mark.parametrize("what", FLAT)
def test_columns(tmp_path: Path, what: str) -> None:
    batches, expected = FLAT[what]
    [path] = predict(tmp_path, batches)
    assert path.name == "predictions.csv"
    assert path.read_text(encoding="utf-8").splitlines() == expected


NESTED = {
    "a list of dicts": (
        [[{"box": torch.tensor([[1, 2]]), "label": torch.tensor([3])}, {"box": torch.zeros(0, 2), "label": []}]],
        [
            {"id": 0, "box": [[1, 2]], "label": [3]},
            {"id": 1, "box": [], "label": []},
        ],
    ),
    "a tensor (B, H, W)": (
        [torch.arange(8).view(2, 2, 2)],
        [
            {"id": 0, "prediction": [[0, 1], [2, 3]]},
            {"id": 1, "prediction": [[4, 5], [6, 7]]},
        ],
    ),
    "masks beside scores": (
        [{"mask": torch.ones(1, 1, 2, dtype=torch.bfloat16), "score": torch.tensor([0.5])}] * 2,
        [{"id": i, "mask": [[1.0, 1.0]], "score": 0.5} for i in range(2)],
    ),
    "no common number of samples": (
        [{"a": torch.tensor([1, 2]), "b": torch.tensor([1, 2, 3])}],
        [{"id": 0, "a": [1, 2], "b": [1, 2, 3]}],
    ),
    "dicts inside of columns": (
        [{"x": torch.tensor([1]), "meta": [{"size": (2, 3), 4: torch.tensor(5)}]}],
        [{"id": 0, "x": 1, "meta": {"size": [2, 3], "4": 5}}],
    ),
    "tuples inside of lists": (
        [[(1, "x"), (2, "y")]],
        [{"id": 0, "prediction": [1, "x"]}, {"id": 1, "prediction": [2, "y"]}],
    ),
}


@pytest.mark.parametrize("what", NESTED)
def test_json_lines(tmp_path: Path, what: str) -> None:
    batches, expected = NESTED[what]
    [path] = predict(tmp_path, batches)
    assert path.name == "predictions.jsonl"
    assert rows(path) == expected


def test_ids_continue_over_batches_and_begin_anew_with_a_loader(tmp_path: Path) -> None:
    first = [torch.tensor([10, 11, 12]), torch.tensor([13])]
    second = [{"mask": torch.ones(2, 1, 1)}, {"mask": torch.ones(1, 1, 1)}]
    files = predict(tmp_path, first, second, [torch.tensor([20])])
    assert [path.name for path in files] == ["predictions.csv", "predictions-1.jsonl", "predictions-2.csv"]
    assert [(row["id"], row["prediction"]) for row in rows(files[0])] == [(str(i), str(10 + i)) for i in range(4)]
    assert [row["id"] for row in rows(files[1])] == [0, 1, 2]
    assert rows(files[2]) == [{"id": "0", "prediction": "20"}]


@pytest.mark.filterwarnings("ignore:.*predict returned None.*")
def test_batches_without_output_are_passed_over(tmp_path: Path) -> None:
    [path] = predict(tmp_path, [torch.tensor([1]), None, torch.tensor([2])])
    assert [row["prediction"] for row in rows(path)] == ["1", "2"]


@pytest.mark.filterwarnings("ignore:.*predict returned None.*")
def test_nested_output_after_a_batch_without_any(tmp_path: Path) -> None:
    [path] = predict(tmp_path, [None, {"mask": torch.ones(1, 1, 1)}])
    assert path.name == "predictions.jsonl"


def test_masks_are_pictures(tmp_path: Path) -> None:
    masks = torch.arange(3 * 4 * 5).view(3, 4, 5)
    outputs = [
        {"mask": masks[:2].byte(), "score": torch.tensor([0.5, 0.25])},
        {"mask": masks[2:], "score": torch.ones(1)},
    ]
    found, more = predict(tmp_path, outputs, [{"mask": masks[:1] + 1000}])
    names = [f"mask/00000{i}.png" for i in range(3)]
    assert rows(found) == [
        {"id": str(i), "mask": name, "score": score}
        for i, (name, score) in enumerate(zip(names, ["0.5", "0.25", "1.0"], strict=True))
    ]
    for name, mask in zip(names, masks, strict=True):
        assert np.array_equal(np.asarray(Image.open(tmp_path / name)), mask.numpy())
    [row] = rows(more)
    assert row["mask"] == "mask-1/000000.png"
    assert np.array_equal(np.asarray(Image.open(tmp_path / row["mask"])), masks[0].numpy() + 1000)


def test_numpy_arrays(tmp_path: Path) -> None:
    import numpy as np

    [path] = predict(tmp_path, [np.array([1.5, 2.5])])
    assert [row["prediction"] for row in rows(path)] == ["1.5", "2.5"]


def test_numbers_come_back_exactly(tmp_path: Path) -> None:
    values = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    [path] = predict(tmp_path, [values[:60], values[60:]])
    read = torch.tensor([[float(row[f"prediction_{k}"]) for k in range(3)] for row in rows(path)])
    assert torch.equal(read, values)


def test_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look() -> torch.Tensor:
        seen.append(sorted(path.name for path in tmp_path.glob("predictions*.csv")))
        return torch.tensor([1])

    predict(tmp_path, [look, look], [look, look])
    assert seen == [[], [], [], []]


def test_failure_keeps_the_rows_so_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> torch.Tensor:
        raise RuntimeError("a bug in my own code")

    with pytest.raises(RuntimeError, match="a bug"):
        predict(tmp_path, [torch.tensor([3]), fail])
    assert not list(tmp_path.glob("predictions.csv"))
    [line] = (tmp_path / "predictions.partial.jsonl").read_text().splitlines()
    assert json.loads(line) == {"index": 0, "id": 0, "row": {"prediction": 3}}
    assert "kept  1 rows in" in capsys.readouterr().err


def test_former_predictions_stay_until_the_new_ones_are_whole(tmp_path: Path) -> None:
    def fail() -> torch.Tensor:
        raise RuntimeError("a bug in my own code")

    [path] = predict(tmp_path, [torch.tensor([1, 2])])
    former = path.read_bytes()
    with pytest.raises(RuntimeError, match="a bug"):
        predict(tmp_path, [torch.tensor([3]), fail])
    assert path.read_bytes() == former
    predict(tmp_path, [torch.tensor([4])])
    assert [row["prediction"] for row in rows(path)] == ["4"]
    assert [file.name for file in tmp_path.iterdir()] == ["predictions.csv"]


@pytest.mark.parametrize("shape", [(5,), (5, 1, 1)], ids=["csv", "jsonl"])
def test_two_processes_lose_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    """Two writers as two processes have them; a loader strides over the ranks."""
    writers = [WritePredictions(tmp_path), WritePredictions(tmp_path)]
    trainers: list[Any] = [
        SimpleNamespace(world_size=2, global_rank=rank, is_global_zero=rank == 0) for rank in range(2)
    ]
    values = torch.arange(10, 15).reshape(shape)
    for trainer, writer in zip(trainers, writers, strict=True):
        writer.on_predict_batch_end(trainer, Replay([]), values[trainer.global_rank :: 2], None, 0)
    monkeypatch.setattr(predictions, "gathered", lambda trainer, value: [])
    for trainer, writer in [*zip(trainers, writers, strict=True)][::-1]:  # the first one merges
        writer.on_predict_end(trainer, Replay([]))
    [path] = tmp_path.iterdir()
    assert path.stem == "predictions"
    assert [int(row["id"]) for row in rows(path)] == [0, 1, 2, 3, 4]
    assert [str(row["prediction"]).strip("[]") for row in rows(path)] == ["10", "11", "12", "13", "14"]
    assert [writer.files for writer in writers] == [[path], []]  # the first process tells


def test_rows_of_another_request_are_not_added_to(tmp_path: Path) -> None:
    first = WritePredictions(tmp_path, request={"input": "a"})
    loader = SimpleNamespace(indices=deque([[0, 1]]))
    trainer: Any = SimpleNamespace(world_size=1, global_rank=0, is_global_zero=True, predict_dataloaders=loader)
    first.on_predict_batch_end(trainer, Replay([]), torch.tensor([1, 2]), None, 0)
    first._close()
    with (tmp_path / "predictions.partial.jsonl").open("a") as file:
        file.write('{"index": 2, "id"')  # a kill amid a line
    assert WritePredictions(tmp_path, request={"input": "a"}).resume() == {0, 1}
    assert WritePredictions(tmp_path, request={"input": "b"}).resume() == set()
    assert WritePredictions(tmp_path, request={"input": "a"}).resume() == set()


def test_a_row_a_batch_needs_no_sample(tmp_path: Path) -> None:
    """Of a loader that knows which samples it has loaded."""
    writer = WritePredictions(tmp_path)
    loader = SimpleNamespace(indices=deque([[0, 1], [2, 3], [4]]), dataset=range(5))
    trainer: Any = SimpleNamespace(world_size=1, global_rank=0, is_global_zero=True, predict_dataloaders=loader)
    for number, output in enumerate([torch.tensor(0.5), None, torch.tensor([7])]):
        writer.on_predict_batch_end(trainer, Replay([]), output, None, number)
    writer.on_predict_end(trainer, Replay([]))
    assert [(row["id"], row["prediction"]) for row in rows(tmp_path / "predictions.csv")] == [("0", "0.5"), ("4", "7")]


def test_files_of_one_name_keep_their_suffix(tmp_path: Path) -> None:
    writer = WritePredictions(tmp_path)
    dataset = SimpleNamespace(names=["a.png", "b/a.jpg", "b/a.png", "../x:y.png"])
    trainer: Any = SimpleNamespace(
        world_size=1, global_rank=0, is_global_zero=True, predict_dataloaders=SimpleNamespace(dataset=dataset)
    )
    writer.on_predict_batch_end(trainer, Replay([]), {"mask": torch.zeros(4, 2, 2).byte()}, torch.zeros(4), 0)
    writer.on_predict_end(trainer, Replay([]))
    files = [row["mask"] for row in rows(tmp_path / "predictions.csv")]
    assert files == ["mask/a.png", "mask/b/a.jpg.png", "mask/b/a.png.png", "mask/x:y.png"]
    assert all((tmp_path / file).is_file() for file in files)


ANSWERS = {
    "a class": ({"id": "a.png", "class": "owl", "probability": 0.25, "class_2": "yak"}, "a.png  owl 0.250"),
    "boxes": ({"id": "a.png", "boxes": [{"class": "owl"}, {"class": "owl"}]}, "a.png  2 owl"),
    "no boxes": ({"id": "a.png", "boxes": []}, "a.png  nothing"),
    "values": ({"id": 3, "x": 0.123456, "y": 7, "name": None}, "3  x 0.1235, y 7, name None"),
    "many values": ({"id": 3, **{f"p_{i}": 1.0 for i in range(9)}}, "3  p_0 1, p_1 1, p_2 1, p_3 1, …"),
}


@pytest.mark.parametrize(("row", "line"), ANSWERS.values(), ids=ANSWERS)
def test_lines_for_the_terminal(row: dict[str, Any], line: str) -> None:
    assert line_of(row) == line


def test_every_id_has_its_own_files() -> None:
    """Whatever folders an id leads out of, and where a file system ignores case."""
    names = ["x.jpg", "x.png", "x.jpg.png", "../a/b.png", "a/b.jpg", "/a/b.jpg", "C.png", "c.jpg", "..", "new.gif"]
    paths = paths_below([*names, "x.jpg"])
    assert list(paths) == names
    assert paths["new.gif"] == "new"
    assert paths["../a/b.png"] == "a/b.png"
    assert len({path.casefold() for path in paths.values()}) == len(names), paths
    assert not any(Path(path).is_absolute() or ".." in Path(path).parts for path in paths.values()), paths


def test_a_folder_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that belongs to someone else; not by its mode, which the superuser may ignore."""

    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(predictions.tempfile, "TemporaryFile", refuse)
    with pytest.raises(UserError, match=r"--output \S+/out: cannot be written to: Permission denied"):
        make_folder(tmp_path / "out")


class Windows:
    """Data that says where its inputs are."""

    def about(self, source: Any) -> dict[str, Any]:
        return {"start": source["start"]} if isinstance(source, dict) else {}


def test_what_the_data_says_of_an_input_stands_before_its_answer(tmp_path: Path) -> None:
    places = [{"start": 0.5}, {"start": 1.5}]
    writer = WritePredictions(tmp_path, data=Windows(), places=places)
    trainer = pl.Trainer(**QUIET, callbacks=[writer], default_root_dir=tmp_path)
    trainer.predict(Replay([[torch.tensor([3]), torch.tensor([4])]]), DataLoader(range(2)), return_predictions=False)  # type: ignore[arg-type]
    [path] = writer.files
    assert path.read_text().splitlines() == ["id,start,prediction", "0,0.5,3", "1,1.5,4"]

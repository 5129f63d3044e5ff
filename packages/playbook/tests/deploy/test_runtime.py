"""An artefact stands alone: it checks its files, reads raw inputs, fills batches and answers."""

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import nn

from deploy.programs import write_program
from playbook.data.base import Data
from playbook.deploy import runtime
from playbook.deploy.runtime import Artefact, InputError, Sample, images
from playbook.task import Task
from playbook.testing.artefacts import artefact_of, write_artefact

GREY = {"kind": "image", "channels": 1, "bits": 8, "steps": [{"cover": [4, 6]}, {"divide": 255}]}
GREY |= {"mean": None, "deviation": None, "pads_to": None}
CLASSES = {"kind": "classes", "names": ["dark", "bright"], "top": 1}


def brightness(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    mean = inputs["image"].mean(axis=(1, 2, 3))
    return {"logits": np.stack([10 * (0.5 - mean), 10 * (mean - 0.5)], axis=1)}


def of_images(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Artefact:
    inputs = {"image": ("float32", ["B", 1, 4, 6])}
    plans = {"preprocessing": GREY, "postprocessing": CLASSES}
    return artefact_of(monkeypatch, folder, brightness, inputs, ["logits"], **{**plans, **options})


def of_numbers(folder: Path, monkeypatch: pytest.MonkeyPatch, batch: Any = "B", **options: Any) -> Artefact:
    def engine(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        SIZES.append(len(inputs["x"]))
        return {"double": 2 * inputs["x"]}

    return artefact_of(monkeypatch, folder, engine, {"x": ("float32", [batch, 2])}, ["double"], **options)


SIZES: list[int] = []  # of the batches that the engine was given


def png(value: int, size: tuple[int, int] = (6, 4)) -> bytes:
    file = io.BytesIO()
    Image.new("L", size, value).save(file, "png")
    return file.getvalue()


def test_images_from_paths_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_images(tmp_path / "model", monkeypatch)
    assert model.kind == "image"
    (tmp_path / "a.png").write_bytes(png(250, (30, 20)))
    sources = [
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        png(3),
        bytearray(png(250)),
        np.zeros((1, 4, 6), np.float32),
    ]
    assert [answer["class"] for answer in model.predict(sources)] == ["bright", "bright", "dark", "bright", "dark"]
    assert model.sources(tmp_path / "a.png") == [tmp_path / "a.png"]
    assert model.read(model.read(png(3))).size == (4, 6)
    with pytest.raises(InputError, match=r"b\.png: cannot be read as an image: No such file"):
        model.read(tmp_path / "b.png")
    with pytest.raises(InputError, match="expected a file, its bytes or arrays, got None"):
        model.read(None)
    with pytest.raises(InputError, match=r"image: expected shape \(1, 4, 6\) for one sample, got \(4, 6\)"):
        model.read(np.zeros((4, 6), np.float32))


def test_an_image_of_another_size_than_the_program_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_images(tmp_path, monkeypatch, preprocessing={**GREY, "steps": [{"divide": 255}]})
    with pytest.raises(InputError, match=r"image: expected shape \(1, 4, 6\) for one sample, got \(1, 5, 6\)"):
        model.read(png(3, (6, 5)))


def test_a_bomb_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_images(tmp_path, monkeypatch)
    monkeypatch.setattr(images, "MOST_PIXELS", 100)
    with pytest.raises(InputError, match="the image: has 11 × 10 pixels, expected at most 100"):
        model.read(png(3, (11, 10)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.raises(InputError, match="the image: cannot be read as an image: Image size"):
        model.read(png(3, (10, 10)))


def test_arrays_lists_and_files_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_numbers(tmp_path / "model", monkeypatch)
    np.save(tmp_path / "a.npy", np.array([1, 2], np.float32))
    np.savez(tmp_path / "a.npz", x=np.array([1, 2], np.float32))
    (tmp_path / "a.json").write_text("[1, 2]")
    (tmp_path / "b.json").write_text('{"x": [1, 2.0]}')
    files = [tmp_path / name for name in ("a.npy", "a.npz", "a.json", "b.json")]
    sources = [*files, [1, 2], {"x": (1, 2)}, b"[1, 2]", Sample({"x": np.array([1, 2], np.float32)})]
    assert model.kind == "tensor"
    assert [answer["double"].tolist() for answer in model.predict(sources)] == [[2, 4]] * len(sources)
    assert model.predict([]) == []


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ([1], r"x: expected shape \(2\) for one sample, got \(1,\)"),
        ({"y": [1, 2]}, "expected a file, its bytes or arrays"),
        ([1, float("nan")], "x: has values that are not finite"),
        ([1, 1e39], "x: has values that are not finite"),
        (np.array([1, 2]), "x: expected float32, got int64"),
        ([1, "a"], "x: expected float32 values"),
        (b"[1, 2", "expected a .npy, a .npz or JSON"),
        (b"\x93NUMPY nothing", "expected a .npy, a .npz or JSON"),
        (b"PK nothing", "expected a .npy, a .npz or JSON"),
        (b'{"y": [1, 2]}', "y: unknown input; expected x"),
        (b"[" * 100_000, "expected a .npy, a .npz or JSON"),
        ("nowhere.npy", r"nowhere\.npy: No such file"),
    ],
)
def test_arrays_that_do_not_fit(source: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_numbers(tmp_path, monkeypatch)
    with pytest.raises(InputError, match=sentence):
        model.predict([source])


def test_pickles_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_numbers(tmp_path / "model", monkeypatch)
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="Object arrays cannot be loaded"):
        model.read(tmp_path / "a.npy")


def test_two_inputs_need_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {name: ("float32", ["B"]) for name in ("x", "y")}
    model = artefact_of(monkeypatch, tmp_path, lambda given: {"sum": given["x"] + given["y"]}, inputs, ["sum"])
    assert model.predict([{"x": 1, "y": 2}, {"y": 3.5, "x": 2}]) == [{"sum": 3}, {"sum": 5.5}]
    with pytest.raises(InputError, match="expected arrays by name for x, y, got one without a name"):
        model.read([1])


@pytest.mark.parametrize(
    ("batch", "dims", "expected"),
    [
        ("B", {"B": [1, None]}, [5]),
        ("B", {}, [5]),
        ("B", {"B": [1, 2]}, [2, 2, 1]),
        ("B", {"B": [2, 4]}, [4, 2]),
        (3, {}, [3, 3]),
        (1, {}, [1] * 5),
    ],
)
def test_batches_of_the_sizes_that_the_program_takes(
    batch: Any, dims: Any, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = of_numbers(tmp_path, monkeypatch, batch, dims=dims)
    SIZES.clear()
    answers = model.predict([[k, k] for k in range(5)])
    assert [answer["double"].tolist() for answer in answers] == [[2 * k, 2 * k] for k in range(5)]
    assert expected == SIZES


def test_run_takes_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_numbers(tmp_path, monkeypatch)
    assert model.run({"x": np.ones((3, 2), np.float32)})["double"].tolist() == [[2, 2]] * 3
    with pytest.raises(InputError, match=r"x: expected shape \(B, 2\), got \(3, 3\)"):
        model.run({"x": np.ones((3, 3), np.float32)})
    with pytest.raises(InputError, match="generates no text"):
        model.stream(model.read([1, 2]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "has version 2, this runtime reads 1"),
        ({"version": None}, "has no version"),
        ({"files": {"model.bin": {"sha256": "0" * 64}}}, r"model\.bin: is damaged: its SHA-256"),
        ({"files": {}}, r"has no checksum of model\.bin"),
        ({"files": {"model.bin": {"sha256": "0"}, "../a": {"sha256": "0"}}}, "is damaged|lies outside"),
        ({"file": "/model.bin", "files": {"/model.bin": {"sha256": "0"}}}, "/model.bin lies outside of the folder"),
        ({"file": "b", "files": {"b": {"sha256": "0"}}}, "b: No such file"),
        ({"dims": ...}, "lacks dims"),
        ({"preprocessing": {"kind": "sound"}}, "unknown preprocessing 'sound'"),
        ({"postprocessing": {"kind": "sound"}}, "unknown postprocessing 'sound'"),
        ({}, r"model\.bin: cannot be loaded as onnx"),
    ],
)
def test_folders_that_cannot_be_used(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    write_artefact(tmp_path, {"x": ("float32", ["B", 2])}, ["y"])
    manifest = json.loads((tmp_path / "artefact.json").read_text())
    changed = {key: value for key, value in {**manifest, **change}.items() if value is not ...}
    (tmp_path / "artefact.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=sentence):
        Artefact(tmp_path)


def test_folders_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"artefact\.json: No such file or directory; expected the folder"):
        Artefact(tmp_path)
    (tmp_path / "artefact.json").write_text("{")
    with pytest.raises(ValueError, match=r"artefact\.json: is not valid JSON"):
        Artefact(tmp_path)
    (tmp_path / "artefact.json").write_text("[]")
    with pytest.raises(ValueError, match=r"artefact\.json: has no version"):
        Artefact(tmp_path)


def test_texts_of_any_length_run_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that counts tokens; the mask hides padding, also where the program needs a longest length."""

    def count(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        SIZES.append(inputs["tokens"].shape[1])
        number = inputs["mask"].sum(axis=1)
        return {"logits": np.stack([4.5 - number, number - 4.5], axis=1)}

    plan = {"kind": "text", "columns": ["text"], "tokenizer": {"kind": "bytes"}, "max_length": 8}
    inputs = {"tokens": ("int64", ["B", "T"]), "mask": ("bool", ["B", "T"])}
    plans = {"preprocessing": plan, "postprocessing": {"kind": "classes", "names": ["short", "long"]}}
    model = artefact_of(monkeypatch, tmp_path, count, inputs, ["logits"], {"T": [6, 8]}, **plans)
    SIZES.clear()
    answers = model.predict(["a", "abcde", {"text": "abcdefghijkl"}, b"ab"], top=1)
    assert [answer["class"] for answer in answers] == ["short", "long", "long", "short"]
    assert model.predict(["a"], top=1)[0]["class"] == "short"
    assert SIZES == [8, 6]
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert model.sources(tmp_path / "a.txt") == ["one", "two"]
    arrays = {"tokens": list(b"abcdef"), "mask": [True] * 5 + [False]}
    assert model.predict([arrays], top=1)[0]["class"] == "long"


def test_bases_describe_nothing() -> None:
    assert Data().preprocessing() is None
    from torchmetrics import MetricCollection

    assert Task(nn.Linear(1, 1), None, None, MetricCollection({})).postprocessing({}) is None


@pytest.mark.slow
def test_a_copy_runs_without_playbook(tmp_path: Path) -> None:
    """As in an artefact: the folder `runtime` beside the program, in a Python that cannot see this repository."""
    write_program("onnx", tmp_path / "model.onnx")
    inputs = {name: ("float32", ["B", 3]) for name in ("left", "right")}
    write_artefact(tmp_path, inputs, ["logits", "sums"], {"B": [1, None]}, "model.onnx")
    shutil.copytree(Path(runtime.__file__).parent, tmp_path / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
    code = """
import json, sys
from runtime import Artefact
model = Artefact(".")
answers = model.predict([{"left": [1, 2, 3], "right": [4, 5, 6]}])
loaded = sorted({"playbook", "src", "torch", "PIL", "tokenizers"} & sys.modules.keys())
print(json.dumps([[float(answer["sums"]) for answer in answers], loaded]))
"""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert not result.stderr, result.stderr
    answers, loaded = json.loads(result.stdout)
    assert (answers, loaded) == ([15], [])

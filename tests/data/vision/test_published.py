"""Sets in the files they are published in, against torchvision, which writes and reads them."""

import gzip
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import datasets

from playbook.errors import UserError
from playbook.testing.command import Cli
from playbook.testing.resume import assert_same_ending, cut, fit, resume
from src.data.vision.published import CIFAR10, CIFAR100, KMNIST, MNIST, FashionMNIST
from tests.conftest import PUBLISHED, needs


def idx(values: Any) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes() + values.astype(np.uint8).tobytes()


def write_mnist(root: Path, name: str = "MNIST", packed: bool = True, num_train: int = 30) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    arrays = {}
    for prefix, count in (("train", num_train), ("t10k", 12)):
        arrays[f"{prefix}-images-idx3-ubyte"] = generator.integers(0, 256, (count, 28, 28))
        arrays[f"{prefix}-labels-idx1-ubyte"] = generator.integers(0, 10, (count,))
    for file, values in arrays.items():
        if packed:
            (folder / f"{file}.gz").write_bytes(gzip.compress(idx(values)))
        else:
            (folder / file).write_bytes(idx(values))
    return arrays


def cifar_batch(count: int, label: str, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, 3072)).astype(np.uint8)
    return {"data": images, label: generator.integers(0, 10, (count,)).tolist(), "filenames": ["a.png"] * count}


def write_cifar10(root: Path) -> dict[str, Any]:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    batches = {name: cifar_batch(8, "labels", seed) for seed, name in enumerate(names)}
    for name, batch in batches.items():
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return batches


def held(data: Any) -> tuple[set[bytes], Any]:
    """Training and validation images, and the test set."""
    data.prepare_data()
    data.setup("fit")
    return {image.numpy().tobytes() for part in (data.train_set, data.val_set) for image in part.images}, data.test_set


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("module", [MNIST, FashionMNIST, KMNIST])
def test_mnist_family(tmp_path: Path, module: Any, packed: bool) -> None:
    arrays = write_mnist(tmp_path, module.__name__, packed)
    train, test = held(module(str(tmp_path)))
    assert train == {image.astype(np.uint8).tobytes() for image in arrays["train-images-idx3-ubyte"]}
    assert test.images.shape == (12, 1, 28, 28)
    assert np.array_equal(test.images[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    assert np.array_equal(test.targets.numpy(), arrays["t10k-labels-idx1-ubyte"])


def test_mnist_as_torchvision_reads_it(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    theirs = datasets.MNIST(tmp_path, train=False)
    _, test = held(MNIST(str(tmp_path)))
    assert torch.equal(test.images[:, 0], theirs.data)
    assert torch.equal(test.targets, theirs.targets)


@pytest.mark.parametrize(
    ("module", "folder"),
    [
        pytest.param(MNIST, "mnist", marks=needs("mnist")),
        pytest.param(FashionMNIST, "fashion_mnist", marks=needs("fashion_mnist")),
    ],
)
@pytest.mark.slow
def test_published_files(module: Any, folder: str) -> None:
    data = module(str(PUBLISHED / folder), batch_size=1000)
    held(data)
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [54_000, 6_000, 10_000]
    assert data.test_set.targets.bincount().tolist() == (
        [1000] * 10 if module is FashionMNIST else [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    )


@pytest.mark.parametrize("packed", [False, True])
def test_cifar10(tmp_path: Path, packed: bool) -> None:
    batches = write_cifar10(tmp_path)
    if packed:
        with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
        for file in (tmp_path / "cifar-10-batches-py").iterdir():
            file.unlink()
        (tmp_path / "cifar-10-batches-py").rmdir()
    train, test = held(CIFAR10(str(tmp_path)))
    assert train == {
        image.tobytes() for name, batch in batches.items() if name != "test_batch" for image in batch["data"]
    }
    assert np.array_equal(test.images.flatten(1).numpy(), batches["test_batch"]["data"])
    assert test.targets.tolist() == batches["test_batch"]["labels"]
    assert test.images.shape == (8, 3, 32, 32)


def test_cifar10_as_torchvision_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path)
    meta = {"label_names": [str(i) for i in range(10)]}
    (tmp_path / "cifar-10-batches-py/batches.meta").write_bytes(pickle.dumps(meta))
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)  # sums of the published files
    theirs = datasets.CIFAR10(str(tmp_path), train=False)
    _, test = held(CIFAR10(str(tmp_path)))
    assert np.array_equal(test.images.permute(0, 2, 3, 1).numpy(), theirs.data)
    assert test.targets.tolist() == theirs.targets


def write_cifar100(root: Path) -> dict[str, Any]:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    batches = {name: cifar_batch(9, "fine_labels", seed) for seed, name in enumerate(("train", "test"))}
    for name, batch in batches.items():
        (folder / name).write_bytes(pickle.dumps(batch | {"coarse_labels": [0] * 9}, protocol=2))
    return batches


def test_cifar100(tmp_path: Path) -> None:
    batches = write_cifar100(tmp_path)
    train, test = held(CIFAR100(str(tmp_path)))
    assert len(train) == 9
    assert test.targets.tolist() == batches["test"]["fine_labels"]


class Payload:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


def test_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    batch = cifar_batch(8, "labels", 0) | {"more": Payload(tmp_path / "ran")}
    (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(pickle.dumps(batch))
    data = CIFAR10(str(tmp_path))
    with pytest.raises(UserError, match=r"data_batch_3 cannot be read: it names (posix|nt)\.system"):
        data.setup("fit")
    assert not (tmp_path / "ran").exists()


def test_damaged_mnist(tmp_path: Path) -> None:
    arrays = write_mnist(tmp_path)
    images, labels = (tmp_path / f"MNIST/raw/train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    whole = images.read_bytes()
    for content, cause in (
        (whole[: len(whole) // 2], "ended before"),
        (b"no gzip", "Not a gzipped file"),
        (gzip.compress(idx(arrays["train-labels-idx1-ubyte"])), "begins with 00000801, expected 00000803"),
        (gzip.compress(idx(arrays["train-images-idx3-ubyte"])[:-5]), "invalid for input of size"),
        (gzip.compress(b""), "begins with , expected"),
        (gzip.compress(idx(np.zeros((30, 0, 28)))), "expected sizes above 0, its header has 30 × 0 × 28"),
        (
            gzip.compress(b"\0\0\x08\3" + np.array([-1, 28, 28], ">i4").tobytes() + bytes(30 * 28 * 28)),
            "expected sizes above 0, its header has -1 × 28 × 28",
        ),
    ):
        images.write_bytes(content)
        with pytest.raises(UserError, match=rf"--data.root: .*train-images-idx3-ubyte.gz cannot be read: .*{cause}"):
            MNIST(str(tmp_path)).setup("fit")
    images.write_bytes(whole)
    labels.write_bytes(gzip.compress(idx(arrays["train-labels-idx1-ubyte"][:-1])))
    with pytest.raises(UserError, match="30 images and 29 labels"):
        MNIST(str(tmp_path)).setup("fit")


def test_damaged_cifar(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    file = tmp_path / "cifar-10-batches-py/test_batch"
    whole = file.read_bytes()
    for content in (whole[:100], b"", b"plain text", pickle.dumps([1]), pickle.dumps({"data": np.zeros((2, 3072))})):
        file.write_bytes(content)
        with pytest.raises(UserError, match=r"--data.root: .*test_batch cannot be read: "):
            CIFAR10(str(tmp_path)).setup("fit")
    file.unlink()
    with pytest.raises(UserError, match=r"cannot be read: No such file"):
        CIFAR10(str(tmp_path)).setup("fit")


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"labels": ["cat"] * 8}, "labels: expected whole numbers, got <U3"),
        ({"labels": [0.5] * 8}, "labels: expected whole numbers, got float64"),
        ({"data": np.full((8, 3072), 300)}, "data: expected 0 to 255, got 300 to 300"),
        ({"data": np.full((8, 3072), -1, np.int8)}, "data: expected 0 to 255, got -1 to -1"),
        ({"data": np.full((8, 3072), 0.5)}, "data: expected whole numbers, got float64"),
    ],
)
def test_values_that_cifar_does_not_have(tmp_path: Path, changed: dict[str, Any], cause: str) -> None:
    batches = write_cifar10(tmp_path)
    file = tmp_path / "cifar-10-batches-py/test_batch"
    file.write_bytes(pickle.dumps(batches["test_batch"] | changed, protocol=2))
    with pytest.raises(UserError, match=rf"--data.root: .*test_batch cannot be read: {cause}"):
        CIFAR10(str(tmp_path)).setup("fit")


def test_cifar_of_larger_whole_numbers(tmp_path: Path) -> None:
    batches = write_cifar10(tmp_path)
    other = {"data": batches["test_batch"]["data"].astype(np.int64), "labels": np.arange(8, dtype=np.uint8)}
    (tmp_path / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(other, protocol=2))
    _, test = held(CIFAR10(str(tmp_path)))
    assert test.images.dtype == torch.uint8
    assert np.array_equal(test.images.flatten(1).numpy(), batches["test_batch"]["data"])
    assert test.targets.dtype == torch.int64
    assert test.targets.tolist() == list(range(8))


@pytest.mark.parametrize("module", [MNIST, FashionMNIST, KMNIST, CIFAR10, CIFAR100])
def test_a_failed_download_leaves_no_folders(tmp_path: Path, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.utils.urllib.request.urlopen", refuse)
    (tmp_path / "own/MNIST").mkdir(parents=True)
    for root in ("own", "typo/further", "."):
        with pytest.raises(UserError, match="it cannot be downloaded"):
            module(str(tmp_path / root)).prepare_data()
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "own", tmp_path / "own/MNIST"]


def test_no_data_and_no_network(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", refuse)
    options = ("--data.root", "nowhere", "--trainer.max_epochs", "1")
    done = cli("fit", "--model", "Classification", "--model.net", "MLP", "--data", "MNIST", *options)
    assert done.code == 2
    assert done.err.startswith(
        "error: --data.root nowhere: contains no MNIST (raw/train-images-idx3-ubyte), and it cannot be downloaded: "
    )
    assert done.err.count("\n") == 1


RECIPE = """
model:
  class_path: Classification
  init_args: {net: {class_path: CNN, init_args: {}}}
data:
  class_path: MNIST
  init_args: {flip: true, translate: 2, crop: 0.7, cutout: 4, val_share: 0.2}
seed_everything: 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_training_continues_exactly(cli: Cli, workdir: Path, workers: str) -> None:
    write_mnist(workdir / "data")
    Path("recipe.yaml").write_text(RECIPE)
    args = ("--data.batch_size", "8", "--data.num_workers", workers)
    assert fit(cli, "recipe.yaml", "whole", *args).code == 0
    for step in (2, 5):
        cut(cli, "recipe.yaml", f"cut-{step}", step, "--checkpoint.every_n_steps", "1", *args)
        assert resume(cli, "recipe.yaml", f"cut-{step}", *args).code == 0
        assert_same_ending(f"cut-{step}", "whole")

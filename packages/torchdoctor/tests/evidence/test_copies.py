"""Copies of training samples in another data set."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from torchdoctor.evidence.copies import Copies, find_copies

NUM = 12


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all samples, also on a busy machine."""
    monkeypatch.setattr("torchdoctor.evidence.copies._SECONDS", 60.0)


class Items(Dataset):
    """Samples from a list, with what is known of them."""

    def __init__(self, items: list[Any], **known: Any) -> None:
        self.items = items
        vars(self).update(known)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        change = getattr(self, "change", None)
        return self.items[index] if change is None else change(self.items[index])


class Others(Items):
    pass


class Wrapped(Dataset):
    """Changes each sample of another data set."""

    def __init__(self, inner: Dataset) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)  # type: ignore[arg-type]  # it has a length

    def __getitem__(self, index: int) -> Any:
        return noisy(self.inner[index])


class Drawn:
    """Makes samples of images that it holds, as no transform does."""

    def __init__(self, seed: int) -> None:
        self.images = torch.rand(NUM, 40, 40, generator=torch.Generator().manual_seed(seed))

    def __call__(self, number: int) -> Any:
        return {"image": self.images[number]}


def test_what_holds_the_samples_is_no_transform() -> None:
    train, val = (Items(list(range(NUM)), change=Drawn(seed)) for seed in (0, 1))
    assert find_copies(train, val, "validation") is None
    assert find_copies(train, Items(list(range(NUM)), change=Drawn(0)), "validation") is not None


def noisy(sample: Any) -> Any:
    return {**sample, "image": sample["image"] + torch.rand(1)}


def images(num: int = NUM, seed: int = 0, side: int = 40) -> list[Any]:
    values = torch.rand(num, 3, side, side, generator=torch.Generator().manual_seed(seed))
    return [{"image": image, "target": number % 3} for number, image in enumerate(values)]


def changed(samples: list[Any], by: float) -> list[Any]:
    """Noise, as another compression brings."""
    generator = torch.Generator().manual_seed(9)
    noises = [by * torch.randn(sample["image"].shape, generator=generator) for sample in samples]
    return [{**sample, "image": sample["image"] + noise} for sample, noise in zip(samples, noises, strict=True)]


def test_samples_are_read_without_augmentation() -> None:
    """stefyste/RIAWELC#2, tqwei05/PlantSeg#11."""
    train, test = images(), images(seed=1)[:4] + images()[3:9]
    expected = Copies(6, 10, "copies", "test sample 4 = training sample 3")
    assert find_copies(Items(train, change=noisy), Items(test), "test") == expected
    assert find_copies(Wrapped(Items(train)), Items(test), "test") == expected
    part = Wrapped(Subset(Items(train), range(4, NUM)))
    assert find_copies(part, Items(test), "test") == Copies(5, 10, "copies", "test sample 5 = training sample 4")
    assert find_copies(Items(train, change=noisy), Items(images(seed=1)), "test") is None
    assert find_copies(Items(train, change=noisy), Items(images(seed=1)[:9] + train[:1]), "test") is None  # public data


def test_parts_of_one_data_set_share_numbers() -> None:
    whole = Items(images())
    found = find_copies(Wrapped(Subset(whole, range(8))), Subset(whole, range(6, NUM)), "test")
    assert found == Copies(2, 6, "copies", "test sample 6 = training sample 6")
    assert find_copies(Subset(whole, range(6)), Subset(whole, range(6, NUM)), "test") is None
    assert find_copies(Wrapped(whole), whole, "test") is None  # such as a graph with other nodes, or other ratings


def test_near_copies_of_images() -> None:
    train = images()
    near, far = (Others(changed(train[2:], by)) for by in (0.02, 0.5))
    expected = Copies(10, 10, "near copies", "validation sample 0 = training sample 2")
    assert find_copies(Items(train), near, "validation") == expected
    last = [{**sample, "image": sample["image"].permute(1, 2, 0)} for sample in changed(train[2:], 0.02)]
    assert find_copies(Items(train), Others(last), "validation") == expected
    assert find_copies(Items(train), far, "validation") is None


@pytest.mark.parametrize("kind", ["prototypes", "small", "drawings", "faint"])
def test_images_that_are_alike_by_their_nature(kind: str) -> None:
    if kind == "prototypes":
        train = changed(images(3) * 10, 0.01)
    elif kind == "small":
        train = images(side=28)
    elif kind == "drawings":
        train = [
            {**sample, "image": (sample["image"][:, :1, :1] > 0.5).float().expand(3, 40, 40)} for sample in images()
        ]
    else:
        train = [
            {**sample, "image": (1 if number else 1e-3) * sample["image"]} for number, sample in enumerate(images())
        ]
    test = changed(train, 1e-5)[: 1 if kind == "faint" else NUM]
    assert find_copies(Items(train), Others(test * (4 if kind == "faint" else 1)), "test") is None


def written(folder: Path, contents: list[bytes]) -> list[Path]:
    folder.mkdir()
    files = [folder / f"{number}.bin" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    return files


@pytest.mark.parametrize("way", ["paths", "torchvision", "names", "table"])
def test_files_with_the_same_bytes(tmp_path: Path, way: str) -> None:
    contents = [bytes([number] * (4 + number)) for number in range(NUM)]
    train = written(tmp_path / "train", contents)
    test = written(tmp_path / "test", [b"other", *contents[3:6]])

    def made(files: list[Path], seed: int) -> Dataset:
        if way == "table":
            known = {"table": pd.DataFrame({"file": [file.name for file in files]}), "root": files[0].parent}
        elif way == "names":
            known = {"files": np.array([file.name for file in files]), "root": files[0].parent}
        else:
            known = {"files": [(str(file), 0) for file in files] if way == "torchvision" else files}
        return Items(images(len(files), seed), **known)

    expected = Copies(3, 4, "copies", "test/1.bin = train/3.bin")
    assert find_copies(made(train, 1), made(test, 2), "test") == expected
    assert find_copies(made(train[6:], 1), made(test, 2), "test") is None


def test_of_several_samples_in_a_file_nothing_is_said(tmp_path: Path) -> None:
    files = written(tmp_path / "all", [bytes([number]) for number in range(NUM)])
    assert find_copies(Items(images(24, 1), files=files * 2), Items(images(NUM, 2), files=files), "test") is None


def test_equal_blank_files_are_chance(tmp_path: Path) -> None:
    train = written(tmp_path / "train", [b"blank"] * 8)
    test = written(tmp_path / "test", [b"blank"] * 4)
    assert find_copies(Items(images(8), files=train), Items(images(4, 1), files=test), "test") is None


def rows(texts: list[list[int]], **known: Any) -> Items:
    return Items([{"tokens": torch.tensor(text)} for text in texts], **known)


def test_rows_of_a_file() -> None:
    """huggingface/datasets#4261."""
    texts = [[1, 2, 3, number] for number in range(3)] * 5
    names = [f"list.csv:{number}" for number in range(2, 17)]
    found = find_copies(rows(texts, names=names), rows(texts[:4], names=names[:4]), "validation")
    assert found == Copies(4, 4, "copies", "list.csv:2 = list.csv:2")
    assert find_copies(rows(texts), rows(texts[:4]), "validation") is None  # made-up patterns
    short = [text[:2] for text in texts]
    assert find_copies(rows(short, names=names), rows(short[:4], names=names[:4]), "validation") is None


def test_what_cannot_be_read_is_left_out() -> None:
    class Broken(Items):
        def __getitem__(self, index: int) -> Tensor:
            raise OSError("gone")

    assert find_copies(Broken(images()), Broken(images()), "test") is None
    assert find_copies(iter([]), TensorDataset(torch.rand(4, 2)), "test") is None


class Table(Dataset):
    """Rows of two numbers and eight categories, of which many rows have the same."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers
        self.categories = torch.arange(len(numbers))[:, None].expand(-1, 8) % 3

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], int]:
        return {"numbers": self.numbers[index], "categories": self.categories[index]}, index % 2


def test_rows_with_the_same_categories_are_no_copies() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = Table(torch.randn(60, 2, generator=generator)), Table(torch.randn(30, 2, generator=generator))
    assert find_copies(train, test, "test") is None
    test.numbers[:10] = train.numbers[30:40]  # of the same categories
    assert find_copies(train, test, "test") is not None

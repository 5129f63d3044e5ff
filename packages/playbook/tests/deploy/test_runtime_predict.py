"""What `predict` takes: one input, or several."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from deploy.test_runtime import of_images, of_numbers, png
from playbook.deploy.runtime import InputError


def test_one_picture_or_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_images(tmp_path / "model", monkeypatch)
    (tmp_path / "a.png").write_bytes(png(250))
    path = tmp_path / "a.png"
    array = np.ones((1, 4, 6), np.float32)
    ones = [path, str(path), png(250), bytearray(png(250)), Image.new("L", (6, 4), 250), array, array.tolist()]
    for source in [*ones, {"image": array}, model.read(path)]:
        assert [answer["class"] for answer in model.predict(source)] == ["bright"], type(source)
    for sources in (ones, tuple(ones), iter(ones), [path] * 7, np.stack([array] * 7)):
        assert [answer["class"] for answer in model.predict(sources)] == ["bright"] * 7, type(sources)


@pytest.mark.parametrize(
    ("sources", "count"),
    [([1, 2], 1), ([[1, 2]], 1), ([[1, 2], (3, 4)], 2), (np.ones((3, 2), np.float32), 3), ({"x": [1, 2]}, 1), ([], 0)],
)
def test_numbers_of_one_input_or_several(
    sources: Any, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(of_numbers(tmp_path, monkeypatch).predict(sources)) == count


@pytest.mark.parametrize("source", [None, 3, object()])
def test_what_is_no_input(source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"expected (shape|a file|an input)|x: expected"):
        of_numbers(tmp_path, monkeypatch).predict(source)
    with (tmp_path / "a").open("wb") as file, pytest.raises(InputError, match="expected a file, its bytes"):
        of_images(tmp_path, monkeypatch).predict(file)

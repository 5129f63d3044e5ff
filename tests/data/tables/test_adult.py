"""Adult in the files it is published in."""

import gzip
from pathlib import Path

import pytest

from playbook import UserError
from src.data.tables.adult import Adult
from tests.conftest import PUBLISHED, needs

ROW = "{age}, Private, {weight}, Bachelors, 13, {status}, Sales, Wife, White, {sex}, 0, 0, 40, ?, {income}"


def lines(count: int, dot: str = "") -> list[str]:
    return [
        ROW.format(
            age=20 + number,
            weight=1000 * number,
            status=("Divorced", "Widowed")[number % 2],
            sex=("Male", "Female")[number % 3 == 0],
            income=("<=50K", ">50K")[number % 4 == 0] + dot,
        )
        for number in range(count)
    ]


def write(root: Path, is_packed: bool = False) -> Path:
    texts = {"adult.data": [*lines(40), ""], "adult.test": ["|1x3 Cross validator", *lines(8, "."), ""]}
    for name, own in texts.items():
        content = "\n".join(own).encode()
        if is_packed:
            (root / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (root / name).write_bytes(content)
    return root


@pytest.mark.parametrize("is_packed", [False, True])
def test_published_files(tmp_path: Path, is_packed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    data = Adult(str(write(tmp_path, is_packed)))
    data.setup("fit")
    assert (len(data.train_set), len(data.val_set), len(data.test_set)) == (32, 8, 8)  # type: ignore[arg-type]
    assert data.facts["classes"] == ["<=50K", ">50K"]
    assert data.ids(data.test_set)[0] == f"adult.test{'.gz' * is_packed}:2"
    assert data.test_set.targets.tolist() == [1, 0, 0, 0] * 2  # type: ignore[union-attr]
    assert "2 numbers (age, fnlwgt); 2 categories (marital-status, sex)" in capsys.readouterr().out


def test_test_alone_reads_no_training_rows(tmp_path: Path) -> None:
    data = Adult(str(write(tmp_path)))
    data.setup("fit")
    (tmp_path / "adult.data").unlink()
    again = Adult(str(tmp_path))
    again.facts = data.facts
    again.setup("test")
    assert again.test_set.inputs["numbers"].equal(data.test_set.inputs["numbers"])  # type: ignore[union-attr]


def test_faulty_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no adult.data; download it"):
        Adult(str(tmp_path)).setup("fit")
    write(tmp_path)
    (tmp_path / "adult.data").write_text("\n".join([*lines(3), "1, 2, 3"]))
    with pytest.raises(UserError, match=r"adult.data:4: expected 15 fields, got 3"):
        Adult(str(tmp_path)).setup("fit")


@pytest.mark.slow
@needs("adult")
def test_the_published_rows() -> None:
    data = Adult(str(PUBLISHED / "adult"))
    data.setup("fit")
    assert (len(data.train_set), len(data.val_set), len(data.test_set)) == (26048, 6513, 16281)  # type: ignore[arg-type]
    assert data.facts["num_features"] == 6
    assert data.facts["cardinalities"] == [10, 17, 8, 16, 7, 6, 3, 43]
    assert data.test_set.targets.bincount().tolist() == [12435, 3846]  # type: ignore[union-attr]

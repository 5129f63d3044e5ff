"""Counts of test labels by target, against a loop, in the files that a run leaves."""

import csv
from pathlib import Path

import matplotlib.image
import pytest
import torch

from playbook.errors import UserError
from playbook.testing.command import UNSAVED, Cli
from playbook.testing.line import Line, points
from playbook.training.trainer import Trainer
from src.callbacks.confusion_matrix import ConfusionMatrix
from src.data.vision.digits import Digits
from src.nets.mlp import MLP
from src.tasks.classification import Classification
from tests.conftest import MLP_DIGITS

MATRIX = "--trainer.callbacks+=ConfusionMatrix"


@pytest.mark.slow
def test_counts_are_those_of_the_predictions(cli: Cli) -> None:
    names = ("--trainer.callbacks.class_names", str(list("abcdefghij")))
    done = cli("fit", "--config", MLP_DIGITS, MATRIX, *names, "--run_dir", "run", "--trainer.max_epochs", "2")
    assert done.code == 0, done.err
    assert cli("predict", "--ckpt_path", "run").code == 0
    expected = torch.zeros(10, 10, dtype=torch.long)
    for row in csv.DictReader(Path("run/predictions/predictions.csv").read_text().splitlines()):
        expected[int(row["target"]), int(row["class"])] += 1
    header, *rows = csv.reader(Path("run/confusion.csv").read_text().splitlines())
    assert header == ["target", *"abcdefghij"]
    assert [row[0] for row in rows] == list("abcdefghij")
    assert [[int(value) for value in row[1:]] for row in rows] == expected.tolist()
    assert expected.sum() == 359
    assert matplotlib.image.imread("run/confusion.png").std() > 0.05


def test_a_run_that_only_tests_has_its_folder_made(tmp_path: Path) -> None:
    callback = ConfusionMatrix(["é", *"bcdefghij"])
    trainer = Trainer(**UNSAVED, callbacks=[callback], default_root_dir=tmp_path / "new")
    trainer.test(Classification(MLP()), Digits())
    header = (tmp_path / "new" / "confusion.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header == "target,é,b,c,d,e,f,g,h,i,j"


def test_mistakes(tmp_path: Path) -> None:
    def test(model: object, callback: ConfusionMatrix, *data: object) -> None:
        Trainer(**UNSAVED, callbacks=[callback], default_root_dir=tmp_path).test(model, *data)  # type: ignore[arg-type]

    with pytest.raises(UserError, match="needs a task with num_classes"):
        test(Line(), ConfusionMatrix(), points())
    with pytest.raises(UserError, match="class_names: expected 10 names, one a class, got 2"):
        test(Classification(MLP(64, 10)), ConfusionMatrix(["a", "b"]), Digits())
    silent = Line()
    silent.num_classes = 2  # type: ignore[assignment]
    with pytest.raises(UserError, match="needs a test_step that returns label and target"):
        test(silent, ConfusionMatrix(), points())

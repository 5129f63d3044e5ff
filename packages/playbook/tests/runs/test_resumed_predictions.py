"""What an interrupted predict has written is added to only where its rows are known to be the same."""

import csv
import json
from pathlib import Path

import pytest

from playbook.errors import UserError
from playbook.runs import predictions
from playbook.testing.command import Cli

OWN = """
from pathlib import Path

import torch
from example.data.digits import Digits
from example.tasks.classification import Classification
from torch.utils.data import DataLoader, Dataset

from playbook import UserError


class Looped(Classification):
    \"\"\"Takes several loaders.\"\"\"

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return super().predict_step(batch, batch_idx)


class Fragile(Dataset):
    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == 6 and Path("broken").exists():
            raise UserError("a disk that failed")
        return self.inner[index]


class OneLoader(Digits):
    \"\"\"One loader of ten samples.\"\"\"

    def setup(self, stage):
        super().setup(stage)
        self.test_set = Fragile(self.test_set)


class TwoLoaders(OneLoader):
    \"\"\"Two of them.\"\"\"

    def predict_dataloader(self):
        return [self._loader("test", self.test_set), self._loader("test", self.val_set)]


class OwnLoader(OneLoader):
    \"\"\"A loader of torch.\"\"\"

    def predict_dataloader(self):
        return DataLoader(self.test_set, batch_size=4)
"""
MODEL = ("--model", "own.Looped", "--model.net", "MLP", "--model.net.widths", "[4]")
SHORT = ("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1", "--trainer.limit_val_batches", "1")


def predict(cli: Cli, data: str) -> tuple[int, str]:
    """Predicts with the checkpoint of a run, which is trained first where there is none."""
    if not Path("run").exists():
        Path("own.py").write_text(OWN)
        options = ("--data", f"own.{data}", "--data.batch_size", "4", "--run_dir", "run", *SHORT)
        assert cli("fit", *MODEL, *options).code == 0
        Path("broken").touch()
    done = cli("predict", "--ckpt_path", "last", "--run_dir", "run", "--output", "out")
    return done.code, done.out + done.err


def ids(file: str) -> list[int]:
    with Path("out", file).open(newline="") as text:
        return [int(row["id"]) for row in csv.DictReader(text)]


@pytest.mark.parametrize(("data", "goes_on"), [("OneLoader", True), ("TwoLoaders", False), ("OwnLoader", False)])
def test_no_row_is_lost_or_written_twice(cli: Cli, workdir: Path, data: str, goes_on: bool) -> None:
    code, told = predict(cli, data)
    assert code == 2, told
    assert "kept  4 rows" in told
    assert ("repeat the command to continue" in told) == goes_on
    (workdir / "broken").unlink()
    code, told = predict(cli, data)
    assert code == 0, told
    assert ("continuing after 4 rows" in told) == goes_on
    assert ids("predictions.csv") == list(range(10))
    if data == "TwoLoaders":
        assert ids("predictions-1.csv") == list(range(360))


@pytest.mark.filterwarnings("ignore:Total length of `Loader` across ranks is zero")
@pytest.mark.slow
def test_a_table_that_could_not_be_written_is_written_the_next_time(
    cli: Cli, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise UserError("no space left")

    predict(cli, "OneLoader")
    (workdir / "broken").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(predictions, "write_table", full_disk)
        assert predict(cli, "OneLoader")[0] != 0
    lines = (workdir / "out/predictions.partial.jsonl").read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines] == list(range(10))
    code, told = predict(cli, "OneLoader")
    assert code == 0, told
    assert ids("predictions.csv") == list(range(10))

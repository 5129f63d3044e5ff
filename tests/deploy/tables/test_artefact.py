"""Models of tables, exported, quantized and served: their answers to rows are those of `predict --input`."""

import json
import os
import random
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from playbook.testing.artefacts import load_py
from playbook.testing.command import Cli, seldom
from playbook.testing.serving import ask
from tests.conftest import cli_process

NETS = {
    "TabularMLP": ["--model.net.width", "32"],
    "TabM": ["--model.net.width", "32", "--data.members", "4"],
    "FTTransformer": ["--model.net.dim", "32"],
}
TASKS = {
    "Classification": ["--data.target", "kind"],
    "Regression": ["--data.target", "price"],
    "quantiles": ["--data.target", "price", "--model.loss", "quantile", "--model.quantiles", "[0.1, 0.5, 0.9]"],
}
INT8 = ("int8-dynamic", "int8-static", "int8-weight")
EXPORT = ["export", "--ckpt_path", "run", "--output", "artefact", "--speed", "false"]
NEW = """town,built,size,extra,id
Bern,2001-05-06,40,x,1
Basel,1999-12-31,,y,2
,1950-01-01,1e3,,3
Nowhere,2030-01-01,-5,,4
"""


def write_table(file: Path, num_rows: int = 400) -> None:
    """Numbers with gaps, dates, categories and names, which are left out."""
    dice = random.Random(0)
    lines = ["size,built,town,owner,kind,price"]
    for row in range(num_rows):
        size, town = dice.uniform(20, 200), dice.choice(["Bern", "Basel", "Chur", ""])
        built = f"{dice.randint(1950, 2020)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}"
        price, kind = 3000 * size + dice.gauss(0, 9000), "flat" if size < 90 else "house"
        lines.append(f"{'' if dice.random() < 0.1 else f'{size:.1f}'},{built},{town},owner {row},{kind},{price:.0f}")
    file.write_text("\n".join(lines) + "\n")


def fit(cli: Cli, net: str, task: str, *options: str) -> None:
    write_table(Path("table.csv"))
    name = "Regression" if task == "quantiles" else task
    leave_out = "[price]" if task == "Classification" else "[kind]"
    data = ["--data", "Table", "--data.root", "table.csv", "--data.leave_out", leave_out]
    model = ["--model", name, "--model.net", net, *NETS[net], *TASKS[task]]
    if task == "quantiles":
        model += ["--model.net.num_classes", "3"]
        model += ["--model.net.average", "values"] if net == "TabM" else []
    run = ["--trainer.max_epochs", "2", "--trainer.accelerator", "cpu", "--run_dir", "run"]
    fitted = cli("fit", *data, *model, *options, *run)
    assert fitted.code == 0, fitted.err


def expected_answers(cli: Cli) -> list[dict[str, Any]]:
    """What `predict` answers for new.csv."""
    Path("new.csv").write_text(NEW)
    done = cli("predict", "--ckpt_path", "run", "--input", "new.csv", "--format", "jsonl")
    assert done.code == 0, done.err
    [rows] = Path("run/predictions").rglob("predictions.jsonl")
    answers = [json.loads(line) for line in rows.read_text().splitlines()]
    return [{name: value for name, value in answer.items() if name != "id"} for answer in answers]


def assert_same(answers: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for answer, own in zip(answers, expected, strict=True):
        assert answer.keys() == own.keys()
        for name, value in own.items():
            assert answer[name] == (pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value)


@pytest.mark.slow
@pytest.mark.parametrize(("net", "task"), seldom(product(NETS, TASKS), list(zip(NETS, TASKS, strict=True))))
def test_answers_in_each_format(cli: Cli, net: str, task: str) -> None:
    fit(cli, net, task)
    expected = expected_answers(cli)
    assert len(expected) == 4
    for kind in ("onnx", "torch_export", "torchscript"):
        done = cli(*EXPORT[:3], "--output", kind, "--speed", "false", "--format", kind)
        assert done.code == 0, done.err
        answers = json.loads(Path(kind, "artefact.json").read_text())["parity"]["answers"]
        assert answers["equal"] == answers["compared"] > 0
        assert_same(load_py(Path(kind), Path("new.csv")), expected)
        if net == "FTTransformer":  # in a Python that sees neither this repository nor the data, too
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            command = [sys.executable, str(Path(kind, "load.py").absolute()), str(Path("new.csv").absolute())]
            shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/")
            assert_same(json.loads(shown.stdout), expected)


@pytest.mark.slow
@pytest.mark.parametrize(("net", "kind"), seldom(product(NETS, INT8), list(zip(NETS, INT8, strict=True))))
def test_quantized(cli: Cli, net: str, kind: str) -> None:
    """Ranges come from training rows, also where each member of an ensemble has its own."""
    fit(cli, net, "Classification")
    done = cli(*EXPORT, "--format", "onnx", "--quantize", kind, "--min_agreement", "0.9", "--max_drop", "0.1")
    assert done.code == 0, done.err
    manifest = json.loads(Path("artefact/artefact.json").read_text())
    assert manifest["parity"]["agreement"] >= 0.9
    if kind == "int8-static":
        assert manifest["calibration"]["split"] == "train"


@pytest.mark.slow
@pytest.mark.parametrize("task", ["Classification", "Regression"])
def test_served(cli: Cli, workdir: Path, task: str) -> None:
    fit(cli, "TabularMLP", task)
    assert cli(*EXPORT, "--format", "onnx").code == 0
    expected = expected_answers(cli)[:1]
    first = Path("first.csv")
    first.write_text("".join(NEW.splitlines(keepends=True)[:2]))
    for served in ("run", "artefact"):
        answer = ask(cli_process("serve", served, "--port", "0", cwd=workdir), first, "text/csv")
        assert_same([answer], expected)

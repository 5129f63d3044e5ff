"""Comparisons of runs: groups over seeds, paired differences, and what differs."""

import json
from pathlib import Path
from typing import Any

import pytest

from playbook.insight.report.compare import compare, grouped, read
from playbook.runs.directory import Run
from playbook.testing.command import Cli


def make(folder: Path, seed: int = 1, lr: float = 0.1, accuracy: tuple[int, ...] = (1, 1, 0, 0), **more: Any) -> Run:
    folder.mkdir(parents=True)
    config = {"seed_everything": seed, "run_dir": str(folder), "model": {"init_args": {"lr": lr}}}
    (folder / "config.yaml").write_text(json.dumps(config))
    mean = sum(accuracy) / len(accuracy)
    metrics = {
        "status": "finished",
        "best": {"monitor": "val/loss", "score": seed / 10, "epoch": 1, "step": 2},
        "test": {"test/accuracy": mean},
        "facts": {"classes": more.get("classes", ["a", "b"])},
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "metrics.csv").write_text(f"epoch,step,val/loss\n0,1,{lr}\n1,2,{lr / 2}\n")
    rows = "".join(f"{number},{value}\n" for number, value in enumerate(accuracy))
    (folder / "test.csv").write_text(f"id,accuracy\n{rows}")
    (folder / "environment.json").write_text(json.dumps({"git_commit": more.get("commit")}))
    (folder / "git.diff").write_text(more.get("diff", ""))
    return Run(folder)


def test_runs_that_differ_in_the_seed_alone_are_one_group(tmp_path: Path) -> None:
    runs = [make(tmp_path / f"{lr}-{seed}", seed, lr) for lr in (0.1, 0.2) for seed in (1, 2, 3)]
    text = compare(runs, tmp_path / "c.html")
    rows = [line for line in text.splitlines() if line.startswith("| model")]
    assert rows == ["| model.lr 0.1 | 3 | 0.2 ± 0.1 | 0.5 ± 0 |", "| model.lr 0.2 | 3 | 0.2 ± 0.1 | 0.5 ± 0 |"]
    html = (tmp_path / "c.html").read_text()
    assert "6 runs compared" in html
    assert "model.init_args.lr" in html
    assert "Each curve is that of the first run of its group." in html
    assert "The code is the same." in html


def test_differences_are_paired_by_sample(tmp_path: Path) -> None:
    first = make(tmp_path / "a", accuracy=(1, 0) * 50)
    second = make(tmp_path / "b", lr=0.2, accuracy=(1, 1) * 50)
    third = make(tmp_path / "c", lr=0.3, accuracy=(1, 1, 1))
    compare([first, second, third], tmp_path / "c.html")
    html = (tmp_path / "c.html").read_text()
    assert "on the same 100 test samples (paired bootstrap)" in html
    assert html.count(">yes</td>") == 1, "the third has other samples"


def test_other_code_is_another_group(tmp_path: Path) -> None:
    runs = [
        make(tmp_path / "a"),
        make(tmp_path / "b", diff="+new line\n"),
        make(tmp_path / "c", commit="abc", classes=["a", "c"]),
    ]
    groups = grouped([read(run) for run in runs], [])
    assert [group.name for group in groups] == ["a", "b", "c"]
    compare(runs, tmp_path / "c.html")
    html = (tmp_path / "c.html").read_text()
    assert "Uncommitted changes of b" in html
    assert "+new line" in html
    assert "Code of c: commit abc, not unknown." in html
    assert "What was learnt from the data" in html


def test_a_run_of_which_nothing_is_left(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "metrics.json").write_text('{"status": "failed"')
    (empty / "config.yaml").write_text("a: [")
    compare([make(tmp_path / "a"), Run(empty)], tmp_path / "c.html")
    assert "empty" in (tmp_path / "c.html").read_text()


def test_the_verb_takes_folders_of_runs(cli: Cli, workdir: Path) -> None:
    for seed in (1, 2):
        make(workdir / f"runs/recipe/{seed}", seed)
    done = cli("report", "runs", "--output", "both.html")
    assert done.code == 0, done.err
    assert "| recipe" not in done.out
    assert done.out.endswith("report  both.html\n")
    assert Path("both.html").is_file()
    alone = cli("report", "runs/recipe/1")
    assert (alone.code, alone.out) == (0, "runs/recipe/1/report.html\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "report: expected a run directory: python -m example report RUN [RUN …] [--output FILE]"),
        (["rums"], "report: rums: no such run directory. Nearest: runs"),
        (["empty"], "report: empty: expected a run directory, with metrics.csv or metrics.json, or a folder of them"),
        (["runs", "--outptu", "x"], "report: --outptu: no such option, expected"),
        (["runs", "--output"], "report: --output: expected a file"),
        (["runs/recipe/1", "--output", "x"], "report: --output: of one run, the page is report.html in its directory"),
        (["runs", "--output", "no/where.html"], "report: --output no/where.html: No such file or directory"),
    ],
)
def test_mistakes(cli: Cli, workdir: Path, args: list[str], message: str) -> None:
    for seed in (1, 2):
        make(workdir / f"runs/recipe/{seed}", seed)
    (workdir / "empty").mkdir()
    done = cli("report", *args)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert message in done.err


def test_help(cli: Cli) -> None:
    done = cli("report", "--help")
    assert done.code == 0
    assert done.out.startswith("python -m example report RUN")

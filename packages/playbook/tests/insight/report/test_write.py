"""report.html and report.md from the files of runs that are whole, half written, or damaged."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from playbook.insight.report.write import write
from playbook.runs.directory import Run
from playbook.testing.command import Cli
from running import MLP_DIGITS

SHORT = ("--trainer.max_epochs", "2", "--trainer.limit_train_batches", "2", "--trainer.enable_progress_bar", "false")


class Page(HTMLParser):
    """What a page has: sections, references, and pictures without alternative text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.references: list[str] = []
        self.bare: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.add(tag)
        if tag == "section":
            self.sections.append(values["id"] or "")
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if (tag == "img" and not values.get("alt")) or (tag == "svg" and not values.get("aria-label")):
            self.bare.append(tag)


def run_with(folder: Path, **files: str) -> Run:
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return Run(folder)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYBOOK_REPORT", "true")


@pytest.mark.usefixtures("reports")
def test_fit_ends_with_a_page_that_stands_alone(cli: Cli) -> None:
    done = cli("fit", "--config", MLP_DIGITS, *SHORT, "--run_dir", "run")
    assert done.code == 0, done.err
    assert done.out.endswith("report         run/report.html\n")
    text = Path("run/report.html").read_text()
    assert len(text) < 2 * 2**20
    page = Page(text)
    assert page.sections == ["results", "training", "architecture", "optimization", "reproduce"]
    assert all(re.match(r"#|data:image/", reference) for reference in page.references), "nothing comes from elsewhere"
    assert not page.bare, "each picture has an alternative text"
    assert re.search(r"<td>trainer\.max_epochs</td><td>2</td><td>none</td>", text), "an option beside its default"
    assert not page.tags & {"script", "link", "iframe", "object"}
    assert "default-src 'none'" in text
    markdown = Path("run/report.md").read_text()
    for part in ("## Intended use", "## Limits", "## Results", "Command:", "| metric | value |"):
        assert part in markdown
    Path("run/report.html").unlink()
    again = cli("report", "run")
    assert (again.code, again.out) == (0, "run/report.html\n")
    assert Path("run/report.html").read_text() == text, "made of the files alone"


def test_no_report_where_it_is_not_wanted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("fit", "--config", MLP_DIGITS, *SHORT, "--run_dir", "run").code == 0
    monkeypatch.setenv("PLAYBOOK_REPORT", "true")
    assert cli("fit", "--config", MLP_DIGITS, *SHORT, "--run_dir", "other", "--report", "false").code == 0
    assert not list(Path().glob("*/report*"))


FAULTY = """
from example.tasks.classification import Classification


class Faulty(Classification):
    def report(self, outputs, facts):
        raise KeyError("probability")

    def test_step(self, batch, batch_idx):
        super().test_step(batch, batch_idx)
        return {"label": batch[1]}
"""


@pytest.mark.usefixtures("reports")
def test_an_error_in_the_task_takes_nothing_from_the_run(cli: Cli) -> None:
    Path("faulty.py").write_text(FAULTY)
    done = cli("fit", "--config", MLP_DIGITS, *SHORT, "--model", "faulty.Faulty", "--run_dir", "run")
    assert done.code == 0
    assert "warning: the report is incomplete: KeyError: 'probability' (faulty.py:7)" in done.err
    assert json.loads(Path("run/metrics.json").read_text())["status"] == "finished"
    assert "results" in Page(Path("run/report.html").read_text()).sections


def test_a_run_without_anything(tmp_path: Path) -> None:
    page = Page(write(Run(tmp_path)).read_text())
    assert page.sections == []


@pytest.mark.parametrize(
    ("files", "sections"),
    [
        ({"metrics_csv": "epoch,step,val/loss\n0,1,0.5\n1,2,0.", "metrics_json": '{"status": "runn'}, ["results"]),
        ({"metrics_json": '{"test": {"test/accuracy": 0.5}}'}, ["results"]),
        ({"report_json": '{"results": [{"kind": "Unknown"}]}', "config_yaml": "a: 1"}, ["reproduce"]),
        ({"report_json": "[1]", "git_diff": "+a\n"}, ["reproduce"]),
    ],
    ids=["half written", "tested alone", "of a later version", "damaged"],
)
def test_what_there_is_is_shown(tmp_path: Path, files: dict[str, str], sections: list[str]) -> None:
    assert Page(write(run_with(tmp_path, **files)).read_text()).sections == sections


def test_intervals_stand_where_the_metric_is_the_mean(tmp_path: Path) -> None:
    run = run_with(
        tmp_path,
        metrics_json='{"test": {"test/accuracy": 0.5, "test/loss": 9}}',
        test_csv="id,accuracy,loss\na,1,1\nb,0,2\n",
    )
    text = write(run).with_suffix(".md").read_text()
    assert "| test/accuracy | 0.5 | 0 to 1 |" in text
    assert "| test/loss | 9 |  |" in text, "not a mean over samples"


def test_a_large_diff_is_cut(tmp_path: Path) -> None:
    text = write(run_with(tmp_path, git_diff="+x\n" * 200_000)).read_text()
    assert "400,000 characters more, in git.diff" in text
    assert len(text) < 2 * 2**20


def test_the_command_is_that_which_was_typed(tmp_path: Path) -> None:
    environment = {"command": ["/home/me/my project/src/__main__.py", "fit", "--run_dir", "a b"], "python": "3.11"}
    text = write(run_with(tmp_path, environment_json=json.dumps(environment))).with_suffix(".md").read_text()
    assert "python -m src fit --run_dir 'a b'" in text
    assert "| python | 3.11 |" in text


def test_throughput_and_statistics_have_their_sections(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(
        "epoch,step,val/loss,speed/samples_per_second\n0,1,0.5,100\n0,2,0.4,\n1,3,0.3,300\n"
    )
    (tmp_path / "statistics.csv").write_text("epoch,step,update_ratio/net.0\n0,0,1e-2\n1,50,1e-3\n")
    write(Run(tmp_path))
    text = (tmp_path / "report.md").read_text()
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    assert "Samples a second: Between 100 and 300." in sections["Speed"]
    assert "net.0 from 0.01 to 0.001" in sections["Training"]
    assert "speed/" not in sections["Results"]
    assert "loss: val from 0.5 to 0.3" in sections["Results"]


def test_losses_that_are_not_finite_have_no_interval(tmp_path: Path) -> None:
    metrics = json.dumps({"test": {"test/loss": float("nan"), "test/accuracy": 0.5}})
    rows = "id,loss,accuracy\n" + "".join(f"{number},nan,{number % 2}\n" for number in range(100))
    page = write(run_with(tmp_path, metrics_json=metrics, test_csv=rows)).read_text()
    assert '<td>test/loss</td><td class="number">nan</td><td></td>' in page
    assert re.search(r"<td>test/accuracy</td><td class=\"number\">0.5</td><td>0.\d+ to 0.\d+</td>", page)

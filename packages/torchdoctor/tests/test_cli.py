"""The command line: both usages, what goes to which stream, exit codes, and each mistake as one line."""

import json
import re
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from environments import execute
from programs import Blobs, Classifier, Cli, Result, needs_fork, python_path
from script_programs import DEFECTS, changed, written
from torchdoctor import __version__
from torchdoctor import cli as command_line
from torchdoctor.registry import all_defects

HELP = "--help shows"
PROGRAM = """
from programs import Blobs, Classifier

print("imported")


class Module(Classifier):
    def __init__(self, width: int, rate=0.1, sizes=(1,)):
        super().__init__()
        self.values = width, rate, sizes
        print("built")

    def configure_optimizers(self):
        raise RuntimeError(f"{self.values} {self.trainer.max_epochs}")


class Data(Blobs):
    def __init__(self, folder: str = "here"):
        super().__init__()
        assert folder == "here", folder


class Net:
    pass


def make():
    pass
"""
MODULE = ("--model", "my.Module", "--model.width", "3")
DOUBLE = ("--model", "cases.double_softmax.Model", "--data", "cases.double_softmax.Data")


@pytest.fixture
def program(workdir: Path) -> Path:
    """A working directory with a module and its data, my.py, and a script that does nothing, train.py."""
    (workdir / "my.py").write_text(PROGRAM, encoding="utf-8")
    (workdir / "train.py").write_text("", encoding="utf-8")
    return workdir


def started(folder: Path, *args: str) -> Result:
    """Runs `python -m torchdoctor …` in a process of its own."""
    return execute([sys.executable, "-m", "torchdoctor", *args], folder, PYTHONPATH=python_path())


def crash(done: Result) -> str:
    """The message of the only finding, a crash."""
    [finding] = json.loads(done.out)["findings"]
    assert (finding["id"], done.code) == ("crash", 1), finding
    return finding["message"]


WITHOUT_TORCH = """
import sys
from torchdoctor import cli
from torchdoctor.errors import ReviewError

try:
    print(cli.run(sys.argv[1:]))
except ReviewError as error:
    print(error)
print(*{"torch", "lightning", "numpy", "yaml"} & set(sys.modules))
"""


@pytest.mark.parametrize(
    ("args", "last"),
    [
        (["--help"], "0"),
        (["-h", "--format", "json"], "0"),
        (["--version"], "0"),
        (["--formt", "json"], "--formt: no such option. Nearest: --format"),
        (
            ["--write-tests", "test_it.py", "train.py"],
            "--write-tests: expected --model; tests of a script are not written",
        ),
        ([], f"expected a script (train.py) or --model MODULE.CLASS; {HELP} both"),
    ],
)
def test_help_and_mistakes_in_options_come_before_torch(tmp_path: Path, args: list[str], last: str) -> None:
    done = execute([sys.executable, "-c", WITHOUT_TORCH, *args], tmp_path, PYTHONPATH=python_path())
    assert done.code == 0, done.err
    assert done.out.splitlines()[-2:] == [last, ""]


def test_help_tells_every_option(cli: Cli) -> None:
    done = cli("--help")
    assert (done.code, done.err) == (0, "")
    options = [option for action in command_line._parser()._actions for option in action.option_strings]
    assert [option for option in options if option not in done.out] == []
    assert "exit code: 0 no critical finding, 1 a critical finding, 2 the review could not be run" in done.out
    assert max(map(len, done.out.splitlines())) <= 120


def test_version(cli: Cli) -> None:
    assert cli("--version") == Result(0, f"{__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", f"expected a script (train.py) or --model MODULE.CLASS; {HELP} both"),
        ("--data my.Data", f"expected a script (train.py) or --model MODULE.CLASS; {HELP} both"),
        ("my.Module", f"my.Module: expected a script (train.py) or an option; {HELP} them"),
        ("--model my.Module 3", f"3: expected a script (train.py) or an option; {HELP} them"),
        # options
        ("--sevrity critical train.py", "--sevrity: no such option. Nearest: --severity"),
        ("-x train.py", "-x: no such option"),
        ("--modl.width 3", "--modl.width: no such option. Nearest: --model"),
        ("--model.=3", "--model.=3: no such option. Nearest: --model"),
        ("--model", "argument --model: expected one argument"),
        ("--model my.Module --model.width", "--model.width: expected a value"),
        ("--model my.Module --trainer.max_epochs --fix", "--trainer.max_epochs: expected a value"),
        ("--severity none train.py", "argument --severity: invalid choice: 'none'*"),
        ("--format xml train.py", "argument --format: invalid choice: 'xml'*"),
        ("--only double-softmx train.py", "--only double-softmx: no such defect. Nearest: double-softmax"),
        ("--skip double-softmx train.py", "--skip double-softmx: no such defect. Nearest: double-softmax"),
        ("--libraries my.py train.py", "--libraries my.py: no such folder"),
        ("--libraries .,there --model my.Module", "--libraries there: no such folder"),
        # a module or a script
        ("--model my.Module train.py", "--model: expected either a module or a script, got train.py as well"),
        ("--data my.Data train.py", "--data: expected either a module or a script, got train.py as well"),
        (
            "--trainer.max_epochs=3 train.py",
            "--trainer.max_epochs: expected either a module or a script, got train.py as well",
        ),
        ("--write-tests test_it.py train.py", "--write-tests: expected --model; tests of a script are not written"),
        ("trian.py", "trian.py: no such file. Nearest: train.py"),
        # classes and their arguments
        ("--model Module", "--model Module: expected a module and a class, as in my.Module for Module in my.py"),
        ("--model mine.Module", "--model mine.Module: there is no module mine here"),
        ("--model my.inner.Module", "--model my.inner.Module: there is no module my.inner here"),
        ("--model my.Modul", "--model my.Modul: my has no class Modul. Nearest: Module"),
        ("--model my.make", "--model my.make: my has no class make"),
        ("--model my.Net", "--model my.Net: expected a LightningModule; a script can train any other module"),
        ("--model my.Module", "--model my.Module: missing a required argument: 'width'; --model.NAME VALUE gives it"),
        (
            "--model my.Module --model.widht 3",
            "--model.widht: Module takes no such argument. Nearest: --model.width",
        ),
        (
            "--model my.Module --model.width 3 --model.rat 1",
            "--model.rat: Module takes no such argument. Nearest: --model.rate",
        ),
        (
            "--model my.Module --model.width 3 --data my.Data --data.root x",
            "--data.root: Data takes no such argument",
        ),
        ("--model my.Module --model.width 3 --data my.Dat", "--data my.Dat: my has no class Dat. Nearest: Data"),
        (
            "--model my.Module --trainer.max_epoch 3",
            "--trainer.max_epoch: Trainer takes no such argument. Nearest: --trainer.max_epochs, *",
        ),
        # YAML
        ("--model my.Module --model.sizes [1", "--model.sizes [1: no YAML: *"),
        ("--thresholds {a train.py", "--thresholds {a: no YAML: *"),
        ("--thresholds [1] train.py", "--thresholds [1]: expected numbers by name, as {dead_units.most: 0.7}"),
        (
            "--thresholds {dead_units.most:·x} train.py",
            "--thresholds {dead_units.most: x}: expected numbers by name, as *",
        ),
        (
            "--thresholds {dead_unit.most:·1} train.py",
            "--thresholds dead_unit.most: no such threshold. Nearest: dead_units.most*",
        ),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, program: Path, line: str, message: str) -> None:
    """`*` stands for any text."""
    done = cli(*(word.replace("·", " ") for word in line.split()))
    assert (done.code, done.out) == (2, "")
    told = done.err.removeprefix("imported\n")
    assert (told[:7], told[-1], told.count("\n")) == ("error: ", "\n", 1)
    assert fnmatchcase(told[7:-1], message.replace("[", "[[]")), told


@pytest.mark.parametrize(
    ("line", "position"),
    [
        ("train.py", 0),
        ("train.py --debug --help", 0),
        ("--only crash --fix train.py --epochs 2", 3),
        ("--only=crash train.py", 1),
        ("--model.file train.py --model my.Module", None),
        ("--fix -- train --epochs 2", 2),
        ("--only crash --", None),
        ("--model my.Module", None),
        ("module train.py", None),
    ],
)
def test_the_script_ends_the_options_of_the_review(line: str, position: int | None) -> None:
    assert command_line.script_position(line.split()) == position


@needs_fork
def test_values_in_the_notation_of_yaml(cli: Cli, program: Path) -> None:
    options = ["--only", "crash", "--format", "json", "--trainer.max_epochs=7", "--data", "my.Data"]
    done = cli(*MODULE, "--model.rate", "1e-3", "--model.sizes", "[2, {a: -2.5E+2}]", *options)
    assert crash(done) == "RuntimeError: (3, 0.001, [2, {'a': -250.0}]) 7"


@needs_fork
def test_a_value_that_the_program_refuses_is_a_finding(cli: Cli, program: Path) -> None:
    done = cli(*MODULE, "--data", "my.Data", "--data.folder", "there", "--only", "crash", "--format", "json")
    assert crash(done) == "AssertionError: there"


@needs_fork
@pytest.mark.parametrize("form", ["json", "sarif"])
def test_a_module_that_is_no_python(cli: Cli, workdir: Path, form: str) -> None:
    Path("my.py").write_text("import torch\n\nclass Module(\n", encoding="utf-8")
    Path("mine.py").write_text("from my import Module\n", encoding="utf-8")
    done = cli("--model", "mine.Module", "--format", form)
    assert done.code == 1, done.err
    answer = json.loads(done.out)
    if form == "json":
        assert (answer["findings"][0]["file"], answer["findings"][0]["line"]) == (str(workdir / "my.py"), 3)


@needs_fork
@pytest.mark.slow
def test_only_the_report_is_on_standard_output(program: Path) -> None:
    """Whatever the program prints as it is imported, built and ended."""
    (program / "my.py").write_text(f"{PROGRAM}import atexit\natexit.register(print, 'ended')\n", encoding="utf-8")
    done = started(program, *MODULE, "--data", "my.Data", "--only", "crash", "--format", "json")
    assert crash(done) == "RuntimeError: (3, 0.1, (1,)) 1000"
    assert done.err == "imported\nended\n", "what it prints in copies of the process goes nowhere"


def test_a_process_ends_with_the_exit_code(tmp_path: Path) -> None:
    assert started(tmp_path, "--version") == Result(0, f"{__version__}\n", "")
    assert started(tmp_path, "--formt=json") == Result(
        2, "", "error: --formt=json: no such option. Nearest: --format\n"
    )


@needs_fork
@pytest.mark.slow
def test_exit_codes_of_a_review(cli: Cli) -> None:
    assert cli(*DOUBLE, "--only", "batch-mixing").code == 0
    assert cli(*DOUBLE, "--only", "double-softmax", "--severity", "critical").code == 1
    case = "cases.mean_divided_again"
    done = cli("--model", f"{case}.Model", "--data", f"{case}.Data", "--only", "mean-divided-again", "--format", "json")
    assert [item["severity"] for item in json.loads(done.out)["findings"]] == ["warning"]
    assert done.code == 0, "a warning is not critical"


ARGUMENTS = """
import sys

assert sys.argv == ["train.py", "--epochs", "2", "--fix", "--help", "--only", "x"], sys.argv
print("{")
"""
OWN = ("--epochs", "2", "--fix", "--help", "--only", "x")


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("end", [[], ["--"]])
def test_a_script_gets_its_own_arguments(cli: Cli, workdir: Path, end: list[str]) -> None:
    written(workdir, ARGUMENTS + changed(DEFECTS["missing-zero-grad"]))
    done = cli("--only", "missing-zero-grad,crash", "--format", "json", *end, "train.py", *OWN)
    assert (done.code, done.err) == (1, "")
    [finding] = json.loads(done.out)["findings"]
    assert (finding["id"], finding["code"]) == ("missing-zero-grad", "optimizer.step()")
    assert finding["file"] == str(workdir / "train.py")
    assert cli("--only", "double-softmax", *end, "train.py", *OWN).code == 0


@needs_fork
def test_a_script_without_a_training(cli: Cli, program: Path) -> None:
    done = cli("train.py")
    message = "error: train.py: the script ended without calling backward, so there is no training to review\n"
    assert done == Result(2, "", message)


NETS = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second = nn.Linear(32, 3)

    def forward(self, x):
        return self.second(self.first(x).relu()).softmax(1)
"""
LOSS = {
    "train.py": "loss = F.cross_entropy(model(inputs), target)",
    "my.py": "loss = F.cross_entropy(self.net(batch[0]), batch[1])",
}


def project(folder: Path) -> None:
    """A script and a module that both train a net of the folder `lent`, which applies softmax before the loss."""
    (folder / "lent").mkdir()
    (folder / "lent" / "__init__.py").touch()
    (folder / "lent" / "nets.py").write_text(NETS, encoding="utf-8")
    text = changed(("Net()", "nets.Net()"), ("from torch import nn", "from torch import nn\nfrom lent import nets"))
    written(folder, text)
    module = f"""
import torch.nn.functional as F
from lent.nets import Net
from programs import Blobs as Data, Classifier


class Module(Classifier):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, batch_idx):
        {LOSS["my.py"]}
        return loss
"""
    (folder / "my.py").write_text(module, encoding="utf-8")


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("usage", [("--model", "my.Module", "--data", "my.Data"), ("train.py",)])
def test_code_of_libraries_is_not_the_users(cli: Cli, workdir: Path, usage: tuple[str, ...]) -> None:
    """The line to blame is the user's, which calls it; a script runs in a copy of its folder, and so does the net."""
    project(workdir)
    options = ["--only", "double-softmax", "--format", "json"]
    [finding] = json.loads(cli(*options, *usage).out)["findings"]
    assert (finding["file"], finding["line"]) == (str(workdir / "lent" / "nets.py"), 12)
    assert finding["patch"]
    done = cli("--libraries", "lent", *options, *usage)
    [finding] = json.loads(done.out)["findings"]
    file = usage[0] if len(usage) == 1 else "my.py"
    assert (finding["file"], finding["code"]) == (str(workdir / file), LOSS[file])
    assert not finding["patch"]
    assert done.code == 1, "the program is wrong, whoever wrote the line"


@needs_fork
@pytest.mark.slow
def test_libraries_beside_the_folder_of_a_script(cli: Cli, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("beside", "own"):
        (workdir / name).mkdir()
    project(workdir / "beside")
    script = (workdir / "beside" / "train.py").read_text(encoding="utf-8")
    written(workdir / "own", f"import sys\nsys.path.append('../beside')\n{script}")
    monkeypatch.chdir(workdir / "own")
    for libraries in ("../beside", str(workdir / "beside")):
        done = cli("--libraries", libraries, "--only=double-softmax", "--format=json", "train.py")
        assert [item["code"] for item in json.loads(done.out)["findings"]] == [LOSS["train.py"]]


@needs_fork
@pytest.mark.slow
def test_fix_leaves_libraries_alone(tmp_path: Path) -> None:
    """In its second review as well: the library's own findings would keep it from writing the patch."""
    project(tmp_path)
    script = tmp_path / "train.py"
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("        optimizer.zero_grad()\n", ""), encoding="utf-8")
    ids = "missing-zero-grad,double-softmax"
    done = started(tmp_path, "--fix", "--libraries", "lent", "--only", ids, "--format", "json", "train.py")
    trials = {item["id"]: (item["file"], item["trial"]) for item in json.loads(done.out)["findings"]}
    assert trials == {
        "double-softmax": (str(script), ""),
        "missing-zero-grad": (str(script), "applied: the finding is gone in a second review"),
    }
    assert "optimizer.zero_grad()" in script.read_text(encoding="utf-8")
    assert (tmp_path / "lent" / "nets.py").read_text(encoding="utf-8") == NETS


@needs_fork
@pytest.mark.slow
def test_modules_that_import_the_former_name_of_lightning(tmp_path: Path) -> None:
    text = PROGRAM.replace("from programs", "import pytorch_lightning as pl\nfrom programs")
    text += "\nassert issubclass(Classifier, pl.LightningModule)\n"
    (tmp_path / "my.py").write_text(text, encoding="utf-8")
    done = started(tmp_path, *MODULE, "--data", "my.Data", "--only", "crash", "--format", "json")
    assert crash(done).startswith("RuntimeError: (3, ")


README = Path(__file__).parents[1] / "README.md"
has_readme = pytest.mark.skipif(not README.exists(), reason="the README is in the checkout")
EXAMPLE = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

x = torch.randn(512, 8)
y = x[:, :3].sum(dim=1) + 0.1 * torch.randn(512)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(args.epochs):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""


def blocks(language: str) -> list[str]:
    """The README's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@has_readme
def test_the_readme_has_every_option_and_counts_the_defects() -> None:
    text = README.read_text(encoding="utf-8")
    shown = {option for action in command_line._parser()._actions for option in action.option_strings[:1]} - {"-h"}
    assert [option for option in sorted(shown) if f"`{option}" not in text] == []
    counts = Counter(defect.severity for defect in all_defects().values())
    kinds = f"{counts['critical']} critical, {counts['warning']} warnings, {counts['advice']} pieces of advice"
    assert f"{len(all_defects())} defects: {kinds}." in text
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ") and "`, `" in line]
    named = {name for row in rows for name in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", row)}
    assert len(named) > 25
    assert named <= set(all_defects())


@needs_fork
@has_readme
@pytest.mark.slow
def test_the_report_in_the_readme(cli: Cli, workdir: Path) -> None:
    written(workdir, EXAMPLE)
    first, *shown = blocks("text")[0].splitlines()
    out = cli("train.py", "--epochs", "2").out
    lines = re.sub(r"^Performance\n(  .*\n)+\n", "", out, flags=re.MULTILINE).splitlines()  # gains, by the machine
    assert re.sub(r"[\d.]+ s$", "", lines[0]) == re.sub(r"[\d.]+ s$", "", first)
    own, documented = (text.index("Critical issues") for text in (lines, shown))
    assert figures_left_out(lines[1:own]) == figures_left_out(shown[:documented])
    assert lines[own : own + len(shown) - documented] == shown[documented:]
    assert lines[own + len(shown) - documented :][:2] == ["", "Checked and right"]


def figures_left_out(lines: list[str]) -> str:
    """A paragraph without its line ends and figures."""
    return re.sub(r"\d[\d.]*", "", " ".join(lines))


@needs_fork
@has_readme
@pytest.mark.slow
def test_the_readmes_use_from_python(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(workdir, EXAMPLE)
    scope: dict[str, Any] = {"Module": Classifier, "Data": Blobs}
    [example] = blocks("python")
    exec(example, scope)
    message = "mse_loss of (32, 1) and (32,) compares every prediction with every target: (32, 32)"
    assert capsys.readouterr().out == f"critical bad-broadcast {workdir / 'train.py'}:20 {message}\n"

"""`new` writes files that run, pass their tests and keep the style; or says in one line why not, and writes nothing."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from src.__main__ import main
from src.command import new
from tests.conftest import ROOT

# for each kind, the name that is given, and the files and class that come of it
NEW = {
    "net": ("TinyNet", ["src/nets/tiny_net.py", "tests/nets/test_tiny_net.py", "configs/vision/tiny_net-digits.yaml"]),
    "task": ("focus", ["src/tasks/focus.py", "tests/tasks/test_focus.py", "configs/vision/focus-digits.yaml"]),
    "data": ("my-table", ["src/data/my_table.py", "tests/data/test_my_table.py", "configs/tables/my_table.yaml"]),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project as somebody has it who works in it."""
    for folder in ("src", "configs", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `new` in this process writes, instead of the project."""
    monkeypatch.setattr(new, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": ""}  # not the coverage of CI
    command = [sys.executable, *args]
    return subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace"
    )


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def train_and_test(copy: Path, kind: str) -> None:
    """What `new` tells its user to do next; then the tests that find the new files by themselves."""
    name, (module, _, recipe) = NEW[kind]
    written = python(copy, "-m", "src", "new", kind, name)
    assert written.returncode == 0, written.stderr
    few = ("--trainer.max_epochs", "2", "--trainer.limit_train_batches", "4", "--run_dir", "run")
    trained = python(copy, "-m", "src", "fit", "--config", recipe, *few)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert "Results" in trained.stdout, trained.stdout
    stem = Path(module).stem
    tests = (f"tests/{Path(module).parent.name}", "tests/test_project.py", "-k", f"{stem} or {name}")
    tested = python(copy, "-m", "pytest", "-vv", *tests)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    for found in (f"test_{stem}.py::", f"[{module}]", f"[{recipe}]"):
        assert found in tested.stdout, tested.stdout


@pytest.mark.slow
def test_a_new_net_trains_and_the_matrix_over_all_nets_takes_it(copy: Path) -> None:
    train_and_test(copy, "net")
    assert "TinyNet" in python(copy, "-m", "src", "list", "nets").stdout


@pytest.mark.slow
def test_a_new_task_trains(copy: Path) -> None:
    train_and_test(copy, "task")


@pytest.mark.slow
def test_a_new_data_set_trains_and_names_a_root_that_is_missing(copy: Path) -> None:
    train_and_test(copy, "data")
    recipe = NEW["data"][1][2]
    wrong = python(copy, "-m", "src", "fit", "--config", recipe, "--data.root", "nowhere.csv", "--run_dir", "wrong")
    assert wrong.returncode == 2
    assert wrong.stderr.strip().startswith("error: --data.root: nowhere.csv: no such file; expected a CSV file")


@pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed; it comes with --group lint")
@pytest.mark.parametrize("length", [3, new.LONGEST_NAME])
def test_what_is_written_keeps_the_style(copy: Path, length: int) -> None:
    for kind in NEW:
        written = python(copy, "-m", "src", "new", kind, kind[0] + "z" * (length - 1))
        assert written.returncode == 0, written.stderr
    sources = [str(path) for path in copy.rglob("*zz*.py")]
    assert len(sources) == 6, sources
    for command in (["check", "--no-cache"], ["format", "--no-cache", "--diff"]):
        checked = python(copy, "-m", "ruff", *command, *sources)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_new_answers_without_torch(copy: Path) -> None:
    code = "import sys; from src.__main__ import main; main(['new', 'net', 'TinyNet']); print(*sys.modules)"
    loaded = python(copy, "-c", code).stdout.split()
    assert "src.command.new" in loaded
    assert not {"torch", "lightning", "jsonargparse", "numpy"} & set(loaded)


@pytest.mark.parametrize("kind", NEW)
def test_files_and_next_steps_are_printed(root: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    name, targets = NEW[kind]
    assert main(["new", kind, name]) == 0
    assert set(files(root)) == set(targets)
    _, test, recipe = targets
    assert capsys.readouterr().out.splitlines() == [
        *(f"wrote  {target}" for target in targets),
        "",
        f"train  python -m src fit --config {recipe}",
        f"test   python -m pytest {test}",
    ]
    assert "$" not in "".join(files(root).values())


@pytest.mark.parametrize(
    ("name", "stem", "class_name"),
    [
        ("TinyNet", "tiny_net", "TinyNet"),
        ("tiny_net", "tiny_net", "TinyNet"),
        ("tiny-net", "tiny_net", "TinyNet"),
        ("TinyCNN", "tiny_cnn", "TinyCNN"),
        ("CNNBlock2", "cnn_block2", "CNNBlock2"),
        ("u2net", "u2net", "U2net"),
        ("gpt_2", "gpt_2", "Gpt2"),
        ("X", "x", "X"),
    ],
)
def test_the_file_is_snake_case_and_the_class_camel_case(root: Path, name: str, stem: str, class_name: str) -> None:
    assert main(["new", "net", name]) == 0
    assert f"\nclass {class_name}(nn.Module):\n" in files(root)[f"src/nets/{stem}.py"]
    assert f"class_path: {class_name}," in files(root)[f"configs/vision/{stem}-digits.yaml"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "new: expected a kind and a name: python -m src new net|task|data NAME"),
        ("nett TinyNet", "new nett: expected one of net, task, data. Nearest: net"),
        ("recipe TinyNet", "new recipe: expected one of net, task, data"),
        ("net", "new net: expected one name, got none"),
        ("net Tiny Net", "new net: expected one name, got Tiny Net"),
        ("net TinyNet --force", "new: --force: no such option, expected python -m src new net|task|data NAME"),
        *(
            (f"net {name}", f"new net {name}: expected letters and digits with _ or - between, a letter first")
            for name in ("2net", "_net", "tiny__net", "net!", "src.nets.Tiny", "../net", "Größe")
        ),
        ("net class", "new net class: class is a word of Python itself"),
        ("net Lambda", "new net Lambda: lambda is a word of Python itself"),
        ("task none", "new task none: None is a word of Python itself"),
        ("net base", "new net base: base.py is where a kind's common part is"),
        (f"net {'n' * 41}", f"new net {'n' * 41}: expected a name of at most 40 characters, got 41"),
        ("task CNN", "new task CNN: src.nets.cnn.CNN has this name already"),
        ("task Task", "new task Task: the files themselves use another Task"),
        ("task Trainer", "new task Trainer: the files themselves use another Trainer"),
        ("net Tensor", "new net Tensor: the files themselves use another Tensor"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str], args: str, message: str
) -> None:
    assert main(["new", *args.split()]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {message}")
    assert told.count("\n") == 1
    assert files(root) == {}


@pytest.mark.parametrize("existing", NEW["net"][1])
def test_a_file_that_exists_stays_and_no_other_is_written(
    root: Path, capsys: pytest.CaptureFixture[str], existing: str
) -> None:
    (root / existing).parent.mkdir(parents=True)
    (root / existing).write_text("mine")
    assert main(["new", "net", "TinyNet"]) == 2
    assert capsys.readouterr().err == f"error: new net TinyNet: {existing} exists already; nothing was written\n"
    assert files(root) == {existing: "mine"}


def test_when_one_file_cannot_be_written_none_is(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "configs").write_text("no folder")
    assert main(["new", "net", "TinyNet"]) == 2
    assert re.search(r"configs.vision: .+; nothing was written\n$", capsys.readouterr().err)
    assert files(root) == {"configs": "no folder"}


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--help"]) == 0
    assert capsys.readouterr().out.startswith(new.USAGE)

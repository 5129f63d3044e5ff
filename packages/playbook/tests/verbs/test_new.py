"""`new` writes a file, its test and a recipe; or says in one line why not, and writes nothing."""

import re
from pathlib import Path

import pytest

from playbook.command.main import run
from playbook.project import Project
from playbook.verbs import new

# for each kind, the name that is given, and the files and class that come of it
NEW = {
    "net": (
        "TinyNet",
        ["example/nets/tiny_net.py", "tests/nets/test_tiny_net.py", "configs/vision/tiny_net-digits.yaml"],
    ),
    "task": ("focus", ["example/tasks/focus.py", "tests/tasks/test_focus.py", "configs/vision/focus-digits.yaml"]),
    "data": ("my-table", ["example/data/my_table.py", "tests/data/test_my_table.py", "configs/tables/my_table.yaml"]),
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `new` in this process writes, instead of the project."""
    monkeypatch.setattr(Project, "root", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("kind", NEW)
def test_files_and_next_steps_are_printed(root: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    name, targets = NEW[kind]
    assert run(["new", kind, name], "example") == 0
    assert set(files(root)) == set(targets)
    _, test, recipe = targets
    assert capsys.readouterr().out.splitlines() == [
        *(f"wrote  {target}" for target in targets),
        "",
        f"train  python -m example fit --config {recipe}",
        f"test   python -m pytest {test}",
    ]
    assert "$" not in "".join(files(root).values())


@pytest.mark.parametrize("kind", NEW)
def test_a_recipe_claims_no_figure_that_was_not_measured(root: Path, kind: str) -> None:
    name, (_, _, recipe) = NEW[kind]
    assert run(["new", kind, name], "example") == 0
    header = [line for line in files(root)[recipe].splitlines() if line.startswith("#")]
    assert header[0].endswith(f": python -m example fit --config {recipe}")
    assert header[1].startswith("# Not measured yet: put ")
    assert not re.search(r"\d\.\d| seeds?\)|CPU core", " ".join(header))


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
    assert run(["new", "net", name], "example") == 0
    assert f"\nclass {class_name}(nn.Module):\n" in files(root)[f"example/nets/{stem}.py"]
    assert f"class_path: {class_name}," in files(root)[f"configs/vision/{stem}-digits.yaml"]


def test_a_domain_is_a_folder(root: Path) -> None:
    assert run(["new", "net", "speech/TinyNet"], "example") == 0
    assert "example/nets/speech/tiny_net.py" in files(root)
    assert "from example.nets.speech.tiny_net import TinyNet" in files(root)["tests/nets/speech/test_tiny_net.py"]


def test_a_project_that_sorts_by_domain_gets_the_usual_one(root: Path) -> None:
    (root / "example/data/__pycache__").mkdir(parents=True)
    assert run(["new", "data", "rows"], "example") == 0
    assert {"example/data/rows.py", "tests/data/test_rows.py"} <= set(files(root))
    (root / "example/data/speech").mkdir()
    (root / "example/data/speech/tones.py").touch()
    assert run(["new", "data", "columns"], "example") == 0
    assert {"example/data/tables/columns.py", "tests/data/tables/test_columns.py"} <= set(files(root))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "new: expected a kind and a name: python -m example new net|task|data [DOMAIN/]NAME"),
        ("nett TinyNet", "new nett: expected one of net, task, data. Nearest: net"),
        ("recipe TinyNet", "new recipe: expected one of net, task, data"),
        ("net", "new net: expected one name, got none"),
        ("net Tiny Net", "new net: expected one name, got Tiny Net"),
        (
            "net TinyNet --force",
            "new: --force: no such option, expected python -m example new net|task|data [DOMAIN/]NAME",
        ),
        *(
            (f"net {name}", f"new net {name}: expected letters and digits with _ or - between, a letter first")
            for name in ("2net", "_net", "tiny__net", "net!", "src.nets.Tiny", "Größe")
        ),
        ("net ../net", "new net ../net: expected small letters and digits as the name of a folder"),
        ("net class/Tiny", "new net class/Tiny: expected small letters and digits as the name of a folder"),
        ("task vision/Tiny", "new task vision/Tiny: tasks are shared by all domains, expected a name without a folder"),
        ("net class", "new net class: class is a keyword of Python"),
        ("net Lambda", "new net Lambda: lambda is a keyword of Python"),
        ("task none", "new task none: None is a keyword of Python"),
        ("net base", "new net base: base.py is reserved for base classes"),
        (f"net {'n' * 41}", f"new net {'n' * 41}: expected a name of at most 36 characters, got 41"),
        ("task CNN", "new task CNN: example.nets.cnn.CNN already has this name"),
        ("task Task", "new task Task: the written files use a different Task"),
        ("task Trainer", "new task Trainer: the written files use a different Trainer"),
        ("net Tensor", "new net Tensor: the written files use a different Tensor"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str], args: str, message: str
) -> None:
    assert run(["new", *args.split()], "example") == 2
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
    assert run(["new", "net", "TinyNet"], "example") == 2
    assert capsys.readouterr().err == f"error: new net TinyNet: {existing} already exists; nothing was written\n"
    assert files(root) == {existing: "mine"}


def test_when_one_file_cannot_be_written_none_is(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "configs").write_text("no folder")
    assert run(["new", "net", "TinyNet"], "example") == 2
    assert re.search(r"configs.vision: .+; nothing was written\n$", capsys.readouterr().err)
    assert files(root) == {"configs": "no folder"}


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "--help"], "example") == 0
    assert capsys.readouterr().out.startswith(f"python -m example {new.USAGE}")


def test_classes_that_a_project_lacks_are_named(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playbook.command.discovery.class_paths", lambda name: [])
    assert run(["new", "net", "TinyNet"], "example") == 0
    assert "edit   the files name Classification, Digits of the template, which example does not have" in (
        capsys.readouterr().out
    )

"""The run directory: which run and which file is meant, and what is recorded of the code."""

import json
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from playbook.errors import UserError
from playbook.runs import changes
from playbook.runs.directory import ROOT as RUNS
from playbook.runs.directory import Run, checkpoint_candidates, new_run, newest_run, run_of, write_atomically


def make(path: str, *names: str) -> Run:
    """A run directory with these checkpoints, empty ones."""
    run = Run(Path(path))
    run.checkpoints.mkdir(parents=True)
    run.config.touch()
    for name in names:
        (run.checkpoints / f"{name}.ckpt").touch()
    return run


def test_newest_run_that_has_a_checkpoint(workdir: Path) -> None:
    make("runs/cnn/2026-01-03-000000")
    make("runs/cnn/2026-01-01-000000", "last")
    make("runs/mlp/2026-01-02-000000", "best")
    assert str(newest_run(None)) == "runs/mlp/2026-01-02-000000"
    assert str(newest_run("cnn")) == "runs/cnn/2026-01-01-000000"
    with pytest.raises(UserError, match="no run of vit under runs/ has a checkpoint"):
        newest_run("vit")


def test_no_run_at_all(workdir: Path) -> None:
    with pytest.raises(UserError, match="no run under runs/ has a checkpoint"):
        newest_run(None)


@pytest.mark.parametrize(
    ("path", "title", "label"),
    [
        ("runs/cnn-digits/2026-01-01-000000", "cnn-digits", "cnn-digits/2026-01-01-000000"),
        ("runs/cnn-digits/2026-01-01-000000-2", "cnn-digits", "cnn-digits/2026-01-01-000000-2"),
        ("/somewhere/runs/cnn-digits/2026-01-01-000000", "cnn-digits", "cnn-digits/2026-01-01-000000"),
        ("runs/first", "first", "first"),
        ("runs/sweep/first", "first", "first"),
        ("runs/2026-01-01-000000", "2026-01-01-000000", "2026-01-01-000000"),
        ("elsewhere/mine", "mine", "mine"),
        ("mine", "mine", "mine"),
    ],
)
def test_a_run_is_titled_by_its_recipe_or_by_its_directory(path: str, title: str, label: str) -> None:
    run = Run(Path(path))
    assert (run.title, run.label) == (title, label)


def test_new_run_is_dated_and_nobody_elses(workdir: Path) -> None:
    paths = []
    for _ in range(4):
        run = new_run("cnn")
        run.create()
        paths.append(run.path)
    assert len(set(paths)) == 4
    assert all(path.parent == RUNS / "cnn" for path in paths)
    assert paths == sorted(paths), "the newest sorts last"


def test_candidates(workdir: Path) -> None:
    run = make("job", "best", "last", "previous")
    files = {name: run.checkpoints / f"{name}.ckpt" for name in ("best", "last", "previous")}
    best, last, previous = files.values()

    def candidates(spec: str, of: Run | None = run) -> list[Path]:
        return checkpoint_candidates(spec, of, None, "--ckpt_path")

    assert candidates("best") == [best], "nothing else is the best"
    assert candidates("last") == [last, previous, best]
    assert candidates("job", None) == candidates("job/checkpoints", None) == [best, last, previous]
    assert candidates("job/checkpoints/previous.ckpt", None) == [previous]
    last.unlink()
    assert candidates("last") == [previous, best]
    best.unlink()
    assert candidates("job") == [previous]
    with pytest.raises(UserError, match=r"--ckpt_path best: job has no best\.ckpt; it needs a validation"):
        candidates("best")
    previous.unlink()
    with pytest.raises(UserError, match=r"--ckpt_path last: job has no checkpoint$"):
        candidates("last")


def test_candidates_without_a_directory_are_the_newest_runs(workdir: Path) -> None:
    make("runs/cnn/2026-01-01-000000", "best")
    make("runs/mlp/2026-01-02-000000", "best")
    [found] = checkpoint_candidates("best", None, "cnn", "--ckpt_path")
    assert found == Path("runs/cnn/2026-01-01-000000/checkpoints/best.ckpt")


@pytest.mark.parametrize(
    ("spec", "near"),
    [("jobb", "Nearest: job"), ("job/checkpoints/lst.ckpt", "job/checkpoints/last.ckpt"), ("bset", "Nearest: best")],
)
def test_missing_checkpoint_names_the_nearest(workdir: Path, spec: str, near: str) -> None:
    make("job", "best", "last")
    with pytest.raises(UserError, match=f"--init_from {spec}: no such file or run directory.*{near}"):
        checkpoint_candidates(spec, None, None, "--init_from")


def test_missing_checkpoint_in_a_missing_directory(workdir: Path) -> None:
    with pytest.raises(UserError, match=r"no such file or run directory$"):
        checkpoint_candidates("nowhere/at/all.ckpt", None, None, "--ckpt_path")


def test_run_of_a_file(workdir: Path) -> None:
    run = make("job", "best")
    found = run_of(Path("job/checkpoints/best.ckpt"))
    assert found is not None
    assert found.path == Path("job")
    assert run_of(Path("copied.ckpt")) is None
    run.config.unlink()
    assert run_of(Path("job/checkpoints/best.ckpt")) is None, "a folder of that name is not yet a run"


def test_write_atomically(workdir: Path) -> None:
    path = workdir / "a.txt"
    write_atomically(path, "first ·\n")
    write_atomically(path, "second ·\n")
    assert path.read_bytes() == "second ·\n".encode()
    assert [file.name for file in workdir.iterdir()] == ["a.txt"]
    (workdir / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(workdir / "folder", "no")
    assert sorted(file.name for file in workdir.iterdir()) == ["a.txt", "folder"], "a temporary file is left"


def test_reader_never_sees_half_a_file(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workdir / "metrics.json"
    write_atomically(path, "former")
    seen = []
    original = Path.write_bytes

    def write_half(self: Path, content: bytes) -> int:
        original(self, content[: len(content) // 2])
        seen.append(path.read_text())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "the new text")
    assert [*seen, path.read_text()] == ["former", "former"]
    assert [file.name for file in workdir.iterdir()] == ["metrics.json"]


def test_metrics(workdir: Path) -> None:
    run = Run(Path("job"))
    run.create()
    assert run.read_metrics() == {}
    run.update_metrics(status="running", step=3)
    run.update_metrics(step=4, best=None)
    assert run.read_metrics() == {"status": "running", "step": 4, "best": None}
    run.metrics_json.write_text('{"status": "runn')
    assert run.read_metrics() == {}


def test_directory_that_cannot_be_made(workdir: Path) -> None:
    (workdir / "file").touch()
    with pytest.raises(UserError, match="--run_dir file/run: cannot be written"):
        Run(Path("file/run")).create()


def test_dated_directory_that_cannot_be_made(workdir: Path) -> None:
    (workdir / "runs").touch()
    with pytest.raises(UserError, match=r"--run_dir runs/cnn/\S+: cannot be created: "):
        new_run("cnn")


def test_two_processes_cannot_train_in_one_directory(workdir: Path) -> None:
    fcntl = pytest.importorskip("fcntl", reason="this system has no such locks")
    run = Run(Path("shared").absolute())
    run.path.mkdir()
    with (run.path / ".lock").open("w") as other:  # another open file is as good as another process
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is training in it"):
            run.create()
    run.create()
    run.create()
    run.release()
    assert not run.path.exists(), "nothing was written to it"


def test_files_of_killed_writers_are_removed(workdir: Path) -> None:
    run = make("job", "last")
    left = [run.checkpoints / ".last.new.123", run.path / ".metrics.json.99999"]
    for path in left:
        path.touch()
    run.create()
    assert not [path for path in left if path.exists()]
    assert (run.checkpoints / "last.ckpt").exists()
    run.release()


def git(*args: str, cwd: Path) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", *args], check=True, cwd=cwd, capture_output=True
    )
    return done.stdout.decode()


@pytest.fixture
def repository(workdir: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    git("init", "-q", cwd=workdir)
    (workdir / ".gitignore").write_text("job\n")
    (workdir / "net.py").write_text("width = 32\n# größer\n")
    (workdir / "old.py").write_text("x = 1\n")
    git("add", ".", cwd=workdir)
    git("commit", "-q", "-m", "first", cwd=workdir)
    return workdir


def record() -> tuple[dict[str, object], str]:
    run = Run(Path("job").absolute())
    run.create()
    run.record_environment(["python -m example", "fit", "--x", "a b"])
    return json.loads((run.path / "environment.json").read_text()), (run.path / "git.diff").read_text(encoding="utf-8")


def assert_restores(repository: Path, clone: Path) -> None:
    """The recorded commit with the recorded changes is the working tree again."""
    environment, _ = record()
    git("clone", "-q", str(repository), str(clone), cwd=repository.parent)
    git("checkout", "-q", str(environment["git_commit"]), cwd=clone)
    git("apply", str(repository / "job/git.diff"), cwd=clone)
    assert (clone / "net.py").read_bytes() == (repository / "net.py").read_bytes()
    assert (clone / "old.py").exists() == (repository / "old.py").exists()


def test_commit_and_changes_bring_the_code_back(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (repository / "net.py").write_text("width = 64\n# größer und größer\n")
    (repository / "old.py").unlink()
    assert_restores(repository, tmp_path_factory.mktemp("clone") / "tree")


def test_staged_changes_are_recorded_too(repository: Path) -> None:
    (repository / "net.py").write_text("width = 64\n")
    git("add", "net.py", cwd=repository)
    assert "+width = 64" in record()[1]


def test_clean_tree(repository: Path) -> None:
    environment, diff = record()
    assert diff == ""
    assert environment["git_commit"] == git("rev-parse", "HEAD", cwd=repository).strip()


def test_new_file_is_recorded(repository: Path) -> None:
    (repository / "fresh.py").write_text("depth = 3\n")
    assert "+depth = 3" in record()[1]


def test_coloured_diffs(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    git("config", "color.ui", "always", cwd=repository)
    (repository / "net.py").write_text("width = 64\n")
    assert_restores(repository, tmp_path_factory.mktemp("clone") / "tree")


def test_windows_line_ends(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (repository / "net.py").write_bytes(b"width = 32\r\ndepth = 1\r\n")
    git("commit", "-q", "-a", "-m", "second", cwd=repository)
    (repository / "net.py").write_bytes(b"width = 64\r\ndepth = 1\r\n")
    assert_restores(repository, tmp_path_factory.mktemp("clone") / "tree")


def test_outside_any_repository(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(workdir.parent))
    environment, diff = record()
    assert environment["git_commit"] is None
    assert diff == ""


def test_without_git(workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", str(workdir))
    environment, diff = record()
    assert environment["git_commit"] is None
    assert diff == ""
    assert {line.partition(":")[0] for line in capsys.readouterr().err.splitlines()} == {"warning"}


def test_environment(workdir: Path) -> None:
    environment, _ = record()
    assert environment["command"] == ["python -m example", "fit", "--x", "a b"]
    assert environment["python"] == platform.python_version()
    packages = environment["packages"]
    assert isinstance(packages, dict)
    assert packages["lightning"] == version("lightning")
    started = environment["started"]
    assert isinstance(started, str)
    assert started[10] == "T"
    assert started[-6] in "+-", f"{started} lacks its time zone"


def test_package_that_is_not_installed(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.runs.directory.PACKAGES", ("torch", "not-installed-anywhere"))
    packages = record()[0]["packages"]
    assert isinstance(packages, dict)
    assert packages["not-installed-anywhere"] is None
    assert packages["torch"]


def test_data_files_are_left_out(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "table.csv").write_text("1,2\n")
    (repository / "scan.raw").write_bytes(b"\0")
    git("add", ".", cwd=repository)
    git("commit", "-q", "-m", "data", cwd=repository)
    (repository / "table.csv").write_text("1,2\n" * 100_000)
    (repository / "scan.raw").write_bytes(b"\0" * 100)
    (repository / "new.csv").write_text("1,2\n" * 100_000)
    (repository / "new.npy").write_bytes(b"\x93NUMPY\0")
    (repository / "net.py").write_text("width = 64\n")
    (repository / "fresh.py").write_text("depth = 3\n")
    _, diff = record()
    assert len(diff) < 1000
    assert "+depth = 3" in diff
    heading = [line for line in diff.splitlines() if line.startswith("# left out: ")]
    assert [line.split()[3] for line in heading] == ["scan.raw", "table.csv", "new.csv", "new.npy"]
    assert "git.diff  without data files: scan.raw (binary) and 3 more" in capsys.readouterr().err
    assert_restores(repository, tmp_path_factory.mktemp("clone") / "tree")


def test_limit_of_all_changes(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_IN_ALL", 1000)
    for number in range(4):
        (repository / f"new{number}.txt").write_text("line\n" * 60)
    _, diff = record()
    assert diff.count("+++ b/new") == 2
    assert "# left out: new3.txt (more than 0 MiB in all)" in diff

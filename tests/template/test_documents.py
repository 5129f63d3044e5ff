"""Every command in README.md, CONTRIBUTING.md, AGENTS.md and docs/ runs, in order, as it stands there."""

import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from playbook.testing.command import Cli
from tests.conftest import ROOT, cli_process
from tests.template import own_files
from tests.template.documents import DOCUMENTS, arguments, commands, sources, without_uv

TESTS = "uv run --group test pytest"
TOOLS = ("pytest", "ruff", "pyright", "mkdocs", "bash .ci/run")  # not run inside of pytest; .ci/run runs them
ELSEWHERE = {  # commands that change a project, and who runs them
    "uvx copier copy": "test_generation.py",
    "uvx copier update": "test_updates.py",
    "git ": "test_updates.py",
    "python -m venv": "test_without_uv.py",
    "pip install ./packages": "test_without_uv.py",
    "python -m src new": "test_documents.py",
}


def words_of(command: str) -> str:
    return " ".join(without_uv(command))


def is_run_elsewhere(command: str) -> bool:
    return words_of(command).startswith((*ELSEWHERE, *TOOLS))


def test_the_readme_begins_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = "pip install uv && uv run python -m src fit --config configs/vision/cnn-digits.yaml"
    assert re.search(r"```sh\n(.*?)```", text, re.S)[1].splitlines() == [first, TESTS]  # type: ignore[index]
    assert len(text.splitlines()) <= 150
    assert TESTS in (ROOT / ".ci/run").read_text(), "CI runs the README's test command"


class Server:
    """A server in a process of its own, until the end of the document."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self, args: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        args = [str(self.port) if arg == "8000" else arg for arg in args]
        self.process = cli_process(*args, cwd=self.folder)
        for _ in range(600):
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5):
                    return
            except OSError:
                assert self.process.poll() is None, self.process.communicate()
                time.sleep(0.1)
        raise AssertionError("the server is not ready after a minute")

    def ask(self, words: list[str]) -> None:
        if (curl := shutil.which("curl")) is not None:
            own = [word.replace(":8000/", f":{self.port}/") for word in words[1:]]
            answer = run_process([curl, "--fail", "--silent", *own], self.folder)
            assert '"probability"' in answer, answer

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.communicate(timeout=60)


def run_process(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Reader:
    """Types the commands of a document, in a folder with a copy of the project and files of the reader's own."""

    def __init__(self, folder: Path, cli: Cli, document: str) -> None:
        self.folder, self.cli, self.server = folder, cli, Server(folder)
        for name in ("configs", "src"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        own_files.write(folder)
        self.own_classes: list[str] = []
        for path, code in sources(document).items():
            (folder / path).write_text(code)
            self.own_classes += re.findall(r"^class (\w+)", code, re.MULTILINE)

    def run(self, command: str) -> None:
        words, args = without_uv(command), arguments(command)
        if "|" in words:  # the first words go to the standard input of the others
            position = words.index("|")
            self._pipe(words[:position], without_uv(command.partition("|")[2]))
        elif words[0] == "curl":
            self.server.ask(words)
        elif args is None or {"--trainer.devices", *self.own_classes} & set(words):  # the classes are in the copy alone
            assert words[0] == "python", f"{command}: nothing runs it"
            run_process([sys.executable, *words[1:]], self.folder)
        elif args[0] == "serve" and "--help" not in args:
            self.server.start(args)
        else:
            result = self.cli(*args)
            assert result.code == 0, f"{command}\n{result.out}\n{result.err}"

    def _pipe(self, source: list[str], target: list[str]) -> None:
        assert (source[0], target[0]) == ("echo", "python")
        command = [sys.executable, *target[1:]]
        done = subprocess.run(
            command, cwd=self.folder, input=f"{source[1]}\n", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.slow
@pytest.mark.usefixtures("published")
def test_commands(cli: Cli, workdir: Path, document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    reader = Reader(workdir, cli, document)
    try:
        for command in commands(document):
            if not is_run_elsewhere(command):
                reader.run(command)
    finally:
        reader.server.stop()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_other_commands_are_run_by_ci_or_another_test(document: str) -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    lines = [line.strip() for line in script.splitlines()]
    for command in commands(document):
        if words_of(command).startswith(TOOLS):
            known = [line for line in lines if line.startswith("uv run") and command.startswith(line)]
            assert known or command == "bash .ci/run", f"{command}: not in .ci/run"
            for path in re.findall(r"\S+\.py", command):
                assert (ROOT / path).is_file(), f"{command}: {path} does not exist"
        elif is_run_elsewhere(command):
            file = next(file for start, file in ELSEWHERE.items() if words_of(command).startswith(start))
            assert (ROOT / "tests/template" / file).is_file()


@pytest.mark.slow
def test_new_as_documented(tmp_path: Path) -> None:
    """`new` writes into its own project, so it runs in a copy."""
    for name in ("src", "configs", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    documented = [args for command in commands("CONTRIBUTING.md") if (args := arguments(command)) and args[0] == "new"]
    assert documented
    for args in documented:
        process = cli_process(*args, cwd=tmp_path, env={"PYTHONPATH": ""})
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        shown = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        assert out.strip() in shown, "the guide shows what the command prints"
    recipe = re.search(r"configs/\S+\.yaml", out)
    assert recipe is not None
    fit = [sys.executable, "-m", "src", "fit", "--config", recipe[0], "--trainer.max_epochs", "1"]
    subprocess.run(fit, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)

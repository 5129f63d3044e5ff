"""A verb is one file: found by being there, with its options, its help and its place in the command line."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import playbook.verbs
from playbook.command import verb as verbs_of
from playbook.command.verb import ModelVerb, PlainVerb, own_options, verbs
from playbook.testing.command import Cli
from running import CNN_DIGITS, ROOT

COUNT = '''
from playbook.command.verb import ModelVerb

class Count(ModelVerb):
    """Counts parameters."""

    name = "count"
    summary = "Count the parameters of a model."
    examples = ("--config configs/vision/cnn-digits.yaml",)
    checkpoint = "optional"

    def run(self, session, unit: int = 1, trained: bool = False) -> int:
        """Counts.

        Args:
            session: the model.
            unit: how many parameters count as one.
            trained: leave out the frozen ones.
        """
        parameters = [p for p in session.model.parameters() if p.requires_grad or not trained]
        print(sum(p.numel() for p in parameters) // unit, type(session.datamodule).__name__, trained)
        return 3

VERB = Count()
'''


def test_names_and_order() -> None:
    trained = ["fit", "validate", "test", "predict", "find_lr", "find_batch_size", "doctor", "profile", "export"]
    assert list(verbs())[: len(trained)] == trained
    assert {"list", "new"} <= {name for name, verb in verbs().items() if isinstance(verb, PlainVerb)}


def test_options_of_a_verb_are_what_its_run_takes() -> None:
    find_lr, fit, validate = (verbs()[name] for name in ("find_lr", "fit", "validate"))
    assert isinstance(find_lr, ModelVerb)
    assert [name for name, _, _ in own_options(find_lr)] == ["min_lr", "max_lr", "num_steps", "format"]
    assert own_options(find_lr)[0] == ("min_lr", "LR", "first learning rate, above 0")
    assert isinstance(fit, ModelVerb)
    assert own_options(fit)[0] == ("doctor", "", "review the model and data first, and stop at a critical finding")
    assert isinstance(validate, ModelVerb)
    assert own_options(validate) == [
        ("verbose", "", "print Lightning's table as well"),
        ("format", "FORMAT", "of what is printed: terminal, or json for programs"),
    ]


@pytest.fixture
def count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more file beside the verbs, and nothing else."""
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "count.py").write_text(COUNT)
    monkeypatch.setattr(playbook.verbs, "__path__", [*playbook.verbs.__path__, str(folder)])
    verbs_of.verbs.cache_clear()
    yield
    verbs_of.verbs.cache_clear()
    sys.modules.pop("playbook.verbs.count", None)


@pytest.mark.usefixtures("count")
def test_adding_a_verb_touches_nothing_else(cli: Cli) -> None:
    assert re.search(r"^  count +Count the parameters of a model\.$", cli("--help").out, re.MULTILINE)
    page = cli("count", "--help").out
    assert "--unit UNIT" in page
    assert re.search(r"--trained +leave out the frozen ones$", page, re.MULTILINE)
    done = cli("count", "--config", CNN_DIGITS, "--unit", "1000", "--trained")
    assert (done.code, done.out, done.err) == (3, "75 Digits True\n", "")
    wrong = cli("count", "--config", CNN_DIGITS, "--units", "1000")
    assert (wrong.code, wrong.err) == (2, "error: --units: no such option. Nearest: --unit, --run_dir\n")
    assert not Path("runs").exists()


@pytest.mark.slow
def test_nothing_else_asks_which_verb_is_running() -> None:
    """No comparison of a verb, or of its name, with a text outside of its own file."""
    places = []
    for file in (ROOT / "playbook").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Compare) or not re.search(
                r"\b(verb|subcommand)(\.name)?$", ast.unparse(node.left)
            ):
                continue
            texts = [part for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            places += [f"{file.relative_to(ROOT)}:{node.lineno}"] if texts else []
    assert not places


def test_verbs_are_found_without_torch() -> None:
    code = "import sys; from playbook.command.verb import verbs; verbs(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n"

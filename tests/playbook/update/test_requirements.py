"""What the machine asks of `pyproject.toml`, compared with what the project has."""

import pytest

from playbook.update.requirements import differences

THEIRS = """\
[project]
requires-python = ">=3.11"
dependencies = ["torch>=2.11", "jsonargparse[signatures]>=4.53,<5", "scikit-learn>=1.7"]
optional-dependencies.text = ["tokenizers>=0.20"]

[dependency-groups]
test = ["pytest>=9", {include-group = "other"}]

[tool.pytest.ini_options]
markers = ["run: trains", "process: starts a process"]
"""


def test_the_same_file_has_no_differences() -> None:
    assert differences(THEIRS, THEIRS) == []


@pytest.mark.parametrize(
    ("written", "instead", "expected"),
    [
        ('"torch>=2.11", ', "", ("torch>=2.11", "")),
        ("torch>=2.11", "torch>=2.10", ("torch>=2.11", "torch>=2.10")),
        ("jsonargparse[signatures]", "jsonargparse", ("jsonargparse[signatures]>=4.53,<5", "jsonargparse>=4.53,<5")),
        (">=3.11", ">=3.10", ("requires-python >=3.11", "requires-python >=3.10")),
        ("tokenizers>=0.20", "tokenizers", ("tokenizers>=0.20  (text)", "tokenizers  (text)")),
        ("pytest>=9", "pytest>=8", ("pytest>=9  (test)", "pytest>=8  (test)")),
        ('"run: trains", ', "", ("pytest marker run", "")),
    ],
)
def test_a_difference(written: str, instead: str, expected: tuple[str, str]) -> None:
    assert differences(THEIRS, THEIRS.replace(written, instead)) == [expected]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("scikit-learn>=1.7", "Scikit_Learn >= 1.7"),
        ('"torch>=2.11", ', '"torch>=2.11", "mine>=1", '),
        ("process: starts a process", "process: other words"),
    ],
)
def test_no_difference(written: str, instead: str) -> None:
    assert differences(THEIRS, THEIRS.replace(written, instead)) == []


@pytest.mark.parametrize("yours", ["", "no = [toml", "[tool.ruff]\n"])
def test_a_project_without_requirements_is_not_compared(yours: str) -> None:
    assert differences(THEIRS, yours) == []

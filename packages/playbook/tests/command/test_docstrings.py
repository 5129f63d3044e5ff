"""Texts of classes and arguments, as the source has them: ours, Lightning's, and torch's, which are put together."""

import inspect
from pathlib import Path

import pytest
import torch

from playbook.command import docstrings, signatures
from playbook.command.signatures import Definition

SOURCE = '''
NUMBER = 3
SHARED = "shared: told in one place."

class Base:
    """A base
    of two lines.

    Args:
        size: width in pixels,
            at least 1.
        rate (float, optional): a share (of what: see below), in (0, 1). (default: 0.1)
        left: what nobody overrides.

    Raises:
        ValueError: no argument.
    """

class Child(Base):
    """A child. And more.

    Args:
        size: of the child, as :class:`~torch.nn.Module` has it; ``x`` too.
        **options: further options.
    """

class Inner:
    def __init__(self, depth):
        """Makes it.

        Args:
            depth: number of layers.

        Returns:
            nothing.
        """

class Late: ...

Late.__doc__ = r"""Set later.

    Args:
        """ + SHARED + rf"""
        count: up to {NUMBER}
    """
'''


@pytest.fixture
def found(workdir: Path, monkeypatch: pytest.MonkeyPatch):
    (workdir / "texts.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(workdir)

    def find(path: str) -> Definition:
        definition = signatures.find(path)
        assert definition is not None, path
        return definition

    return find


def test_texts_of_arguments(found) -> None:
    assert docstrings.argument_texts(found("texts.Base")) == {
        "size": "width in pixels, at least 1.",
        "rate": "a share (of what: see below), in (0, 1). (default: 0.1)",
        "left": "what nobody overrides.",
    }
    assert docstrings.argument_texts(found("texts.Inner")) == {"depth": "number of layers."}


def test_the_nearest_text_counts(found) -> None:
    texts = docstrings.argument_texts(found("texts.Child"))
    assert texts["size"] == "of the child, as torch.nn.Module has it; `x` too."
    assert texts["left"] == "what nobody overrides."
    assert texts["options"] == "further options."


def test_a_docstring_that_is_set_later(found) -> None:
    assert docstrings.summary(found("texts.Late")) == "Set later."
    expected = {"shared": "told in one place.", "count": "up to 3"}
    assert docstrings.argument_texts(found("texts.Late")) == expected


def test_summary_is_the_first_line_or_sentence(found) -> None:
    assert docstrings.summary(found("texts.Base")) == "A base of two lines."
    assert docstrings.summary(found("texts.Child")) == "A child. And more."
    assert docstrings.summary(found("texts.Inner")) == ""


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adagrad", "RMSprop"])
def test_torchs_optimizers_as_python_has_them(found, name: str) -> None:
    """Their docstrings are made of pieces; every text of an argument stands in the one that Python puts together."""
    whole = " ".join((inspect.getdoc(getattr(torch.optim, name)) or "").replace("``", "`").split())
    texts = docstrings.argument_texts(found(f"torch.optim.{name}"))
    assert {"params", "lr", "weight_decay", "foreach", "maximize"} <= texts.keys()
    assert all(text in whole for name, text in texts.items() if name in ("params", "lr", "weight_decay", "foreach"))

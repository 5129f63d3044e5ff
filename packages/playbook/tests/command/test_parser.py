"""What the command line takes from the inside of jsonargparse and argparse is there, and is taken in one file alone."""

import ast
from argparse import ArgumentError
from enum import Enum
from typing import Any

import jsonargparse
import jsonargparse._signatures as signatures
import jsonargparse._typehints as typehints
import pytest
from jsonargparse import _util
from lightning.pytorch.strategies import Strategy
from torch import nn

from playbook.command import arguments, parser
from playbook.command.rejected import rejected_option
from playbook.testing.command import model_verb
from running import ROOT

FILE = ROOT / "playbook/command/parser.py"
# name, where it is, and what it is used for
USES: list[tuple[str, Any, str]] = [
    ("resolve_class_path_by_name", typehints, "short names that mean the project's classes first"),
    ("adapt_partial_callable_class", typehints, "no function where a class is expected"),
    ("adapt_class_type", typehints, "factories that are partials of their class"),
    ("get_signature_parameters", signatures, "factories in place of optimizers"),
    ("sort_subtypes_for_union", typehints, "integers that stay integers in a union with floats"),
    ("extra_help", typehints.ActionTypeHint, "no list of all imported classes in the help of an option"),
    ("import_object", _util, "the class that a class path names"),
    ("_option_string_actions", jsonargparse.ArgumentParser(), "the nearest option to a misspelt one"),
]


@pytest.mark.parametrize(("name", "owner", "purpose"), USES, ids=[name for name, _, _ in USES])
def test_name_is_there(name: str, owner: Any, purpose: str) -> None:
    assert hasattr(owner, name), f"{name} is gone from jsonargparse {jsonargparse.__version__}; used for {purpose}"
    assert name in FILE.read_text(encoding="utf-8"), f"{name} is no longer used; take it out of this list"


@pytest.mark.slow
def test_no_other_file_takes_private_names_of_jsonargparse() -> None:
    strays = []
    for file in (ROOT / "playbook").rglob("*.py"):
        if file == FILE:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += (
                [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            )
            private = [name for name in modules if name.startswith("jsonargparse.") and "._" in name]
            strays += [f"{file.relative_to(ROOT)}: {name}" for name in private]
    assert not strays


def test_short_names_mean_our_classes() -> None:
    parser.prepare()
    assert typehints.resolve_class_path_by_name(nn.Module, "MLP") == "example.nets.mlp.MLP"
    assert typehints.resolve_class_path_by_name(nn.Module, "torch.nn.ReLU") == "torch.nn.ReLU"


@pytest.mark.parametrize("kind", [int | float | None, float | int | None, float | str | int])
def test_a_whole_number_is_no_float(kind: Any) -> None:
    """Whichever the union names first; typing does not keep the order."""
    parser.prepare()
    options = jsonargparse.ArgumentParser()
    options.add_argument("--limit", type=kind)
    for text, expected in (("1", 1), ("1.0", 1.0), ("0.5", 0.5)):
        limit = options.parse_args([f"--limit={text}"]).limit
        assert (limit, type(limit)) == (expected, type(expected))


@pytest.mark.parametrize("kind", [str | Strategy, Strategy | str | None])
def test_the_name_of_a_class_of_ours_is_more_than_text(kind: Any) -> None:
    parser.prepare()
    options = jsonargparse.ArgumentParser()
    options.add_argument("--strategy", type=kind)
    assert options.parse_args(["--strategy=ddp"]).strategy == "ddp"
    sharded = options.parse_args(["--strategy=ShardedStrategy", "--strategy.tensor_parallel_size=2"]).strategy
    assert sharded.class_path == "playbook.checkpoints.sharded.ShardedStrategy"
    assert sharded.init_args.tensor_parallel_size == 2


def test_help_names_no_imported_classes() -> None:
    parser.prepare()
    options = jsonargparse.ArgumentParser()
    options.add_argument("--net", type=nn.Module, help="maps the inputs")
    assert "maps the inputs" in options.format_help()
    assert "known subclasses" not in options.format_help()


def test_option_names_have_no_dashes() -> None:
    options = jsonargparse.ArgumentParser()
    options.add_argument("--size.width", type=int)
    assert "size.width" in parser.option_names(options)


class Speed(Enum):
    FAST = "fast"
    SLOW = "slow"


def test_members_of_an_enum_are_listed() -> None:
    options = jsonargparse.ArgumentParser(exit_on_error=False)
    options.add_argument("--speed", type=Speed)
    with pytest.raises(ArgumentError) as failure:
        options.parse_args(["--speed", "slow"])
    text = rejected_option(str(failure.value), arguments.read(model_verb("fit"), ["--speed", "slow"]))
    assert text == "--speed: expected one of FAST, SLOW, got slow"

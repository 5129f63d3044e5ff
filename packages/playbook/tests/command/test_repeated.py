"""Options that are given twice."""

import pytest

from playbook.command.repeated import unused
from playbook.testing.command import Cli


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        ("--input a --input b", ["--input a: not used, as --input b follows"]),
        ("--input=a --data.root x --input b", ["--input a: not used, as --input b follows"]),
        ("--batch 1 --batch 2 --batch 3", [f"--batch {n}: not used, as --batch 3 follows" for n in (1, 2)]),
        ("--input a --input=a --watch --watch", []),
        ("--config a.yaml --config b.yaml", []),
        ("--trainer.max_epochs 1 --trainer.max_epochs 2", []),  # overrides what a script has set
        ("stray --input a", []),
    ],
)
def test_what_is_not_used(args: str, lines: list[str]) -> None:
    """viash-io/viash#191."""
    assert unused(args.split()) == lines


def test_it_is_said_once(cli: Cli) -> None:
    done = cli("fit", "--model", "Classification", "--run_dir", "a", "--run_dir", "b", "--print_config")
    assert done.err.startswith("warning: --run_dir a: not used, as --run_dir b follows\n")

"""Which values a type admits, against what the parser makes of them."""

import itertools
from argparse import ArgumentError
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest
import yaml
from jsonargparse import ArgumentParser

from playbook.command.annotations import admits_none, class_names, plain_type
from playbook.command.signatures import Parameter, signature

TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "int | None": int | None,
    "Optional[float]": Optional[float],  # noqa: UP045  # as many libraries write it
    "Union[int, float]": Union[int, float],  # noqa: UP007
    "int | bool": int | bool,
    "'int | str'": int | str,
    "Literal['min', 'max']": Literal["min", "max"],
    "Literal[64, '16', True] | None": Literal[64, "16", True] | None,
    "Mode": Literal["min", "max"],
    "Literal[True, False, 'all']": Literal[True, False, "all"],
    "Sequence[int]": Sequence[int],
    "list[float] | None": list[float] | None,
    "list[str]": list[str],
    "Iterable[bool]": Iterable[bool],
    "list[list[int]]": list[list[int]],
    "Union[list[int], str, int]": Union[list[int], str, int],  # noqa: UP007
}
VALUES = [
    *("3", "3.0", "3.5", "1e3", "1e-3", "-5", "+3", "010", "0x10", "1_000", "1:30", "1.", "0", ".5", "64", "16"),
    *("inf", ".inf", "nan", "yes", "true", "True", "TRUE", "off", "null", "None", "~", "'3'", '"3"', "2026-11-23"),
    *("abc", "min", "max", "all", "a.yaml", "a/b", "${x}", "2026-13-45", "{a}"),
    *("[]", "[1,2]", "[1.5]", "[a]", "[a,b]", "[[1],[2]]", "[true]"),
]
MODULE = """
from typing import Any, Callable, Literal, Optional, Union
from collections.abc import Iterable, Sequence
from pathlib import Path
import torch
from torch import Tensor, nn
Mode = Literal["min", "max"]
Loop = Loop
Factory = Callable[[Iterable], object]
class bool: ...
class Takes:
    def __init__(self, value: {}, other=1): ...
"""


@pytest.fixture
def parameter(workdir: Path) -> Callable[..., Parameter]:
    """Makes an annotation that of a class's first argument, in a file of its own."""
    count = itertools.count()

    def write(annotation: str, module: str = MODULE.replace("class bool: ...\n", "")) -> Parameter:
        name = f"takes_{next(count)}"
        (workdir / f"{name}.py").write_text(module.format(annotation))
        found = signature(f"{name}.Takes")
        assert found is not None
        return found.parameters["value"]

    return write


@pytest.mark.parametrize("annotation", TYPES)
def test_what_is_refused_the_parser_refuses(parameter: Callable[..., Parameter], annotation: str) -> None:
    plain = plain_type(parameter(annotation))
    assert plain is not None
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--x", type=TYPES[annotation])
    parser.add_argument("--config", action="config")
    refused = 0
    for text in VALUES:
        values = [([f"--x={text}"], yaml.compose(text))]
        if text != "${x}":  # which is no value of a mapping
            mapping = yaml.compose(f"{{x: {text}}}")
            assert isinstance(mapping, yaml.MappingNode)
            values.append((["--config", f"{{x: {text}}}"], mapping.value[0][1]))
        for args, node in values:
            assert node is not None
            if not plain.admits(node):
                refused += 1
                with pytest.raises(ArgumentError):
                    parser.parse_args(args)
    assert refused > 30 or "str" in plain.names, f"only {refused} of {2 * len(VALUES)} values are refused"


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        ("int", "many", "an integer"),
        ("float", "many", "a number"),
        ("int | float", "many", "a number"),
        ("bool", "maybe", "true or false"),
        ("int | bool", "maybe", "an integer or true or false"),
        ("Mode", "up", "one of min, max"),
        ("Literal[64, '16', '16'] | Literal[True]", "up", "one of 64, 16, True"),
        ("Sequence[int]", "3", "a sequence"),
        ("list[int]", "[1, a]", "a list of integers"),
        ("list[Literal['a', 'b']]", "[1, a]", "a list"),
        ("list[float] | None", "[1, a]", "a list of numbers"),
        ("Union[float, Tensor]", "fast", "a number"),
        ("Optional['int']", "1.5", "an integer"),
    ],
)
def test_what_is_expected(parameter: Callable[..., Parameter], annotation: str, value: str, expected: str) -> None:
    plain, node = plain_type(parameter(annotation)), yaml.compose(value)
    assert plain is not None
    assert node is not None
    assert not plain.admits(node)
    assert plain.describe(node) == expected


@pytest.mark.parametrize("value", ["1e-3", "torch.ones", "null"])
def test_a_tensor_may_be_named(parameter: Callable[..., Parameter], value: str) -> None:
    plain, node = plain_type(parameter("Union[float, Tensor]")), yaml.compose(value)
    assert plain is not None
    assert node is not None
    assert plain.admits(node)


@pytest.mark.parametrize(
    "annotation",
    [
        *("Any", "nn.Module", "dict[str, int]", "tuple[int, int]", "list", "int | Path", "list[Path]", "Literal[Mode]"),
        *("Loop", "Factory", "Tensor", "None", "1 + 1", "'1 +'", "list[int] | list[str]", "NoSuch", "type[int]"),
    ],
)
def test_left_to_the_parser(parameter: Callable[..., Parameter], annotation: str) -> None:
    assert plain_type(parameter(annotation)) is None


def test_without_annotation_or_with_a_name_of_its_own(parameter: Callable[..., Parameter]) -> None:
    assert plain_type(replace(parameter("int"), annotation=None)) is None
    assert plain_type(parameter("bool", MODULE)) is None


@pytest.mark.parametrize(
    ("annotation", "names", "admits_text"),
    [
        ("nn.Module", ["Module"], False),
        ("Optional[torch.nn.Module]", ["Module"], False),
        ("'nn.Module | None'", ["Module"], False),
        ("Factory | None", ["Factory"], False),
        ("Union[list[Callback], Callback, None]", ["Callback", "Callback"], False),
        ("Logger | Iterable[Logger] | bool | None", ["Logger", "Logger", "bool"], True),
        ("Union[str, Profiler]", ["str", "Profiler"], True),
        ("type[nn.Module]", [], True),
        ("Callable[..., nn.Module]", [], True),
    ],
)
def test_names_of_classes(
    parameter: Callable[..., Parameter], annotation: str, names: list[str], admits_text: bool
) -> None:
    assert class_names(parameter(annotation)) == (names, admits_text)


@pytest.mark.parametrize(
    ("annotation", "expected"), [("int", False), ("int | None", True), ("Optional[int]", True), ("nn.Module", False)]
)
def test_none(parameter: Callable[..., Parameter], annotation: str, expected: bool) -> None:
    assert admits_none(parameter(annotation)) is expected
    assert admits_none(replace(parameter(annotation), annotation=None))

"""The options of a command that hold classes: the class of each, where it is set, and what is wrong with it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from playbook.command import signatures
from playbook.command.signatures import Signature


@dataclass(frozen=True)
class Place:
    """Where a value is written: a line of a file, or the command line."""

    file: Path | None = None
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file.as_posix()}:{self.line}: " if self.file is not None else ""

    @property
    def folder(self) -> Path:
        """What paths in a value are relative to."""
        return self.file.parent if self.file is not None else Path()

    def at(self, node: yaml.Node) -> "Place":
        """Of a node in the same file."""
        return Place(self.file, node.start_mark.line + 1) if self.file is not None else self


@dataclass
class Finding:
    """Something wrong with one option.

    Args:
        rank: findings are reported in the order in which they were met.
        text: what follows the place.
        parent: dotted name of what has no such option, with a dot at its end.
        keys: of an option that does not exist, below its parent, for which the nearest are looked up in the end.
        accepted: what the parent takes in its place.
    """

    rank: int
    place: Place
    text: str
    parent: str = ""
    keys: str = ""
    accepted: list[str] = field(default_factory=list)


class Slot:
    """An option that holds a class, with its settings in the command so far.

    Args:
        path: dotted, as on the command line, without init_args.
        kind: of class: task, data, net, optimizer, …; empty if any.
        class_path: of a class that never changes, whose options stand directly below, as the Trainer's do.
    """

    def __init__(self, path: str, kind: str = "", class_path: str | None = None) -> None:
        self.path = path
        self.kind = kind
        self.is_fixed = class_path is not None
        self.signature = signatures.signature(class_path) if class_path else None
        self.children: dict[str, Slot] = {}
        self.elements: list[Slot] = []  # of children that are lists
        self.findings: dict[str, Finding] = {}
        self.assigned: set[str] = set()
        self.is_opaque = False  # whether it holds what is not followed here
        self.is_replaced = False  # whether it held another class before, whose arguments it may keep
        self.orphan = ""  # an option of the class, while nothing has named the class
        self.place = Place()

    @property
    def section(self) -> str:
        """The first word of its path: model, data or trainer."""
        return self.path.partition(".")[0]

    def slots(self) -> Iterator["Slot"]:
        """This one and all below it."""
        yield self
        for child in [*self.children.values(), *self.elements]:
            yield from child.slots()

    def transparent_slots(self) -> Iterator["Slot"]:
        """Those of which everything that the command says was followed."""
        if not self.is_opaque:
            yield self
            for child in [*self.children.values(), *self.elements]:
                yield from child.transparent_slots()

    def choose(self, chosen: Signature | None) -> None:
        """Takes another class: what was said of the former one no longer counts."""
        if self.signature is None or chosen is None or chosen.class_path != self.signature.class_path:
            self.is_replaced |= self.signature is not None
            self.children.clear()
            self.elements.clear()
            self.findings.clear()
        self.signature = chosen
        self.orphan = ""

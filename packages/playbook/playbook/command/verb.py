"""The base classes of verbs, each of which is one object in one file of `playbook/verbs/`. Imports no torch."""

import inspect
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Literal

PLACE = "playbook.verbs"  # the package that holds them, one a file


class PlainVerb:
    """A verb that needs no model, and runs before torch is imported.

    Attributes:
        name: its name after `python -m src`.
        summary: one sentence for the help.
        examples: arguments of commands that the help shows.
    """

    name: str
    summary: str
    examples: tuple[str, ...] = ()

    def answer(self, args: list[str]) -> int:
        """Runs the command.

        Args:
            args: what follows the verb.

        Returns:
            The exit code.
        """
        raise NotImplementedError


class ModelVerb:
    """A verb that runs a model. Its own options are the parameters of `run` after the session, with their texts.

    Methods get an Invocation (arguments.py) before, and a Session (session.py) once the configuration is parsed.

    Attributes:
        name: its name after `python -m src`.
        summary: one sentence for the help.
        examples: arguments of commands that the help shows.
        common: further options that the short help shows, with their texts.
        checkpoint: whether it needs one (required), takes one (optional), or starts or resumes a run (continued).
        uses_loggers: whether it logs to the loggers of the configuration.
        reports: whether it has the option --format, whose value `terminal` alone is for people.
    """

    name: str
    summary: str
    examples: tuple[str, ...] = ()
    common: Mapping[str, str] = MappingProxyType({})
    checkpoint: Literal["required", "optional", "continued"] = "required"
    uses_loggers: bool = False
    reports: bool = False

    @property
    def lacks_checkpoint(self) -> str:
        """What to say where a verb that requires a checkpoint gets none."""
        return f"--ckpt_path: {self.name} needs one: best, last, a run directory or a checkpoint file"

    def num_own(self, args: list[str]) -> int:
        """How many of the arguments are for the verb; those after them belong to a program that it runs."""
        return len(args)

    def first(self, args: list[str]) -> int | list[str]:
        """Answers before torch is imported, with an exit code; or returns the arguments to go on with."""
        return args

    def prepare(self, invocation: Any) -> None:
        """Sets what must be set before torch is imported."""

    def before_build(self, session: Any) -> None:
        """Looks at the configuration before anything is made of it.

        Raises:
            Finished: there is nothing left to do.
        """

    def build_failed(self, session: Any, error: Exception) -> int | None:
        """The exit code where a failure to build the model is the answer; None lets the error go on."""

    def after_build(self, session: Any) -> None:
        """Follows when model, data and trainer are there."""

    def callbacks(self, session: Any) -> list[Any]:
        """What accompanies this verb, beside what accompanies every training."""
        return []

    def run(self, session: Any, **options: Any) -> int | None:
        """Does it; returns the exit code, none for 0."""
        raise NotImplementedError


Verb = PlainVerb | ModelVerb


class Finished(Exception):  # noqa: N818  # no error: a requeued job repeats its command until it is done
    """There is nothing left to do, which a line says."""


@cache
def verbs() -> dict[str, Verb]:
    """All verbs by name: the one object of that kind in each file of `playbook/verbs/`."""
    entries: list[tuple[int, str, Verb]] = []
    for info in iter_modules(import_module(PLACE).__path__):
        module = import_module(f"{PLACE}.{info.name}")
        own = [value for value in vars(module).values() if isinstance(value, Verb)]
        assert len(own) == 1, f"{info.name}: expected one verb, got {len(own)}"
        entries.append((getattr(module, "ORDER", 50), own[0].name, own[0]))
    return {name: verb for _, name, verb in sorted(entries, key=lambda entry: entry[:2])}


def own_options(verb: ModelVerb) -> list[tuple[str, str, str]]:
    """Options of a verb beside the common ones: name, what stands for the value, text; a flag has no value."""
    lines = " ".join((inspect.getdoc(verb.run) or "").partition("Args:")[2].partition("Returns:")[0].split())
    texts = dict(re.findall(r"(\w+): (.*?)(?=\.(?: \w+: |$))", lines))
    parameters = [parameter for name, parameter in inspect.signature(verb.run).parameters.items() if name != "session"]
    return [
        (p.name, "" if p.default is False else p.name.rpartition("_")[2].upper(), texts.get(p.name, ""))
        for p in parameters
    ]

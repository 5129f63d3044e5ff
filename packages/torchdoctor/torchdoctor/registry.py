"""All probes and all defects, as the files of probes/ declare them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import getmembers, isfunction
from pkgutil import iter_modules

from torchdoctor import evaluation, failure, probes
from torchdoctor.findings import Defect, Finding, NotLookedAt
from torchdoctor.rehearsal import Watch
from torchdoctor.subject import Subject


@dataclass(frozen=True)
class Probe:
    """One file of probes/.

    Args:
        defects: that it can find: those that it declares, or imports from another.
        light: whether it trains nothing and waits for nothing, so that others may run after it in the same process;
            its `LIGHT`, False when left out.
        at_start: whether what it finds may be gone after an epoch, as a poor initialisation is; its `AT_START`, False
            when left out.
        watch: what takes notes for it in a rehearsal, its `WATCH`, if it needs one: probes that do share the rehearsal.
        look: its one public function, which yields findings, a sentence for each thing that is as it should be, and
            what it could not have found here.
    """

    defects: tuple[Defect, ...]
    light: bool
    at_start: bool
    watch: type[Watch] | None
    look: Callable[[Subject], Iterable[Finding | str | NotLookedAt]]

    @property
    def ids(self) -> frozenset[str]:
        """Of its defects."""
        return frozenset(defect.id for defect in self.defects)


def all_probes() -> dict[str, Probe]:
    """The probes by the names of their files, in alphabetical order; all of them are imported."""
    return _probes(tuple(probes.__path__))


def all_defects() -> dict[str, Defect]:
    """The defects by their ids, in alphabetical order."""
    return _defects(tuple(probes.__path__))


@cache
def _probes(folders: tuple[str, ...]) -> dict[str, Probe]:
    return dict(sorted(_imported(folders)))


def _imported(folders: Iterable[str]) -> Iterator[tuple[str, Probe]]:
    for info in iter_modules(folders):
        module = import_module(f"{probes.__name__}.{info.name}")
        public = [
            function
            for name, function in getmembers(module, isfunction)
            if function.__module__ == module.__name__ and not name.startswith("_")
        ]
        assert len(public) == 1, f"{info.name}: expected one public function, got {len(public)}"
        defects = tuple(value for value in vars(module).values() if isinstance(value, Defect))
        light, at_start = (getattr(module, name, False) for name in ("LIGHT", "AT_START"))
        yield info.name, Probe(defects, light, at_start, getattr(module, "WATCH", None), public[0])


@cache
def _defects(folders: tuple[str, ...]) -> dict[str, Defect]:
    declared = [defect for probe in _probes(folders).values() for defect in probe.defects]
    declared += [failure.MISSING_SUPER_INIT, evaluation.GRAPH_IN_EVAL]  # of the start, and of a whole script
    defects: dict[str, Defect] = {}
    for defect in sorted(declared, key=lambda defect: defect.id):
        same = defects.setdefault(defect.id, defect)
        assert same is defect, f"{defect.id}: declared twice, {same} and {defect}; one file declares, others import it"
    for defect in defects.values():
        for consequence in defect.explains:
            assert consequence in defects, f"{defect.id}: explains {consequence}, which no probe declares"
            mutual = defect.id in defects[consequence].explains
            assert not mutual, f"{defect.id} and {consequence} explain each other: neither would be reported"
    return defects

"""All probes and all defects, as the files of probes/ declare them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages

from torchdoctor import probes
from torchdoctor.evidence.evaluation import GRAPH_IN_EVAL
from torchdoctor.evidence.failure import MISSING_SUPER_INIT
from torchdoctor.findings import Defect
from torchdoctor.probe import Probe

_chosen: dict[str, dict[str, float]] = {}  # thresholds of this process, by probe and by name


def all_probes() -> dict[str, Probe]:
    """The probes by the names of their files, in alphabetical order; all of them are imported."""
    declared = _probes(tuple(probes.__path__))
    return declared | {
        name: replace(declared[name], look=partial(declared[name].look, **thresholds))
        for name, thresholds in _chosen.items()
        if name in declared
    }


def choose_thresholds(chosen: dict[str, dict[str, float]]) -> None:
    """Sets the thresholds of the probes that this process gets from here on, by probe and by name."""
    _chosen.clear()
    _chosen.update(chosen)


def all_defects() -> dict[str, Defect]:
    """The defects by their ids, in alphabetical order."""
    return _defects(tuple(probes.__path__))


@cache
def _probes(folders: tuple[str, ...]) -> dict[str, Probe]:
    return dict(sorted(_imported(folders)))


def _imported(folders: tuple[str, ...]) -> Iterator[tuple[str, Probe]]:
    for info in walk_packages(folders, f"{probes.__name__}."):
        if not info.ispkg:
            yield info.name.rpartition(".")[2], import_module(info.name).PROBE


@cache
def _defects(folders: tuple[str, ...]) -> dict[str, Defect]:
    declared = [defect for probe in _probes(folders).values() for defect in probe.defects]
    declared += [GRAPH_IN_EVAL, MISSING_SUPER_INIT]  # found by running a whole script, or by starting a program
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

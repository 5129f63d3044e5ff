"""Probes and defects: what their files declare is all that the machine knows of them."""

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from programs import Blobs, Classifier, needs_fork
from torchdoctor import probes
from torchdoctor.errors import ReviewError
from torchdoctor.findings import SEVERITIES, Finding, Place
from torchdoctor.formats.render import render
from torchdoctor.options import quick_ids, select_ids, set_thresholds
from torchdoctor.probes.execution.run import CRASH
from torchdoctor.registry import all_defects, all_probes
from torchdoctor.review import review_module

WIDTH = '''
"""Layers whose width is odd, and models of many layers."""

from collections.abc import Iterator

from torch import nn

from torchdoctor import source
from torchdoctor.findings import Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

ODD_WIDTH = Defect("odd-width", "advice", "Kernels are written for even numbers.", section="Performance")
DEEP = Defect(
    "deep", "warning", "Far too many.", section="Code quality", explains=("odd-width", "double-softmax"), long=True
)


def width(subject: Subject, most: int = 3) -> Iterator[Finding | str]:
    """Looks at every linear layer."""
    layers = [module for module in subject.model.modules() if isinstance(module, nn.Linear)]
    place = source.definition(type(subject.model))
    if any(layer.out_features % 2 for layer in layers):
        yield Finding(ODD_WIDTH, place, "a layer has an odd width", "nn.Linear(8, 4)")
    if len(layers) >= most:
        yield Finding(DEEP, place, f"{len(layers)} layers", "")
    else:
        yield "the model is not deep"


PROBE = Probe(look=width, defects=(ODD_WIDTH, DEEP), is_light=True)
'''
IDS = frozenset({"odd-width", "deep", "double-softmax"})


@pytest.fixture
def add_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Puts one more file beside the probes."""
    names = []

    def add(name: str, text: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(probes, "__path__", [*probes.__path__, str(tmp_path / name)])
        names.append(name)

    yield add
    set_thresholds({})
    for name in names:
        sys.modules.pop(f"{probes.__name__}.{name}", None)
        probes.__dict__.pop(name, None)


class _Softmax(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(1)


class _Deep(_Softmax):
    def __init__(self) -> None:
        super().__init__()
        self.third = torch.nn.Linear(3, 3)


class _Accepted(Classifier):  # doctor: ignore[odd-width] three classes
    pass


def test_a_new_probe_is_one_file(add_probe: Callable[[str, str], None]) -> None:
    former = set(all_defects())
    add_probe("width", WIDTH)
    assert set(all_defects()) - former == {"odd-width", "deep"}
    assert all_probes()["width"].is_light
    assert select_ids(only="odd-width,deep", severity="warning") == {"deep"}
    assert {"odd-width", "deep"} & quick_ids() == {"odd-width"}
    with pytest.raises(ReviewError, match=r"--only odd-widht: no such defect. Nearest: odd-width"):
        select_ids(only="odd-widht")


def test_thresholds_are_arguments_of_probes(add_probe: Callable[[str, str], None]) -> None:
    add_probe("width", WIDTH)
    set_thresholds({"width.most": 2.0, "dead_units.most": 0.7})
    subject: Any = SimpleNamespace(model=_Softmax())
    assert [str(said) for said in all_probes()["width"].look(subject) if not isinstance(said, Finding)] == []
    assert inspect.signature(all_probes()["dead_units"].look).parameters["most"].default == 0.7
    set_thresholds({"width.most": 4})
    assert "the model is not deep" in list(all_probes()["width"].look(subject))
    assert inspect.signature(all_probes()["dead_units"].look).parameters["most"].default == 0.6
    with pytest.raises(ReviewError, match=r"width.mots: no such threshold. Nearest: width.most"):
        set_thresholds({"width.mots": 2})


@needs_fork
@pytest.mark.slow
def test_a_new_probe_takes_part_in_a_review(add_probe: Callable[[str, str], None]) -> None:
    add_probe("width", WIDTH)
    report = review_module(lambda: (_Softmax(), Blobs()), ids=IDS)
    assert [(item["id"], item["probe"]) for item in report.findings] == [
        ("double-softmax", "loss_input"),
        ("odd-width", "width"),
    ]
    assert report.checked == ["the model is not deep"]
    lines = render(report, "terminal", "Softmax").splitlines()
    assert lines[lines.index("Performance") + 2].split()[:2] == ["advice", "odd-width"], lines
    assert '"odd-width"' in render(report, "sarif", "Softmax")
    # a cause hides its consequences, those of other files too
    assert [item["id"] for item in review_module(lambda: (_Deep(), Blobs()), ids=IDS).findings] == ["deep"]
    assert not review_module(lambda: (_Accepted(), Blobs()), ids=IDS).findings


DEFECT = """
from torchdoctor.findings import Defect
from torchdoctor.probe import Probe
FOUND = Defect("{id}", "advice", "An impact.", explains=({explains}))
def look(subject): yield "fine"
PROBE = Probe(look, (FOUND,))
"""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("crash", "")], "crash: declared twice"),
        ([("one", '"nothing",')], "one: explains nothing, which no probe declares"),
        ([("one", '"two",'), ("two", '"one",')], "one and two explain each other"),
    ],
)
def test_declarations_that_contradict_each_other(
    add_probe: Callable[[str, str], None], files: list[tuple[str, str]], message: str
) -> None:
    for number, (name, explains) in enumerate(files):
        add_probe(f"added{number}", DEFECT.format(id=name, explains=explains))
    with pytest.raises(AssertionError, match=message):
        all_defects()


def test_every_defect_has_its_words() -> None:
    for name, defect in all_defects().items():
        assert name == defect.id
        assert defect.severity in SEVERITIES, name
        assert defect.impact.endswith("."), name
    assert Finding(CRASH, Place(__file__, 1), "m", "f").as_dict()["code"].startswith('"""')


def test_severities() -> None:
    critical, warning, advice = (select_ids(severity=severity) for severity in SEVERITIES)
    assert critical < warning < advice == frozenset(all_defects())
    assert select_ids(skip="crash") == advice - {"crash"}
    with pytest.raises(ReviewError, match="--severity bad: expected one of critical, warning, advice"):
        select_ids(severity="bad")

"""What a report says of a program as a whole: its overview, its verdict, and the tests that are worth writing."""

import json
import re

import pytest

from programs import Blobs, Classifier, needs_fork
from torchdoctor.advice.tests import _TESTS, propose
from torchdoctor.formats.render import render, verdict
from torchdoctor.registry import all_defects
from torchdoctor.report import APPLIED, Report
from torchdoctor.review import review_module

RULED_OUT = ["loss-not-decreasing", "non-finite", "label-out-of-range", "bad-broadcast"]


def finding(severity: str, name: str = "bad-broadcast", **further: str) -> dict[str, object]:
    return {"id": name, "severity": severity, "file": "", "line": 0, **further}


@needs_fork
@pytest.mark.slow
def test_overview_of_a_module() -> None:
    report = review_module(lambda: (Classifier(), Blobs()))
    first, second, third = report.overview
    assert first == "Trains Classifier (387 weights) on batches of (20, 8) float32 and (20,) int64, 20 an epoch."
    pattern = r"AdamW at lr=0.001 minimises cross_entropy, 1\.\d+ on the first batch; a step takes [\d.]+ ms here\."
    assert re.fullmatch(pattern, second)
    assert third == "Validates on batches of (20, 8) float32 and (20,) int64."
    assert report.model == "model"
    assert {"batch-mixing", "unused-parameter", "label-out-of-range"} <= set(report.ruled_out)
    read = [item for item in report.advice if item["section"] != "Performance"]
    assert read == [], "the source has docstrings and type hints"
    text = render(report, "terminal", "net")
    assert first in " ".join(text.split())
    assert f"and {len(report.checked) - 10} more, which --all shows" in text
    assert "which --all shows" not in render(report, "terminal", "net", shows_all=True)
    shown = json.loads(render(report, "json", "net"))
    assert shown["overview"] == report.overview
    assert shown["checked"] == report.checked


def test_verdicts() -> None:
    several = [finding("critical"), finding("critical"), finding("warning")]
    assert verdict(Report(several)) == "Do not trust its results before the critical issues are repaired."
    assert verdict(Report([finding("critical", trial=APPLIED)], ["fine"])) == "Nothing was found; 1 checks passed."
    assert verdict(Report([finding("warning")])).startswith("Nothing critical was found; a warning may")
    assert verdict(Report()) == ""


def test_tests_for_what_was_found_come_first() -> None:
    names = [test.name for test in propose(Report([finding("critical", "stuck-in-eval")], ruled_out=RULED_OUT))]
    assert names[0] == "test_training_goes_on_in_training_mode"
    assert names[1:] == ["test_labels_are_classes", "test_one_batch_can_be_learnt", "test_the_loss_is_finite"]


def test_tests_use_the_programs_own_name() -> None:
    [test] = propose(Report([finding("critical")], model="net"))
    assert test.assertion == "assert net(x).shape == y.shape"


def test_each_proposal_is_of_a_defect_and_is_python() -> None:
    assert set(_TESTS) <= set(all_defects())
    for test in _TESTS.values():
        compile(test.assertion, test.name, "exec")

"""Every probe on a pair of programs: it finds the defect at its line in one, and nothing at all in the other."""

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

import case_files
from programs import Blobs, OneStep, needs_fork, sampled
from torchdoctor.options import quick_ids
from torchdoctor.registry import all_probes
from torchdoctor.report import Report
from torchdoctor.review import review_module

pytestmark = needs_fork
CASES = {case.name: case for case in case_files.cases()}
DEFECTIVE = [name for name, case in CASES.items() if case.defect]
CLEAN = [name for name, case in CASES.items() if not case.defect]
SAMPLE = {  # runs by default; CI runs all of them
    "double_softmax",  # seen in the calls of one step
    "parameter_not_optimized",  # in a short training
    "learning_rate_too_high",  # in longer ones
    "device_unsafe_tensor",  # in the place of tensors
    "train_val_overlap",  # in the data
    "python_loop_over_batch",  # in the source
    "clean_labels-rare_class",
}
# of a defect, all programs but the main one and its first variant
VARIANTS = {name for _, some in groupby(DEFECTIVE, key=lambda name: CASES[name].file) for name in [*some][2:]}
# what these hold may mislead a probe that trains for long; the other clean programs are spared such probes
LONG = tuple(f"clean_{theme}" for theme in ("gradients", "losses", "players", "rates", "starts"))


def reviewed(name: str, repaired: bool = False, ids: frozenset[str] | None = None) -> Report:
    """The repair of a defective case is `Repaired` in place of Model, `RepairedData` in place of Data."""
    case = CASES[name]
    model, data = case.parts(repaired)
    assert not repaired or (model, data) != case.parts(), f"{name}: nothing is repaired"
    return review_module(lambda: (model(), data()), ids=ids)


@pytest.mark.parametrize("name", sampled(DEFECTIVE, SAMPLE, weekly=VARIANTS))
def test_finds_the_defect_and_not_its_repair(name: str) -> None:
    case = CASES[name]
    ids = frozenset({case.defect})
    report = reviewed(name, ids=ids)
    assert report.findings, (name, report)
    own = [item["line"] for item in report.findings if Path(item["file"]) == case.file]
    near = [abs(line - mark) for line in own for mark in case.marks if line in case.lines]
    assert min(near, default=99) <= 3, (name, case.marks, report.findings)

    report = reviewed(name, repaired=True, ids=ids)
    assert not report.findings, (name, report)
    assert not report.notes, (name, report)


@pytest.mark.slow
def test_the_gain_of_single_precision_is_told() -> None:
    """Two results of 20 doubles and their mean, among the activations of 20 samples."""
    [finding] = reviewed("dtype_promotion", ids=frozenset({"dtype-promotion"})).findings
    assert "float32 saves 3% of the memory" in finding["message"]


@pytest.mark.slow
def test_what_is_on_the_cpu_already_is_read_for_nothing() -> None:
    [finding] = reviewed("host_sync-brought", ids=frozenset({"host-sync"})).findings
    assert finding["message"].startswith(".cpu() here")


@pytest.mark.slow
def test_samples_are_found_where_time_comes_first() -> None:
    report = reviewed("batch_mixing-time_first", repaired=True, ids=frozenset({"batch-mixing"}))
    assert "samples of a batch do not change each other's results (6 samples)" in report.checked, report


@pytest.mark.slow
def test_a_line_that_names_cuda_is_not_called_right() -> None:
    report = reviewed("clean_cuda-sent_to_cuda", ids=frozenset({"device-unsafe-tensor"}))
    assert not [text for text in report.checked if "device" in text], report
    assert any("clean_cuda.py:" in note and "names CUDA itself" in note for note in report.notes), report
    report = reviewed("clean_devices-packed", ids=frozenset({"device-unsafe-tensor"}))
    assert "every tensor of these steps follows the model to its device" in report.checked, report


@pytest.mark.slow
@pytest.mark.parametrize("repaired", [False, True])
def test_a_metric_that_counts_the_training_as_well_is_not_called_right(repaired: bool) -> None:
    report = reviewed("metric_misuse-shared", repaired, frozenset({"metric-misuse"}))
    assert ("every sample counts the same in what a validation logs" in report.checked) == repaired, report


class Masked(OneStep):
    """Weighs features by a softmax, and leaves out half of the weights afterwards; a teacher's softmax weighs none."""

    def __init__(self, masks: bool = True) -> None:
        super().__init__()
        self.scores, self.masks = nn.Linear(8, 8), masks

    def forward(self, x: Tensor) -> Tensor:
        weights = self.scores(x).softmax(1)
        if self.masks:
            weights = weights.masked_fill(torch.arange(8) > 3, 0.0)
        return self.net(x) + (weights * x).sum(1, keepdim=True)


class Distilled(OneStep):
    def step(self, batch: Any) -> Tensor:
        probabilities = self(batch[0]).softmax(1)
        return kl_div(self(batch[0].flip(0)).log_softmax(1), probabilities, reduction="batchmean")


def test_weights_that_are_masked_later_are_not_called_right() -> None:
    ids, right = frozenset({"softmax-axis"}), "softmax weights add up to 1 along the axis of their sum"
    report = review_module(lambda: (Masked(), Blobs()), ids=ids)
    assert right not in report.checked, report
    assert [note for note in report.notes if "masked after their softmax" in note], report
    assert right in review_module(lambda: (Masked(masks=False), Blobs()), ids=ids).checked


def test_a_softmax_that_weighs_nothing_is_no_attention() -> None:
    report = review_module(lambda: (Distilled(), Blobs()), ids=frozenset({"single-token-attention"}))
    assert not report.checked, report


ADVICE = (
    "dtype_promotion-small",
    "eval_nondeterminism-channel",
    "train_not_shuffled-series",
    *("unnormalized_input-before_norm", "unnormalized_input-before_relu", "unnormalized_input-bytes_before_norm"),
    "padding_leak-fixed_length",
    "parameter_not_optimized-pretrained",
    "unnormalized_input-small",
    "unused_parameter-option",
)


@pytest.mark.parametrize("name", ADVICE)
def test_what_does_no_harm_here_is_advice(name: str) -> None:
    [finding] = reviewed(name, ids=frozenset({CASES[name].defect})).findings
    assert finding["severity"] == "advice"


@pytest.mark.parametrize("name", sampled(CLEAN, SAMPLE))
def test_no_probe_alarms_where_nothing_is_wrong(name: str) -> None:
    report = reviewed(name, ids=None if name.startswith(LONG) else quick_ids())
    assert not report.findings, (name, report)
    assert not [note for note in report.notes if "Error" in note and "took more" not in note], (name, report)


def test_every_probe_has_a_case() -> None:
    defects = {case.defect for case in CASES.values()}
    assert {defect for probe in all_probes().values() for defect in probe.ids} <= defects


def test_every_program_is_a_case() -> None:
    """One whose heading is forgotten or misspelt would not run."""
    for file in sorted(case_files.FOLDER.glob("*.py")):
        text = file.read_text(encoding="utf-8")
        models, data = (
            set(re.findall(rf"^(?:class |def )?(\w*){kind}\b", text, re.MULTILINE)) for kind in ("Model", "Data")
        )
        assert {case.prefix for case in CASES.values() if case.file == file} == models & data, file.name

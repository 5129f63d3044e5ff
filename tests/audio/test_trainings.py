"""Recordings: exact resume, batches that do not fit into memory, and two processes."""

import sys
from pathlib import Path

import pytest

from playbook.testing.command import Cli
from tests.trainings import HALVES, assert_resumes_exactly, assert_same_in_halves, assert_same_in_two_processes, fit

# 60 training recordings, 4 steps an epoch
SHORT = ("--data", "Tones", "--data.num_each", "20", "--data.batch_size", "16", "--seed_everything", "1")
SHORT = (*SHORT, "--trainer.max_epochs", "2")
SEVERAL = ("--data.multilabel", "true", "--model", "MultilabelClassification", "--model.class_weights", "auto")
ONE = ("--model", "Classification")
CNN = ("--model.net", "AudioCNN", "--model.net.widths", "[4,8]")
TRANSFORMER = (
    "--model.net",
    "AudioTransformer",
    "--model.net.dim",
    "8",
    "--model.net.depth",
    "1",
    "--model.net.num_heads",
)
TRANSFORMER = (*TRANSFORMER, "2")
RUNS = {
    "cnn": (*SHORT, *ONE, *CNN),
    "transformer": (*SHORT, *ONE, *TRANSFORMER),
    "labels": (*SHORT, *SEVERAL, *TRANSFORMER),
}
METRICS = {
    "transformer": ("train/loss", "val/loss", "test/loss", "test/accuracy"),
    "labels": ("train/loss", "val/map", "test/f1", "test/macro_f1"),
}
# the norm of the spectrogram sees the parts of a batch, so these tests compare a net without any
PLAIN = ("--model.net", "tests.audio.plain.Plain")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_resumes_exactly(cli: Cli, name: str) -> None:
    assert_resumes_exactly(cli, [3, 6, 8], *RUNS[name])


@pytest.mark.slow
@pytest.mark.parametrize("task", [ONE, SEVERAL], ids=["one", "several"])
def test_batches_that_do_not_fit_into_memory(cli: Cli, task: tuple[str, ...]) -> None:
    assert_same_in_halves(cli, *SHORT, *task, *PLAIN)


@pytest.mark.slow
def test_batch_norms_see_the_parts(cli: Cli) -> None:
    out = fit(cli, "run", *RUNS["cnn"], HALVES)
    assert "out of memory with 16 samples: continuing with 2 parts of at most 8" in out
    assert "; batch norms and dropouts see the parts\n" in out


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes as torchrun does")
@pytest.mark.parametrize("name", METRICS)
def test_two_processes(workdir: Path, name: str) -> None:
    task = SEVERAL if name == "labels" else ONE
    assert_same_in_two_processes(workdir, 16, METRICS[name], *SHORT, *task, *PLAIN)

"""Metrics of torchmetrics that are imported when they are asked for, in processes of their own."""

import subprocess
import sys

import pytest

START = "from torchdoctor.running.deferred import defer_torchmetrics; defer_torchmetrics()\n"
HEAVY = "[name for name in ('torchvision', 'transformers', 'scipy') if name in sys.modules]"
WAYS = (
    "import torchmetrics; torchmetrics.__version__, torchmetrics.Accuracy, torchmetrics.functional.accuracy",
    "from torchmetrics import Metric, Accuracy; assert issubclass(Accuracy, Metric)",
    "from torchmetrics.aggregation import MeanMetric; from torchmetrics import MeanMetric as same\n"
    "assert MeanMetric is same",
    "import torchmetrics.functional.audio, pickle; pickle.dumps(torchmetrics.MeanMetric())",
    "import torchmetrics\ntry: torchmetrics.Acuracy\nexcept AttributeError as error: assert 'Acuracy' in str(error)",
)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_review_imports_little() -> None:
    assert run(f"{START}import lightning.pytorch, torchdoctor.review, sys; print({HEAVY})") == "[]"


@pytest.mark.slow
def test_every_way_to_import_a_metric() -> None:
    """In forks of a process that has imported Lightning alone."""
    code = f"""
import os, lightning.pytorch
for way in {WAYS}:
    if not (child := os.fork()):
        exec(way)
        os._exit(0)
    assert not os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), way
"""
    run(START + code)


@pytest.mark.slow
def test_a_package_that_is_imported_already_stays() -> None:
    names = "[type(finder).__module__ for finder in sys.meta_path]"
    assert "deferred" not in run(f"import torchmetrics, sys\n{START}print({names})")

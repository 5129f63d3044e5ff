"""Names of torchmetrics that are imported when they are asked for, each in a process of its own."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

START = "from playbook.lazy import import_by_name; import_by_name()\n"
HEAVY = ("torchvision", "transformers", "scipy", "matplotlib", "torchmetrics.functional.image")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_lightning_and_a_task_use_imports_little() -> None:
    code = "import lightning.pytorch.cli, sys; from torchmetrics import MeanMetric, MetricCollection\n"
    code += f"print([name for name in {HEAVY} if name in sys.modules])"
    assert run(START + code) == "[]"
    assert run(code) == str(list(HEAVY)), "without it"


def test_every_name_is_what_it_is_elsewhere() -> None:
    """Also names that need a package that is missing, which are missing then."""
    code = """
import torchmetrics, torchmetrics.functional
for package in (torchmetrics, torchmetrics.functional):
    for name in sorted(package.__all__):
        value = getattr(package, name)
        print(package.__name__, name, getattr(value, "__module__", value.__name__), getattr(value, "__qualname__", ""))
"""
    names = run(START + code)
    assert names == run(code)
    assert len(names.splitlines()) > 150


WAYS = (
    "import torchmetrics as t; t.functional.accuracy, t.__version__, t.classification.MulticlassAccuracy, t.__all__",
    "import torchmetrics.functional.audio, scipy.signal; scipy.signal.hamming",
    "import pickle, inspect, torchmetrics; pickle.dumps(torchmetrics.MeanMetric()); inspect.getsource(torchmetrics)",
    "import torchmetrics as t; m = t.MeanMetric(); m.update(2); m.plot()[1].figure.savefig(__import__('io').BytesIO())",
    "import torchmetrics\ntry: torchmetrics.Acuracy\nexcept AttributeError as error: assert 'Acuracy' in str(error)",
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a process that has imported torch")
def test_ways_to_import() -> None:
    """In one line each, in forks of a process that has not imported torchmetrics."""
    code = f"""
import os, torch, scipy.stats
for way in {WAYS}:
    if not (child := os.fork()):
        exec(way)
        os._exit(0)
    assert not os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), way
"""
    run(START + code)


def test_a_package_that_is_imported_already_stays() -> None:
    code = "import torchmetrics, sys; from playbook.lazy import import_by_name; import_by_name()\n"
    assert run(code + "print(type(sys.meta_path[0]).__name__)") != "_Finder"

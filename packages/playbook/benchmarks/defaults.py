"""Defaults that users meet, each against its alternatives: CPU time of trainings of cnn-digits.

    python packages/playbook/benchmarks/defaults.py [ROUNDS]

The net, optimizer, batch size and shifts of the recipe cnn-digits, 10 epochs, one thread, alternating, medians; raw
results go to defaults.json. `terminal` draws the progress bar, at most 10 times a second; elsewhere a line is printed
every 5 seconds. With workers, the CPU time of the main process alone counts: what is left where each worker has a core
of its own. Workers for a folder of JPEGs are measured by loaders.py; threads that wait are in LOG.md.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ["PL_GLOBAL_SEED"] = "1"

import contextlib
import io
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch

from playbook.optim.schedules import WarmupCosine
from playbook.training.trainer import Trainer
from src.data.vision.digits import Digits
from src.nets.vision.cnn import CNN
from src.tasks.classification import Classification

EPOCHS = 10
RESULTS = Path(__file__).with_suffix(".json")
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
VARIANTS = {
    "as by default": {},
    "terminal": {"on_terminal": True},
    "1 worker": {"num_workers": 1},
    "2 workers": {"num_workers": 2},
    "AdamW not fused": {"fused": False},
    "matmul precision high": {"precision": "high"},
}


class Terminal(io.StringIO):
    """Output that is dropped, as if people saw it."""

    def isatty(self) -> bool:
        return True


def seconds(on_terminal: bool = False, num_workers: int = 0, fused: bool | None = None, precision: str = "") -> float:
    """CPU time of this process for a training."""
    torch.set_float32_matmul_precision(precision or "highest")
    options = {} if fused is None else {"fused": fused}
    optimizer = partial(torch.optim.AdamW, lr=3e-3, **options)
    model = Classification(CNN(widths=[64, 128]), optimizer=optimizer, schedule=partial(WarmupCosine, warmup=0.1))
    output = Terminal() if on_terminal else io.StringIO()
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(output):
        trainer = Trainer(max_epochs=EPOCHS, run_dir=f"{folder}/run")
        trainer.fit(model, datamodule=Digits(64, num_workers=num_workers, shift=1))
    return time.process_time() - start


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds()  # imports and caches
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for name, options in list(VARIANTS.items()) * rounds:
        times[name].append(seconds(**options))
    for name, values in times.items():
        ratio = statistics.median(a / b for a, b in zip(values, times["as by default"], strict=True))
        print(f"{name:<22} {statistics.median(values):6.2f} s   {ratio:.2f} × as by default")
    RESULTS.write_text(json.dumps({"torch": torch.__version__, "cpu_seconds": times}, indent=1) + "\n")


if __name__ == "__main__":
    main()

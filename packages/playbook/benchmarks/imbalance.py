"""Class weights and balanced sampling on a long-tailed Fashion-MNIST, through the command line.

    python packages/playbook/benchmarks/imbalance.py FOLDER [SEEDS]

FOLDER holds FashionMNIST/raw. Class k keeps 5,000 × 100^(-k/9) of its 6,000 training images (Cui et al. 2019). Of these
12,409 images 30 % validate, and 31 to 3,501 a class are left to train with. The test images stay the official 1,000 a
class. One thread; 6 minutes of CPU time with 3 seeds.
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[3]  # of the template, whose recipes are measured
RECIPE = """
seed_everything: 1
model:
  class_path: Classification
  init_args:
    net: {class_path: CNN, init_args: {num_classes: 10, widths: [16, 32, 64]}}
    optimizer: {class_path: AdamW, init_args: {lr: 3e-3}}
    schedule: {class_path: WarmupCosine, init_args: {warmup: 0.1}}
    macro_accuracy: true
data:
  class_path: FashionMNIST
  init_args: {root: ., batch_size: 128, val_share: 0.3, flip: true, translate: 2}
trainer: {max_epochs: 12, accelerator: cpu, enable_progress_bar: false}
"""
VARIANTS = {
    "neither": [],
    "class_weights: auto": ["--model.class_weights", "auto"],
    "balanced: true": ["--data.balanced", "true"],
}
COLUMNS = ["val/accuracy", "val/macro_accuracy", "test/macro_accuracy", "test/loss"]


def write_long_tail(source: Path, folder: Path) -> None:
    """Copies the test images, and the first images of each class of the training images."""
    folder.mkdir(parents=True)
    content = {file.name.removesuffix(".gz"): gzip.decompress(file.read_bytes()) for file in source.glob("*.gz")}
    targets = np.frombuffer(content["train-labels-idx1-ubyte"], np.uint8, offset=8)
    counts = [round(5000 * 100 ** (-k / 9)) for k in range(10)]
    kept = np.sort(np.concatenate([np.flatnonzero(targets == k)[:count] for k, count in enumerate(counts)]))
    for kind, header, size in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
        name = f"train-{kind}-ubyte"
        rows = np.frombuffer(content[name], np.uint8, offset=header).reshape(-1, size)[kept]
        start = content[name][:4] + len(kept).to_bytes(4, "big") + content[name][8:header]
        content[name] = start + rows.tobytes()
    for name, value in content.items():
        (folder / name).write_bytes(value)


def run(folder: Path, options: list[str], seed: int) -> dict[str, float]:
    """Trains once.

    Returns:
        metrics of the last epoch and the test, and seconds of the whole command.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "src", "fit", "--config", "recipe.yaml", "--seed_everything", str(seed)]
    place = folder / f"run-{time.time_ns()}"
    started = time.perf_counter()
    result = subprocess.run(
        [*command, *options, "--run_dir", str(place)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SystemExit(result.stderr)
    metrics = json.loads((place / "metrics.json").read_text())
    return {**metrics["metrics"], **metrics["test"], "seconds": time.perf_counter() - started}


def main() -> None:
    source = Path(sys.argv[1]) / "FashionMNIST" / "raw"
    seeds = range(1, 1 + (int(sys.argv[2]) if len(sys.argv) > 2 else 3))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_long_tail(source, folder / "FashionMNIST" / "raw")
        (folder / "recipe.yaml").write_text(RECIPE)
        for variant, options in VARIANTS.items():
            results = [run(folder, options, seed) for seed in seeds]
            for column in [*COLUMNS, "seconds"]:
                values = [result[column] for result in results]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                print(f"{variant:20s} {column:20s} {statistics.mean(values):.4f} ± {spread:.4f}", flush=True)


if __name__ == "__main__":
    main()

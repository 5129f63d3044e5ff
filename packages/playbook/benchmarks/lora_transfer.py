"""LoRA, full fine-tuning, a frozen encoder and training from scratch on SST-2, through the command line.

    python packages/playbook/benchmarks/lora_transfer.py FOLDER PRETRAINED [SEEDS]

FOLDER holds sst2/ with train.tsv, dev.tsv and test.tsv; PRETRAINED is the run of configs/language/mlm-sst2.yaml. All
are trained alike but for the rate, which was chosen on dev for each. The checkpoint with the best val/accuracy is
tested. Differences are those of runs with the same seed; the error is that of their mean. One thread.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]  # of the template, whose recipes are measured
FROZEN = "[{pattern: net.*, frozen: true}, {pattern: net.head.*, frozen: false}]"


def arms(pretrained: str) -> dict[str, list[str]]:
    """Options of each way to train."""
    finetune = ["--config", str(ROOT / "configs/language/finetune-sst2.yaml"), "--data.vocabulary_of", pretrained]
    lora = ["--config", str(ROOT / "configs/language/lora-sst2.yaml"), "--data.vocabulary_of", pretrained]
    begun = ["--init_from", pretrained]
    return {
        "scratch": [*finetune, "--model.optimizer.lr", "1e-3"],
        "full": [*finetune, *begun],
        "LoRA": [*lora, "--model.net.base", pretrained],
        "frozen": [*finetune, *begun, "--model.parameter_groups", FROZEN, "--model.optimizer.lr", "3e-2"],
    }


def run(folder: Path, options: list[str], seed: int) -> tuple[float, float, float]:
    """Trains once.

    Returns:
        accuracies in per cent on dev and on test, and minutes of CPU time.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    place = folder / f"run-{time.time_ns()}"
    command = [sys.executable, "-m", "src", "fit", *options, "--seed_everything", str(seed), "--run_dir", str(place)]
    before = os.times()
    result = subprocess.run(
        [*command, "--data.root", str(folder / "sst2"), "--trainer.enable_progress_bar", "false"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SystemExit(result.stderr)
    after = os.times()
    minutes = (after.children_user + after.children_system - before.children_user - before.children_system) / 60
    metrics = json.loads((place / "metrics.json").read_text())
    return 100 * metrics["best"]["score"], 100 * metrics["test"]["test/accuracy"], minutes


def told(values: list[float]) -> str:
    """Mean ± standard deviation."""
    return f"{statistics.mean(values):6.2f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.2f}"


def main() -> None:
    data, pretrained = (str(Path(argument).resolve()) for argument in sys.argv[1:3])
    seeds = range(1, 1 + (int(sys.argv[3]) if len(sys.argv) > 3 else 5))
    dev: dict[str, list[float]] = {}
    test: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sst2").symlink_to(Path(data) / "sst2")
        for seed in seeds:
            for arm, options in arms(pretrained).items():
                on_dev, on_test, minutes = run(folder, options, seed)
                dev.setdefault(arm, []).append(on_dev)
                test.setdefault(arm, []).append(on_test)
                print(f"seed {seed} {arm:8s} dev {on_dev:.2f} test {on_test:.2f}, {minutes:.2f} CPU min", flush=True)
    for part, found in (("dev", dev), ("test", test)):
        for arm, values in found.items():
            print(f"{part:5s} {arm:20s} {told(values)}")
        for first, second in (("full", "frozen"), ("LoRA", "frozen"), ("LoRA", "full"), ("full", "scratch")):
            pairs = [a - b for a, b in zip(found[first], found[second], strict=True)]
            error = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else 0.0
            print(f"{part:5s} {f'{first} - {second}':20s} {statistics.mean(pairs):6.2f}, standard error {error:.2f}")
        gains = [statistics.mean(found[arm]) - statistics.mean(found["frozen"]) for arm in ("LoRA", "full")]
        print(f"{part:5s} LoRA keeps {gains[0] / gains[1]:.0%} of the gain over the frozen encoder", flush=True)


if __name__ == "__main__":
    main()

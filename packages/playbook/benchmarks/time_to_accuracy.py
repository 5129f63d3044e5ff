"""Time from the command to a validation result: Playbook, the way of lightning-hydra-template, a plain PyTorch loop.

    python packages/playbook/benchmarks/time_to_accuracy.py [digits|fashion|shakespeare] [ROUNDS]

Whole processes from their start, one thread, alternating; CPU and wall time, medians; raw results go to
time_to_accuracy.json. All ways have the same net, training and validation data, and take the seeds 1 to ROUNDS. Each
validates once an epoch (shakespeare: every 50 steps) and ends at the first validation that reaches the goal, without a
test. A way that has not reached it when its schedule ends counts with the time it took, and `reached` tells so. The
recipe of digits trains without its shifts, with which 0.98 takes three times as many epochs.

- `playbook`: the recipe by the command line, with its logs, checkpoints and report.
- `template`: loop and loader settings of lightning-hydra-template (Lightning's Trainer, Adam with 1e-3, metrics logged
  at every step, a DataLoader that transforms single samples, progress bar, summary, checkpoints), with our net.
- `plain`: a loop without Lightning and with the recipe's tricks: its net, optimizer and schedule, batches cut out of
  tensors.
- `nanogpt` (of shakespeare): nanoGPT's published setting for a CPU (4 layers of 128, context 64, batch 12, AdamW).

fashion and shakespeare need data/FashionMNIST/raw/*.gz and data/tinyshakespeare/input.txt.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))
RESULTS = Path(__file__).with_suffix(".json")

import torch
from time_to_accuracy_ways import PROBLEMS, WAYS


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        name, way, seed = sys.argv[2:]
        WAYS[way](name, int(seed))
        return
    names = [name for name in sys.argv[1:] if name in PROBLEMS] or list(PROBLEMS)
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 5)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        ways = ["playbook", *(way for way in WAYS if way != "nanogpt" or name == "shakespeare")]
        runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for seed in range(1, rounds + 1):
            for way in ways:
                runs[way].append(run(name, way, seed))
                print(name, way, seed, runs[way][-1], file=sys.stderr)
            results[name] = {"goal": PROBLEMS[name].goal, "torch": torch.__version__, "runs": runs}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        report(name, runs)


def report(name: str, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Prints the medians of each way."""
    plain = statistics.median(run["cpu_s"] for run in runs["plain"])
    for way, values in runs.items():
        cpu, wall, steps = (statistics.median(run[key] for run in values) for key in ("cpu_s", "wall_s", "steps"))
        reached = sum(run["reached"] for run in values)
        print(
            f"{name:<12} {way:<9} {cpu:7.1f} s CPU, {cpu / plain:.2f} × plain   {wall:7.1f} s wall   {steps:6.0f} steps"
            f"   reached {reached} of {len(values)}"
        )


def run(name: str, way: str, seed: int) -> dict[str, Any]:
    """CPU and wall time of a process and its children, the steps it took, and whether it reached the goal."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "run", name, way, str(seed)]
        if way == "playbook":
            command = fit_command(name, seed, f"{folder}/run")
        start, before = time.perf_counter(), os.times()
        environment = {**os.environ, "RUN": folder}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        wall, after = time.perf_counter() - start, os.times()
        assert done.returncode == 0, done.stdout + done.stderr
        if way == "playbook":
            metrics = json.loads(Path(folder, "run/metrics.json").read_text())
            end = {"steps": metrics["step"], "value": metrics["metrics"][PROBLEMS[name].metric]}
        else:
            end = json.loads(Path(folder, "end.json").read_text())
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    goal = PROBLEMS[name].goal
    reached = end["value"] >= goal if goal < 1 else end["value"] <= goal
    return {"seed": seed, "cpu_s": round(cpu, 2), "wall_s": round(wall, 2), **end, "reached": reached}


def fit_command(name: str, seed: int, run_dir: str) -> list[str]:
    """The recipe, ended at the goal and without its test."""
    problem, callback = PROBLEMS[name], "--trainer.callbacks"
    command = [sys.executable, "-m", "src", "fit", "--config", problem.recipe, *problem.options, "--run_dir", run_dir]
    command += ["--seed_everything", str(seed), "--trainer.limit_test_batches", "0"]
    command += [f"{callback}+=lightning.pytorch.callbacks.EarlyStopping", f"{callback}.monitor", problem.metric]
    command += [f"{callback}.mode", "max" if problem.goal < 1 else "min", f"{callback}.patience", "999"]
    return [*command, f"{callback}.stopping_threshold", str(problem.goal)]


if __name__ == "__main__":
    main()

"""Whether the first remedy of `profile` gains in a whole training what it says.

    python packages/playbook/benchmarks/remedies.py [RECIPE …]

Each recipe, with its training limited as LIMITS says so that the profile knows how long it is, is profiled once. Then
it is trained without and with the first remedy, in turn, ROUNDS times, reports left out. `gain` is the share of the
training's time that the profile expects to save, `measured` what the medians of `train_seconds` (metrics.json) show,
with the validation that the profile does not see. Results go to remedies.json beside this file.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
ROUNDS = 3
LIMITS = {
    "vision/cnn-digits": [],
    "vision/vit-fashion": ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "200"],
    "vision/unet-scenes": ["--trainer.max_epochs", "4"],
    "language/gpt-shakespeare": ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "150"],
    "vision/yolo-n-scenes": ["--trainer.max_epochs", "2"],
}
RESULTS = Path(__file__).with_suffix(".json")


def call(verb: str, recipe: str, folder: Path, *options: str) -> str:
    """Runs a verb in the root of the project; returns what it prints."""
    command = [sys.executable, "-m", "src", verb, "--config", f"configs/{recipe}.yaml", "--run_dir", str(folder)]
    environment = {**os.environ, "PLAYBOOK_REPORT": "false", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command, *LIMITS[recipe], *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def compare(recipe: str) -> dict[str, Any]:
    """Profiles a recipe, then trains it without and with the first remedy."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        profile = json.loads(call("profile", recipe, folder / "profile", "--format", "json"))
        first = profile["first"]
        if first is None:
            return {"recipe": recipe, "first": None, "step_ms": profile["steps"]["step_ms"]}
        expected = next(entry["time_factor"] for entry in profile["remedies"] if entry["options"] == first)
        seconds: dict[str, list[float]] = {"plain": [], "changed": []}
        for number in range(ROUNDS):
            for name, options in (("plain", []), ("changed", first)):
                run = folder / f"{name}-{number}"
                call("fit", recipe, run, *options)
                seconds[name].append(json.loads((run / "metrics.json").read_text())["train_seconds"])
        measured = statistics.median(seconds["changed"]) / statistics.median(seconds["plain"])
        return {
            "recipe": recipe,
            "first": " ".join(first),
            "step_ms": profile["steps"]["step_ms"],
            "gain": round(1 - expected, 3),
            "measured": round(1 - measured, 3),
            "kept": round((1 - measured) / (1 - expected), 2),
            "train_seconds": seconds,
        }


def main() -> None:
    """Prints a line for each recipe."""
    results = []
    for recipe in sys.argv[1:] or LIMITS:
        results.append(compare(recipe))
        print({name: value for name, value in results[-1].items() if name != "train_seconds"}, flush=True)
        about = {"machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores", "rounds": ROUNDS}
        RESULTS.write_text(json.dumps({**about, "results": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

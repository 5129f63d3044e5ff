"""Whether the verdict of a training names the cause that was planted, and what it costs, beside traceml-ai.

    python packages/playbook/benchmarks/verdicts.py [--traceml FOLDER[:FOLDER]] [--rounds 5] [--only NAME]

Twelve trainings of verdict_cases.py, each with one planted cause and seed 1, each in a process of its own. `--traceml`
names the folders where traceml-ai and its dependencies are installed, such as by `pip install --target`; without it,
its column is left out. Overheads are CPU time of the training process over 1,480 small steps, in runs that alternate.
The results go to verdicts.json beside this file; those of `--only` take the place of earlier ones of the same name.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from verdict_cases import CASES

HERE = Path(__file__).parent
SCRIPT = HERE / "verdict_cases.py"
STEP_MS = 10.0  # of the step whose share an overhead is given as
SMALL_STEP = "a small step"
# what ours must say: `bound_by`, or the begin of a note
EXPECTED = {
    "slow decode, 0 workers": "data",
    "slow decode, 2 workers": "data",
    "slow collate": "collate",
    "tiny kernels": "many small operators",
    "compute-bound": "computation",
    ".item() every step": "values read in every step",
    "heavy callback": "callbacks",
    "long validation": "validation",
    "checkpoint every step": "checkpoints",
    "straggling rank": "a slow rank",
    "growing memory": "growing memory",
    "bursty loader": "data in bursts",
}
# what counts as the cause in theirs; RESIDUAL-HEAVY is a class of causes, among them callbacks and validation
THEIRS = {
    "slow decode, 0 workers": {"INPUT-BOUND"},
    "slow decode, 2 workers": {"INPUT-BOUND"},
    "slow collate": {"INPUT-BOUND"},
    "bursty loader": {"INPUT-BOUND"},
    "compute-bound": {"COMPUTE-BOUND"},
    "straggling rank": {"STRAGGLER", "COMPUTE STRAGGLER"},
    "growing memory": {"MEMORY CREEP", "MEMORY RISING"},
}


def run(name: str, kind: str, folder: Path, traceml: str = "") -> None:
    """One training in a process of its own; with traceml, as its command line starts it."""
    case = [name, kind, str(folder)]
    command = [sys.executable, str(SCRIPT), *case]
    environment = dict(os.environ)
    if traceml:
        environment["PYTHONPATH"] = os.pathsep.join([traceml, environment.get("PYTHONPATH", "")])
        # fmt: off
        command = [
            sys.executable, "-m", "traceml_ai.launcher.cli", "run", str(SCRIPT), "--logs-dir", str(folder / "logs"),
            "--run-name", "run", "--nproc-per-node", str(CASES[name].processes), "--args", *case,
        ]
        # fmt: on
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"{name}, {kind}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def ours(name: str, folder: Path) -> dict[str, Any]:
    run(name, "playbook", folder)
    speed = json.loads((folder / "run/metrics.json").read_text())["speed"]
    if speed is None:
        raise SystemExit(f"{name}: the training was too short for a verdict; expected a second or more")
    said = [speed["bound_by"], *speed["notes"]]
    return {
        "verdict": speed["bound_by"],
        "advice": speed["advice"],
        "notes": speed["notes"],
        "right": _names(name, said),
    }


def _names(name: str, said: list[str]) -> bool:
    return any(text == EXPECTED[name] or text.startswith(f"{EXPECTED[name]}:") for text in said)


def theirs(name: str, folder: Path, traceml: str) -> dict[str, Any]:
    run(name, "lightning", folder, traceml)
    (path,) = folder.glob("logs/run/final_summary.json")
    summary = json.loads(path.read_text())
    verdict = summary["primary_diagnosis"]
    return {
        "verdict": verdict["status"],
        "summary": verdict["summary"],
        "advice": verdict["action"],
        "others": {part: summary[part]["diagnosis"]["status"] for part in ("system", "process", "step_memory")},
        "right": verdict["status"] in THEIRS.get(name, ()),
    }


def overheads(folder: Path, rounds: int, traceml: str) -> dict[str, list[float]]:
    """CPU milliseconds of a small step, in alternating runs."""
    ways = {"lightning": ("lightning", ""), "playbook": ("timing", "")}
    if traceml:
        ways["traceml"] = ("lightning", traceml)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, (kind, path) in ways.items():
            run(SMALL_STEP, kind, folder / f"{way}-{number}", path)
            clock = json.loads((folder / f"{way}-{number}/clock.json").read_text())
            times[way].append(clock["cpu_ms"])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traceml", default="", help="folders where traceml-ai and its dependencies are installed")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each way for the overheads; 0 leaves them out")
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    options = parser.parse_args()
    if not options.traceml:
        print("without --traceml: no column for traceml-ai", flush=True)
    earlier = HERE / "verdicts.json"
    results: dict[str, Any] = json.loads(earlier.read_text()) if options.only and earlier.exists() else {"cases": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for number, name in enumerate(name for name in EXPECTED if options.only in name):
            row = {"playbook": ours(name, Path(scratch) / f"{number}-ours")}
            if options.traceml:
                row["traceml"] = theirs(name, Path(scratch) / f"{number}-theirs", options.traceml)
            results["cases"][name] = row
            earlier.write_text(json.dumps(results, indent=1) + "\n")
            told = " | ".join(f"{one['verdict']} ({'right' if one['right'] else 'no'})" for one in row.values())
            print(f"| {name} | {told} |", flush=True)
        if options.rounds:
            times = overheads(Path(scratch), options.rounds, options.traceml)
            results["cpu_ms"] = times
            base = statistics.median(times["lightning"])
            for way, values in times.items():
                pairs = [value - plain for value, plain in zip(values, times["lightning"], strict=True)]
                extra = statistics.median(pairs)
                print(
                    f"{way:<10} {statistics.median(values):.3f} ms a step, {1e3 * extra:+.0f} µs "
                    f"({min(pairs) * 1e3:+.0f} to {max(pairs) * 1e3:+.0f}), {extra / STEP_MS:+.2%} of "
                    f"{STEP_MS:.0f} ms; base {base:.3f}",
                    flush=True,
                )
    earlier.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

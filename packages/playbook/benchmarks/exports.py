"""Size, speed and accuracy of exported runs, in a table.

    python packages/playbook/benchmarks/exports.py RUN [RUN …] [--ways onnx,onnx:int8-static,torch_export]

Each run is exported through the command line in each way: a format, and after a colon a quantization. Speeds are
medians of rounds in which eager, channels-last, compiled and exported models take turns; ratios are to eager. The
metric is the one that selects the best checkpoint, on the whole validation set. Tolerances are wide: the table shows
what a way costs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]  # of the template, whose recipes are measured
WAYS = "onnx,onnx:int8-static,onnx:int8-dynamic,onnx:int8-weight,torch_export"
HEADER = "| run | way | size | batch 1 | vs channels last | batch 32 | agree | metric before → after |"


def exported(run: str, way: str) -> dict[str, Any] | str:
    """The manifest of an export, or why there is none."""
    kind, _, quantization = way.partition(":")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "artefact"
        command = [sys.executable, "-m", "src", "export", "--ckpt_path", run, "--format", kind, "--output", str(place)]
        command += ["--quantize", quantization or "none", "--max_drop", "1", "--min_agreement", "0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip()
        return json.loads((place / "artefact.json").read_text())


def row(run: str, way: str, manifest: dict[str, Any]) -> str:
    """A line of the table."""
    times = {(entry["way"], entry["batch"]): entry["milliseconds"] for entry in manifest["speed"]}
    own = next(name for name, _ in reversed(times))
    ratios = [f"{times['eager', size] / times[own, size]:.2f}" for size in (1, 32)]
    last = times.get(("eager, channels last", 1))
    parity = manifest["parity"]
    size = sum(file["bytes"] for file in manifest["files"].values()) / manifest["eager_bytes"]
    agreement = "" if parity["agreement"] is None else f"{parity['agreement']:.2%}"
    monitor = parity["monitor"] or next(iter(parity["metrics"]), None)
    metric = "" if monitor is None else "{} {:.4g} → {:.4g}".format(monitor, *parity["metrics"][monitor])
    against = "" if last is None else f"{last / times[own, 1]:.2f}"
    cells = [Path(run).name, way, f"{size:.2f}", ratios[0], against, ratios[1], agreement, metric]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--ways", default=WAYS)
    options = parser.parse_args()
    print(HEADER)
    print("|" + "---|" * (HEADER.count("|") - 1))
    for run in options.runs:
        for way in options.ways.split(","):
            manifest = exported(run, way)
            print(manifest if isinstance(manifest, str) else row(run, way, manifest), flush=True)


if __name__ == "__main__":
    main()

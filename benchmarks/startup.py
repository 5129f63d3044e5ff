"""How long a command takes before it does its work.

    python benchmarks/startup.py [ROUNDS]

`list` and `--help` as whole processes; `fit` from the start of the process until everything is built and training may
begin, against a process that only imports lightning.pytorch.cli. Alternating, medians of the rounds.
"""

import statistics
import subprocess
import sys
import time

RECIPE = "configs/vision/cnn-digits.yaml"
IMPORT = "import lightning.pytorch.cli, os; os._exit(0)"
FIT = f"""
import os
from playbook.command import launch
from playbook.command.main import run

def begin(invocation, debug):
    modules = launch.import_quietly()
    modules[0].build(modules[0].open_session(invocation))
    os._exit(0)

launch.launch = begin
run(["fit", "--config", "{RECIPE}", "--run_dir", "runs/startup"], "src")
"""
COMMANDS = {
    "python -m src --help": [sys.executable, "-m", "src", "--help"],
    "python -m src list": [sys.executable, "-m", "src", "list"],
    "import lightning.pytorch.cli": [sys.executable, "-c", IMPORT],
    "fit until training begins": [sys.executable, "-c", FIT],
}


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():  # once for the disk's cache and the bytecode
        seconds(command)
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    for name, values in times.items():
        print(f"{name:<30} median {statistics.median(values):6.3f} s  (min {min(values):.3f}, max {max(values):.3f})")
    pairs = zip(times["fit until training begins"], times["import lightning.pytorch.cli"], strict=True)
    ratios = [fit / base for fit, base in pairs]
    print(f"fit / import, pair by pair: median {statistics.median(ratios):.3f} (n = {rounds})")


if __name__ == "__main__":
    main()

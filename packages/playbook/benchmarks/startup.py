"""How long a command takes before it does its work.

    python packages/playbook/benchmarks/startup.py [ROUNDS] [mistakes|compile]

With `mistakes`, instead: how long it takes until wrong options are told, with Python's bytecode at hand and without.
With `compile`: CPU time of a training of two steps with configs/trainer/compile.yaml, from the command to its end, with
an empty compile cache, once more, and without compiling; raw results go to startup.json.

`list` and `--help` as whole processes; `fit` from the start of the process until everything is built and training may
begin, against a process that only imports lightning.pytorch.cli. Alternating, medians of the rounds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMPILED = "configs/vision/mlp-digits.yaml"
RECIPE = "configs/vision/cnn-digits.yaml"
IMPORT = "import lightning.pytorch.cli, os; os._exit(0)"
FIT = f"""
import os
from playbook.command import launch
import src
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

MISTAKES = (
    "--trainer.max_epoch 3",
    "--trainer.max_epochs abc",
    "--trainer.callbacks+=EarlyStoping",
    "--checkpoint.monitr x",
    "--modle CNN",
    "--model.net CNNN",
    "--model.net.widht [3]",
    "--model.net.dropout yes",
    "--model.optimiser.lr 1e-3",
    "--model.optimizer AdmaW",
    "--data.batchsize 3",
    "--data.batch_size 1.5",
)


def seconds(command: list[str], code: int = 0, env: dict[str, str] | None = None) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **(env or {})})
    elapsed = time.perf_counter() - start
    assert done.returncode == code, done.stderr
    return elapsed


def measure_mistakes(rounds: int) -> None:
    """Prints the seconds of whole processes that end with a message."""
    bare = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": tempfile.mkdtemp()}  # as on a machine's first start
    print(f"{'':<36} {'median':>7} {'max':>7} {'without bytecode':>17}")
    for mistake in MISTAKES:
        command = [sys.executable, "-m", "src", "fit", "--config", RECIPE, *mistake.split()]
        values = [seconds(command, code=2) for _ in range(rounds)]
        cold = [seconds(command, code=2, env=bare) for _ in range(rounds)]
        print(f"{mistake:<36} {statistics.median(values):7.2f} {max(values):7.2f} {statistics.median(cold):17.2f}")


def measure_compile(rounds: int) -> None:
    """Prints the CPU time of first and second starts, each pair with a cache of its own."""
    options = ["--trainer.max_steps", "2", "--trainer.limit_val_batches", "0", "--trainer.limit_test_batches", "0"]
    times: dict[str, list[float]] = {"first start": [], "second start": [], "not compiled": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, values in times.items():
                extra = [] if name == "not compiled" else ["--config", "configs/trainer/compile.yaml"]
                command = [sys.executable, "-m", "src", "fit", "--config", COMPILED, *extra, *options]
                command += ["--run_dir", f"{folder}/{name}"]
                before = os.times()
                seconds(command, env={"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"})
                after = os.times()
                spent = after.children_user + after.children_system - before.children_user - before.children_system
                values.append(round(spent, 2))
    for name, values in times.items():
        print(f"{name:<14} median {statistics.median(values):6.2f} s of CPU time  {values}")
    Path(__file__).with_suffix(".json").write_text(json.dumps({"compile, CPU seconds": times}, indent=1) + "\n")


def main() -> None:
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 7)
    if "mistakes" in sys.argv:
        measure_mistakes(rounds)
        return
    if "compile" in sys.argv:
        measure_compile(rounds)
        return
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

"""Measures Playbook on a GPU: eleven parts, the most valuable first, within the minutes that are given.

    python packages/playbook/benchmarks/gpu.py --minutes 8
    python packages/playbook/benchmarks/gpu.py --device cpu --tiny        # tries the script without a GPU
    python packages/playbook/benchmarks/gpu.py --only gpt,attention
    python packages/playbook/benchmarks/gpu.py --list

Each part is a file of gpu_parts and runs in a process of its own. A part that fails, hangs or takes too long is ended
and keeps the figures that it had. After each part, all figures are written to gpu.json (or `--output`) with every
measured value. What the parts print, and their tracebacks, goes to a file of the same name with the suffix .log.

Ratios are of variants that alternate in one process. Nothing else should use the GPU. Needs Linux.
"""

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
FOLDERS = [str(ROOT / name) for name in (".", "packages/playbook", "packages/torchdoctor")]
sys.path[:0] = [str(Path(__file__).parent), *FOLDERS]

LEAST_S = 5.0  # no part begins with less
MACHINE_S = 60.0  # for looking at the device
PARTS = {  # by name of the file: the most seconds that it may take, and what it measures
    "loop": (60, "a step of a tiny MLP: Playbook, and plain loops with a DataLoader and with batches cut before"),
    "airbench": (60, "a step of airbench-cifar10-jpeg: Playbook, and a plain loop"),
    "gpt": (180, "GPT of 124 M parameters: tokens/s and MFU in Playbook and in nanoGPT's loop"),
    "attention": (75, "SDPA and FlexAttention at 8k and 32k tokens: time and peak memory"),
    "kernels": (45, "the Triton kernel against eager PyTorch: difference and speed"),
    "precision": (90, "a step of a ResNet-18 in fp32, TF32, bf16, fp16, channels last, with CUDA graphs"),
    "loading": (45, "batches/s of images resident on the device and of a DataLoader with workers"),
    "muon": (30, "a step of Muon with matrices batched by shape and one by one: time and launches"),
    "resume": (45, "training 6 steps, and 3 and 3 after a resume: whether weights are bitwise equal"),
    "memory": (30, "a batch that does not fit: whether training goes on with halves"),
    "review": (60, "torchdoctor on a small script: seconds and findings"),
}


@dataclass
class Outcome:
    """What came of a part."""

    status: str = "no time"  # then done, failed or out of time
    seconds: float = 0.0
    error: str | None = None
    figures: dict[str, Any] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.list:
        for name, (_, summary) in PARTS.items():
            print(f"{name:<10} {summary}")
        return 0
    start = time.monotonic()
    deadline = start + 60 * options.minutes
    _prepare(options.device)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    log = options.output.with_suffix(".log")
    log.unlink(missing_ok=True)
    options.start = "fork"
    machine = run("machine", time.monotonic() + MACHINE_S, options, log)
    if "fork" in (machine.error or ""):  # an import began to use CUDA, so that every part must import all anew
        options.start = "spawn"
        machine = run("machine", time.monotonic() + MACHINE_S, options, log)
    if machine.status != "done":
        print(f"--device {options.device}: {machine.error}; without a GPU, --device cpu --tiny tries the script")
        return 2
    results: dict[str, Any] = {"minutes": options.minutes, "is_tiny": options.tiny, **machine.figures, "parts": {}}
    print(f"{machine.figures['device']}, torch {machine.figures['torch']}, CUDA {machine.figures['cuda']}")
    for name in options.only:
        # tiny parts prove the code, also on a busy machine
        limit = deadline if options.tiny else min(deadline, time.monotonic() + PARTS[name][0])
        outcome = run(name, limit, options, log) if limit - time.monotonic() >= LEAST_S else Outcome()
        results["parts"][name] = vars(outcome)
        options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(_line(name, outcome), flush=True)
    print(f"{time.monotonic() - start:.0f} s; {options.output}")
    return int(any(part["status"] == "failed" for part in results["parts"].values()))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures Playbook on a GPU.")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all parts together [8]")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="[cuda]")
    parser.add_argument("--tiny", action="store_true", help="sizes that two CPU cores take seconds for")
    parser.add_argument("--only", default=",".join(PARTS), help="names of parts, separated by commas [all]")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"), help="[gpu.json]")
    parser.add_argument("--list", action="store_true", help="print the parts")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    for name in options.only:
        if name not in PARTS:
            parser.error(f"--only {name}: expected one of {', '.join(PARTS)}")
    return options


def _prepare(device: str) -> None:
    """Sets what is read when torch and Triton are imported, and imports what all parts need before they are forked."""
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])  # of processes they start
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # looks for GPUs without CUDA, which must not begin before a fork
    os.environ["PL_GLOBAL_SEED"] = "1"
    os.environ["PLAYBOOK_REPORT"] = "false"  # no report of each short training
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["TRITON_INTERPRET"] = "1"
    import_module("playbook.training.trainer")


def run(name: str, deadline: float, options: argparse.Namespace, log: Path) -> Outcome:
    """Runs a part in a process of its own, until it is done or its time is over."""
    context = get_context(options.start)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, name, deadline, options.device, options.tiny, log))
    start = time.monotonic()
    process.start()
    sender.close()
    outcome = Outcome(status="out of time")
    try:
        while receiver.poll(max(0.0, deadline - time.monotonic())):
            kind, *values = receiver.recv()
            if kind == "figure":
                outcome.figures[values[0]] = values[1]
            else:
                outcome.status, outcome.error = kind, *values
                break
    except EOFError:
        process.join()
        outcome.status, outcome.error = "failed", f"the process ended with code {process.exitcode}"
    finally:
        outcome.seconds = round(time.monotonic() - start, 1)
        for end in (lambda: os.killpg(process.pid or 0, signal.SIGKILL), process.kill):
            with suppress(ProcessLookupError, PermissionError):  # workers of loaders and compilers are in its group
                end()
        process.join()
    return outcome


def _work(sender: Connection, name: str, deadline: float, device: str, is_tiny: bool, log: Path) -> None:
    """The process of a part: sends its figures one by one, then how it ended."""
    os.setsid()
    with log.open("ab", buffering=0) as file:
        file.write(f"\n== {name}\n".encode())
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    try:
        from gpu_parts.measuring import Setting

        setting = Setting.of(device, is_tiny, deadline)
        for figure, value in import_module(f"gpu_parts.{name}").measure(setting):
            sender.send(("figure", figure, value))
        sender.send(("done", None))
    except BaseException as error:  # whatever it is, the other parts go on
        traceback.print_exc()
        first_line = next(iter(str(error).strip().splitlines()), "")
        sender.send(("failed", f"{type(error).__name__}: {first_line}"))


def _line(name: str, outcome: Outcome) -> str:
    """A part in the table: the figures that are one value each."""
    plain = {key: value for key, value in outcome.figures.items() if value is not None and not isinstance(value, dict)}
    words = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in plain.items()]
    if outcome.error:
        words.insert(0, outcome.error)
    return f"{name:<10} {outcome.status:<11} {outcome.seconds:6.1f} s  {'; '.join(words)}"


if __name__ == "__main__":
    sys.exit(main())

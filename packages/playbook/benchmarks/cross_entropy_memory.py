"""Peak memory and time of the loss over a large vocabulary, with all logits and with those of a chunk at a time.

    python packages/playbook/benchmarks/cross_entropy_memory.py [PLACES] [CLASSES] [FEATURES] [ROUNDS]

Forward and backward of a linear head and its cross-entropy. Each measurement is a process of its own, which reports by
how much its resident memory rose above what it held before (VmHWM, so Linux alone). One thread; alternating, medians.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

CHUNKS = (0, 1024, 256, 64)  # 0: all logits at once
PRECISIONS = ("float32", "bfloat16")


def measure(chunk: int, precision: str, num: int, num_classes: int, dim: int) -> None:
    import torch
    from torch.nn.functional import cross_entropy, linear

    from src.ops.chunked_cross_entropy import chunked_cross_entropy

    generator = torch.Generator().manual_seed(0)
    weight = (0.02 * torch.randn(num_classes, dim, generator=generator)).requires_grad_()
    features = torch.randn(num, dim, generator=generator).requires_grad_()
    target = torch.randint(num_classes, (num,), generator=generator)

    def run(count: int) -> float:
        x, y = features[:count], target[:count]
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            if chunk:
                loss = chunked_cross_entropy(x, weight, y, chunk)
            else:
                loss = cross_entropy(linear(x, weight).float(), y, reduction="sum")
        (loss / count).backward()
        return loss.item() / count

    run(8)  # libraries take their memory at the first call
    weight.grad = features.grad = None
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is from here on
    before = memory("VmRSS")
    start = time.perf_counter()
    loss = run(num)
    seconds = time.perf_counter() - start
    print(json.dumps({"mib": (memory("VmHWM") - before) / 1024, "seconds": seconds, "loss": loss}))


def memory(name: str) -> int:
    """Of this process, in KiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    given = [int(arg) for arg in sys.argv[1:]]
    num, num_classes, dim, rounds = (*given, *(4096, 32_000, 256, 3)[len(given) :])
    variants = [(chunk, precision) for precision in PRECISIONS for chunk in CHUNKS]
    results: dict[tuple[int, str], list[dict[str, float]]] = {variant: [] for variant in variants}
    for chunk, precision in variants * rounds:
        arguments = map(str, ("--measure", chunk, precision, num, num_classes, dim))
        output = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
        results[chunk, precision].append(json.loads(output.stdout))
    print(f"N {num}, V {num_classes}, D {dim}; gradients alone are {4 * dim * (num + num_classes) / 2**20:.0f} MiB")
    for (chunk, precision), runs in results.items():
        mib, seconds, loss = (statistics.median(run[name] for run in runs) for name in ("mib", "seconds", "loss"))
        name = f"chunks of {chunk}" if chunk else "all at once"
        print(f"{precision:9s} {name:15s} {mib:7.0f} MiB   {seconds:6.2f} s   loss {loss:.6f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))
    else:
        main()

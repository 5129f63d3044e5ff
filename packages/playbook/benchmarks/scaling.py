"""How training scales: over processes, with the size of checkpoints, and in memory for each strategy; on the CPU.

    python packages/playbook/benchmarks/scaling.py [processes|checkpoints|memory] [ROUNDS]

- `processes`: DDP over 1, 2 and 4 processes of one thread each, weak (as many samples a process) and strong (as many
  altogether), samples a second from the steps' median, alternating, medians.
- `checkpoints`: seconds that a checkpoint takes as the model grows, and the share of a training that saves every 20
  steps.
- `memory`: bytes a parameter of weights, gradients and optimizer that each process holds after a step.

Raw results go to scaling.json. Processes beyond the number of cores share them, so that their figures say nothing of a
machine with more.
"""

import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ["OMP_NUM_THREADS"] = "1"

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[3]
RESULTS = Path(__file__).with_suffix(".json")
RECIPE = "configs/vision/cnn-digits.yaml"
BATCH = 128
COUNTS = 1, 2, 4
STRATEGIES = ("ddp", "fsdp2")


def fit(*options: str) -> dict[str, Any]:
    """What metrics.json says of a training by the command line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "src", "fit", "--config", RECIPE, "--run_dir", f"{folder}/run"]
        command += ["--trainer.accelerator", "cpu", "--trainer.limit_val_batches", "0", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(Path(folder, "run/metrics.json").read_text())


def processes(rounds: int) -> dict[str, Any]:
    """Samples a second by kind and number of processes."""
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for count in COUNTS:
            for kind, size in {"weak": BATCH, "strong": BATCH // count}.items():
                options = ["--data.batch_size", str(size), "--trainer.max_epochs", "8", "--trainer.devices", str(count)]
                options += ["--trainer.strategy", "ddp"] if count > 1 else []
                step_ms = fit(*options)["speed"]["step_ms"]["median"]
                rates.setdefault(f"{kind} {count}", []).append(1e3 * size * count / step_ms)
    for name, values in rates.items():
        rate, base = statistics.median(values), statistics.median(rates[f"{name.split()[0]} 1"])
        print(f"{name:<10} {rate:8.0f} samples/s   {rate / base:.2f} × one process")
    return rates


def checkpoints(rounds: int) -> dict[str, Any]:
    """Milliseconds of a checkpoint by millions of parameters."""
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for width, steps in {64: 400, 256: 200, 1024: 60}.items():  # of less than a second, no shares are known
            options = ["--model.net.widths", f"[{width}, {2 * width}]", "--trainer.max_steps", str(steps)]
            options += ["--checkpoint.every_n_steps", "20", "--data.batch_size", "8"]
            metrics = fit(*options)
            share = metrics["speed"]["shares"].get("checkpoints", 0.0)
            parameters = 9 * width + 18 * width * width + 20 * width  # two 3×3 convolutions and the classifier
            ms = 1e3 * share * metrics["train_seconds"] / (steps // 20)
            times.setdefault(f"{parameters / 1e6:.1f} M", []).append((share, ms))
    for name, values in times.items():
        share, ms = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{name:<10} {ms:8.1f} ms a checkpoint, {share:.1%} of a training that saves every 20 steps")
    return times


def memory(rounds: int) -> dict[str, Any]:
    """Bytes a parameter in each process after a step of AdamW, by strategy and number of processes."""
    figures: dict[str, float] = {}
    for count in (1, 2):
        for strategy in ("auto",) if count == 1 else STRATEGIES:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "hold", strategy, str(count), folder]
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
                bytes_of_ranks = [float(path.read_text()) for path in Path(folder).glob("rank*")]
            figures[f"{strategy} {count}"] = max(bytes_of_ranks)
            print(f"{strategy:<8} {count} processes   {max(bytes_of_ranks):5.2f} bytes a parameter")
    return figures


def hold(strategy: str, count: int, folder: Path) -> None:
    """Trains a step, and writes how many bytes a parameter this process holds then."""
    sys.path.insert(0, str(ROOT))
    from lightning.pytorch import Callback, LightningModule
    from torch.utils.data import DataLoader, TensorDataset

    from playbook.training.trainer import Trainer

    class Held(Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            weights = list(pl_module.parameters())
            moments = [value for state in trainer.optimizers[0].state.values() for value in state.values()]
            tensors = [*weights, *(p.grad for p in weights if p.grad is not None), *moments]
            local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
            size = sum(tensor.numel() * tensor.element_size() for tensor in local if isinstance(tensor, torch.Tensor))
            whole = sum(weight.numel() for weight in weights)
            (folder / f"rank{trainer.global_rank}").write_text(str(size / whole))

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    kind: Any = strategy
    if strategy == "fsdp2":
        from playbook.checkpoints.sharded import ShardedStrategy

        kind = ShardedStrategy()
    trainer = Trainer(
        accelerator="cpu", devices=count, strategy=kind, max_steps=2, run_dir=False, callbacks=[Held()],
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(32, 512)), batch_size=8))


def main() -> None:
    if sys.argv[1:2] == ["hold"]:
        hold(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
        return
    kinds = {"processes": processes, "checkpoints": checkpoints, "memory": memory}
    names = [name for name in sys.argv[1:] if name in kinds] or list(kinds)
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 5)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        results[name] = kinds[name](rounds)
        RESULTS.write_text(json.dumps({**results, "torch": torch.__version__}, indent=1) + "\n")


if __name__ == "__main__":
    main()

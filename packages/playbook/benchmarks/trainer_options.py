"""What the files of configs/trainer cost and buy on a GPU: time of a training step and peak memory with each.

    python packages/playbook/benchmarks/trainer_options.py RECIPE [ROUNDS] [options of fit]

Each stack of files trains in a process of its own, through the command line. All first take their warm-up steps, and
compile if they do; then they take turns of STEPS steps each, alternating, while the others wait. `plain loop` has the
same net, loss, optimizer and batches without Lightning, under autocast to bf16. Medians over the rounds.
"""

import os
import statistics
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

WARM_UP, STEPS = 20, 20
PLAIN = "plain loop"
STACKS: dict[str, list[str]] = {
    "float32": [],
    "tf32": ["tf32"],
    "bf16": ["bf16"],
    PLAIN: ["bf16"],
    "fp16": ["fp16"],
    "bf16-true": ["bf16-true"],
    "compile": ["compile"],
    "bf16 + compile": ["bf16", "compile"],
    "bf16 + cuda-graphs": ["bf16", "cuda-graphs"],
    "bf16 + channels-last": ["bf16", "channels-last"],
    "bf16 + channels-last + compile": ["bf16", "channels-last", "compile"],
    "bf16 + activation-checkpointing": ["bf16", "activation-checkpointing"],
}
coordinator: Any = None  # the Connection to it, in a process that trains


class Turns(Callback):
    """Trains when it is told to, and reports the time."""

    steps = 0
    began = 0.0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        self.steps += 1
        if self.steps < WARM_UP or (self.steps - WARM_UP) % STEPS:
            return
        torch.cuda.synchronize()
        if self.steps == WARM_UP:
            torch.cuda.reset_peak_memory_stats()
            coordinator.send("ready")
        else:
            self.report(time.perf_counter() - self.began)
        self.wait()

    def report(self, seconds: float) -> None:
        coordinator.send((seconds / STEPS, torch.cuda.max_memory_allocated()))

    def wait(self) -> None:
        coordinator.recv()
        self.began = time.perf_counter()


class Plain(Turns):
    """After the warm-up, goes on in a loop of its own."""

    def wait(self) -> None:
        super().wait()
        while True:
            plain_steps(self.trainer, self.model)
            torch.cuda.synchronize()
            self.report(time.perf_counter() - self.began)
            super().wait()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.trainer, self.model = trainer, pl_module


def plain_steps(trainer: Trainer, model: LightningModule) -> None:
    net: Any = model.net
    net.train()
    optimizer = trainer.optimizers[0]
    loader: Any = trainer.train_dataloader
    batches = iter(())
    for _ in range(STEPS):
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        inputs, target = trainer.strategy.batch_to_device(batch)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits: Tensor = net(**inputs) if isinstance(inputs, dict) else net(inputs)
            loss = cross_entropy(
                logits.flatten(0, -2), target.flatten(), label_smoothing=getattr(model, "label_smoothing", 0.0)
            )
        loss.backward()
        if trainer.gradient_clip_val:
            clip_grad_norm_(net.parameters(), trainer.gradient_clip_val)
        optimizer.step()


def fit(name: str, recipe: str, options: list[str], connection: Connection) -> None:
    """In a process of its own."""
    import benchmarks.trainer_options as own  # of which the command line makes the callback; this one is __mp_main__

    from playbook.command.main import run

    own.coordinator = connection
    configs = [arg for file in STACKS[name] for arg in ("--config", f"configs/trainer/{file}.yaml")]
    callback = "Plain" if name == PLAIN else "Turns"
    quiet = [
        "--trainer.max_epochs=100000",
        "--trainer.check_val_every_n_epoch=100000",
        "--checkpoint.every_n_epochs=100000",
        "--trainer.enable_progress_bar=false",
        f"--trainer.callbacks+=benchmarks.trainer_options.{callback}",
        f"--run_dir=runs/options/{name.replace(' ', '')}-{os.getpid()}",
    ]
    own_precision = "--trainer.precision=32-true"  # the stacks say which
    code = run(["fit", "--config", recipe, own_precision, *configs, *quiet, *options], "src")
    connection.send(f"ended with code {code}")
    os._exit(1)


def measured(connections: dict[str, Connection], rounds: int) -> dict[str, list[tuple[float, int]]]:
    """Seconds of a step and the peak of memory of each stack that gets ready, of each round; they take turns."""
    results: dict[str, list[tuple[float, int]]] = {}
    for name, connection in connections.items():
        try:
            state = connection.recv() if wait([connection], timeout=240) else "not ready after 240 s"
        except EOFError:
            state = "died"
        if state == "ready":
            results[name] = []
        else:
            print(f"{name}: {state}")
    for name in list(results) * rounds:
        connections[name].send("go")
        results[name].append(connections[name].recv())
    return results


def main() -> None:
    recipe, *rest = sys.argv[1:]
    rounds = int(rest.pop(0)) if rest and rest[0].isdigit() else 5
    context = get_context("spawn")
    processes, connections = [], {}
    for name in STACKS:
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=fit, args=(name, recipe, rest, theirs)))  # no daemon: loaders fork
        processes[-1].start()
        theirs.close()
        connections[name] = ours
    try:
        results = measured(connections, rounds)
    finally:
        for process in processes:
            process.kill()  # before checkpoints and tests
    base = statistics.median(seconds for seconds, _ in results["float32"])
    print(f"{recipe}: {torch.cuda.get_device_name()}, torch {torch.__version__}, {rounds} rounds of {STEPS} steps")
    for name, runs in results.items():
        median = statistics.median(seconds for seconds, _ in runs)
        spread = max(seconds for seconds, _ in runs) / min(seconds for seconds, _ in runs)
        memory = max(peak for _, peak in runs) / 2**20
        cost = f"{median * 1e3:7.2f} ms   {median / base:.2f} × float32   {memory:7.0f} MiB"
        print(f"{name:<32} {cost}   max / min {spread:.2f}")


if __name__ == "__main__":
    main()

"""What a step of larger nets costs: Playbook against a plain loop with the same net, optimizer and augmentation.

    python packages/playbook/benchmarks/step_nets.py [airbench|resnet18] [ROUNDS]

- `airbench`: net, Muon, batch of 256 and augmentation of the recipe airbench-cifar10-jpeg.
- `resnet18`: torchvision's ResNet-18, SGD with momentum, batch of 32, images mirrored and moved by up to 4 pixels.

Random images of 3 × 32 × 32 pixels, one thread, alternating, medians; raw results go to step_nets.json. Playbook logs,
validates, saves checkpoints and resumes exactly as by default; the plain loop has no metrics and cuts batches from
tensors. A step is what more steps of an epoch cost, `fixed` the rest of a training of one epoch, with its validation
and checkpoints. Times are CPU time of the process, so that other programs disturb them less.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import step as step_benchmark
import torch
from gpu_parts import airbench
from gpu_parts.images import RandomImages
from gpu_parts.measuring import Setting
from torch.nn.functional import cross_entropy
from torchvision.models import resnet18

from src.tasks.classification import Classification

RESULTS = Path(__file__).with_suffix(".json")
SETTING = Setting.of("cpu", is_tiny=False, deadline=float("inf"))


class Problem(NamedTuple):
    """A net, and what it is trained with."""

    model: Callable[[], Classification]
    batch_size: int
    translate: int
    steps: tuple[int, int]  # of the two trainings whose difference is timed


def residual() -> Classification:
    optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    return Classification(resnet18(num_classes=10), optimizer=optimizer)


PROBLEMS = {
    "airbench": Problem(partial(airbench.new_model, SETTING), 256, 2, (2, 8)),
    "resnet18": Problem(residual, 32, 4, (10, 60)),
}


def plain(problem: Problem, steps: int) -> None:
    model = problem.model()
    schedule, model.schedule = model.schedule, None
    optimizer = model.configure_optimizers()
    scheduler = schedule(optimizer, steps) if schedule is not None else None  # type: ignore[call-arg]
    net = model.net.train()
    for image, target in airbench.Batches(SETTING, data_of(problem, steps)):
        optimizer.zero_grad()
        cross_entropy(net(image), target, label_smoothing=model.label_smoothing).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def playbook(problem: Problem, steps: int) -> None:
    step_benchmark.playbook(data_of(problem, steps), problem.model, uses_loaders=False, epochs=1)


def data_of(problem: Problem, steps: int) -> RandomImages:
    data = RandomImages(steps * problem.batch_size, problem.batch_size, flip=True, translate=problem.translate)
    data.setup("fit")
    return data


def main() -> None:
    names = [name for name in sys.argv[1:] if name in PROBLEMS] or list(PROBLEMS)
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 5)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        problem = PROBLEMS[name]
        few, many = problem.steps
        variants = {"plain loop": plain, "Playbook": playbook}
        times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
        for variant, train in list(variants.items()) * rounds:
            short, long = (step_benchmark.seconds(partial(train, problem), steps) for steps in problem.steps)
            step = (long - short) / (many - few)
            times[variant].append((step, short - few * step))
        ratio = statistics.median(own[0] / base[0] for own, base in zip(*reversed(times.values()), strict=True))
        for variant, values in times.items():
            step, rest = (statistics.median(column) for column in zip(*values, strict=True))
            print(f"{name:<10} {variant:<12} {1e3 * step:8.1f} ms a step, {1e3 * rest:8.0f} ms fixed")
        print(f"{name:<10} Playbook / plain loop, median of {rounds} pairs: {ratio:.3f}")
        results[name] = {"torch": torch.__version__, "steps": problem.steps, "seconds": times}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What the loop costs: steps of the MLP of mlp-digits, which are so small that a GPU waits for Python.

The modules and data of benchmarks/step.py, with batches of 64. `batches cut before` are on the device already, and its
AdamW is fused. Playbook logs and saves as by default; the timed steps are within an epoch. Wall time, not CPU time.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import step as step_benchmark
import torch
from torch.nn.functional import cross_entropy

from gpu_parts.measuring import Setting, compared
from gpu_parts.windows import Steps
from src.tasks.classification import Classification


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    steps = Steps(*setting.pick((30, 300), (2, 10)))
    data = step_benchmark.RepeatedDigits()
    data.setup("fit")
    loader, _ = step_benchmark.loaders(data)  # for the plain loop alone: the Trainer changes the loaders that it gets
    cut = [[tensor.to(setting.device) for tensor in batch] for batch in loader]
    reference = "plain loop, DataLoader"
    variants: dict[str, Callable[[], float]] = {
        reference: lambda: steps.plain(setting, loader, _step(setting, fused=None)),
        "plain loop, batches cut before": lambda: steps.plain(setting, cut, _step(setting, fused=True)),
        "Playbook": lambda: steps.playbook(setting, Classification(step_benchmark.net()), data),
        "Playbook, ordinary module and DataLoader": lambda: steps.playbook(
            setting, step_benchmark.Ordinary(logs_every_step=False), step_benchmark.loaders(data)[0]
        ),
    }
    seconds = setting.alternate(variants, rounds=setting.pick(7, 1))
    yield from compared(seconds, "µs", 1e6, reference)


def _step(setting: Setting, fused: bool | None) -> Callable[[Any], None]:
    """A step of a new net."""
    model = step_benchmark.net().to(setting.device)
    return partial(_take, setting, model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused))


def _take(setting: Setting, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
    image, target = (tensor.to(setting.device) for tensor in batch)
    optimizer.zero_grad()
    cross_entropy(model(image), target).backward()
    optimizer.step()

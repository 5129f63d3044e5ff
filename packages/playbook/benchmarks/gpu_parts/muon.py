"""A step of Muon for the hidden matrices of gpt-shakespeare-10m: batched by shape, and one by one.

One by one is the same optimizer with a group for each matrix; torch.optim.Muon, which does so too, is the third where
torch has it. Random gradients. Launches of a step are counted by torch.profiler: those of kernels on a GPU, and
operators of aten on a CPU.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from gpu_parts.measuring import Setting, compared, recipe
from playbook.optim.muon import Muon
from src.nets.language.gpt import GPT
from src.tasks.language_modelling import LanguageModelling


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    matrices = _hidden_matrices(setting)
    yield "matrices", len(matrices)
    lr = 1e-4  # the matrices hardly change from step to step
    optimizers: dict[str, torch.optim.Optimizer] = {
        "one by one": Muon([{"params": [matrix], "hidden": True} for matrix in matrices], lr=lr),
        "batched": Muon([{"params": matrices, "hidden": True}], lr=lr),
    }
    if hasattr(torch.optim, "Muon"):
        optimizers["torch.optim.Muon"] = torch.optim.Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw")
    variants = {name: partial(setting.seconds, optimizer.step) for name, optimizer in optimizers.items()}
    seconds = setting.alternate(variants, rounds=setting.pick(20, 2))
    yield from compared(seconds, "ms", 1e3, "one by one")
    for name, optimizer in optimizers.items():
        yield f"{name}, launches", _num_launches(setting, optimizer)


def _hidden_matrices(setting: Setting) -> list[Tensor]:
    """With random gradients."""
    options = recipe("language/gpt-shakespeare-10m")["model"]["init_args"]["net"]["init_args"]
    net = GPT(**{**options, **setting.pick({}, {"num_layers": 2, "dim": 48})})
    optimizer = LanguageModelling(net.to(setting.device), optimizer=Muon).configure_optimizers()
    matrices = [matrix for group in optimizer.param_groups if group["hidden"] for matrix in group["params"]]
    for matrix in matrices:
        matrix.grad = torch.randn_like(matrix)
    return matrices


def _num_launches(setting: Setting, optimizer: torch.optim.Optimizer) -> int:
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * setting.is_gpu]
    with profile(activities=activities) as profiler:
        optimizer.step()
        setting.synchronize()
    mark = "LaunchKernel" if setting.is_gpu else "aten::"  # cudaLaunchKernel, cuLaunchKernelEx, …
    return sum(event.count for event in profiler.key_averages() if mark in event.key)

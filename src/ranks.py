"""What the processes of one training tell each other."""

from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import distributed


def shard_of(trainer: Any) -> tuple[int, int]:
    """Which share of the data this process takes, and how many shares there are.

    Processes of one tensor-parallel group take the same share: they compute one forward pass together.
    """
    sharding = getattr(getattr(trainer, "strategy", None), "distributed_sampler_kwargs", None)
    if sharding is None:  # one device
        return (trainer.global_rank, trainer.world_size) if trainer is not None else (0, 1)
    return sharding["rank"], sharding["num_replicas"]


def highest(trainer: Trainer, *values: int) -> list[int]:
    """The highest of each value over all processes; every process must ask at the same place."""
    if trainer.world_size == 1:
        return list(values)
    tensor = torch.tensor(values, device=trainer.strategy.root_device)
    distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
    return tensor.tolist()


def gathered(trainer: Trainer, value: Any) -> list[Any]:
    """The value of every process, by rank; every process must ask at the same place."""
    if trainer.world_size == 1:
        return [value]
    found: list[Any] = [None] * trainer.world_size
    distributed.all_gather_object(found, value)
    return found

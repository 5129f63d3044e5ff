"""A training step that can be repeated: its batch, its random numbers, its weights, in memory or in a file."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.utils.data import DataLoader, SequentialSampler

from playbook.checkpoints.io import AtomicCheckpointIO, load
from playbook.errors import UserError
from playbook.network import restored
from playbook.processes import shard_of
from playbook.seeding import seeded
from playbook.training.hyperparameters import plain_hyperparameters
from playbook.training.lightning.position import set_epoch
from playbook.training.nonfinite.trace import Finding, trace

AUTOCAST = {"16-mixed": torch.half, "bf16-mixed": torch.bfloat16}
HALF = {"16-true": torch.half, "bf16-true": torch.bfloat16}


class Step:
    """One batch and the random numbers that its training step draws; made right before the step.

    Args:
        trainer: that runs it.
        batch: as training_step takes it.
        batch_idx: likewise.
    """

    def __init__(self, trainer: pl.Trainer, batch: Any, batch_idx: int) -> None:
        self.batch = batch
        self.batch_idx = batch_idx
        self.epoch = trainer.current_epoch
        # Python and NumPy are where ExactResume has put them; reading NumPy's state would cost 60 µs a step
        self.key = [int(os.environ.get("PL_GLOBAL_SEED", "0")), shard_of(trainer)[0], self.epoch, batch_idx]
        self.device = trainer.strategy.root_device
        self.generators = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            self.generators["cuda"] = torch.cuda.get_rng_state(self.device)
        self.precision = str(trainer.precision)

    def trace(self, module: pl.LightningModule) -> Finding:
        """Repeats the step without changing anything, and returns the first non-finite tensor."""
        autocast = AUTOCAST.get(self.precision)
        precision = torch.autocast(self.device.type, autocast) if autocast else nullcontext()
        with precision, same_random_numbers(self.key, self.generators, self.device):
            return trace(module, self.batch, self.batch_idx)

    def save(self, path: Path, module: pl.LightningModule, finding: Finding, samples: list[int] | None) -> None:
        """Writes a file that `replay` reads, and load_from_checkpoint as well.

        Args:
            path: of the file.
            module: in the state before the step.
            finding: what `trace` found.
            samples: indices of the batch's samples in the data set, if they are known.
        """
        step = {
            "batch": apply_to_collection(self.batch, Tensor, lambda tensor: tensor.detach().cpu().clone()),
            "batch_idx": self.batch_idx,
            "epoch": self.epoch,
            "key": self.key,
            "generators": self.generators,
            "precision": self.precision,
            "evaluating": [name for name, part in module.named_modules() if not part.training],
            "frozen": [name for name, parameter in module.named_parameters() if not parameter.requires_grad],
            "finding": str(finding),
            "samples": samples,
        }
        dump = {
            "pytorch-lightning_version": pl.__version__,
            "state_dict": module.state_dict(),
            module.CHECKPOINT_HYPER_PARAMS_KEY: plain_hyperparameters(module),
            "nonfinite": step,
        }
        try:
            AtomicCheckpointIO().save_checkpoint(dump, path)
        except UserError:  # a batch of a class of its own, which no file may bring back to life
            del step["batch"]
            AtomicCheckpointIO().save_checkpoint(dump, path)


def replay(path: str | Path, module: pl.LightningModule | type[pl.LightningModule]) -> Finding:
    """Repeats the step that a file of the callback NonFinite holds, and looks for the first non-finite tensor again.

    Args:
        path: `<run>/nonfinite/epoch-E-batch-B.pt`.
        module: the LightningModule, into which the weights of that step are loaded; or its class, if it saves its
            hyperparameters. It runs on its current device; random numbers differ if that is not the original one.

    Returns:
        The first non-finite tensor, as found by the callback.

    Raises:
        UserError: the file is damaged, or the batch has a class that could not be saved in it.
    """
    dump = load(Path(path))
    content = dump.get("nonfinite", {})
    if "batch" not in content:
        raise UserError(f"{Path(path).as_posix()}: contains no batch to replay")
    if isinstance(module, type):
        with restored(from_checkpoint=True):
            module = module.load_from_checkpoint(path, map_location="cpu", weights_only=True)
    module.load_state_dict(dump["state_dict"])
    for name, part in module.named_modules():
        part.training = name not in content["evaluating"]
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in content["frozen"])
    if half := HALF.get(content["precision"]):
        module.to(half)
    module.trainer = trainer = pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    set_epoch(trainer, content["epoch"])
    step = Step(trainer, move_data_to_device(content["batch"], module.device), content["batch_idx"])
    step.key, step.generators, step.precision = content["key"], content["generators"], content["precision"]
    step.device = module.device
    return step.trace(module)


def replay_command(path: Path, module: pl.LightningModule) -> str:
    """The shell command that replays a file; where a module cannot be made from it, dots stand for its arguments."""
    cls = type(module)
    argument = cls.__name__ if module.hparams else f"{cls.__name__}(...)"
    imports = f"from playbook import replay; from {cls.__module__} import {cls.__name__}"
    code = f'{imports}; print(replay("{path.as_posix()}", {argument}))'
    return f"python -c {shlex.quote(code)}"


def samples_of_batch(loader: Any, epoch: int, batch_idx: int) -> list[int] | None:
    """Indices of a batch's samples in the training set; None for loaders that shuffle in a way of their own.

    Args:
        loader: the training loader.
        epoch: counted from 0.
        batch_idx: counted from 0.
    """
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return None
    sampler, batch = loader.sampler, slice(batch_idx * loader.batch_size, (batch_idx + 1) * loader.batch_size)
    if isinstance(sampler, SequentialSampler):
        return list(sampler)[batch]
    indices_of = getattr(sampler, "samples_of_batch", None)  # as the sampler of Data has it
    return None if indices_of is None else indices_of(epoch, batch_idx)


@contextmanager
def same_random_numbers(key: list[int], states: dict[str, Tensor], device: torch.device) -> Iterator[None]:
    """Torch draws from `states`, Python and NumPy as ExactResume seeds them; all continue afterwards as before.

    Args:
        key: (seed, rank, epoch, batch).
        states: of torch's generators, `cpu` and perhaps `cuda`.
        device: that the step runs on.
    """
    on_cuda = device.type == "cuda"
    with seeded(*key), torch.random.fork_rng([device] if on_cuda else [], enabled=on_cuda):
        torch.set_rng_state(states["cpu"])
        if on_cuda and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], device)
        yield

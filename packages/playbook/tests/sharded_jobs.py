"""A small training on a mesh of processes, several times in a row: starting them takes seconds, a training none.

Started by test_sharded.py as `python -m sharded_jobs JOBS`, where JOBS is YAML; each job is a
mapping of what `train` takes. The last line it prints is what every job left, by rank.
"""

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader

from playbook.checkpoints import folders, sharded
from playbook.checkpoints.files import write_archive
from playbook.checkpoints.io import AtomicCheckpointIO
from playbook.checkpoints.sharded import ShardedStrategy
from playbook.errors import UserError


class Net(nn.Sequential):
    """A layer of it is there, and takes no part."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(7, width), nn.ReLU(), nn.Linear(width, 7), nn.LayerNorm(7))
        self.unused = nn.Linear(3, 3, bias=False)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, input: Tensor) -> Tensor:
        self.steps += 1
        return self[3](self[2](self[1](self[0](input))))


class Small(pl.LightningModule):
    """Odd sizes that no number of processes divides; two groups of parameters, one parameter without a gradient.

    Args:
        width: of the hidden layer.
    """

    def __init__(self, width: int = 10) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.is_split = False
        torch.manual_seed(0)
        self.net = Net(width)

    def configure_model(self) -> None:
        if self.device_mesh is None or self.is_split:
            return
        self.is_split = True
        tensor, data = self.device_mesh["tensor_parallel"], self.device_mesh["data_parallel"]
        if tensor.size() > 1:
            parallelize_module(self.net, tensor, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        if data.size() > 1:
            for layer in (self.net[0], self.net[2]):
                fully_shard(layer, mesh=data)
            fully_shard(self.net, mesh=data)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        # the same samples on every process, so that all layouts compute the same training
        x = torch.randn(8, 7, generator=torch.Generator().manual_seed(self.global_step))  # (B, D)
        loss = (self.net(x) - x.square()).square().mean()
        self.losses.append(loss.item())
        return loss

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.net(torch.ones(2, 7))

    def configure_optimizers(self) -> Any:
        matrices, vectors = ([p for p in self.parameters() if (p.ndim > 1) == kind] for kind in (True, False))
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        optimizer = AdamW(groups, lr=0.01)
        schedule = CosineAnnealingLR(optimizer, 50)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self) -> Any:
        return DataLoader(range(1000))  # type: ignore[arg-type]


class Planned(Net):
    """Says how its layers are split."""

    tensor_parallel: ClassVar[dict[str, str]] = {"0": "colwise", "2": "rowwise"}


class Scaled(nn.Module):
    """A loss with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 7))

    def forward(self, output: Tensor, *, target: Tensor) -> Tensor:
        return ((output - target).square() * self.weight).mean() + self.weight.square().mean()


class Plain(Small):
    """Knows nothing of devices: its net, its loss and a parameter of its own are all that it has."""

    configure_model = pl.LightningModule.configure_model

    def __init__(self, width: int = 10) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = Planned(width)
        self.loss = Scaled()
        self.shift = nn.Parameter(torch.tensor(0.1))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        x = torch.randn(8, 7, generator=torch.Generator().manual_seed(self.global_step))  # (B, D)
        share = x.chunk(self.num_shares)[self.share]
        loss = self.loss(self.net(share) + self.shift, target=share.square())
        self.losses.append(loss.item())
        return loss

    @property
    def share(self) -> int:
        return 0 if self.device_mesh is None else self.device_mesh["data_parallel"].get_local_rank()

    @property
    def num_shares(self) -> int:
        return 1 if self.device_mesh is None else self.device_mesh["data_parallel"].size()


def train(
    out: str, steps: int, ckpt: str | None = None, data: int = 0, tensor: int = 1, kind: str = "ours", **changes: Any
) -> list[float]:
    """Trains to a number of steps, saves, and returns the losses.

    Args:
        out: where the checkpoint goes.
        steps: in all, those before ckpt included.
        ckpt: what is continued.
        data: data_parallel_size; 0 is a single process without a mesh.
        tensor: tensor_parallel_size.
        kind: whose strategy: ours, or lightning's.
        changes: `module`, its class, Small by default, and its `width`; `predicts`, whether to do so twice before;
            `fails` names what goes wrong on the second process while it saves.
    """
    strategy: Any = "auto"
    if data and kind == "ours":
        strategy = ShardedStrategy(data, tensor)
    elif data:
        strategy = ModelParallelStrategy(data, tensor)
    fails = changes.pop("fails", None)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=max(1, data * tensor),
        strategy=strategy,
        max_steps=steps,
        plugins=[AtomicCheckpointIO()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    predicts = changes.pop("predicts", False)
    model = {"Small": Small, "Plain": Plain}[changes.pop("module", "Small")](**changes)
    for _ in range(2 * predicts):
        trainer.predict(model, DataLoader(range(3)))  # type: ignore[arg-type]
    trainer.fit(model, ckpt_path=ckpt, weights_only=True)
    assert not (kind == "ours" and data and trainer.predict_loop.inference_mode), "gathers into inference tensors"
    if fails:
        break_disk(fails, trainer.global_rank)
    trainer.save_checkpoint(out)
    return model.losses


def break_disk(how: str, rank: int) -> None:
    """Makes saving fail: `shards` on the second process, `rest` on the first one, `flip` on what is read back."""

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def flip(content: Any, path: Path) -> None:
        write_archive(content, path)
        path.write_bytes(path.read_bytes()[:-200] + bytes(200))

    if how == "shards" and rank == 1:
        folders.Hashed.write = fail  # type: ignore[method-assign]
    if how in ("rest", "flip"):
        sharded.write_archive = fail if how == "rest" else flip


def main() -> None:
    """Runs all jobs; a job that fails with an error of ours or of the disk leaves its text."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    left = []
    for job in json.loads(sys.argv[1]):
        try:
            left.append(train(**job))
        except (UserError, OSError) as error:
            left.append(f"{type(error).__name__}: {error}")
        finally:
            folders.Hashed.write = WRITE
            sharded.write_archive = write_archive
    found: list[Any] = [left]
    if distributed.is_initialized():
        found = [None] * distributed.get_world_size()
        distributed.all_gather_object(found, left)
        distributed.destroy_process_group()  # a thread of a group that is left may abort the exit
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        print(json.dumps(found))


WRITE = folders.Hashed.write

if __name__ == "__main__":
    main()

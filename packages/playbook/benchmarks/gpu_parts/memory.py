"""A batch that does not fit into memory: the training must go on with parts of it, and take the same steps.

On a GPU, the process may use memory midway between what a whole batch and half a batch need, as measured before. On a
CPU, the first convolution raises torch.OutOfMemoryError for more than half a batch. The net has neither dropout nor
batch norm, so that the weights are those of a training with memory enough, up to rounding.
"""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from gpu_parts.measuring import Setting
from gpu_parts.windows import CutBefore
from playbook.training.microbatches import MicroBatches
from playbook.training.trainer import Trainer as PlaybookTrainer
from src.tasks.classification import Classification

NUM_STEPS = 4


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    batch_size, width = setting.pick((1024, 64), (16, 4))
    torch.backends.cudnn.allow_tf32 = False  # whose rounding would hide a difference
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    )  # fmt: skip
    image, target = torch.randn(batch_size, 3, 32, 32), torch.arange(batch_size) % 10
    batches = [(image, target)] * NUM_STEPS
    with_memory, _ = _train(setting, copy.deepcopy(net), batches)
    callbacks: list[Callback] = []
    if setting.is_gpu:
        needs = [
            _reserved(setting, copy.deepcopy(net), image[:size], target[:size]) for size in (batch_size // 2, None)
        ]
        yield "half a batch, MiB", needs[0] / 2**20
        yield "a batch, MiB", needs[1] / 2**20
        total = torch.cuda.get_device_properties(setting.device).total_memory
        torch.cuda.set_per_process_memory_fraction(sum(needs) / 2 / total, setting.device)
    else:
        callbacks.append(_Tight(batch_size // 2))
    without, num_parts = _train(setting, copy.deepcopy(net), batches, *callbacks)
    yield "parts a batch", num_parts
    yield (
        "largest difference of weights",
        max((a - b).abs().max().item() for a, b in zip(with_memory, without, strict=True)),
    )


def _train(setting: Setting, net: nn.Module, batches: list[Any], *callbacks: Callback) -> tuple[list[Tensor], int]:
    """The weights at the end, and the number of parts that batches were done in."""
    trainer = PlaybookTrainer(
        run_dir=False, max_epochs=1, callbacks=list(callbacks), **setting.trainer_options
    )  # fmt: skip
    trainer.fit(
        Classification(net, optimizer=partial(torch.optim.SGD, lr=0.1)), DataLoader(CutBefore(batches), batch_size=None)
    )
    assert trainer.global_step == NUM_STEPS, f"expected {NUM_STEPS} steps, got {trainer.global_step}"
    callback = next(callback for callback in trainer.callbacks if isinstance(callback, MicroBatches))  # type: ignore[attr-defined]  # set by a connector
    return [parameter.detach().cpu() for parameter in net.parameters()], callback.num_parts


def _reserved(setting: Setting, net: nn.Module, image: Tensor, target: Tensor) -> int:
    """Bytes that the allocator holds for a training step."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(setting.device)
    net.to(setting.device)
    for _ in range(2):
        cross_entropy(net(image.to(setting.device)), target.to(setting.device)).backward()
    setting.synchronize()
    peak = torch.cuda.max_memory_reserved(setting.device)
    del net
    torch.cuda.empty_cache()
    return peak


class _Tight(Callback):
    """Raises as a GPU does in the first layer, for more than `limit` samples."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        layer = next(module for module in pl_module.modules() if isinstance(module, nn.Conv2d))
        layer.register_forward_hook(self._use)

    def _use(self, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        if len(inputs[0]) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")

"""A step of the recipe airbench-cifar10-jpeg in Playbook, and in a plain loop with the data on the device.

Random images of CIFAR's size, so that nothing is downloaded; the net, Muon, schedule, label smoothing, mirroring and
translation are the recipe's. Both run in bf16 autocast and channels last, with the recipe's batch and with the 1,024 of
Jordan 2024. The plain loop is written by hand after airbench94's: it draws the order and the changes of an epoch on the
device, cuts batches there and has no metrics. Its augmentation has the same functions, so that the loops are compared.
The target is a ratio of at most 1.25. Ends of epochs count.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gpu_parts.images import RandomImages
from gpu_parts.measuring import Setting, compared, recipe
from gpu_parts.windows import Steps
from playbook.data.augment import flip, translate
from playbook.optim.muon import Muon
from playbook.optim.schedules import WarmupCosine
from src.callbacks.channels_last import ChannelsLast
from src.nets.vision.airbench import Airbench
from src.tasks.classification import Classification

RECIPE = recipe("vision/airbench-cifar10-jpeg")
MODEL, DATA = RECIPE["model"]["init_args"], RECIPE["data"]["init_args"]


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    steps = Steps(*setting.pick((20, 100), (1, 3)))
    for batch_size in setting.pick((DATA["batch_size"], 1024), (16, 32)):
        data = RandomImages(setting.pick(47_500, 100), batch_size, DATA["flip"], DATA["translate"])
        data.setup("fit")
        variants = {
            "plain loop": partial(_plain, setting, steps, data),
            "Playbook": partial(_playbook, setting, steps, data),
        }
        seconds = setting.alternate(variants, rounds=setting.pick(4, 1))
        yield from compared(seconds, "ms", 1e3, "plain loop", prefix=f"batch {batch_size}: ")


def new_model(setting: Setting) -> Classification:
    options = {**MODEL["net"]["init_args"], **setting.pick({}, {"width": 4})}
    # PyYAML reads 1e-2 as text
    optimizer = partial(Muon, **{name: float(value) for name, value in MODEL["optimizer"]["init_args"].items()})
    schedule = partial(WarmupCosine, **MODEL["schedule"]["init_args"])
    return Classification(
        Airbench(**options), optimizer=optimizer, schedule=schedule, label_smoothing=MODEL["label_smoothing"]
    )


def _playbook(setting: Setting, steps: Steps, data: RandomImages) -> float:
    return steps.playbook(setting, new_model(setting), data, precision="bf16-mixed", callbacks=[ChannelsLast()])


def _plain(setting: Setting, steps: Steps, data: RandomImages) -> float:
    model = new_model(setting)
    model.schedule = None
    optimizer = model.configure_optimizers()
    schedule = WarmupCosine(optimizer, steps.skipped + steps.timed, **MODEL["schedule"]["init_args"])
    net = model.net.train().to(setting.device).to(memory_format=torch.channels_last)

    def step(batch: tuple[Tensor, Tensor]) -> None:
        image, target = batch
        with torch.autocast(setting.device.type, torch.bfloat16):
            logits = net(image.contiguous(memory_format=torch.channels_last))
            loss = cross_entropy(logits, target, label_smoothing=MODEL["label_smoothing"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    return steps.plain(setting, Batches(setting, data), step)


class Batches:
    """Batches of the images as airbench94's loader cuts them, anew in each epoch."""

    def __init__(self, setting: Setting, data: RandomImages) -> None:
        dataset: Any = data.train_set
        dataset.to(setting.device)
        self.dataset, self.batch_size, self.reach = dataset, data.batch_size, data.translate

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, targets, device = self.dataset.images, self.dataset.targets, self.dataset.images.device
        order = torch.randperm(len(images), device=device)
        moves = torch.randint(-self.reach, self.reach + 1, (2, len(images)), device=device)
        is_mirrored = torch.rand(len(images), device=device) < 0.5
        for index in order.split(self.batch_size):
            image = flip(translate(images[index], *moves[:, index]), is_mirrored[index])
            yield (image.float() - self.dataset.mean) / self.dataset.deviation, targets[index]

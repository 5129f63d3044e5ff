"""Detection: losses by plain sums, precision against COCO's own evaluation on another path."""

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn

from playbook.testing.command import UNSAVED
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from src.nets.vision.detectors import FasterRCNN, RetinaNet
from src.nets.vision.yolo import YOLO
from src.tasks.detection import Detection
from tests.tasks.scenes import K, Known, loader, samples


def test_validation_leaves_the_running_statistics_alone() -> None:
    torch.manual_seed(0)
    net = YOLO(K, in_channels=1, strides=[8])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    data = [(torch.rand(1, 32, 32), target) for _, target in samples(4)]
    Trainer(**UNSAVED).validate(Detection(net, K), loader(data), verbose=False)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.slow
def test_a_small_yolo_learns_to_find_rectangles() -> None:
    """Five by five pixels in the corner of a cell, of two classes; the last epoch finds them all."""
    torch.manual_seed(0)
    data = []
    for number in range(16):
        image = 0.3 * torch.rand(1, 32, 32)
        left, top = 8 * (number % 4), 8 * (number // 4)
        image[0, top : top + 8, left : left + 8] += 0.3 + 0.4 * (number % 2)
        box = torch.tensor([[left, top, left + 8, top + 8]], dtype=torch.float32)
        data.append((image, {"boxes": box, "labels": torch.tensor([number % 2])}))
    net = YOLO(2, in_channels=1, strides=[8], num_bins=4)
    task = Detection(net, 2, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=5e-3))
    trainer = Trainer(**UNSAVED, max_epochs=20, check_val_every_n_epoch=20, num_sanity_val_steps=0)
    trainer.fit(task, loader(data), loader(data))
    assert trainer.callback_metrics["val/map_50"] > 0.95


@pytest.mark.parametrize("net", [YOLO, RetinaNet])
@pytest.mark.slow
def test_every_net_has_the_same_contract(net: Any) -> None:
    torch.manual_seed(0)
    small: dict[str, Any] = (
        {"strides": [8]} if net is YOLO else {"backbone": "resnet18", "min_size": 32, "max_size": 32}
    )
    data = loader([(torch.rand(3, 32, 32), target) for _, target in samples(4)])
    for batch in data:
        for target in batch[1]:
            target["boxes"] = target["boxes"].clamp(max=31) / torch.tensor([4, 4, 1, 1])
    trainer = Trainer(**UNSAVED, max_epochs=1)
    task = Detection(net(num_classes=K, **small), K)
    trainer.fit(task, data, data)
    assert trainer.callback_metrics["train/loss"] > 0
    predictions: Any = trainer.predict(task, data)
    assert [set(found) for batch in predictions for found in batch] == [{"boxes", "labels", "scores"}] * 4


# the weight of a batch


def without_batch_norms(net: nn.Module) -> nn.Module:
    """Batch norms see the batch, so of a net with them a step is never the same however it is split."""
    for name, module in net.named_children():
        if isinstance(module, nn.BatchNorm2d):
            setattr(net, name, nn.Identity())
        without_batch_norms(module)
    return net


def build_detector(name: str) -> Detection:
    torch.manual_seed(0)
    nets: dict[str, Any] = {
        "known": Known,
        "yolo": lambda: YOLO(K),
        "retinanet": lambda: RetinaNet(K, "resnet18", min_size=32, max_size=32),
    }
    net = without_batch_norms(nets[name]()).double()
    return Detection(net, K, lambda p: torch.optim.SGD(p, lr=0.0), loss_weights=None)


@pytest.mark.parametrize(
    ("name", "accumulate"),
    [("known", 1), ("known", 3), ("yolo", 3), pytest.param("retinanet", 2, marks=pytest.mark.slow)],
)
def test_a_step_is_the_same_however_it_is_split(name: str, accumulate: int) -> None:
    """Images have 0 to 3 objects; the losses are means over images, whatever their number of objects."""
    images, targets = zip(*samples(11 if name == "known" else 7), strict=True)
    generator = torch.Generator().manual_seed(0)
    noise = [torch.rand(3, 96, 96, generator=generator, dtype=torch.float64) for _ in images]
    doubles = [image.double() for image in images] if name == "known" else noise
    kept = [{**target, "boxes": target["boxes"].double()} for target in targets]
    batches, large = random_split((doubles, kept), 1, accumulate)
    found = step_gradients(build_detector(name), batches, accumulate)
    assert_same_steps(found, step_gradients(build_detector(name), large, weighed=False))


def test_two_stage_detectors_are_means_over_the_proposals_of_a_batch() -> None:
    images, targets = zip(*samples(3), strict=True)
    net = FasterRCNN(K, "resnet18", min_size=64, max_size=64)
    assert Detection(net, K).weight((list(images), list(targets))) is None
    assert Detection(Known(), K).weight((list(images), list(targets))) == 3

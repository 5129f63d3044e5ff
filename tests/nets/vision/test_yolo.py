"""What every net must satisfy is in test_nets.py; here, what is particular to YOLO."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.ops import box_iou

from playbook.testing.command import sampled
from src.nets.vision.yolo import YOLO
from src.ops.assignment import task_aligned
from src.ops.detection_loss import distribution_focal_loss, varifocal_loss

Scene = tuple[list[Tensor], list[dict[str, Tensor]]]


def example(batch_size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    images, targets = scene(*[(64, 64)] * batch_size)
    return {"images": images, "targets": targets}, {"num_classes": 3, "strides": [8, 16], "num_bins": 4}


def scene(*sizes: tuple[int, int], dtype: torch.dtype = torch.float32) -> Scene:
    """Noise with two or three coloured rectangles an image, whose class is the colour."""
    generator = torch.Generator().manual_seed(0)
    images, targets = [], []
    for number, (height, width) in enumerate(sizes):
        image = 0.5 * torch.rand(3, height, width, generator=generator, dtype=dtype)
        corners = [(2, 4, 30, 26), (34, 28, 60, 62), (36, 2, 52, 20)][: 3 - number % 2]
        labels = [(number + i) % 3 for i in range(len(corners))]
        for (left, top, right, bottom), label in zip(corners, labels, strict=True):
            image[label, top:bottom, left:right] += 0.5
        images.append(image)
        targets.append({"boxes": torch.tensor(corners, dtype=dtype), "labels": torch.tensor(labels)})
    return images, targets


def small(**arguments: Any) -> YOLO:
    torch.manual_seed(0)
    return YOLO(**{"num_classes": 3, **arguments})


def freeze_norms(net: nn.Module) -> None:
    """As they are in evaluation, so that an image does not see the others of its batch."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


@pytest.mark.parametrize(("size", "millions"), [("n", 2.26), ("s", 8.95), ("m", 25.17)])
def test_sizes_are_those_of_the_family(size: Any, millions: float) -> None:
    with torch.device("meta"):
        net = YOLO(80, size)
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize("strides", [[8, 16, 32], [4, 8, 16], [16], [8, 16]])
def test_there_is_an_output_at_every_point_of_every_map(strides: list[int]) -> None:
    net, seen = small(strides=strides), []
    for head in net.head:
        head.register_forward_hook(lambda _, __, output: seen.append(tuple(map(tuple, (y.shape for y in output)))))
    net([torch.rand(3, 50, 70)], [{"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}])
    step = max(strides)
    points = [(-(-50 // step) * step // s) * (-(-70 // step) * step // s) for s in strides]
    assert seen == [((1, n, 3), (1, n, 4, 16)) for n in points]


def test_every_class_begins_with_the_prior_everywhere() -> None:
    found = small(score_threshold=0.0, nms_iou=1.0).eval()([torch.rand(3, 64, 64)])[0]
    assert len(found["scores"]) == 100
    assert found["scores"].sub(0.01).abs().max() < 2e-3


def outputs_of(net: YOLO, images: list[Tensor], targets: list[dict[str, Tensor]]) -> tuple[Any, ...]:
    """Losses, what the heads return, and x, y and stride of every point."""
    seen: list[Any] = []
    hooks = [head.register_forward_hook(lambda _, __, output: seen.append(output)) for head in net.head]
    losses = net(images, targets)
    for hook in hooks:
        hook.remove()
    logits, sides = (torch.cat([output[i].double() for output in seen], 1) for i in (0, 1))
    step = net.strides[-1]
    height, width = (-(-max(image.shape[side] for image in images) // step) * step for side in (1, 2))
    grid = torch.tensor(
        [
            (s * (column + 0.5), s * (row + 0.5), s)
            for s in net.strides
            for row in range(height // s)
            for column in range(width // s)
        ],
        dtype=torch.float64,
    )
    return losses, logits, sides, grid


@pytest.mark.parametrize("num_bins", [16, 0])
def test_losses_are_those_of_the_papers(num_bins: int) -> None:
    """Image by image and point by point in float64; two images of different sizes, and one without objects."""
    images, targets = scene((64, 64), (40, 80), (64, 64), dtype=torch.float64)
    targets[1] = {"boxes": torch.tensor([[5.0, 5, 38, 38], [3, 2, 36, 39]]), "labels": torch.tensor([2, 2])}
    targets[2] = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}
    net = small(num_bins=num_bins).double().train()
    for name, parameter in net.named_parameters():
        if name.endswith(("labels.weight", "sides.weight")):  # outputs that differ from point to point
            nn.init.normal_(parameter, std=0.3)
    losses, logits, sides, grid = outputs_of(net, images, targets)
    expected = {"class_loss": 0.0, "box_loss": 0.0, "distribution_loss": 0.0}
    num_positive = 0
    for image, target, logit, side in zip(images, targets, logits, sides, strict=True):
        point, stride = grid[:, :2], grid[:, 2:]
        if num_bins:
            distance = 0.01 + sum(bin * p for bin, p in enumerate(side.softmax(-1).unbind(-1)))
        else:
            distance = 0.01 + torch.log(1 + side.exp())[..., 0]
        assert isinstance(distance, Tensor)
        predicted = torch.cat([point - distance[:, :2] * stride, point + distance[:, 2:] * stride], 1)
        boxes, quality = target["boxes"].double(), torch.zeros(len(grid), dtype=torch.float64)
        owner = torch.full((len(grid),), -1)
        if len(boxes):
            inside = torch.stack([((point >= box[:2]) & (point <= box[2:])).all(1) for box in boxes])
            given = logit.sigmoid()[None], box_iou(boxes, predicted)[None], inside[None], target["labels"][None]
            owner, quality = (value[0] for value in task_aligned(*given))
        positive = [n for n in range(len(grid)) if owner[n] >= 0]
        num_positive += len(positive)
        on_image = [n for n in range(len(grid)) if point[n, 0] < image.shape[2] and point[n, 1] < image.shape[1]]
        wanted = torch.zeros_like(logit)
        for n in positive:
            wanted[n, target["labels"][owner[n]]] = quality[n]
        share = 1 / max(1, len(boxes)) / len(images)
        expected["class_loss"] += share * sum(varifocal_loss(logit[n], wanted[n]).sum().item() for n in on_image)
        for n in positive:
            box = boxes[owner[n]]
            weight = share * quality[n].item()
            expected["box_loss"] += 2.5 * weight * complete_iou_loss(predicted[n].tolist(), box.tolist())
            if num_bins:
                true = torch.cat([point[n] - box[:2], box[2:] - point[n]]) / stride[n] - 0.01
                expected["distribution_loss"] += 0.5 * weight * distribution_focal_loss(side[n], true).mean().item()
    assert num_positive > 3
    assert losses.keys() == (expected.keys() if num_bins else expected.keys() - {"distribution_loss"})
    for name, loss in losses.items():
        assert loss.item() == pytest.approx(expected[name], rel=1e-5), name  # 1e-7 in torchvision's denominators


def complete_iou_loss(a: list[float], b: list[float]) -> float:
    """Zheng et al. 2020, equations 6 to 12."""
    (w, h), (v, g) = ((box[2] - box[0], box[3] - box[1]) for box in (a, b))
    inter = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    iou = inter / (w * h + v * g - inter)
    diagonal = (max(a[2], b[2]) - min(a[0], b[0])) ** 2 + (max(a[3], b[3]) - min(a[1], b[1])) ** 2
    centres = ((a[0] + a[2] - b[0] - b[2]) / 2) ** 2 + ((a[1] + a[3] - b[1] - b[3]) / 2) ** 2
    shape = 4 / math.pi**2 * (math.atan(v / g) - math.atan(w / h)) ** 2
    return 1 - iou + centres / diagonal + shape**2 / (1 - iou + shape)


def test_losses_are_means_over_images() -> None:
    images, targets = scene((64, 64), (64, 64), (64, 64))
    net = small()
    freeze_norms(net)
    together = net(images, targets)
    alone = [net([image], [target]) for image, target in zip(images, targets, strict=True)]
    for name, loss in together.items():
        torch.testing.assert_close(loss, torch.stack([losses[name] for losses in alone]).mean())


def test_what_was_padded_has_no_part_in_losses_and_boxes() -> None:
    """Beside an image of 64 × 64, one of 40 × 40 is padded; nothing is learnt or found beyond its own pixels."""
    (image,), (target,) = scene((64, 64))
    nothing = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}
    net = small(score_threshold=0.0, nms_iou=1.0, max_detections=10_000)
    freeze_norms(net)
    for name, parameter in net.named_parameters():
        if name.endswith("labels.weight"):  # every point has the same score: the loss counts points
            nn.init.zeros_(parameter)
    both = net([image, image[:, :40, :40]], [nothing, nothing])["class_loss"]
    one = net([image], [nothing])["class_loss"]
    points = [sum((size // s if size % s <= s / 2 else size // s + 1) ** 2 for s in net.strides) for size in (64, 40)]
    assert (2 * both / one).item() == pytest.approx(1 + points[1] / points[0], rel=1e-5)
    found = net.eval()([image, image[:, :40, :40]])
    assert [len(each["boxes"]) for each in found] == [3 * points[0], 3 * points[1]]
    assert found[0]["boxes"].max() == 64
    assert found[1]["boxes"].max() == 40
    assert target["boxes"].max() > 40


def test_an_image_without_objects_teaches_scores_alone() -> None:
    net = small()
    losses = net([torch.rand(3, 64, 64)], [{"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}])
    torch.stack(list(losses.values())).sum().backward()
    assert losses["class_loss"] > 0
    assert losses["box_loss"] == losses["distribution_loss"] == 0
    gradients = {name: parameter.grad for name, parameter in net.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())  # DDP wants one
    assert gradients["head.0.labels.bias"].abs().sum() > 0  # type: ignore[union-attr]


def test_an_object_between_the_points_is_learnt_at_the_nearest() -> None:
    target = {"boxes": torch.tensor([[9.0, 9, 11, 11]]), "labels": torch.tensor([1])}  # the points are at 4, 12, 20, …
    net, image = small(strides=[8]), torch.rand(3, 32, 32)
    losses = net([image], [target])
    assert losses["box_loss"] > 0
    assert losses["distribution_loss"] > 0


def detections(net: YOLO, boxes: list[list[float]], scores: list[list[float]], size: tuple[int, int]) -> dict[str, Any]:
    """What the net returns for an image if its first points, 8 pixels apart, predict these boxes and scores."""

    def predict(_: Any, __: Any, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        logits, sides = torch.full_like(output[0], -100), output[1]
        for i, (left, top, right, bottom) in enumerate(boxes):
            x, y = 8 * i + 4, 4
            distance = torch.tensor([x - left, y - top, right - x, bottom - y]) / 8 - 0.01
            logits[0, i], sides[0, i, :, 0] = torch.tensor(scores[i]).logit(), distance.expm1().log()
        return logits, sides

    hook = net.head[0].register_forward_hook(predict)
    with torch.no_grad():
        (found,) = net.eval()([torch.rand(3, *size)])
    hook.remove()
    return found


def test_of_overlapping_boxes_of_a_class_the_best_is_left() -> None:
    net = small(num_bins=0, strides=[8], num_classes=2, score_threshold=0.1)
    boxes = [[2.0, 2, 30, 30], [3, 2, 30, 30], [0, 1, 80, 20], [2, 2, 31, 30]]
    scores = [[0.8, 0.0], [0.9, 0.05], [0.3, 0.2], [0.0, 0.7]]
    found = detections(net, boxes, scores, (32, 64))
    assert found["labels"].tolist() == [0, 1, 0, 1]  # box 0 gives way to box 1, but not box 3 of the other class
    torch.testing.assert_close(found["scores"], torch.tensor([0.9, 0.7, 0.3, 0.2]))
    expected = torch.tensor([boxes[1], boxes[3], *[[0.0, 1, 64, 20]] * 2])  # cut at the border of the image
    torch.testing.assert_close(found["boxes"], expected, atol=1e-4, rtol=0)
    net.nms_iou, net.max_detections = 1.0, 3
    assert detections(net, boxes, scores, (32, 64))["labels"].tolist() == [0, 0, 1]


def test_channels_last_computes_the_same_in_that_layout() -> None:
    images, _ = scene((64, 64), (64, 64))
    net = small(score_threshold=0.0).eval()
    expected, maps = net(images), []
    net.to(memory_format=torch.channels_last)
    net.neck.register_forward_hook(lambda _, __, output: maps.extend(output))
    for found, wanted in zip(net(images), expected, strict=True):
        torch.testing.assert_close(found["scores"], wanted["scores"], atol=1e-5, rtol=0)
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in maps)


def test_losses_stay_in_float32_under_autocast() -> None:
    images, targets = scene((64, 64), (64, 64))
    net = small()
    freeze_norms(net)
    expected = net(images, targets)
    with torch.autocast("cpu", torch.bfloat16):
        losses = net(images, targets)
        found = net.eval()(images)
    for name, loss in losses.items():
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(expected[name].item(), rel=0.05), name
    assert {value.dtype for each in found for value in each.values()} == {torch.float32, torch.int64}


@pytest.mark.parametrize("num_bins", sampled([16, 0], [16]))
@pytest.mark.slow
def test_two_images_are_learnt_by_heart(num_bins: int) -> None:
    """Of different sizes: boxes come back in the pixels of their own image. Seeds 0 to 3 reach an IoU of 0.97."""
    images, targets = scene((64, 88), (72, 64))
    net = small(num_bins=num_bins, strides=[8], score_threshold=0.5)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.05, total_iters=80)
    for _ in range(80):
        optimizer.zero_grad()
        torch.stack(list(net(images, targets).values())).sum().backward()
        optimizer.step()
        schedule.step()
    for found, target in zip(net.eval()(images), targets, strict=True):
        overlap = box_iou(target["boxes"], found["boxes"][: len(target["boxes"])])  # those with the highest scores
        assert overlap.amax(1).min() > 0.8, overlap
        assert torch.equal(found["labels"][overlap.argmax(1)], target["labels"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"in_channels": 0}, "in_channels: expected at least 1, got 0"),
        ({"top_k": 0}, "top_k: expected at least 1, got 0"),
        ({"max_detections": 0}, "max_detections: expected at least 1, got 0"),
        ({"size": "x"}, "size: expected one of n, s, m, got x"),
        ({"strides": []}, r"strides: expected consecutive ones of \[4, 8, 16, 32\] in this order, got \[\]"),
        ({"strides": [8, 32]}, r"in this order, got \[8, 32\]"),
        ({"strides": [16, 8]}, r"in this order, got \[16, 8\]"),
        ({"strides": [2, 4]}, r"in this order, got \[2, 4\]"),
        ({"num_bins": 1}, "num_bins: expected 0 or at least 2, got 1"),
        ({"score_threshold": -0.1}, r"score_threshold: expected a number in \[0, 1\], got -0.1"),
        ({"nms_iou": 1.1}, r"nms_iou: expected a number in \[0, 1\], got 1.1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        YOLO(**arguments)


def test_images_of_other_channels_and_missing_targets_are_errors_in_words() -> None:
    with pytest.raises(ValueError, match=r"in_channels: expected images of shape \(3, H, W\), got \(1, 64, 64\)"):
        small()([torch.rand(1, 64, 64)])
    with pytest.raises(ValueError, match="targets: expected a dict of boxes and labels for every image in training"):
        small()([torch.rand(3, 64, 64)])

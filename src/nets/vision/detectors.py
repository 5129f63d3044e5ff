"""Torchvision's detectors on any ResNet or MobileNet, with labels from 0 and images of any size."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torchvision import models
from torchvision.models import detection
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN, mobilenet_backbone, resnet_fpn_backbone
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock, LastLevelMaxPool, LastLevelP6P7
from torchvision.ops.misc import FrozenBatchNorm2d

from playbook import nearest
from src.nets.vision.torchvision import change_channels, published

Target = dict[str, Tensor]
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's; their averages for other channels
RATIOS = (0.5, 1.0, 2.0)  # height to width of anchors, as both papers have them
NUM_LEVELS = 5  # feature maps of both pyramids


class FasterRCNN(detection.FasterRCNN):
    """Two stages on a feature pyramid: region proposals, then classes and boxes (Ren et al. 2015, Lin et al. 2017).

    This is torchvision's class for labels 0 … K - 1; its background class is not visible from outside.

    Args:
        num_classes: number of classes K, without a background.
        backbone: name of a ResNet, ResNeXt, wide ResNet or MobileNet of torchvision.
        weights: torchvision's name of the backbone's weights, such as DEFAULT or IMAGENET1K_V1. Defaults to random
            weights. Batch norms are frozen with published weights and trained without.
        trainable_layers: number of stages that are trained, counted from the end, in a backbone with published weights.
        min_size: length in pixels to which the shorter side of an image is resized, as far as max_size allows.
        max_size: largest length of the longer side after resizing, in pixels.
        anchor_sizes: sizes of anchors in pixels of the resized image, one for each feature map of strides 4, 8, 16, 32,
            64.
        max_detections: largest number of boxes per image; those with the highest scores are returned.
        in_channels: channels of the images. For 3, grey images get three equal channels. For 1, the published weights
            of the first layer are summed over its channels; for others, they are repeated in turn and scaled by 3 / C.
            That layer is trained only with all others: trainable_layers 5, or 6 for a MobileNet.

    Shapes:
        images: list of B tensors (in_channels, H, W) in [0, 1]; targets: list of B dicts of boxes (N, 4), as left, top,
        right and bottom in pixels, and labels (N,) → in training a dict of scalar losses, else a list of B dicts of
        boxes (M, 4), labels (M,) and scores (M,).

    Raises:
        ValueError: a value is out of range, the backbone or its weights are unknown, or targets are missing in
            training.
    """

    def __init__(
        self,
        num_classes: int = 80,
        backbone: str = "resnet50",
        weights: str | None = None,
        trainable_layers: int = 3,
        min_size: int = 800,
        max_size: int = 1333,
        anchor_sizes: Sequence[int] = (32, 64, 128, 256, 512),
        max_detections: int = 100,
        in_channels: int = 3,
    ) -> None:
        _check(num_classes, anchor_sizes, in_channels)
        super().__init__(
            _pyramid(backbone, weights, trainable_layers, (4, 8, 16, 32), LastLevelMaxPool(), in_channels),
            num_classes + 1,
            min_size,
            max_size,
            rpn_anchor_generator=AnchorGenerator(tuple((size,) for size in anchor_sizes), (RATIOS,) * NUM_LEVELS),
            box_detections_per_img=max_detections,
            **_statistics(in_channels),
        )
        self.num_classes = num_classes
        self.in_channels = in_channels

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> Any:
        if self.training:
            targets = [{**target, "labels": target["labels"] + 1} for target in _required(targets)]
            return super().forward(_of_channels(images, self.in_channels), targets)
        detections: Any = super().forward(_of_channels(images, self.in_channels))
        return [{**detection, "labels": detection["labels"] - 1} for detection in detections]


class RetinaNet(detection.RetinaNet):
    """One stage on a feature pyramid, trained with the focal loss (Lin et al. 2017).

    This is torchvision's class. It has no background class: its labels are 0 … K - 1.

    Args:
        num_classes: number of classes K.
        backbone: name of a ResNet, ResNeXt, wide ResNet or MobileNet of torchvision.
        weights: torchvision's name of the backbone's weights, such as DEFAULT or IMAGENET1K_V1. Defaults to random
            weights. Batch norms are frozen with published weights and trained without.
        trainable_layers: number of stages that are trained, counted from the end, in a backbone with published weights.
        min_size: length in pixels to which the shorter side of an image is resized, as far as max_size allows.
        max_size: largest length of the longer side after resizing, in pixels.
        anchor_sizes: sizes of anchors in pixels of the resized image, one for each feature map of strides 8, 16, 32,
            64, 128. Anchors of 1.26 and 1.59 times each size are added.
        max_detections: largest number of boxes per image; those with the highest scores are returned.
        in_channels: channels of the images. For 3, grey images get three equal channels. For 1, the published weights
            of the first layer are summed over its channels; for others, they are repeated in turn and scaled by 3 / C.
            That layer is trained only with all others: trainable_layers 5, or 6 for a MobileNet.

    Shapes:
        as for FasterRCNN.

    Raises:
        ValueError: a value is out of range, the backbone or its weights are unknown, or targets are missing in
            training.
    """

    def __init__(
        self,
        num_classes: int = 80,
        backbone: str = "resnet50",
        weights: str | None = None,
        trainable_layers: int = 3,
        min_size: int = 800,
        max_size: int = 1333,
        anchor_sizes: Sequence[int] = (32, 64, 128, 256, 512),
        max_detections: int = 100,
        in_channels: int = 3,
    ) -> None:
        _check(num_classes, anchor_sizes, in_channels)
        sizes = tuple(tuple(int(size * 2 ** (third / 3)) for third in range(3)) for size in anchor_sizes)
        super().__init__(
            _pyramid(backbone, weights, trainable_layers, (8, 16, 32), LastLevelP6P7(256, 256), in_channels),
            num_classes,
            min_size,
            max_size,
            anchor_generator=AnchorGenerator(sizes, (RATIOS,) * NUM_LEVELS),
            detections_per_img=max_detections,
            **_statistics(in_channels),
        )
        self.num_classes = num_classes
        self.in_channels = in_channels

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> Any:
        return super().forward(_of_channels(images, self.in_channels), _required(targets) if self.training else None)


def _check(num_classes: int, anchor_sizes: Sequence[int], in_channels: int) -> None:
    for name, count in {"num_classes": num_classes, "in_channels": in_channels}.items():
        if count < 1:
            raise ValueError(f"{name}: expected at least 1, got {count}")
    if len(anchor_sizes) != NUM_LEVELS or min(anchor_sizes) < 1:
        raise ValueError(f"anchor_sizes: expected {NUM_LEVELS} sizes of at least 1 pixel, got {list(anchor_sizes)}")


def _pyramid(
    name: str,
    weights: str | None,
    trainable_layers: int,
    strides: Sequence[int],
    extra: ExtraFPNBlock,
    in_channels: int,
) -> BackboneWithFPN:
    """Builds a feature pyramid on the backbone's maps of these strides; norms are frozen with published weights."""
    names = [known for known in models.list_models(models) if known.startswith(("resn", "wide_resnet", "mobilenet"))]
    if name not in names:
        raise ValueError(f"backbone: expected a ResNet or MobileNet of torchvision, got {name}{nearest(name, names)}")
    is_mobile = name.startswith("mobilenet")
    # the last but one stage of a MobileNet has stride 32 as well, but is no more than the last one's first block
    stages = {4: 1, 8: 2, 16: 3, 32: 5 if is_mobile else 4}
    num_layers = 6 if is_mobile else 5
    if not 0 <= trainable_layers <= num_layers:
        raise ValueError(f"trainable_layers: expected 0 to {num_layers} for {name}, got {trainable_layers}")
    options: dict[str, Any] = {
        "backbone_name": name,
        "weights": published("weights", name, weights),
        "norm_layer": FrozenBatchNorm2d if weights else nn.BatchNorm2d,
        "trainable_layers": trainable_layers if weights else num_layers,
        "returned_layers": [stages[stride] for stride in strides],
        "extra_blocks": extra,
    }
    pyramid: Any = mobilenet_backbone(fpn=True, **options) if is_mobile else resnet_fpn_backbone(**options)
    change_channels(pyramid, in_channels)
    return pyramid


def _statistics(in_channels: int) -> dict[str, Any]:
    """The mean and standard deviation by which torchvision's classes normalise each channel."""
    values = {"image_mean": MEAN, "image_std": DEVIATION}
    return {name: list(rgb) if in_channels == 3 else [sum(rgb) / 3] * in_channels for name, rgb in values.items()}


def _required(targets: list[Target] | None) -> list[Target]:
    if targets is None:
        raise ValueError("targets: expected a dict of boxes and labels for every image in training, got none")
    return targets


def _of_channels(images: list[Tensor], in_channels: int) -> list[Tensor]:
    """Gives grey images three equal channels where the net takes RGB, and refuses other numbers of channels."""
    for image in images:
        if image.shape[0] != in_channels and (image.shape[0], in_channels) != (1, 3):
            shape = f"({in_channels}, H, W)"
            raise ValueError(f"in_channels: expected images of shape {shape}, got {tuple(image.shape)}")
    return [image.expand(in_channels, -1, -1) for image in images]

"""Residual networks (He et al. 2015)."""

from typing import Literal

from torch import Tensor, nn

IMAGENET = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
CIFAR = (20, 32, 44, 56, 110)  # 6 n + 2 layers: three stages of n blocks, 16, 32 and 64 wide
BOTTLENECK_FROM = 50  # layers


class ResNet(nn.Module):
    """Residual network (He et al. 2015) of 18 to 152 layers, or of 20 to 110 for small images.

    Modules have the names of torchvision's ResNets, so that torchvision's weights load without changes. As there, the
    stride of a bottleneck is in its 3×3 convolution. Parameters with 1,000 classes and RGB: 11,689,512 (18 layers),
    21,797,672 (34), 25,557,032 (50).

    Args:
        num_classes: number of classes K, at least 1.
        depth: number of layers with weights: 18, 34, 50, 101 or 152, or 20, 32, 44, 56 or 110 for the paper's CIFAR
            nets. Shortcuts that change the width are projections in all of them.
        stem: imagenet reduces the resolution to a quarter before the first block; cifar keeps it, for images of about
            32 pixels, and is the only stem for CIFAR nets; auto chooses by depth.
        in_channels: 1 for grey images, 3 for RGB.
        width: channels of the first stage, at least 1. Defaults to 64, or 16 for CIFAR nets.

    Shapes:
        image (B, in_channels, H, W) → logits (B, K).

    Raises:
        ValueError: the depth is not listed, the stem does not fit it, or a count is below 1.
    """

    def __init__(
        self,
        num_classes: int = 10,
        depth: int = 18,
        stem: Literal["auto", "imagenet", "cifar"] = "auto",
        in_channels: int = 3,
        width: int | None = None,
    ) -> None:
        super().__init__()
        if depth not in (*IMAGENET, *CIFAR):
            raise ValueError(f"depth: expected one of {', '.join(map(str, sorted([*IMAGENET, *CIFAR])))}, got {depth}")
        if stem not in ("auto", "imagenet", "cifar") or (stem == "imagenet" and depth in CIFAR):
            expected = "auto or cifar" if depth in CIFAR else "auto, imagenet or cifar"
            raise ValueError(f"stem: expected {expected} for depth {depth}, got {stem}")
        width = (16 if depth in CIFAR else 64) if width is None else width
        for name, count in {"num_classes": num_classes, "in_channels": in_channels, "width": width}.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        blocks = IMAGENET.get(depth) or [(depth - 2) // 6] * 3
        block = _Bottleneck if depth in IMAGENET and depth >= BOTTLENECK_FROM else _Basic
        large = stem == "imagenet" or (stem == "auto" and depth in IMAGENET)
        self.conv1 = nn.Conv2d(in_channels, width, 7, 2, 3, bias=False) if large else _conv3(in_channels, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        self.stages: list[str] = []
        c_in = width
        for i, num_blocks in enumerate(blocks):
            c_out, stride = width * 2**i, 1 if i == 0 else 2
            layers = []
            for j in range(num_blocks):
                layers.append(block(c_in, c_out, stride if j == 0 else 1))
                c_in = c_out * block.expansion
            self.stages.append(f"layer{i + 1}")
            self.add_module(self.stages[-1], nn.Sequential(*layers))
        self.fc = nn.Linear(c_in, num_classes)
        for module in self.modules():  # He et al. 2015: keeps the variance of gradients through ReLU
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))  # (B, C, H / 4, W / 4), or H, W with the small stem
        for stage in self.stages:
            x = self.get_submodule(stage)(x)  # (B, C 2^i, H / 2^i, W / 2^i), i from 0
        return self.fc(x.mean(dim=(2, 3)))  # (B, K)


class _Basic(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3(c_in, c_out, stride)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = _conv3(c_out, c_out)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(c_in, c_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + (x if self.downsample is None else self.downsample(x)))


class _Bottleneck(nn.Module):
    """A 3×3 convolution of a quarter of the channels between two of 1×1, beside a shortcut."""

    expansion = 4

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = _conv3(c_out, c_out, stride)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.conv3 = nn.Conv2d(c_out, self.expansion * c_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(self.expansion * c_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(c_in, self.expansion * c_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


def _conv3(c_in: int, c_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, 3, stride, padding=1, bias=False)  # the norm would subtract a bias again


def _shortcut(c_in: int, c_out: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and c_in == c_out:
        return None
    return nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

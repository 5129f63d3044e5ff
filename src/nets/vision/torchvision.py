"""Torchvision's nets by name, for any number of classes, with or without published weights."""

from collections.abc import Sequence
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.hub import load_state_dict_from_url
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision import models

from playbook import UserError, is_restored, nearest
from src.ops.stages import parameter_stages

AUXILIARY = ("AuxLogits", "aux1", "aux2", "aux_classifier")  # further outputs in training


class TorchvisionClassifier(nn.Module):
    """Any classifier of torchvision by name, with a head for K classes and, optionally, published weights.

    Args:
        name: name in torchvision.models.list_models(), such as resnet18, convnext_tiny or vit_b_16.
        num_classes: number of classes K, at least 1. If the published weights have K classes, their head is kept.
        weights: name of published weights, such as IMAGENET1K_V1 or DEFAULT. Defaults to random weights.
        freeze: whether to train only the head; frozen batch norms keep their statistics.
        in_channels: channels of the images. For 1, the first layer's weights are summed over its channels, so that an
            image gets the features it would have in RGB; for others, they are repeated in turn and scaled by 3 / C.
        dropout: probability of dropping a feature before the last layer, in addition to the net's own dropout, in [0,
            1).

    Shapes:
        image (B, in_channels, H, W), of a size that the net accepts → logits (B, K).

    Raises:
        ValueError: the name is unknown, or a value is out of range.
        UserError: the weights cannot be loaded.
    """

    def __init__(
        self,
        name: str = "resnet18",
        num_classes: int = 10,
        weights: str | None = None,
        freeze: bool = False,
        in_channels: int = 3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check(name, models.list_models(models), num_classes, in_channels)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        has_auxiliary = name in ("googlenet", "inception_v3")
        options = {"init_weights": weights is None} if has_auxiliary else {}  # they warn of a default to come
        self.net = models.get_model(name, weights=published("weights", name, weights), **options)
        if has_auxiliary and weights is not None:
            self.net.transform_input = True  # type: ignore[assignment]  # a flag, also where a checkpoint brings the weights
        _drop_auxiliary(self.net)
        if in_channels != 3 and getattr(self.net, "transform_input", False):
            raise ValueError(
                f"in_channels: expected 3 for {name} with weights, which normalises them, got {in_channels}"
            )
        change_channels(self.net, in_channels)
        layers = (nn.Linear, nn.Conv2d)
        self.head = [path for path, module in self.net.named_modules() if isinstance(module, layers)][-1]
        _replace(self.net, self.head, num_classes, dropout)
        if freeze:
            head = self.parameter_stages()[0]
            for parameter in self.net.parameters():
                parameter.requires_grad = any(parameter is trained for trained in head)
            self.train()

    def forward(self, image: Tensor) -> Tensor:
        return self.net(image)  # (B, K)

    def train(self, mode: bool = True) -> "TorchvisionClassifier":
        """Batch norms without a trained parameter stay in evaluation mode."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.train(mode and any(parameter.requires_grad for parameter in module.parameters()))
        return self

    def parameter_stages(self) -> list[list[nn.Parameter]]:
        """Parameters from the head to the stem, in the order of gradual unfreezing.

        The first stage is the head. After changing requires_grad, call train() to update the batch norms.
        """
        return parameter_stages(self.net, head=self.net.get_submodule(self.head))


class TorchvisionSegmentation(nn.Module):
    """DeepLabV3, FCN or LR-ASPP of torchvision by name, for K classes, optionally with published weights.

    Args:
        name: name in torchvision.models.list_models(), such as deeplabv3_resnet50, fcn_resnet50 or
            lraspp_mobilenet_v3_large.
        num_classes: number of classes K, at least 1. If the published weights have K classes, their last layers are
            kept.
        weights: name of published weights, such as COCO_WITH_VOC_LABELS_V1 or DEFAULT. Defaults to random weights.
        weights_backbone: name of published weights of the backbone alone, such as IMAGENET1K_V1; ignored if `weights`
            is given.
        in_channels: channels of the images. For 1, the first layer's weights are summed over its channels; for others,
            they are repeated in turn and scaled by 3 / C.

    Shapes:
        image (B, in_channels, H, W) → logits (B, K, H, W).

    Raises:
        ValueError: the name is unknown, or a count is below 1.
        UserError: the weights cannot be loaded.
    """

    def __init__(
        self,
        name: str = "deeplabv3_resnet50",
        num_classes: int = 21,
        weights: str | None = None,
        weights_backbone: str | None = None,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        _check(name, models.list_models(models.segmentation), num_classes, in_channels)
        pretrained = published("weights", name, weights)
        backbone_weights = weights_backbone if pretrained is None else None
        backbone = published("weights_backbone", name.partition("_")[2], backbone_weights)
        options = {"num_classes": num_classes} if pretrained is None else {}
        self.net = models.get_model(name, weights=pretrained, weights_backbone=backbone, **options)
        _drop_auxiliary(self.net)
        change_channels(self.net, in_channels)
        if pretrained is not None:
            for path, module in list(self.net.named_modules()):
                if isinstance(module, nn.Conv2d) and module.out_channels == len(pretrained.meta["categories"]):
                    _replace(self.net, path, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.net(image)["out"]  # (B, K, H, W)


def published(option: str, name: str, weights: str | None) -> Any:
    """Looks up published weights by name; returns None if a checkpoint contains the weights.

    The file is downloaded and read here with `weights_only=True`: torchvision itself would unpickle any object in it.

    Args:
        option: the argument that names the weights, for messages.
        name: name of the net.
        weights: name of the weights, or None.

    Raises:
        ValueError: the net has no weights of this name.
        UserError: the weights are not cached and cannot be downloaded, or the file contains more than tensors.
    """
    if weights is None:
        return None
    known = models.get_model_weights(name)
    choices = list(known.__members__)
    if weights not in choices:
        raise ValueError(f"{option}: expected one of {', '.join(choices)} for {name}, got {weights}")
    if is_restored():
        return None
    entry: Any = known[weights]
    try:
        load_state_dict_from_url(entry.url, map_location="cpu", check_hash=True, weights_only=True)
    except (OSError, RuntimeError, UnpicklingError) as error:
        text = " ".join(str(error).split())
        raise UserError(f"{option}: {weights} of {name} cannot be loaded from {entry.url}: {text}") from error
    return entry


def _check(name: str, choices: Sequence[str], num_classes: int, in_channels: int) -> None:
    if name not in choices:
        raise ValueError(f"name: torchvision has no {name} of this kind{nearest(name, choices)}")
    if min(num_classes, in_channels) < 1:
        raise ValueError(f"num_classes, in_channels: expected at least 1, got {num_classes}, {in_channels}")


def _drop_auxiliary(net: nn.Module) -> None:
    for part in AUXILIARY:
        if hasattr(net, part):
            setattr(net, part, None)
    if hasattr(net, "aux_logits"):
        net.aux_logits = False  # type: ignore[assignment]  # a flag of Inception and GoogLeNet


def change_channels(net: nn.Module, in_channels: int) -> None:
    """Adapts the first convolution, made for RGB, to images of another number of channels (Wightman 2019, timm).

    For 1, its weights are summed over the channels: outputs are those of the grey image in RGB. For others, they are
    repeated in turn, R G B R …, and scaled by 3 / C, so that outputs keep their scale.
    """
    first = next(module for module in net.modules() if isinstance(module, nn.Conv2d))
    if in_channels == first.in_channels:
        return
    weight = first.weight.detach()  # (C_out, 3, h, w)
    if in_channels == 1:
        weight = weight.sum(dim=1, keepdim=True)
    else:
        turns = torch.arange(in_channels) % 3
        weight = weight[:, turns] * (3 / in_channels)
    first.weight = nn.Parameter(weight, requires_grad=first.weight.requires_grad)
    first.in_channels = in_channels


def _replace(net: nn.Module, path: str, num_classes: int, dropout: float = 0.0) -> None:
    """Replaces a layer by one for K classes, unless it has K outputs already."""
    layer: Any = net.get_submodule(path)
    has_bias = layer.bias is not None
    if isinstance(layer, nn.Conv2d) and layer.out_channels != num_classes:
        layer = nn.Conv2d(layer.in_channels, num_classes, layer.kernel_size, bias=has_bias)  # type: ignore[arg-type]  # a pair
        _initialise(layer)
    elif isinstance(layer, nn.Linear) and layer.out_features != num_classes:
        layer = nn.Linear(layer.in_features, num_classes, bias=has_bias)
        _initialise(layer)
    net.set_submodule(path, nn.Sequential(nn.Dropout(dropout), layer) if dropout else layer)


def _initialise(layer: nn.Linear | nn.Conv2d) -> None:
    """Krizhevsky et al. 2012: deviation 0.01, so that all classes are about equally likely at the start of training."""
    nn.init.normal_(layer.weight, std=0.01)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)

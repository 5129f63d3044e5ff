"""What every net must satisfy is in test_nets.py; here, that these are torchvision's detectors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models import detection
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from playbook.errors import UserError
from playbook.testing.command import sampled
from src.nets.vision.detectors import FasterRCNN, RetinaNet

SMALL: dict[str, Any] = {"num_classes": 10, "backbone": "resnet18", "min_size": 32, "max_size": 48}
SMALL["anchor_sizes"] = [8, 16, 32, 64, 128]
SIZES = ((8,), (16,), (32,), (64,), (128,))
THIRDS = ((8, 10, 12), (16, 20, 25), (32, 40, 50), (64, 80, 101), (128, 161, 203))
RATIOS = ((0.5, 1.0, 2.0),) * 5

both = pytest.mark.parametrize("cls", [FasterRCNN, RetinaNet])


def example(batch_size: int, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    # the focal loss leaves RetinaNet's coarsest maps, which have no object, gradients of next to nothing
    size = 64 if name == "RetinaNet" else 32
    images, targets = scene(*[(size, size)] * batch_size)
    return {"images": images, "targets": targets}, {**SMALL, "min_size": size, "max_size": size}


def scene(*sizes: tuple[int, int]) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Noise, and in each image a box for the labels 0 and 2."""
    boxes = torch.tensor([[2.0, 3, 15, 13], [16, 14, 30, 31]])
    targets = [{"boxes": boxes, "labels": torch.tensor([0, 2])} for _ in sizes]
    return [torch.rand(3, *size) for size in sizes], targets


def torchvisions(cls: Any) -> nn.Module:
    """The same net from torchvision alone."""
    options: dict[str, Any] = {"backbone_name": "resnet18", "weights": None, "trainable_layers": 5}
    options["norm_layer"] = nn.BatchNorm2d
    sizes = {"min_size": 32, "max_size": 48}
    if cls is FasterRCNN:
        body = resnet_fpn_backbone(**options)
        return detection.FasterRCNN(body, 11, **sizes, rpn_anchor_generator=AnchorGenerator(SIZES, RATIOS))
    body = resnet_fpn_backbone(**options, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256))
    anchors = AnchorGenerator(THIRDS, RATIOS)
    return detection.RetinaNet(body, 10, **sizes, anchor_generator=anchors, detections_per_img=100)


@pytest.mark.slow
@both
def test_equals_torchvisions_own_class(cls: Any) -> None:
    """With the same weights, losses and boxes are the same; only Faster R-CNN's labels are one less."""
    shift = int(cls is FasterRCNN)
    images, targets = scene((32, 32), (24, 40))
    shifted = [{**target, "labels": target["labels"] + shift} for target in targets]
    torch.manual_seed(0)
    net, reference = cls(**SMALL), torchvisions(cls)
    if isinstance(net, RetinaNet):  # scores begin at 0.01, below the threshold
        nn.init.zeros_(net.get_parameter("head.classification_head.cls_logits.bias"))
    reference.load_state_dict(net.state_dict())
    losses = []
    for each, labelled in ((net, targets), (reference, shifted)):
        torch.manual_seed(1)  # Faster R-CNN samples its proposals
        losses.append(each.train()(images, labelled))
    torch.testing.assert_close(*losses, rtol=0, atol=0)
    reference.load_state_dict(net.state_dict())  # running statistics
    found, expected = net.eval()(images), reference.eval()(images)
    assert all(len(each["boxes"]) > 10 for each in found)
    for each in expected:
        each["labels"] -= shift
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert {label for each in found for label in each["labels"].tolist()} <= set(range(10))


@both
def test_grey_images_count_as_coloured(cls: Any) -> None:
    net = cls(**SMALL).eval()
    image = torch.rand(1, 32, 32)
    torch.testing.assert_close(net([image]), net([image.repeat(3, 1, 1)]), rtol=0, atol=0)


@both
@pytest.mark.parametrize("in_channels", sampled([1, 4], [1]))
@pytest.mark.slow
def test_images_of_other_channels_train_and_are_detected_on(cls: Any, in_channels: int) -> None:
    torch.manual_seed(0)
    net = cls(**SMALL, in_channels=in_channels)
    _, targets = scene((32, 32), (24, 40))
    images = [torch.rand(in_channels, 32, 32), torch.rand(in_channels, 24, 40)]
    torch.stack(list(net(images, targets).values())).sum().backward()
    assert net.backbone.body.conv1.weight.grad.abs().sum((0, 2, 3)).min() > 0
    assert len(net.eval()(images)) == 2
    with pytest.raises(
        ValueError, match=rf"in_channels: expected images of shape \({in_channels}, H, W\), got \(3, 32, 32"
    ):
        net([torch.rand(3, 32, 32)])


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_large"])
@pytest.mark.slow
def test_a_grey_net_has_the_maps_of_the_image_in_rgb(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    torch.manual_seed(0)
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    url = models.get_model_weights(name)["IMAGENET1K_V1"].url
    torch.save(models.get_model(name).state_dict(), tmp_path / "hub/checkpoints" / Path(url).name)
    grey = torch.rand(1, 1, 64, 64)
    maps = []
    for in_channels in (1, 3):
        net = RetinaNet(backbone=name, weights="IMAGENET1K_V1", in_channels=in_channels)
        maps.append(net.backbone.body.eval()(grey.expand(-1, in_channels, -1, -1)))
    torch.testing.assert_close(*maps, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "mobilenet_v3_large"])
def test_maps_have_the_strides_that_anchors_are_made_for(name: str) -> None:
    for cls, strides in ((FasterRCNN, [4, 8, 16, 32, 64]), (RetinaNet, [8, 16, 32, 64, 128])):
        net = cls(backbone=name)
        maps = net.backbone(torch.rand(1, 3, 128, 128))
        assert [tuple(x.shape) for x in maps.values()] == [(1, 256, 128 // s, 128 // s) for s in strides]


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_weights_of_a_backbone_are_loaded_and_its_norms_frozen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file where torchvision keeps what it has downloaded."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    torch.manual_seed(0)
    classifier = models.get_model(name)
    url = models.get_model_weights(name)["IMAGENET1K_V1"].url
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    torch.save(classifier.state_dict(), tmp_path / "hub/checkpoints" / Path(url).name)
    net = RetinaNet(backbone=name, weights="IMAGENET1K_V1", trainable_layers=2)
    weights = {key.removeprefix("features."): value for key, value in classifier.state_dict().items()}
    for key, value in net.backbone.body.state_dict().items():
        assert torch.equal(value, weights[key]), key
    norms = [module for module in net.backbone.body.modules() if isinstance(module, FrozenBatchNorm2d)]
    assert len(norms) > 10
    trained = {key.split(".")[0] for key, p in net.backbone.body.named_parameters() if p.requires_grad}
    assert trained == ({"layer3", "layer4"} if name == "resnet18" else {"9", "10", "11", "12"})


def test_weights_are_read_without_running_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = models.ResNet18_Weights.IMAGENET1K_V1.url
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    torch.save({"conv1.weight": Path}, tmp_path / "hub/checkpoints" / Path(url).name)  # a class, which must be imported
    with pytest.raises(UserError, match="weights: DEFAULT of resnet18 cannot be loaded"):
        RetinaNet(backbone="resnet18", weights="DEFAULT")


@both
def test_without_weights_everything_trains(cls: Any) -> None:
    net = cls(backbone="resnet18", trainable_layers=0)
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert sum(isinstance(module, nn.BatchNorm2d) for module in net.modules()) == 20


def test_resnet_is_built_as_torchvision_builds_it() -> None:
    body = resnet_fpn_backbone(backbone_name="resnet18", weights=None, norm_layer=nn.BatchNorm2d, trainable_layers=5)
    expected = {key: value.shape for key, value in body.state_dict().items()}
    assert {
        key: value.shape for key, value in FasterRCNN(backbone="resnet18").backbone.state_dict().items()
    } == expected


@both
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"in_channels": 0}, "in_channels: expected at least 1, got 0"),
        ({"anchor_sizes": [8, 16]}, r"anchor_sizes: expected 5 sizes of at least 1 pixel, got \[8, 16\]"),
        (
            {"anchor_sizes": [0, 1, 2, 3, 4]},
            r"anchor_sizes: expected 5 sizes of at least 1 pixel, got \[0, 1, 2, 3, 4\]",
        ),
        ({"backbone": "resnet19"}, "expected a ResNet or MobileNet of torchvision, got resnet19. Nearest: resnet18"),
        ({"backbone": "vit_b_16"}, "expected a ResNet or MobileNet of torchvision, got vit_b_16"),
        ({"trainable_layers": 6, "backbone": "resnet18"}, "trainable_layers: expected 0 to 5 for resnet18, got 6"),
        (
            {"weights": "V3", "backbone": "resnet18"},
            "weights: expected one of IMAGENET1K_V1, DEFAULT for resnet18, got",
        ),
    ],
)
def test_arguments_out_of_range(cls: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**{**SMALL, **arguments})


@both
def test_training_without_targets_is_an_error_in_words(cls: Any) -> None:
    with pytest.raises(ValueError, match="targets: expected a dict of boxes and labels for every image in training"):
        cls(**SMALL)([torch.rand(3, 32, 32)])

"""What every net must satisfy is in test_nets.py; here, what is particular to torchvision's."""

import pickle
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models.regnet import BlockParams

from playbook.network import restored
from playbook.testing.command import Cli, sampled
from src.nets.vision.torchvision import TorchvisionClassifier, TorchvisionSegmentation
from tests.conftest import ROOT

# the smallest of every family
FAMILIES = ["alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "maxvit_t",
            "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf", "resnet18", "shufflenet_v2_x0_5",
            "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_32"]  # fmt: skip
OTHERS = sorted(set(models.list_models(models)) - set(FAMILIES))
AUXILIARY = ("googlenet", "inception_v3")  # have further outputs in training
ONE_BATCH = ("--config", str(ROOT / "configs/debug/one-batch.yaml"))
SEGMENTERS = models.list_models(models.segmentation)


def example(batch_size: int, name: str) -> tuple[Tensor, dict[str, Any]]:
    if name == "TorchvisionClassifier":
        return torch.randn(batch_size, 3, 32, 32), {"name": "resnet18"}
    return torch.randn(batch_size, 3, 32, 32), {"name": "fcn_resnet50", "num_classes": 3}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where torch looks for weights before it downloads them."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    return tmp_path / "hub/checkpoints"


def publish(cache: Path, name: str, weights: str = "DEFAULT", content: Any = None) -> None:
    """Random weights under the name of the published ones."""
    torch.manual_seed(0)
    found: Any = models.get_model_weights(name)[weights]
    options: dict[str, Any] = {"aux_logits": True, "init_weights": False} if name in AUXILIARY else {}
    options |= {"aux_loss": True} if name == "fcn_resnet50" else {}
    options |= {"weights_backbone": None} if name in SEGMENTERS else {}
    net = models.get_model(name, weights=None, **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    torch.save(net.state_dict() if content is None else content, cache / found.url.rpartition("/")[2])


# every name


def on_meta(name: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[TorchvisionClassifier, nn.Module]:
    """Ours and torchvision's, without memory for the weights."""
    widths = BlockParams.from_init_params

    def on_cpu(*args: Any, **kwargs: Any) -> Any:  # it reads values, of which meta tensors have none
        with torch.device("cpu"):
            return widths(*args, **kwargs)

    monkeypatch.setattr(BlockParams, "from_init_params", on_cpu)
    plain = {"init_weights": True} if name in AUXILIARY else {}
    with torch.device("meta"):
        return TorchvisionClassifier(name, **options), models.get_model(name, weights=None, **plain)


def assert_only_the_head_is_new(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = on_meta(name, monkeypatch, num_classes=7)
    assert ours.eval()(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, 7)
    wanted = {key: value.shape for key, value in theirs.state_dict().items() if not key.startswith("aux")}
    wanted = {key: shape for key, shape in wanted.items() if not key.startswith("AuxLogits")}
    found = {key: value.shape for key, value in ours.net.state_dict().items()}
    assert found.keys() == wanted.keys()
    new = {key for key, shape in found.items() if shape != wanted[key]}
    assert new == {key for key in wanted if key.startswith(f"{ours.head}.")}
    assert_stages_hold_every_parameter_once(ours)


def assert_stages_hold_every_parameter_once(net: TorchvisionClassifier) -> None:
    names = {id(parameter): name for name, parameter in net.net.named_parameters()}
    stages = [[names[id(parameter)] for parameter in stage] for stage in net.parameter_stages()]
    assert sorted(name for stage in stages for name in stage) == sorted(names.values())
    assert stages[0] == [name for name in names.values() if name.startswith(f"{net.head}.")]
    assert len(stages) >= 5
    stem = next(name for name, module in net.net.named_modules() if isinstance(module, nn.Conv2d))
    assert f"{stem}.weight" in stages[-1]
    order = list(names.values())
    firsts = [min(map(order.index, stage)) for stage in stages[:-1]]
    assert firsts == sorted(firsts, reverse=True), "not from the head to the stem"


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.slow
def test_only_the_head_is_new(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_only_the_head_is_new(name, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_only_the_head_is_new_in_any_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_only_the_head_is_new(name, monkeypatch)


@pytest.mark.parametrize("name", SEGMENTERS)
@pytest.mark.slow
def test_segmentation_has_the_images_size_and_no_further_outputs(name: str) -> None:
    with torch.device("meta"):
        net = TorchvisionSegmentation(name, num_classes=5, in_channels=2)
        assert net.train()(torch.empty(2, 2, 65, 96)).shape == (2, 5, 65, 96)
    assert not [key for key in net.state_dict() if "aux" in key]


# against torchvision


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "squeezenet1_1", "googlenet"])
@pytest.mark.slow
def test_published_weights_give_torchvisions_outputs(name: str, cache: Path) -> None:
    publish(cache, name)
    image = torch.rand(2, 3, 64, 64)
    reference = models.get_model(name, weights="DEFAULT").eval()
    net = TorchvisionClassifier(name, num_classes=1000, weights="DEFAULT").eval()
    torch.testing.assert_close(net(image), reference(image), rtol=0, atol=1e-6)

    other = TorchvisionClassifier(name, num_classes=7, weights="DEFAULT", dropout=0.5)
    mine, theirs = other.net.state_dict(), reference.state_dict()
    for key, value in mine.items():
        if not key.startswith(other.head):
            assert torch.equal(value, theirs[key]), key
    head: Any = other.net.get_submodule(other.head)
    assert head[0].p == 0.5
    assert len(head[1].weight) == 7
    assert head[1].weight.std().item() == pytest.approx(0.01, rel=0.1)
    assert not head[1].bias.any()
    assert isinstance(other.train()(image), Tensor), "one output in training too"


@pytest.mark.slow
def test_published_weights_segment_a_grey_image_as_in_rgb(cache: Path) -> None:
    name = "lraspp_mobilenet_v3_large"
    publish(cache, name)
    publish(cache, "mobilenet_v3_large", "IMAGENET1K_V1")
    grey = torch.rand(2, 1, 64, 64)
    for option in ({"weights": "DEFAULT"}, {"weights_backbone": "IMAGENET1K_V1"}):
        nets = []
        for in_channels in (1, 3):
            torch.manual_seed(0)
            nets.append(TorchvisionSegmentation(name, 21, in_channels=in_channels, **option).eval())
        torch.testing.assert_close(nets[0](grey), nets[1](grey.repeat(1, 3, 1, 1)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_classes", [21, 3])
def test_published_weights_segment_as_torchvisions_do(num_classes: int, cache: Path) -> None:
    name = "lraspp_mobilenet_v3_large"
    publish(cache, name)
    image = torch.rand(2, 3, 64, 64)
    reference = models.get_model(name, weights="DEFAULT").eval()
    net = TorchvisionSegmentation(name, num_classes, weights="DEFAULT", weights_backbone="ignored beside them").eval()
    assert net(image).shape == (2, num_classes, 64, 64)
    if num_classes == 21:
        torch.testing.assert_close(net(image), reference(image)["out"], rtol=0, atol=1e-6)
    theirs = reference.state_dict()
    new = {key for key, value in net.net.state_dict().items() if not torch.equal(value, theirs[key])}
    layers = ("classifier.low_classifier", "classifier.high_classifier") if num_classes != 21 else ()
    assert new == {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}


def test_published_weights_of_a_backbone(cache: Path) -> None:
    publish(cache, "mobilenet_v3_large", "IMAGENET1K_V1")
    net = TorchvisionSegmentation("lraspp_mobilenet_v3_large", 3, weights_backbone="IMAGENET1K_V1")
    reference = models.get_model("mobilenet_v3_large", weights="IMAGENET1K_V1").state_dict()
    mine = net.net.get_submodule("backbone").state_dict()
    assert len(mine) > 200
    assert all(torch.equal(value, reference[f"features.{key}"]) for key, value in mine.items())


@pytest.mark.parametrize("name", sampled(["resnet18", "convnext_tiny", "vit_b_32"], ["resnet18"]))
@pytest.mark.slow
def test_a_grey_image_has_the_features_that_published_weights_give_it_in_rgb(name: str, cache: Path) -> None:
    publish(cache, name)
    grey = torch.rand(2, 1, 224, 224)
    rgb = TorchvisionClassifier(name, 1000, "DEFAULT").eval()
    net = TorchvisionClassifier(name, 1000, "DEFAULT", in_channels=1).eval()
    with torch.no_grad():
        torch.testing.assert_close(net(grey), rgb(grey.repeat(1, 3, 1, 1)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("in_channels", [2, 4, 5, 16])
@pytest.mark.slow
def test_published_weights_of_the_stem_are_repeated_and_keep_the_scale(in_channels: int, cache: Path) -> None:
    publish(cache, "resnet18")
    stem = models.get_model("resnet18", weights="DEFAULT").get_parameter("conv1.weight")
    net = TorchvisionClassifier("resnet18", weights="DEFAULT", in_channels=in_channels)
    found = net.net.get_parameter("conv1.weight")
    assert found.shape == (64, in_channels, 7, 7)
    for channel in range(in_channels):
        torch.testing.assert_close(found[:, channel], stem[:, channel % 3] * 3 / in_channels)
    frozen = TorchvisionClassifier("resnet18", weights="DEFAULT", in_channels=in_channels, freeze=True)
    assert not frozen.net.get_parameter("conv1.weight").requires_grad
    assert net(torch.rand(2, in_channels, 64, 64)).shape == (2, 10)


@pytest.mark.parametrize("in_channels", [1, 6])
def test_channels_that_are_alike_have_the_features_of_a_grey_image(in_channels: int) -> None:
    torch.manual_seed(0)
    rgb = TorchvisionClassifier("resnet18").eval()
    torch.manual_seed(0)
    net = TorchvisionClassifier("resnet18", in_channels=in_channels).eval()
    grey = torch.rand(2, 1, 64, 64)
    found, expected = net(grey.repeat(1, in_channels, 1, 1)), rgb(grey.repeat(1, 3, 1, 1))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="channels"):
        net(torch.rand(2, 3, 64, 64))


def test_a_net_that_normalises_colours_itself_takes_no_others(cache: Path) -> None:
    publish(cache, "googlenet")
    with pytest.raises(ValueError, match=r"in_channels: expected 3 for googlenet with weights, .* got 1"):
        TorchvisionClassifier("googlenet", weights="DEFAULT", in_channels=1)


# what is trained


def test_only_the_head_of_a_frozen_net_is_trained() -> None:
    torch.manual_seed(0)
    net = TorchvisionClassifier("resnet18", freeze=True)
    assert [name for name, p in net.named_parameters() if p.requires_grad] == ["net.fc.weight", "net.fc.bias"]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    image = torch.randn(4, 3, 64, 64)
    for mode in (True, False, True):
        net.train(mode)(image).sum().backward()
    torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1.0).step()
    changed = [name for name, value in net.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == ["net.fc.weight", "net.fc.bias"], "running statistics are frozen as well"


def test_stages_can_be_unfrozen_one_by_one() -> None:
    net = TorchvisionClassifier("resnet18", freeze=True)
    assert [len(stage) for stage in net.parameter_stages()] == [2, 15, 15, 15, 12, 3]
    for parameter in net.parameter_stages()[1]:
        parameter.requires_grad = True
    norms = {name: m for name, m in net.train().named_modules() if isinstance(m, nn.BatchNorm2d)}
    assert {name for name, norm in norms.items() if norm.training} == {name for name in norms if "layer4" in name}
    net(torch.randn(4, 3, 64, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameter_stages()[1])
    assert not any(norm.training for norm in norms.values() if net.eval())


def test_a_net_that_is_not_frozen_trains_its_norms() -> None:
    net = TorchvisionClassifier("resnet18").train()
    assert all(parameter.requires_grad for parameter in net.parameters())
    assert all(module.training for module in net.modules())


# what goes wrong


class Code:
    """Touches a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_code_in_a_file_of_weights_is_not_run(cache: Path) -> None:
    ran = cache / "ran"
    pickle.loads(pickle.dumps(Code(ran)))
    assert ran.exists()
    ran.unlink()
    publish(cache, "squeezenet1_1", content={"features.0.weight": Code(ran)})
    with pytest.raises(
        ValueError, match=r"weights: DEFAULT of squeezenet1_1 cannot be loaded from .*: Weights only load"
    ):
        TorchvisionClassifier("squeezenet1_1", weights="DEFAULT")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("net", "options", "message"),
    [
        (TorchvisionClassifier, {"weights": "IMAGENET1K_V1"}, "weights: IMAGENET1K_V1 of resnet18 cannot be loaded"),
        (TorchvisionSegmentation, {"weights": "DEFAULT"}, "weights: DEFAULT of deeplabv3_resnet50 cannot be loaded"),
        (TorchvisionSegmentation, {"weights_backbone": "DEFAULT"}, "weights_backbone: DEFAULT of resnet50 cannot be"),
    ],
)
def test_no_network_is_an_error_in_one_line(
    net: Any, options: dict[str, str], message: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise URLError("no route\nto host")

    monkeypatch.setattr("torch.hub.urlopen", unreachable)
    with pytest.raises(ValueError, match=rf"{message}.*no route to host") as caught:
        net(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", sampled(["inception_v3", "resnet18", "fcn_resnet50", "lraspp_mobilenet_v3_large"], ["resnet18"])
)
@pytest.mark.slow
def test_a_checkpoint_brings_the_weights_without_a_network(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net: Any = TorchvisionSegmentation if name in SEGMENTERS else TorchvisionClassifier
    publish(cache, name)
    trained = net(name, num_classes=3, weights="DEFAULT").eval()
    monkeypatch.setattr("torch.hub.urlopen", lambda *_, **__: pytest.fail("looked for weights"))
    for file in cache.iterdir():
        file.unlink()
    with restored(from_checkpoint=True):
        rebuilt = net(name, num_classes=3, weights="DEFAULT").eval()
    rebuilt.load_state_dict(trained.state_dict())
    image = torch.rand(1, 3, 96, 96)
    with torch.no_grad():
        assert torch.equal(rebuilt(image), trained(image))


@pytest.mark.parametrize(
    ("net", "options", "message"),
    [
        (TorchvisionClassifier, {"name": "resnet"}, "name: torchvision has no resnet of this kind. Nearest: resnet"),
        (
            TorchvisionClassifier,
            {"name": "fcn_resnet50"},
            "name: torchvision has no fcn_resnet50 of this kind. Nearest",
        ),
        (
            TorchvisionSegmentation,
            {"name": "resnet50"},
            "name: torchvision has no resnet50 of this kind. Nearest: fcn_",
        ),
        (TorchvisionClassifier, {"weights": "V1"}, "weights: expected one of IMAGENET1K_V1, .*DEFAULT.* got V1"),
        (TorchvisionSegmentation, {"weights_backbone": "V1"}, "weights_backbone: expected one of IMAGENET1K_V1, .* V1"),
        (TorchvisionClassifier, {"num_classes": 0}, "num_classes, in_channels: expected at least 1, got 0, 3"),
        (TorchvisionSegmentation, {"in_channels": 0}, "num_classes, in_channels: expected at least 1, got 21, 0"),
        (TorchvisionClassifier, {"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_arguments_out_of_range(net: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        net(**options)


@pytest.mark.slow
def test_a_run_that_began_with_published_weights_is_tested_without_them(
    cli: Cli, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cache, "resnet18")
    net = ("--model.net", "TorchvisionClassifier", "--model.net.weights", "DEFAULT", "--model.net.in_channels", "1")
    done = cli("fit", *ONE_BATCH, "--model", "Classification", *net, "--data", "Digits", "--run_dir", "run")
    assert done.code == 0, done.err
    (file,) = cache.iterdir()
    file.unlink()
    monkeypatch.setattr("torch.hub.urlopen", lambda *_, **__: pytest.fail("looked for weights"))
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 0, tested.err

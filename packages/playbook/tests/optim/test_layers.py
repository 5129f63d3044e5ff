"""Which layer each parameter belongs to, on nets of every build; torchvision's are made without weights."""

from collections import OrderedDict

import pytest
import torch
import torchvision
from torch import Tensor, nn

from playbook.optim.layers import layer_numbers


def layers(net: nn.Module) -> list[set[str]]:
    """Names of the parameters of each layer, from the input."""
    numbers = layer_numbers(net, [net])
    named: list[set[str]] = [set() for _ in range(max(numbers.values()) + 1)]
    for name, parameter in net.named_parameters():
        named[numbers[id(parameter)]].add(name)
    return named


def modules(net: nn.Module) -> list[set[str]]:
    """The same by the names of the outermost two modules, or one."""
    return [{".".join(name.split(".")[:-1][:2]) for name in layer} for layer in layers(net)]


def torchvision_net(name: str) -> nn.Module:
    with torch.device("meta"):
        return torchvision.models.get_model(name, weights=None)


def test_residual_net() -> None:
    blocks = [{f"layer{stage}.{block}"} for stage in (1, 2, 3, 4) for block in (0, 1)]
    assert modules(torchvision_net("resnet18")) == [{"conv1", "bn1"}, *blocks, {"fc"}]


def test_vision_transformer() -> None:
    """As BEiT counts: token, positions and patches first, the norm behind the last block with the head."""
    net = torchvision_net("vit_b_16")
    first, *blocks, last = layers(net)
    assert first == {"class_token", "conv_proj.weight", "conv_proj.bias", "encoder.pos_embedding"}
    prefixes = [{".".join(name.split(".")[:3]) for name in block} for block in blocks]
    assert prefixes == [{f"encoder.layers.encoder_layer_{number}"} for number in range(12)]
    assert last == {"encoder.ln.weight", "encoder.ln.bias", "heads.head.weight", "heads.head.bias"}


@pytest.mark.parametrize(
    ("name", "num_blocks"),
    [
        ("convnext_tiny", 3 + 3 + 9 + 3 + 3),  # the last three between the stages
        ("efficientnet_b0", 16 + 1),  # the last convolution
        ("mobilenet_v2", 17 + 1),
        ("swin_t", 2 + 2 + 6 + 2 + 3),
        ("resnet50", 16),
        ("resnext50_32x4d", 16),
    ],
)
def test_stem_blocks_and_head(name: str, num_blocks: int) -> None:
    assert len(layers(torchvision_net(name))) == 1 + num_blocks + 1


@pytest.mark.parametrize(
    "name", ["vgg11_bn", "alexnet", "squeezenet1_0", "densenet121", "shufflenet_v2_x0_5", "maxvit_t"]
)
def test_every_parameter_is_in_a_layer_and_the_order_is_that_of_the_net(name: str) -> None:
    net = torchvision_net(name)
    numbers = layer_numbers(net, [net])
    assert numbers.keys() == {id(parameter) for parameter in net.parameters()}
    weights = [numbers[id(parameter)] for parameter in net.parameters() if parameter.ndim > 1]
    assert weights == sorted(weights)
    assert set(numbers.values()) == set(range(weights[-1] + 1))


def test_plain_layers_are_layers() -> None:
    net = nn.Sequential(
        nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 1)
    )
    assert [sorted({name[0] for name in layer}) for layer in layers(net)] == [["0", "1"], ["3", "4"], ["5"]]


class Language(nn.Module):
    """Two embeddings, blocks with a list of experts inside, and a head that shares the first embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.tokens, self.positions = nn.Embedding(7, 4), nn.Embedding(5, 4)
        experts = [nn.ModuleList([nn.Sequential(nn.Linear(4, 4), Wrapper(nn.Linear(4, 4)))]) for _ in range(2)]
        self.blocks = nn.ModuleList([Block(expert) for expert in experts])
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 7)
        self.head.weight = self.tokens.weight


class Block(nn.Module):
    def __init__(self, experts: nn.ModuleList) -> None:
        super().__init__()
        self.attention, self.experts = nn.Linear(4, 4), experts


class Wrapper(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def test_embeddings_blocks_and_a_shared_head() -> None:
    first, block_0, block_1, head = layers(Language())
    assert first == {"scale", "tokens.weight", "positions.weight"}
    assert {name.split(".")[1] for name in block_0} == {"0"}
    assert {name.split(".")[1] for name in block_1} == {"1"}
    assert head == {"norm.weight", "norm.bias", "head.bias"}


def test_a_wrapped_net_has_the_layers_of_the_net() -> None:
    inner = nn.Sequential(OrderedDict(first=nn.Linear(2, 2), second=nn.Linear(2, 2)))
    assert layers(Wrapper(Wrapper(inner))) == [{f"net.net.{name}" for name in layer} for layer in layers(inner)]


def test_a_norm_without_a_layer_beside_it() -> None:
    assert layers(nn.Sequential(nn.LayerNorm(2))) == [{"0.weight", "0.bias"}]
    assert modules(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))) == [{"0", "1"}], "in front of the first layer"

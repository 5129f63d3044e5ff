"""Which parameters decay, and which matrices are hidden."""

import pytest
import torch
import torchvision
from torch import Tensor, nn

from playbook.optim.groups import parameter_groups


def decayed(module: nn.Module) -> tuple[set[str], set[str]]:
    """Names of the parameters that decay and of those that do not."""
    names = {id(parameter): name for name, parameter in module.named_parameters(remove_duplicate=False)}
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for group in parameter_groups(module):
        found["weight_decay" not in group] |= {names[id(parameter)] for parameter in group["params"]}
        assert group.get("weight_decay", 0.0) == 0.0
    return found[True], found[False]


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4),
        nn.BatchNorm3d(4),
        nn.SyncBatchNorm(4),
        nn.InstanceNorm2d(4, affine=True),
        nn.GroupNorm(2, 4),
        nn.LayerNorm(4),
        nn.LayerNorm([4, 8, 8]),  # its weight has three dimensions
        nn.RMSNorm(4),
        nn.RMSNorm([4, 8]),
        nn.Embedding(5, 4),
        nn.EmbeddingBag(5, 4),
    ],
    ids=lambda norm: f"{norm}",
)
def test_norms_and_embeddings_do_not_decay(norm: nn.Module) -> None:
    assert decayed(norm) == (set(), {name for name, _ in norm.named_parameters()})


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(3, 4),
        nn.Conv2d(3, 4, 3),
        nn.ConvTranspose1d(3, 4, 3),
        nn.Bilinear(2, 3, 4),
        nn.LSTM(3, 4, num_layers=2),
        nn.MultiheadAttention(4, 2),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_weights_decay_and_biases_do_not(layer: nn.Module) -> None:
    biases = {name for name, _ in layer.named_parameters() if "bias" in name}
    weights = {name for name, _ in layer.named_parameters() if "weight" in name}
    assert biases
    assert decayed(layer) == (weights, biases)


class Odd(nn.Module):
    """Parameters of its own, of every number of dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.scale = nn.Parameter(torch.ones(4))
        self.projection = nn.Parameter(torch.ones(4, 4))
        self.relative_bias = nn.Parameter(torch.ones(4, 4))


def test_parameters_of_no_layer_are_judged_by_dimensions_and_name() -> None:
    assert decayed(Odd()) == ({"projection"}, {"temperature", "scale", "relative_bias"})


def test_frozen_parameters_are_left_out() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    net[0].requires_grad_(False)
    net[1].bias.requires_grad_(False)
    assert decayed(net) == ({"2.weight"}, {"1.weight", "2.bias"})
    assert parameter_groups(net.requires_grad_(False)) == []


def test_a_group_without_parameters_is_left_out() -> None:
    groups = parameter_groups(nn.Linear(3, 4, bias=False))
    assert [len(group["params"]) for group in groups] == [1]
    assert "weight_decay" not in groups[0]
    groups = parameter_groups(nn.LayerNorm(4))
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(2, 0.0)]


class Tied(nn.Module):
    """A head that shares the embedding's weight, as language models do."""

    def __init__(self, embedding_first: bool) -> None:
        super().__init__()
        if embedding_first:
            self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)
        else:
            self.head, self.embedding = nn.Linear(4, 5), nn.Embedding(5, 4)
        self.head.weight = self.embedding.weight


@pytest.mark.parametrize("embedding_first", [True, False])
def test_shared_parameters_are_taken_once_and_as_an_embedding(embedding_first: bool) -> None:
    net = Tied(embedding_first)
    taken = [parameter for group in parameter_groups(net) for parameter in group["params"]]
    assert sum(parameter is net.embedding.weight for parameter in taken) == 1
    assert len(taken) == 2
    assert decayed(net)[0] == set()


def test_order_is_that_of_the_module() -> None:
    """An optimizer's state goes by position: another order would give every momentum to another weight."""
    net = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)) for _ in range(20)])
    order = [id(parameter) for parameter in net.parameters()]
    for group in parameter_groups(net):
        positions = [order.index(id(parameter)) for parameter in group["params"]]
        assert positions == sorted(positions)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_a_step_without_gradient_shrinks_what_decays_and_nothing_else(optimizer: type[torch.optim.Optimizer]) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    before: dict[str, Tensor] = {}
    for name, parameter in net.named_parameters():
        parameter.data.uniform_(1, 2)
        parameter.grad = torch.zeros_like(parameter)
        before[name] = parameter.detach().clone()
    optimizer(parameter_groups(net), lr=0.5, weight_decay=0.1).step()  # type: ignore[call-arg]
    for name, parameter in net.named_parameters():
        expected = before[name] * (1 - 0.5 * 0.1 if name == "0.weight" else 1)
        torch.testing.assert_close(parameter, expected, msg=lambda text, name=name: f"{name}: {text}")


def hidden(module: nn.Module) -> set[str]:
    """Names of the parameters in the group of hidden matrices; all together must be those of the usual split."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    groups, usual = parameter_groups(module, split_hidden=True), parameter_groups(module)
    assert sorted(id(p) for group in groups for p in group["params"]) == sorted(
        id(p) for group in usual for p in group["params"]
    )
    assert not any("hidden" in group for group in usual)
    assert all(group.get("weight_decay", 1) for group in groups if group.get("hidden")), "hidden matrices decay"
    return {names[id(p)] for group in groups if group.get("hidden") for p in group["params"]}


class Transformer(nn.Module):
    """A language model in the order that they are usually written in."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 4), nn.Embedding(8, 4)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(4, 2, 8) for _ in range(2)])
        self.norm = nn.LayerNorm(4)
        self.output = nn.Linear(4, 11, bias=False)
        if tied:
            self.output.weight = self.tokens.weight


@pytest.mark.parametrize("tied", [True, False])
def test_hidden_matrices_of_a_language_model(tied: bool) -> None:
    layers = ("self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight")
    assert hidden(Transformer(tied)) == {f"blocks.{block}.{layer}" for block in (0, 1) for layer in layers}


def test_hidden_matrices_of_a_vision_transformer() -> None:
    """Its class token is registered before the patch embedding, which is the first layer none the less."""
    with torch.device("meta"):
        net = torchvision.models.VisionTransformer(8, 4, 1, 2, 6, 12, num_classes=3)
    assert hidden(net) == {
        f"encoder.layers.encoder_layer_0.{name}.weight" for name in ("self_attention.out_proj", "mlp.0", "mlp.3")
    } | {"encoder.layers.encoder_layer_0.self_attention.in_proj_weight"}


def test_hidden_kernels_of_a_residual_net() -> None:
    with torch.device("meta"):
        net = torchvision.models.resnet18()
    kernels = {name for name, parameter in net.named_parameters() if parameter.ndim == 4}
    assert hidden(net) == kernels - {"conv1.weight"}


def test_heads_are_known_by_name_and_odd_shapes_are_left_to_adamw() -> None:
    net = nn.ModuleDict(
        {
            "first": nn.Linear(3, 4),
            "head": nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)),
            "multihead": nn.Linear(4, 4),
            "bilinear": nn.Bilinear(2, 3, 4),
            "transposed": nn.ConvTranspose1d(4, 4, 3),
            "last": nn.Linear(4, 2),
        }
    )
    assert hidden(net) == {"multihead.weight", "transposed.weight"}


def test_first_and_last_are_those_of_what_is_trained() -> None:
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(6)])
    net[0].requires_grad_(False)
    assert hidden(net) == {"2.weight", "3.weight", "4.weight"}
    assert hidden(net[4:]) == set()

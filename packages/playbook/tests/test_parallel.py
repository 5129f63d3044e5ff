"""Nets on several processes: which blocks are sharded, which layers are split, and that a step stays the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.parametrizations import weight_norm
from torchmetrics.classification import MulticlassAccuracy
from torchvision.models import convnext_tiny, efficientnet_b0, resnet18, swin_t, vit_b_16

from playbook.block import blocks
from playbook.errors import UserError
from playbook.parallel import any_process, run_step, spread, spread_module, units
from playbook.tensor_parallel import split_layers
from playbook.testing.parallel import Case, assert_equal_to_one_process

D, K = 8, 10


class Attention(nn.Module):
    """Two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2
        self.qkv = nn.Linear(D, 3 * D)
        self.out = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (-1, 3, D // 2)).transpose(1, 2)  # (B, H, T, 3, D / H), H of this rank
        q, k, v = qkv.unbind(3)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(x.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and an MLP; `norm` is called with its input by name."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.attention = Attention()
        self.gate = None
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(input=x))
        return x + self.mlp(x)


class Transformer(nn.Module):
    """Tokens (B, T) → logits (B, T, K), with a head that shares its weight with the embedding."""

    tensor_parallel: ClassVar[dict[str, str]] = {
        "blocks.*.attention.qkv": "colwise",
        "blocks.*.attention.out": "rowwise",
        "blocks.*.gate": "colwise",
        "blocks.*.mlp.0": "colwise",
        "blocks.*.mlp.2": "rowwise",
    }

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(K, D)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(D, K, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.features(tokens))

    def features(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return x


# blocks


def layer(num_in: int = D, num_out: int = D) -> nn.Sequential:
    return nn.Sequential(nn.Linear(num_in, num_out), nn.ReLU())


class Wrapped(nn.Module):
    """A net in an attribute."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (Transformer(), ["blocks.0", "blocks.1"]),  # not their MLPs
        (nn.Linear(3, 4), []),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5)), ["0", "1", "2"]),
        (nn.Sequential(layer(), layer()), ["0", "1"]),
        # stages of blocks
        (nn.Sequential(nn.Sequential(layer(), layer()), nn.Sequential(layer())), ["0.0", "0.1", "1.0"]),
        # elements that begin with a layer are blocks
        (nn.Sequential(*(nn.Sequential(nn.Linear(D, D), layer()) for _ in range(3))), ["0", "1", "2"]),
        # a backbone and a head
        (nn.Sequential(Transformer(), nn.Linear(D, K)), ["0.blocks.0", "0.blocks.1", "1"]),
        # one block with most of the parameters
        (Wrapped(nn.Sequential(Block(), nn.Linear(D, 2))), ["net.0", "net.1"]),
        # containers that are never called
        (nn.ModuleList([nn.ModuleList([layer(), layer()]), nn.ModuleDict({"a": nn.Linear(3, 4)})]), ["0.0", "0.1"]),
        (nn.ModuleDict({"a": nn.Sequential(layer(), layer())}), ["a.0", "a.1"]),
    ],
)
def test_blocks_of_a_net(net: nn.Module, expected: list[str]) -> None:
    assert list(blocks(net)) == expected


NETS: dict[str, tuple[Callable[[], nn.Module], list[str], int]] = {
    "resnet18": (resnet18, ["layer1.0", "layer1.1", "layer2.0"], 8),
    "vit_b_16": (vit_b_16, ["encoder.layers.encoder_layer_0", "encoder.layers.encoder_layer_1"], 13),
    "swin_t": (swin_t, ["features.0", "features.1.0", "features.1.1", "features.2"], 16),
    "convnext_tiny": (convnext_tiny, ["features.0", "features.1.0", "features.1.1"], 23),
    "efficientnet_b0": (efficientnet_b0, ["features.0", "features.1.0", "features.2.0", "features.2.1"], 19),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_units_of_published_nets(name: str) -> None:
    """No unit holds half of the parameters, and all units together hold nearly all of them."""
    build, first, number = NETS[name]
    net = build()
    found = units(net)
    assert list(found)[: len(first)] == first
    assert len(found) == number
    sizes = [sum(parameter.numel() for parameter in unit.parameters()) for unit in found.values()]
    whole = sum(parameter.numel() for parameter in net.parameters())
    assert sum(sizes) > 0.9 * whole
    assert max(sizes) < 0.5 * whole


def test_a_block_that_occurs_twice_is_one_unit() -> None:
    block = Block()
    assert list(units(nn.Sequential(block, block))) == ["0"]


def test_blocks_that_share_a_parameter_are_no_units() -> None:
    first, second, third = Block(), Block(), Block()
    first.mlp[0].weight = second.mlp[0].weight
    assert list(units(nn.ModuleList([first, second, third]))) == ["2"]
    first, second, third = Block(), Block(), Block()
    first.norm = second.norm
    assert list(units(nn.ModuleList([first, second, third]))) == ["2"]


def test_blocks_without_a_matrix_are_no_units() -> None:
    assert list(units(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), weight_norm(nn.Linear(4, 5))))) == [
        "0",
        "3",
    ]


# plans


def test_a_plan_names_layers_by_parts() -> None:
    assert split_layers(Transformer(depth=11)) == {
        f"blocks.{number}.{name}": style
        for name, style in (
            ("attention.qkv", "colwise"),
            ("attention.out", "rowwise"),
            ("mlp.0", "colwise"),
            ("mlp.2", "rowwise"),
        )
        for number in range(11)
    }
    assert split_layers(nn.Sequential(Transformer(depth=1), nn.Linear(2, 2))).keys() == {
        f"0.blocks.0.{name}" for name in ("attention.qkv", "attention.out", "mlp.0", "mlp.2")
    }
    assert split_layers(nn.Sequential(nn.Linear(2, 2))) == {}


def with_plan(plan: Any) -> nn.Module:
    return type("Planned", (Transformer,), {"tensor_parallel": plan})()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"blocks.*.mlp.0": "column"}, r"expected colwise or rowwise for blocks\.\*\.mlp\.0, got 'column'"),
        ({"blocks.*.mlp.0": None}, r"expected colwise or rowwise for blocks\.\*\.mlp\.0, got None"),
        ({"blocks.*.mpl.0": "colwise"}, r"no layer is named blocks\.\*\.mpl\.0\. Nearest: blocks\..*\.mlp\.0"),
        ({"blocks.mlp.0": "colwise"}, r"no layer is named blocks\.mlp\.0"),
        ({"*.mlp.0": "colwise"}, r"no layer is named \*\.mlp\.0"),  # one part of a name alone
        ({"embedding": "colwise"}, r"embedding is a torch\.nn\.modules\.sparse\.Embedding, expected a torch\.nn\.L"),
        ({"blocks.*.mlp": "colwise"}, r"blocks\.0\.mlp is a torch\.nn\.modules\.container\.Sequential, expected"),
        (["blocks.*.mlp.0"], r"expected a dict, got \['blocks"),
    ],
)
def test_a_wrong_plan_is_an_error(plan: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^tensor_parallel of Planned: {message}"):
        split_layers(with_plan(plan))


# a step on several processes


class Beside(Block):
    """A parameter of its own beside split layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(D))


class Whole(LightningModule):
    """A plain LightningModule with everything that may be trained: a net, a loss, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Transformer()
        self.last = self.net.blocks[-1]  # under another name
        self.project = nn.Linear(D, D)
        self.scale = nn.Parameter(torch.ones(()))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.accuracy = MulticlassAccuracy(K)

    def forward(self, tokens: Tensor) -> Tensor:
        weight = getattr(self.net.embedding.weight, "to_local", lambda: self.net.embedding.weight)()
        return self.scale * self.project(self.net.features(tokens)) @ weight.T


class Several(LightningModule):
    """No `net`: nets in attributes and in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Transformer()
        self.heads = nn.ModuleList([nn.Linear(K, D), nn.Linear(D, K)])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.encoder(tokens)
        for head in self.heads:
            x = head(x)
        return x


class Unplanned(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)


class Twice(nn.Module):
    """A block that is called twice, and one that returns a view, which another changes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(K, D)
        self.layers = nn.ModuleList([Block(), Viewed()])
        self.head = nn.Linear(D, K)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        block, viewed = self.layers
        x = viewed(block(block(x)))
        x += 1
        return self.head(x)


class Viewed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).flatten(1).unflatten(1, (-1, D))


def classify(net: nn.Module, share: int, shares: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens, target = (torch.randint(K, (8, 6), generator=generator).chunk(shares)[share] for _ in range(2))
    logits = net(tokens)
    return logits, cross_entropy(logits.flatten(0, 1), target.flatten())


CASES = {
    "transformer": Case(Transformer, classify),
    "in a wrapper": Case(lambda: Wrapped(Transformer()), classify),
    "module": Case(Whole, classify),
    "several nets": Case(Several, classify),
    "twice": Case(Twice, classify),
}


def with_block(block: nn.Module, plan: dict[str, str]) -> nn.Module:
    net = with_plan({**Transformer.tensor_parallel, **plan})
    net.blocks[0] = block  # type: ignore[index,operator]
    return net


def with_heads(number: int) -> nn.Module:
    net = Transformer()
    net.blocks[1].attention.num_heads = number  # type: ignore[union-attr]
    return net


def with_dropout(name: str, value: Any) -> nn.Module:
    net = Transformer()
    setattr(net.blocks[1], name, value)
    return net


def use(net: Any, mesh: Any) -> None:
    spread(net, mesh)
    net(torch.zeros(2, 3, dtype=torch.long))


class NormalisedHeads(Attention):
    """A norm with weights on the heads of each device: their gradients would differ."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(D // 2)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.norm(self.qkv(x).unflatten(-1, (-1, 3, D // 2)))
        return self.out(qkv[..., 0, :].flatten(2))


def with_heads_normalised() -> nn.Module:
    torch.manual_seed(0)
    net: Any = Transformer()
    net.blocks[0].attention = NormalisedHeads()
    return net


def with_scalar() -> nn.Module:
    net = Transformer()
    net.temperature = nn.Parameter(torch.ones(()))
    return net


def shared() -> LightningModule:
    module = Several()
    module.heads[1].weight = nn.Parameter(torch.ones(K, D))
    module.encoder.embedding.weight = module.encoder.head.weight = module.heads[1].weight
    return module


REFUSED = {
    "fsdp2": {
        "scalar": lambda mesh: spread(with_scalar(), mesh),
        "shared": lambda mesh: spread_module(shared(), mesh),
    },
    "tensor parallel": {
        "no plan": lambda mesh: spread(nn.Linear(2, 2), mesh),
        "no plan at all": lambda mesh: spread_module(Unplanned(), mesh),
        "own parameter": lambda mesh: spread(with_block(Beside(), {}), mesh),
        "heads": lambda mesh: spread(with_heads(3), mesh),
        "features": lambda mesh: spread(with_block(Wrapped(nn.Linear(D, 7)), {"blocks.0.net": "colwise"}), mesh),
        "dropout": lambda mesh: spread(with_dropout("residual_dropout", nn.Dropout(0.2)), mesh),
        "number": lambda mesh: spread(with_dropout("dropout", 0.3), mesh),
        "sequence": lambda mesh: spread(with_dropout("extra", nn.Sequential(nn.Dropout(0.1))), mesh),
        "norm": lambda mesh: use(with_heads_normalised(), mesh),
    },
}


@pytest.mark.slow
def test_fsdp2_equals_one_process(tmp_path: Path) -> None:
    for messages in assert_equal_to_one_process(__file__, "fsdp2", CASES, tmp_path):
        assert messages == {
            "scalar": "strategy: temperature of Transformer is a scalar, which FSDP2 cannot shard; expected shape "
            "(1,), or another --trainer.strategy",
            "shared": "strategy: encoder.embedding.weight belongs to several networks of Several, which are sharded "
            "separately; expected them in one module, such as its `net`",
        }


@pytest.mark.slow
def test_tensor_parallel_equals_one_process(tmp_path: Path) -> None:
    names = [name for name in CASES if name != "twice"]
    for messages in assert_equal_to_one_process(__file__, "tensor parallel", names, tmp_path):
        assert messages == {
            "no plan": "tensor_parallel_size: Linear has no plan for splitting its layers; expected 1, got 2. "
            "Use data_parallel_size to shard it",
            "no plan at all": "tensor_parallel_size: Linear has no plan for splitting its layers; expected 1, got 2. "
            "Use data_parallel_size to shard it",
            "own parameter": "tensor_parallel: blocks.0.scale is a parameter beside split layers of one module, "
            "expected it in a module of its own",
            "heads": "blocks.1.attention.num_heads: expected a multiple of tensor_parallel_size 2, got 3",
            "features": "blocks.0.net.out_features: expected a multiple of tensor_parallel_size 2, got 7",
            "dropout": "residual_dropout: expected 0 with tensor_parallel_size 2, got 0.2",
            "number": "dropout: expected 0 with tensor_parallel_size 2, got 0.3",
            "sequence": "blocks.1.extra.0 (dropout): expected 0 with tensor_parallel_size 2, got 0.1",
            "norm": "tensor_parallel: inputs of blocks.0.attention.norm, which is not split, differ between devices; "
            "expected a rowwise layer after each colwise one, and the same samples on all devices of a "
            "tensor-parallel group",
        }


@pytest.mark.slow
def test_fsdp2_and_tensor_parallel_equal_one_process(tmp_path: Path) -> None:
    assert_equal_to_one_process(__file__, "both", [name for name in CASES if name != "twice"], tmp_path)


def test_one_process_needs_nothing() -> None:
    module = Whole()
    tokens = torch.randint(K, (2, 3))
    assert torch.equal(run_step(module, lambda: module(tokens)), module(tokens))
    assert any_process(module, True)
    assert not any_process(module, False)

"""The stages of a net: head first, every parameter in one of them."""

import pytest
import torch
from torch import nn

from src.ops.stages import parameter_stages


class Tokens(nn.Module):
    """A class token, pre-norm blocks in a list, a norm after them, a head, as transformers are built."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(4))
        self.embed = nn.Linear(3, 4)
        self.blocks = nn.ModuleList(nn.ModuleDict({"norm": nn.LayerNorm(4), "mlp": _mlp()}) for _ in range(2))
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 2)


class Wrapped(nn.Module):
    """A net inside another, which scales what comes out."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.scale = nn.Parameter(torch.ones(()))


class Tied(nn.Module):
    """A head that shares its weight with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.mlp = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5)
        self.head.weight = self.embed.weight


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


def _convs() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2))


def names(net: nn.Module, head: nn.Module | None = None) -> list[list[str]]:
    """The layers of each stage."""
    known = {id(parameter): name for name, parameter in net.named_parameters()}
    stages = [[known[id(parameter)] for parameter in stage] for stage in parameter_stages(net, head)]
    flat = [name for stage in stages for name in stage]
    assert sorted(flat) == sorted(known.values()), "every parameter once"
    layers = [[name.removesuffix(".weight").removesuffix(".bias") for name in stage] for stage in stages]
    return [list(dict.fromkeys(stage)) for stage in layers]


def test_layers_from_the_last_to_the_first_with_their_norms() -> None:
    net = nn.Sequential(_convs(), nn.Flatten(), nn.Linear(8, 3))
    assert names(net) == [["2"], ["0.3", "0.4"], ["0.0", "0.1"]]


def test_a_block_of_a_list_stays_whole_and_a_token_trains_last() -> None:
    block = ["norm", "mlp.0", "mlp.2"]
    first, second = ([f"blocks.{i}.{name}" for name in block] for i in (0, 1))
    assert names(Tokens()) == [["head"], [*second, "norm"], first, ["embed", "token"]]


def test_a_wrapper_is_opened() -> None:
    inner = [[f"net.{name}" for name in stage] for stage in names(Tokens())]
    assert names(Wrapped(Tokens())) == [*inner[:-1], ["net.embed", "scale", "net.token"]]


def test_a_shared_parameter_belongs_to_the_first_stage_that_has_it() -> None:
    net = Tied()
    head, mlp = parameter_stages(net)
    assert [id(parameter) for parameter in head] == [id(net.embed.weight), id(net.head.bias)]
    assert len(mlp) == 2


def test_a_head_inside_a_part_is_alone() -> None:
    head = nn.Linear(8, 3)
    net = nn.Sequential(_convs(), nn.Flatten(), nn.Sequential(nn.Linear(8, 8), head))
    assert names(net, head) == [["2.1"], ["2.0"], ["0.3", "0.4"], ["0.0", "0.1"]]


@pytest.mark.parametrize(
    ("net", "num_stages"), [(nn.ReLU(), 0), (nn.Linear(2, 2), 1), (nn.Sequential(nn.Linear(2, 2)), 1), (Tokens(), 4)]
)
def test_number_of_stages(net: nn.Module, num_stages: int) -> None:
    assert len(parameter_stages(net)) == num_stages


def test_no_more_is_split_than_five_stages_need() -> None:
    parts = [_convs() for _ in range(5)]
    assert len(parameter_stages(nn.Sequential(*parts))) == 5
    assert len(parameter_stages(nn.Sequential(*parts[:3]))) == 5, "the head is not split"


def test_the_largest_part_is_split_first() -> None:
    large = nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 9), nn.Linear(9, 9))
    small = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert names(nn.Sequential(small, large, nn.Linear(1, 1))) == [["2"], ["1.2"], ["1.1"], ["1.0"], ["0.0", "0.1"]]

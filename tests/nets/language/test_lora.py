"""Adapters: what is trained, what a checkpoint holds, and that merged weights are the adapted model's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from playbook import UserError
from src.nets.language.gpt import GPT
from src.nets.language.text_encoder import TextEncoder
from src.nets.lora import LoRA

pytestmark = pytest.mark.slow  # peft takes 8 s of CPU to import


def gpt(tie_weights: bool = True) -> GPT:
    torch.manual_seed(3)
    return GPT(50, 16, num_layers=2, dim=32, num_heads=4, num_kv_heads=2, tie_weights=tie_weights)


def untied() -> GPT:
    return gpt(tie_weights=False)


class Known(GPT):
    """A net that brings its own weights, as HuggingFace does."""

    source = "known"

    def __init__(self, seed: int = 3) -> None:
        torch.manual_seed(seed)
        super().__init__(50, 16, num_layers=2, dim=32, num_heads=4)


def disturbed(net: LoRA) -> LoRA:
    """As after some training: at initialisation an adapter changes nothing."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return net.eval()


def tokens(seed: int = 0) -> Tensor:
    return torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(seed))


CASES = [
    (gpt, {"target_modules": ["query", "value"]}),
    (gpt, {"target_modules": "all-linear"}),
    (gpt, {"target_modules": "all-linear", "dora": True}),
    (gpt, {"target_modules": ["query"], "modules_to_save": ["head"]}),
    (gpt, {"target_modules": ["query"], "modules_to_save": ["embedding"]}),
    (untied, {"target_modules": ["query", "embedding"]}),
    (untied, {"target_modules": ["query", "head"]}),
    (untied, {"target_modules": ["query", "embedding", "head"], "dora": True}),
]


@pytest.mark.parametrize(("make", "options"), CASES)
def test_merged_weights_give_the_adapted_logits(make: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    base = make().eval()
    adapted = LoRA(make(), rank=4, **options).eval()
    torch.testing.assert_close(adapted(tokens()), base(tokens()))
    logits = disturbed(adapted)(tokens())
    assert (logits - base(tokens())).abs().max() > 1e-3, "an adapter that changes nothing proves nothing"
    merged = adapted.merged().state_dict()
    assert merged.keys() == base.state_dict().keys()
    base.load_state_dict(merged)
    torch.testing.assert_close(base(tokens()), logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(adapted(tokens()), logits, rtol=0, atol=0)  # merging a copy leaves it as it was


@pytest.mark.parametrize("dora", [False, True])
def test_an_encoder_is_adapted_from_its_embedding_to_its_blocks(dora: bool) -> None:
    def encoder() -> TextEncoder:
        torch.manual_seed(3)
        return TextEncoder(vocab_size=50, max_length=16, dim=32, num_heads=4).eval()

    layers = ["embedding", "query", "key", "value", "out", "up", "down"]
    net = LoRA(encoder(), rank=4, target_modules=layers, modules_to_save=["head"], dora=dora)
    base = encoder()
    mask = torch.arange(12) < torch.tensor([[12], [5]])
    logits = disturbed(net)(tokens(), mask)
    assert (logits - base(tokens(), mask)).abs().max() > 1e-3
    base.load_state_dict(net.merged().state_dict())
    torch.testing.assert_close(base(tokens(), mask), logits, rtol=0, atol=1e-6)
    adapted = {name.split(".lora_")[0] for name, _ in net.net.named_parameters() if ".lora_" in name}
    assert adapted == {"embedding", *(f"blocks.{block}.{name}" for block in range(2) for name in layers[1:])}


@pytest.mark.parametrize("name", ["embedding", "head"])
def test_an_adapter_of_a_tied_weight_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"target_modules: {name} shares its weight with .* not be merged"):
        LoRA(gpt(), target_modules=["query", name])


def test_only_adapters_and_named_modules_are_trained_and_saved() -> None:
    net = LoRA(Known(), rank=4, target_modules=["query"], modules_to_save=["norm"])
    names = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    adapters = {f"net.blocks.{block}.query.lora_{kind}.default.weight" for block in range(2) for kind in "AB"}
    assert names == adapters | {"net.norm.weight"}
    assert net.state_dict().keys() == names | {"base_fingerprint"}


def test_tied_modules_to_save_are_trained_together() -> None:
    net = LoRA(gpt(), target_modules=["query"], modules_to_save=["head"])
    assert net.net.head.weight is net.net.embedding.weight  # type: ignore[union-attr]
    assert net.net.head.weight.requires_grad  # type: ignore[union-attr]


def test_adapters_load_beside_the_same_base_strictly() -> None:
    trained = disturbed(LoRA(Known(), rank=4))
    other = LoRA(Known(), rank=4).eval()
    holder = nn.ModuleDict({"net": other})
    holder.load_state_dict({f"net.{name}": value for name, value in trained.state_dict().items()}, strict=True)
    torch.testing.assert_close(other(tokens()), trained(tokens()), rtol=0, atol=0)
    state = trained.state_dict()
    del state["net.blocks.0.query.lora_A.default.weight"]
    with pytest.raises(RuntimeError, match=r"Missing key.*blocks\.0\.query\.lora_A"):
        other.load_state_dict(state)


def test_adapters_of_another_base_are_refused() -> None:
    state = LoRA(Known(), rank=4).state_dict()
    with pytest.raises(UserError, match=r"the weights of .*known .* differ"):
        LoRA(Known(seed=4), rank=4).load_state_dict(state)


def test_a_base_that_nothing_could_bring_again_stays_in_the_checkpoint() -> None:
    net = LoRA(gpt(), rank=4)
    assert "net.embedding.weight" in net.state_dict()
    other = LoRA(untied(), rank=4, target_modules=["query"])
    assert other.state_dict().keys() > {"net.embedding.weight", "net.head.weight"}


def test_attributes_of_the_net_are_those_of_the_adapted_one() -> None:
    net = disturbed(LoRA(gpt(), rank=4))
    assert net.context_length == 16
    torch.testing.assert_close(net.head(net.features(tokens())), net(tokens()))
    cache = net.make_cache(2, 12)
    parts = [net(tokens()[:, :7], cache=cache), net(tokens()[:, 7:], cache=cache)]
    torch.testing.assert_close(torch.cat(parts, dim=1), net(tokens()))
    # the weight of an adapted head is not all of it, and the chunked loss would take that alone
    assert not hasattr(LoRA(untied(), target_modules=["head"]), "features")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank: expected at least 1, got 0"),
        ({"alpha": 0.0}, "alpha: expected more than 0, got 0.0"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"target_modules": ["quary"]}, "target_modules: GPT has no module quary.*query"),
        ({"target_modules": "linear"}, "target_modules: expected all-linear or a list"),
        ({"target_modules": ["attention_norm"]}, "attention_norm is a RMSNorm, expected a linear layer"),
        ({"modules_to_save": ["haed"]}, "modules_to_save: GPT has no module haed.*head"),
        ({"target_modules": ["query"], "modules_to_save": ["blocks"]}, "has no layer to adapt"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoRA(gpt(), **options)


def test_adapters_are_not_nested() -> None:
    with pytest.raises(ValueError, match="already has adapters"):
        LoRA(LoRA(gpt()))

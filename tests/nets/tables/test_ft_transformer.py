"""What every net must satisfy is in test_nets.py; here, what is particular to the FT-Transformer."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from src.nets.tables.ft_transformer import FTTransformer


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    inputs = {"numbers": torch.randn(batch_size, 3), "categories": torch.randint(4, (batch_size, 2))}
    sizes = {"dim": 12, "depth": 2, "num_heads": 3, "num_bins": 4, "num_frequencies": 5}
    return inputs, {"num_classes": 3, "num_features": 3, "cardinalities": [4, 5], **sizes}


def build(**options: Any) -> FTTransformer:
    """In float64, with random biases, norms and bins, and nothing dropped."""
    torch.manual_seed(0)
    dropouts = {"dropout": 0.0, "attention_dropout": 0.0, "category_dropout": 0.0}
    net = FTTransformer(**{**example(1)[1], **dropouts, **options}).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return net


@pytest.mark.parametrize("embedding", ["linear", "piecewise", "periodic"])
def test_reference_outputs_in_float64(embedding: Any) -> None:
    """Every block on every token, attention head by head; the class token is read at the end."""
    net = build(embedding=embedding, depth=3).train()
    inputs, _ = example(6)
    numbers, categories = inputs["numbers"].double(), inputs["categories"]
    weights = dict(net.named_parameters())

    def apply(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        return layer_norm(x, (12,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    x = torch.cat([net.token.expand(6, 1, 12), *net.embedding(numbers, categories)], dim=1)
    assert x.shape == (6, 1 + 3 + 2, 12)
    for block in (f"blocks.{number}" for number in range(3)):
        normed = x if block == "blocks.0" else norm(f"{block}.attention_norm", x)
        q, k, v = apply(f"{block}.qkv", normed).split(12, dim=-1)
        heads = []
        for head in (slice(4 * number, 4 * number + 4) for number in range(3)):
            scores = q[..., head] @ k[..., head].transpose(1, 2) / 4**0.5
            heads.append(scores.softmax(dim=-1) @ v[..., head])
        x = x + apply(f"{block}.out", torch.cat(heads, dim=-1))
        value, gate = apply(f"{block}.mlp.0", norm(f"{block}.mlp_norm", x)).split(16, dim=-1)
        x = x + apply(f"{block}.mlp.3", value * gate.clamp(min=0))
    expected = apply("head.2", norm("head.0", x[:, 0]).clamp(min=0))
    torch.testing.assert_close(net(numbers, categories), expected)


def test_number_of_parameters() -> None:
    """By D = 12: tokens, qkv, out, two norms but for the first of all, and an MLP of 16 hidden units with a gate."""
    net = FTTransformer(**example(1)[1])
    block = 13 * 36 + 13 * 12 + 2 * 24 + 13 * 32 + 17 * 12
    expected = 3 * 2 * 12 + (4 + 5) * 12 + 12 + 2 * block - 24 + 24 + 13 * 3
    assert sum(parameter.numel() for parameter in net.parameters()) == expected


def test_the_order_of_columns_is_that_of_their_embeddings() -> None:
    """Attention has no positions: with columns and their vectors permuted alike, nothing changes."""
    net, order = build(cardinalities=[]), torch.tensor([2, 0, 1])
    permuted = build(cardinalities=[])
    permuted.load_state_dict(net.state_dict())
    with torch.no_grad():
        for parameter in permuted.embedding.parameters():
            parameter.copy_(parameter[order].clone())
    numbers = torch.randn(6, 3, dtype=torch.float64)
    torch.testing.assert_close(permuted.eval()(numbers[:, order]), net.eval()(numbers))
    assert (permuted(numbers) - net(numbers)).abs().max() > 1e-3, "columns without a difference prove nothing"


@pytest.mark.parametrize("columns", [{"num_features": 3, "cardinalities": []}, {"num_features": 0}])
def test_columns_of_one_kind_alone_and_a_single_row(columns: dict[str, Any]) -> None:
    inputs, arguments = example(1)
    inputs = {name: value for name, value in inputs.items() if (name == "numbers") == bool(columns["num_features"])}
    net = FTTransformer(**{**arguments, **columns})
    assert net.train()(**inputs).shape == (1, 3)
    assert net.eval()(**inputs).shape == (1, 3)


def test_facts_set_the_bins() -> None:
    net = FTTransformer(num_features=2, num_bins=2, embedding="piecewise")
    net.embedding.use_facts({"number_quantiles": [[0.0, 1.0, 5.0], [2.0, 2.0, 4.0]]})
    assert net.embedding.get_submodule("numbers").get_buffer("edges").tolist() == [[0, 1, 5], [2, 2, 4]]


def test_training_drops_weights_of_the_attention_and_units_of_the_mlp() -> None:
    inputs, _ = example(6)
    for name in ("dropout", "attention_dropout"):
        net = build(**{name: 0.5}).float().train()
        assert not torch.allclose(net(**inputs), net(**inputs)), f"{name} dropped nothing"
    net = build().float().train()
    assert torch.equal(net(**inputs), net(**inputs))


def test_initial_variance_of_the_weights() -> None:
    """Uniform between ± 1 / sqrt(inputs): a third of 1 / inputs."""
    torch.manual_seed(0)
    net = FTTransformer(dim=96, depth=1)
    for name, inputs in (("qkv", 96), ("out", 96), ("mlp.0", 96), ("mlp.3", 128)):
        weight, bias = net.get_parameter(f"blocks.0.{name}.weight"), net.get_parameter(f"blocks.0.{name}.bias")
        assert weight.var().item() == pytest.approx(1 / (3 * inputs), rel=0.05), name
        assert not bias.any(), name


def test_an_exported_program_takes_any_number_of_rows() -> None:
    inputs, arguments = example(2)
    net = FTTransformer(**arguments).eval()
    batch = {name: {0: torch.export.Dim("B")} for name in inputs}
    program = torch.export.export(net, (), inputs, dynamic_shapes=batch, strict=False).module()
    for batch_size in (1, 7):
        inputs, _ = example(batch_size)
        torch.testing.assert_close(program(**inputs), net(**inputs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"dim": 0}, "dim: expected at least 1, got 0"),
        ({"depth": 0}, "depth: expected at least 1, got 0"),
        ({"num_heads": 0}, "num_heads: expected at least 1, got 0"),
        ({"num_heads": 5}, "dim: expected a multiple of num_heads 5, got 192"),
        ({"mlp_ratio": 0.0}, "mlp_ratio: expected at least 1 / dim, got 0.0"),
        ({"embedding": "none"}, "embedding: expected one of linear, piecewise, periodic, got none"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"attention_dropout": -0.1}, r"attention_dropout: expected a probability in \[0, 1\), got -0.1"),
        ({"num_features": 0}, "num_features, cardinalities: expected at least one column"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FTTransformer(**arguments)

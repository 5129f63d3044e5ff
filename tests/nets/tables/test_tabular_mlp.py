"""What every net must satisfy is in test_nets.py; here, what is particular to the MLP on tables."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.nets.tables.tabular_mlp import TabularMLP

SMALL: dict[str, Any] = {"embedding_dim": 3, "num_bins": 4, "num_frequencies": 5, "category_dim": 2, "width": 16}


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    inputs = {"numbers": torch.randn(batch_size, 3), "categories": torch.randint(4, (batch_size, 2))}
    return inputs, {"num_classes": 3, "num_features": 3, "cardinalities": [4, 5], "depth": 2, **SMALL}


@pytest.mark.parametrize("embedding", ["none", "piecewise", "periodic"])
def test_reference_outputs_in_float64(embedding: Any) -> None:
    """Embedded columns one after another, then the layers as matrix products; training without dropout."""
    torch.manual_seed(0)
    inputs, arguments = example(6)
    net = TabularMLP(**arguments, embedding=embedding, dropout=0.0, category_dropout=0.0).double().train()
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -1, 1)
    numbers, categories = inputs["numbers"].double(), inputs["categories"]
    embedded, rows = net.embedding.numbers, net.embedding.get_parameter("categories.table.weight")
    columns = [numbers[:, [n]] if embedded is None else embedded(numbers)[:, n] for n in range(3)]
    columns += [rows[categories[:, 0]], rows[4 + categories[:, 1]]]
    x = torch.cat(columns, dim=1)
    weights = dict(net.named_parameters())
    for block in range(2):
        x = (x @ weights[f"blocks.{block}.0.weight"].T + weights[f"blocks.{block}.0.bias"]).clamp(min=0)
    torch.testing.assert_close(net(numbers, categories), x @ net.head.weight.T + net.head.bias)


@pytest.mark.parametrize(("embedding", "per_number"), [("none", 0), ("piecewise", 6 + 12), ("periodic", 5 + 30 + 3)])
def test_number_of_parameters(embedding: Any, per_number: int) -> None:
    """Per column: 2 D + T D piecewise, F + 2 F D + D periodic; then the categories' vectors and the layers."""
    net = TabularMLP(**example(1)[1], embedding=embedding)
    inputs = 3 * (1 if embedding == "none" else 3) + 2 * 2
    expected = 3 * per_number + (4 + 5) * 2 + (inputs + 1) * 16 + 17 * 16 + 17 * 3
    assert sum(parameter.numel() for parameter in net.parameters()) == expected


@pytest.mark.parametrize("columns", [{"num_features": 3}, {"num_features": 0, "cardinalities": [4, 5]}])
def test_columns_of_one_kind_alone_and_a_single_row(columns: dict[str, Any]) -> None:
    inputs = {
        name: value for name, value in example(1)[0].items() if (name == "numbers") == bool(columns["num_features"])
    }
    net = TabularMLP(num_classes=2, **columns, **SMALL)
    assert net.train()(**inputs).shape == (1, 2)
    assert net.eval()(**inputs).shape == (1, 2)


def test_facts_set_the_bins() -> None:
    net = TabularMLP(num_features=2, num_bins=2)
    net.embedding.use_facts({"number_quantiles": [[0.0, 1.0, 5.0], [2.0, 2.0, 4.0]]})
    assert net.embedding.get_submodule("numbers").get_buffer("edges").tolist() == [[0, 1, 5], [2, 2, 4]]


def test_initial_variance_of_the_weights() -> None:
    """Uniform between ± 1 / sqrt(inputs): a third of 1 / inputs."""
    torch.manual_seed(0)
    net = TabularMLP(num_classes=300, num_features=400, embedding="none", width=100, depth=1)
    for layer, inputs in ((net.get_parameter("blocks.0.0.weight"), 400), (net.head.weight, 100)):
        assert layer.var().item() == pytest.approx(1 / (3 * inputs), rel=0.05)


def test_dropout_acts_on_every_hidden_layer() -> None:
    net = TabularMLP(depth=3, dropout=0.25)
    assert [layer.p for layer in net.modules() if isinstance(layer, nn.Dropout)] == [0.25] * 3


@pytest.mark.parametrize("embedding", ["none", "piecewise", "periodic"])
def test_an_exported_program_takes_any_number_of_rows(embedding: Any) -> None:
    inputs, arguments = example(2)
    net = TabularMLP(**arguments, embedding=embedding).eval()
    net.embedding.use_facts({"number_quantiles": [[0.0, 0.0, 1.0, 1.0]] * 3})
    batch = {name: {0: torch.export.Dim("B")} for name in inputs}
    program = torch.export.export(net, (), inputs, dynamic_shapes=batch, strict=False).module()
    for batch_size in (1, 7):
        inputs, _ = example(batch_size)
        torch.testing.assert_close(program(**inputs), net(**inputs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"width": 0}, "width: expected at least 1, got 0"),
        ({"depth": 0}, "depth: expected at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"num_features": 0}, "num_features, cardinalities: expected at least one column"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TabularMLP(**arguments)

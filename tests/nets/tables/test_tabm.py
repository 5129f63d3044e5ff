"""What every net must satisfy is in test_nets.py; here, what is particular to TabM."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from playbook.optim.groups import parameter_groups
from src.nets.tables.tabm import TabM

K, N, M, MEMBERS = 3, 3, 2, 4  # outputs, numbers, categories
CARDINALITIES = [4, 5]
adapted = pytest.mark.parametrize("adapters", ["mini", "full"])


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    inputs = {"numbers": torch.randn(batch_size, N), "categories": torch.randint(4, (batch_size, M))}
    sizes = {"embedding_dim": 3, "num_bins": 4, "num_frequencies": 5, "category_dim": 2, "width": 16}
    return inputs, {"num_classes": K, "num_features": N, "cardinalities": CARDINALITIES, "members": MEMBERS, **sizes}


def build(**options: Any) -> TabM:
    """In float64, with random adapters, heads and bins, and nothing dropped."""
    torch.manual_seed(0)
    net = TabM(**{**example(1)[1], "dropout": 0.0, "category_dropout": 0.0, **options}).double()
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -1, 1)
    return net


def members_one_by_one(net: TabM, numbers: Tensor, categories: Tensor) -> Tensor:
    """k separate MLPs, (B, k, K): the adapters of each member are multiplied into matrices of its own.

    Args:
        net: with parameters by the names below.
        numbers: (B, k, N).
        categories: (B, k, M).
    """
    weights = dict(net.named_parameters())
    outputs = []
    for i in range(net.members):
        x = torch.cat([part.flatten(1) for part in net.embedding(numbers[:, i], categories[:, i])], dim=1)
        for block in range(2):
            matrix, bias = weights[f"blocks.{block}.0.weight"], weights[f"blocks.{block}.0.bias"]
            if net.adapter is not None:
                matrix = matrix * net.adapter[i] if block == 0 else matrix
            else:
                matrix = matrix * weights[f"blocks.{block}.0.scale_in"][i]  # columns: inputs
                matrix = matrix * weights[f"blocks.{block}.0.scale_out"][i, 0, :, None]  # rows: outputs
                bias = bias[i, 0]
            x = (x @ matrix.T + bias).clamp(min=0)
        outputs.append(x @ net.head.weight[i] + net.head.bias[i, 0])
    return torch.stack(outputs, dim=1)


@adapted
@pytest.mark.parametrize("embedding", ["none", "piecewise", "periodic"])
def test_each_member_is_an_mlp_of_its_own(adapters: Any, embedding: Any) -> None:
    net = build(adapters=adapters, embedding=embedding).train()
    inputs, _ = example(6)
    numbers, categories = inputs["numbers"].double(), inputs["categories"]
    shared = numbers[:, None].expand(-1, MEMBERS, -1), categories[:, None].expand(-1, MEMBERS, -1)
    outputs = net(numbers, categories)
    torch.testing.assert_close(outputs, members_one_by_one(net, *shared))
    assert (outputs.std(dim=1) > 1e-3).all(), "members without a difference prove nothing"


@adapted
def test_members_may_have_rows_of_their_own(adapters: Any) -> None:
    net = build(adapters=adapters).train()
    numbers = torch.randn(6, MEMBERS, N, dtype=torch.float64)
    categories = torch.randint(4, (6, MEMBERS, M))
    torch.testing.assert_close(net(numbers, categories), members_one_by_one(net, numbers, categories))
    averaged = net.eval()(numbers, categories)
    assert averaged.shape == (6, K)
    torch.testing.assert_close(averaged.exp(), members_one_by_one(net, numbers, categories).softmax(-1).mean(1))


@adapted
def test_permuted_rows_have_permuted_outputs(adapters: Any) -> None:
    net = build(adapters=adapters)
    inputs, _ = example(6)
    numbers, categories, order = inputs["numbers"].double(), inputs["categories"], torch.randperm(6)
    for mode in (True, False):
        outputs = net.train(mode)(numbers, categories)
        torch.testing.assert_close(net(numbers[order], categories[order]), outputs[order])


def test_evaluation_averages_probabilities_of_classes() -> None:
    net, (inputs, _) = build(), example(6)
    numbers, categories = inputs["numbers"].double(), inputs["categories"]
    each = net.train()(numbers, categories)  # (B, k, K)
    logits = net.eval()(numbers, categories)
    torch.testing.assert_close(logits.softmax(dim=1), each.softmax(dim=-1).mean(dim=1))
    torch.testing.assert_close(logits.exp().sum(dim=1), torch.ones(6, dtype=torch.float64))
    with pytest.raises(AssertionError):  # another answer than from the mean of logits
        torch.testing.assert_close(logits.softmax(dim=1), each.mean(dim=1).softmax(dim=1))


@pytest.mark.parametrize("options", [{"num_classes": 1}, {"num_classes": 5, "average": "values"}])
def test_evaluation_averages_values(options: dict[str, Any]) -> None:
    net, (inputs, _) = build(**options), example(6)
    numbers, categories = inputs["numbers"].double(), inputs["categories"]
    each = net.train()(numbers, categories)
    assert net.average == "values"
    torch.testing.assert_close(net.eval()(numbers, categories), each.mean(dim=1))


def test_average_probabilities_are_finite_for_large_logits() -> None:
    net = build()
    nn.init.constant_(net.head.weight, 0.0)
    with torch.no_grad():
        net.head.bias.copy_(torch.tensor([1e4, 0.0, -1e4]))
    logits = net.eval()(torch.zeros(1, N, dtype=torch.float64), torch.zeros(1, M, dtype=torch.int64))
    torch.testing.assert_close(logits, torch.tensor([[0.0, -1e4, -2e4]], dtype=torch.float64))


@adapted
@pytest.mark.parametrize("embedding", ["none", "piecewise"])
def test_initialisation_of_the_adapters(adapters: Any, embedding: Any) -> None:
    """One scalar per column, a sign or normal, over the embedding of the column; ones everywhere else."""
    torch.manual_seed(0)
    net = TabM(**{**example(1)[1], "members": 500, "adapters": adapters, "embedding": embedding})
    first = net.adapter if net.adapter is not None else net.get_parameter("blocks.0.0.scale_in")
    columns = first[:, 0].split(net.embedding.dims, dim=1)
    assert len(columns) == N + M
    scalars = torch.stack([column[:, 0] for column in columns], dim=1)  # (k, N + M)
    for column in columns:
        assert torch.equal(column, column[:, :1].expand_as(column))
    if embedding == "none":
        assert scalars.abs().unique().tolist() == [1]
    else:
        assert len(scalars.unique()) == scalars.numel(), "a scalar occurs twice"
    assert abs(scalars.mean().item()) < 0.1
    assert scalars.std().item() == pytest.approx(1, rel=0.1)
    assert scalars.T.corrcoef().fill_diagonal_(0).abs().max() < 0.2, "columns share their scalars"
    others = [value for name, value in net.named_parameters() if "scale" in name and value is not first]
    assert len(others) == (3 if adapters == "full" else 0)  # S of both layers, R of the second
    assert all((value == 1).all() for value in others)


def test_initial_weights_and_biases() -> None:
    """Uniform between ± 1 / sqrt(inputs); a layer's bias is the same for all members, a head's is not."""
    torch.manual_seed(0)
    net = TabM(num_classes=50, num_features=400, embedding="none", members=8, adapters="full", width=100, depth=1)
    layer, bias = net.get_parameter("blocks.0.0.weight"), net.get_parameter("blocks.0.0.bias")
    assert layer.var().item() == pytest.approx(1 / (3 * 400), rel=0.05)
    assert net.head.weight.var().item() == pytest.approx(1 / (3 * 100), rel=0.05)
    assert torch.equal(bias, bias[:1].expand_as(bias))
    assert bias.std() > 0
    assert len(net.head.bias.unique()) == net.head.bias.numel()


@pytest.mark.parametrize(("adapters", "own"), [("mini", 13), ("full", 13 + 3 * 16 + 2 * 16)])
def test_number_of_parameters(adapters: Any, own: int) -> None:
    """Adapters and heads k times, all else once; mini has its biases once as well."""
    net = TabM(**example(1)[1], adapters=adapters)
    inputs = N * 3 + M * 2
    assert inputs == 13
    embeddings = N * (2 * 3 + 4 * 3) + sum(CARDINALITIES) * 2
    matrices = inputs * 16 + 16 * 16 + (2 * 16 if adapters == "mini" else 0)
    expected = embeddings + matrices + MEMBERS * (own + 16 * K + K)
    assert sum(parameter.numel() for parameter in net.parameters()) == expected


@adapted
def test_muon_gets_matrices_and_no_adapters(adapters: Any) -> None:
    net = TabM(**example(1)[1], adapters=adapters)
    [hidden] = [group["params"] for group in parameter_groups(net, split_hidden=True) if group.get("hidden")]
    matrices = [net.get_parameter(f"blocks.{block}.0.weight") for block in range(2)]
    assert {id(parameter) for parameter in hidden} == {id(parameter) for parameter in matrices}


@pytest.mark.parametrize("columns", [{"num_features": N, "cardinalities": []}, {"num_features": 0}])
@adapted
def test_columns_of_one_kind_alone_and_a_single_row(columns: dict[str, Any], adapters: Any) -> None:
    inputs, arguments = example(1)
    inputs = {name: value for name, value in inputs.items() if (name == "numbers") == bool(columns["num_features"])}
    net = TabM(**{**arguments, **columns, "adapters": adapters})
    assert net.train()(**inputs).shape == (1, MEMBERS, K)
    assert net.eval()(**inputs).shape == (1, K)


def test_facts_set_the_bins() -> None:
    net = TabM(num_features=2, num_bins=2)
    net.embedding.use_facts({"number_quantiles": [[0.0, 1.0, 5.0], [2.0, 2.0, 4.0]]})
    assert net.embedding.get_submodule("numbers").get_buffer("edges").tolist() == [[0, 1, 5], [2, 2, 4]]


@adapted
def test_an_exported_program_takes_any_number_of_rows(adapters: Any) -> None:
    inputs, arguments = example(2)
    net = TabM(**arguments, adapters=adapters).eval()
    net.embedding.use_facts({"number_quantiles": [[0.0, 0.0, 1.0, 1.0]] * N})
    batch = {name: {0: torch.export.Dim("B")} for name in inputs}
    program = torch.export.export(net, (), inputs, dynamic_shapes=batch, strict=False).module()
    for batch_size in (1, 7):
        inputs, _ = example(batch_size)
        torch.testing.assert_close(program(**inputs), net(**inputs))


@adapted
def test_autocast_in_bfloat16(adapters: Any) -> None:
    net = build(adapters=adapters).float().eval()
    inputs, _ = example(6)
    exact = net(**inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = net(**inputs)
    error = (rounded.softmax(dim=1) - exact.softmax(dim=1)).abs().max().item()
    assert 0 < error < 0.02, f"error {error:.3g}"


@pytest.mark.parametrize(
    ("numbers", "categories", "message"),
    [
        ((2, 5, N), (2, 5, M), rf"numbers: expected two dimensions, or three for 4 members, got \(2, 5, {N}\)"),
        ((2, N), (2, 5, M), "categories: expected two dimensions, or three for 4 members"),
        ((2, N), (2, MEMBERS, M), "expected rows for each member in both or in neither"),
        ((2, N + 1), (2, M), "num_features: expected 3 columns of numbers, got 4"),
    ],
)
def test_inputs_of_another_shape(numbers: tuple[int, ...], categories: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TabM(**example(1)[1])(torch.zeros(numbers), torch.zeros(categories, dtype=torch.int64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"members": 0}, "members: expected at least 1, got 0"),
        ({"width": 0}, "width: expected at least 1, got 0"),
        ({"depth": 0}, "depth: expected at least 1, got 0"),
        ({"adapters": "maxi"}, "adapters: expected one of mini, full, got maxi"),
        ({"average": "logits"}, "average: expected one of auto, probabilities, values, got logits"),
        ({"dropout": -0.1}, r"dropout: expected a probability in \[0, 1\), got -0.1"),
        ({"num_features": 0}, "num_features, cardinalities: expected at least one column"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TabM(**arguments)

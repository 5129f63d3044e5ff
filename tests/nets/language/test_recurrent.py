"""What every net must satisfy is in test_nets.py; here, packed texts against torch's nets on one text at a time."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.nets.language.recurrent import Recurrent
from tests.nets.language.test_text_encoder import LENGTHS, inputs_of


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return inputs_of(*LENGTHS[:batch_size]), {"vocab_size": 30, "dim": 8, "hidden": 6, "num_layers": 2}


def built(**options: Any) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(vocab_size=30, dim=8, hidden=6, **options).double().eval()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("pooling", ["max", "mean", "last"])
def test_a_batch_equals_torch_on_single_texts(kind: Any, bidirectional: bool, pooling: Any) -> None:
    net = built(kind=kind, bidirectional=bidirectional, pooling=pooling, num_layers=2)
    inputs = inputs_of(*LENGTHS, width=9)  # wider than the longest text
    expected = []
    for tokens, length in zip(inputs["tokens"], LENGTHS, strict=True):
        states, last = net.layers(net.embedding(tokens[None, :length]))  # (1, T, …)
        last = last[0] if kind == "lstm" else last  # (layers directions, 1, hidden)
        ends = torch.cat([last[-2, 0], last[-1, 0]]) if bidirectional else last[-1, 0]
        expected.append({"max": states[0].amax(0), "mean": states[0].mean(0), "last": ends}[pooling])
    torch.testing.assert_close(net(**inputs), net.head(torch.stack(expected)))


@pytest.mark.parametrize("pooling", ["max", "mean", "last"])
def test_a_row_of_padding_alone_is_pooled_to_zeros(pooling: Any) -> None:
    net = built(pooling=pooling)
    logits = net(**inputs_of(3, 0))
    torch.testing.assert_close(logits[1], net.head.bias)
    logits.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in net.parameters())


@pytest.mark.parametrize(("kind", "num_gates"), [("lstm", 4), ("gru", 3)])
def test_initialisation(kind: Any, num_gates: int) -> None:
    net = built(kind=kind)
    for gate in net.layers.weight_hh_l0.split(6):
        torch.testing.assert_close(gate @ gate.T, torch.eye(6, dtype=gate.dtype), atol=1e-6, rtol=0)
    biases = net.layers.bias_ih_l0 + net.layers.bias_hh_l0
    assert biases.split(6)[1].tolist() == [float(kind == "lstm")] * 6, "only an LSTM has a gate that forgets"
    assert biases.sum() == (6 if kind == "lstm" else 0)
    assert len(biases) == 6 * num_gates


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden: expected at least 1, got 0"),
        ({"kind": "rnn"}, "kind: expected one of lstm, gru, got rnn"),
        ({"pooling": "first"}, "pooling: expected one of max, mean, last, got first"),
        ({"dropout": -0.1}, r"dropout: expected a probability in \[0, 1\), got -0.1"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recurrent(**options)

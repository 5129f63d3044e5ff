"""The encoder of the Transformer: against torch.nn, whatever the padding, and its errors."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.nets.language.text_encoder import TextEncoder

LENGTHS = (5, 2, 7, 1)


def inputs_of(*lengths: int, vocab_size: int = 30, width: int | None = None) -> dict[str, Tensor]:
    """Random tokens of texts with these lengths; those of padding are random, too."""
    tokens = torch.randint(vocab_size, (len(lengths), width or max(lengths)))
    return {"tokens": tokens, "mask": torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None]}


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    inputs = inputs_of(*LENGTHS[:batch_size])
    return inputs, {"vocab_size": 30, "max_length": 8, "num_layers": 2, "dim": 16, "num_heads": 2, "dropout": 0.1}


def built(**options: Any) -> TextEncoder:
    torch.manual_seed(0)
    return TextEncoder(vocab_size=30, max_length=16, dim=16, num_heads=2, **options).double().eval()


def test_features_equal_those_of_torch() -> None:
    net = built(position="none", mlp_dim=40)
    layer = nn.TransformerEncoderLayer(16, 2, 40, 0.0, "gelu", batch_first=True, norm_first=True)
    reference = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False).double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for block, theirs in zip(net.blocks, reference.layers, strict=True):
            b: Any = block
            t: Any = theirs
            t.self_attn.in_proj_weight.copy_(torch.cat([b.query.weight, b.key.weight, b.value.weight]))
            t.self_attn.in_proj_bias.copy_(torch.cat([b.query.bias, b.key.bias, b.value.bias]))
            pairs = ((t.self_attn.out_proj, b.out), (t.linear1, b.up), (t.linear2, b.down))
            for own, other in (*pairs, (t.norm1, b.attention_norm), (t.norm2, b.mlp_norm)):
                own.load_state_dict(other.state_dict())
        assert reference.norm is not None
        reference.norm.load_state_dict(net.norm.state_dict())
    inputs = inputs_of(*LENGTHS)
    expected = reference(net.embedding(inputs["tokens"]), src_key_padding_mask=~inputs["mask"])
    found = net.features(**inputs)
    torch.testing.assert_close(found[inputs["mask"]], expected[inputs["mask"]])
    logits = torch.stack([row[:length].mean(dim=0) for row, length in zip(expected, LENGTHS, strict=True)])
    torch.testing.assert_close(net(**inputs), net.head(logits))


@pytest.mark.parametrize("position", ["learned", "rope", "none"])
@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_padding_changes_nothing(position: Any, pooling: Any) -> None:
    net = built(position=position, pooling=pooling)
    wide = inputs_of(*LENGTHS, width=12)
    together = net(**wide)
    torch.testing.assert_close(net(wide["tokens"][:, :7], wide["mask"][:, :7]), together)
    for row, length in enumerate(LENGTHS):
        alone = net(wide["tokens"][row : row + 1, :length], wide["mask"][row : row + 1, :length])
        torch.testing.assert_close(alone, together[row : row + 1])
    turned = {name: tensor.clone() for name, tensor in wide.items()}
    turned["tokens"][0, :5] = turned["tokens"][0, :5].flip(0)
    is_same = torch.allclose(net(**turned)[0], together[0])
    assert is_same == (position == "none" and pooling != "first"), "whether the order of tokens counts"


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_a_row_of_padding_alone_is_pooled_to_zeros(pooling: Any) -> None:
    net = built(pooling=pooling)
    inputs = inputs_of(3, 0)
    logits = net(**inputs)
    torch.testing.assert_close(logits[1], net.head.bias)
    logits.sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in net.parameters())


def test_without_classes_it_returns_the_pooled_vector() -> None:
    net, inputs = built(num_classes=0), inputs_of(3, 3)
    torch.testing.assert_close(net(**inputs), net.features(**inputs).mean(dim=1))


def test_dropped_words_are_whole_and_as_many_as_asked_for() -> None:
    net = TextEncoder(vocab_size=30, dim=8, num_heads=2, word_dropout=0.25, position="none").train()
    vectors: list[Tensor] = []
    net.embedding_dropout.register_forward_hook(lambda _, inputs, __: vectors.append(inputs[0]))
    net(**inputs_of(*[200] * 20))
    dropped = (vectors[0] == 0).all(dim=-1)
    assert torch.equal(dropped, (vectors[0] == 0).any(dim=-1))
    assert abs(dropped.float().mean().item() - 0.25) < 0.03  # 4000 draws: a deviation of 0.007
    net.eval()(**inputs_of(*[200] * 20))
    assert not (vectors[1] == 0).all(dim=-1).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "num_layers: expected at least 1, got 0"),
        ({"num_classes": -1}, "num_classes: expected at least 0, got -1"),
        ({"dim": 20, "num_heads": 4}, "dim: expected a multiple of 8 for 4 heads, got 20"),
        ({"position": "sincos"}, "position: expected one of learned, rope, none, got sincos"),
        ({"pooling": "last"}, "pooling: expected one of mean, max, first, got last"),
        ({"word_dropout": 1.0}, r"word_dropout: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextEncoder(**options)


def test_too_many_tokens() -> None:
    with pytest.raises(ValueError, match="max_length: expected at most 16 tokens, got 17"):
        built()(**inputs_of(17))

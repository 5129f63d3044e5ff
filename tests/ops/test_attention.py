"""Masks against their definition, attention against its formula, FlexAttention against SDPA."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from src.ops.attention import PADDING, Cache, attend, rotate, rotation, visible, visible_blocks

CPU = torch.device("cpu")
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, PADDING, PADDING], [PADDING, PADDING, 0, 0, 0, 0, 0, 0]])
CASES: dict[str, tuple[int | None, Tensor | None]] = {
    "causal": (None, None),
    "window": (3, None),
    "documents": (None, DOCUMENTS),
    "window and documents": (2, DOCUMENTS),
    "own place alone": (1, None),
}


def by_definition(num_queries: int, num_keys: int, window: int | None, documents: Tensor | None) -> Tensor:
    """Place by place, (1 or B, 1, T, S)."""
    rows = [[0] * num_keys] if documents is None else documents.tolist()
    mask = torch.zeros(len(rows), 1, num_queries, num_keys, dtype=torch.bool)
    for b, row in enumerate(rows):
        for query, s in itertools.product(range(num_queries), range(num_keys)):
            t = num_keys - num_queries + query
            is_padding = PADDING in (row[t], row[s])
            near = window is None or t - s < window
            mask[b, 0, query, s] = t == s or (s <= t and near and row[s] == row[t] and not is_padding)
    return mask


@pytest.mark.parametrize("num_queries", [8, 3, 1])
@pytest.mark.parametrize("case", CASES)
def test_masks_are_those_of_the_definition(case: str, num_queries: int) -> None:
    window, documents = CASES[case]
    mask = visible(num_queries, 8, window, documents, CPU)
    if case == "causal" and num_queries == 8:
        assert mask is None, "the fast path of SDPA takes no mask"
        return
    assert mask is not None
    assert torch.equal(mask, by_definition(num_queries, 8, window, documents))


def heads(num_keys: int, num_kv_heads: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 8, 16), *torch.randn(2, 2, num_kv_heads, num_keys, 16)
    return q.to(dtype), k.to(dtype), v.to(dtype)


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("case", CASES)
def test_attention_is_a_softmax_of_scores(case: str, num_kv_heads: int) -> None:
    q, k, v = heads(8, num_kv_heads)
    mask = by_definition(8, 8, *CASES[case])
    each_key, each_value = (x.repeat_interleave(4 // num_kv_heads, dim=1) for x in (k, v))
    scores = torch.einsum("bhtd,bhsd->bhts", q, each_key) / 16**0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    expected = torch.einsum("bhts,bhsd->bhtd", weights, each_value)
    torch.testing.assert_close(attend(q, k, v, visible(8, 8, *CASES[case], CPU)), expected)


def test_on_a_cpu_low_precision_is_computed_in_float32() -> None:
    q, k, v = heads(8, 2, torch.bfloat16)
    expected = attend(q.float(), k.float(), v.float(), None)
    for precise in (q, q.float()):  # rotated queries come in float32
        with torch.autocast("cpu", torch.bfloat16):
            result = attend(precise, k, v, None)
        assert result.dtype == torch.bfloat16
        assert torch.equal(result, expected.bfloat16())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("length", [8, 100])
@pytest.mark.parametrize("num_kv_heads", [4, 2])
@pytest.mark.parametrize("case", CASES)
def test_flex_attention_equals_sdpa(case: str, num_kv_heads: int, length: int) -> None:
    window, documents = CASES[case]
    documents = None if documents is None else documents.repeat_interleave(-(-length // 8), dim=1)[:, :length]
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, length, 16), *torch.randn(2, 2, num_kv_heads, length, 16)
    expected = attend(q, k, v, visible(length, length, window, documents, CPU))
    result = attend(q, k, v, visible_blocks(length, window, documents, CPU))
    torch.testing.assert_close(result, expected, rtol=0, atol=2e-6)


def test_rotation_is_a_product_of_complex_numbers() -> None:
    """Su et al. 2021, equation 14: pair i of position t turns by t θ^(-2 i / (D / H))."""
    torch.manual_seed(0)
    positions = torch.tensor([[0, 1, 2, 0, 1], [5, 6, 7, 8, 1000]])
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)  # (B, H, T, D / H)
    z = torch.complex(x[..., :4], x[..., 4:])
    for b, t, i in itertools.product(range(2), range(5), range(4)):
        angle = positions[b, t].item() * 100 ** (-2 * i / 8)
        z[b, :, t, i] *= torch.exp(torch.tensor(1j * angle, dtype=torch.complex128))
    result = rotate(x, *rotation(positions[:, None], 8, 100.0, torch.float64))
    torch.testing.assert_close(result, torch.cat([z.real, z.imag], dim=-1))


def test_scores_depend_on_distances_alone() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 16, dtype=torch.float64)

    def score(query: int, key: int) -> Tensor:
        places = torch.tensor([query, key])
        turned = rotate(torch.stack([q, k])[None, None], *rotation(places[None], 16, 1e4, torch.float64))[0, 0]
        return turned[0] @ turned[1]

    torch.testing.assert_close(score(7, 3), score(107, 103))
    assert (score(7, 3) - score(7, 4)).abs() > 1e-3, "no position, no difference"


def test_the_cache_returns_keys_and_values_of_all_places() -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(2, 2, 3, 5, 4)  # (B, H, T, D / H) each
    cache = Cache(2, 6, num_layers=1)
    for start, end in [(0, 3), (3, 4), (4, 5)]:
        all_keys, all_values = cache.extend(0, keys[:, :, start:end], values[:, :, start:end])
        cache.filled = end
        assert torch.equal(all_keys, keys[:, :, :end])
        assert torch.equal(all_values, values[:, :, :end])


def test_new_places_belong_to_the_last_document() -> None:
    cache = Cache(2, 9, num_layers=1)
    assert cache.documents(None, 1, CPU) is None
    cache.filled = 1
    cache.documents(torch.tensor([[0, 1], [PADDING, 0]]), 2, CPU)
    cache.filled = 3
    documents = cache.documents(None, 2, CPU)
    assert documents is not None
    assert documents.tolist() == [[0, 0, 1, 1, 1], [0, PADDING, 0, 0, 0]]


def test_a_full_cache_is_an_error() -> None:
    cache: Any = Cache(1, 4, num_layers=1)
    cache.filled = 3
    with pytest.raises(ValueError, match=r"^cache: expected at most 4 tokens, got 5$"):
        cache.documents(None, 2, CPU)

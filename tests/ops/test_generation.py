"""Generation against recomputing everything at every step; filters against cases worked out by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.ops.generation import filtered, generate, pick


class Bigrams(nn.Module):
    """Logits are a function of the last token alone; no context length, no cache."""

    def __init__(self, probability: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(probability.log())

    def forward(self, tokens: Tensor, documents: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        return self.logits[tokens]


def counting(size: int) -> Bigrams:
    """0, 1, 2, … size - 1, 0, …"""
    return Bigrams(torch.eye(size).roll(1, dims=1))


def test_draws_follow_the_probabilities() -> None:
    probability = torch.tensor([0.5, 0.25, 0.15, 0.1, 0.0])
    net = Bigrams(probability.expand(5, 5))
    num = 4000
    prompts = [[number % 5, number // 5] for number in range(num)]  # draws differ by prompt
    net.forward = lambda tokens, **_: net.logits[torch.zeros_like(tokens)]  # type: ignore[method-assign]
    cases: list[tuple[dict[str, Any], Tensor]] = [
        ({}, probability),
        ({"temperature": 0.5, "top_p": 0.8}, torch.tensor([0.8, 0.2, 0, 0, 0])),  # of 25 : 6.25 : 2.25 : 1
    ]
    for options, expected in cases:
        tokens = torch.tensor(generate(net, prompts, 1, **options))[:, 0]
        share = tokens.bincount(minlength=5) / num
        deviation = (expected * (1 - expected) / num).sqrt()
        assert ((share - expected).abs() <= 4 * deviation).all(), (options, share)


def test_draws_of_one_prompt_are_independent() -> None:
    """In 400 draws, each pair of tokens comes as often as the product of their probabilities says."""
    tokens = torch.tensor(generate(Bigrams(torch.full((4, 4), 0.25)), [[0]], 400)[0])
    pairs = (4 * tokens[:-1] + tokens[1:]).bincount(minlength=16) / 399
    assert (pairs - 1 / 16).abs().max() < 4 * math.sqrt(15 / 16 / 16 / 399)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 3}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_k": 9}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.39}, [0, 1, 0, 0]),
        ({"top_p": 0.41}, [0, 4 / 7, 0, 3 / 7]),  # the token that passes the share stays
        ({"top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.71}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_p": 1e-9}, [0, 1, 0, 0]),
        ({"min_p": 0.2}, [0.1, 0.4, 0.2, 0.3]),  # at least 0.08
        ({"min_p": 0.3}, [0, 4 / 9, 2 / 9, 3 / 9]),  # at least 0.12
        ({"min_p": 0.6}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 2, "top_p": 0.56}, [0, 1, 0, 0]),  # the share is of those two: 4 / 7 = 0.571
        ({"top_k": 2, "top_p": 0.58}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 3, "min_p": 0.6}, [0, 4 / 7, 0, 3 / 7]),
    ],
    ids=str,
)
def test_filters_by_hand(options: dict[str, Any], expected: list[float]) -> None:
    probability = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]])
    result = filtered(probability.clone(), **options)
    torch.testing.assert_close(result[0], torch.tensor(expected, dtype=torch.float32))
    torch.testing.assert_close(result.sum(-1), torch.ones(2))


def test_picks_by_cumulated_probability() -> None:
    probability = torch.tensor([0.0, 0.5, 0.0, 0.25, 0.25, 0.0]).expand(6, 6)
    number = torch.tensor([0.0, 0.499, 0.5, 0.749, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert pick(probability, number).tolist() == [1, 1, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ([6], [[3, 4, 5], [8, 9, 0, 1, 2, 3, 4, 5], [7, 8, 9, 0, 1, 2, 3, 4, 5]]),
        ([[6]], [[3, 4, 5], [8, 9, 0, 1, 2, 3, 4, 5], [7, 8, 9, 0, 1, 2, 3, 4, 5]]),
        ([[4, 5, 6]], [[3], [8, 9, 0, 1, 2, 3], [7, 8, 9, 0, 1, 2, 3]]),
        ([[5, 4], [9, 0]], [[3, 4, 5, 6, 7, 8], [8], [7, 8]]),
        ([3, 8], [[], [], [7]]),
        ([[2, 3]], [[3, 4, 5, 6, 7, 8, 9, 0, 1], [8, 9, 0, 1], [7, 8, 9, 0, 1]]),  # not with the prompt's 2
        ([11], [[3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4], [8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9], None]),
    ],
    ids=str,
)
def test_answers_end_before_their_stop_and_are_streamed_once_certain(stop: list[Any], expected: list[Any]) -> None:
    streamed: list[list[int]] = [[], [], []]
    answers = generate(
        counting(10),
        [[1, 2], [7], [6]],
        12,
        temperature=0,
        stop=stop,
        streamer=lambda row, tokens: streamed[row].extend(tokens),
    )
    assert streamed == answers
    assert [answer for answer, known in zip(answers, expected, strict=True) if known is not None] == [
        known for known in expected if known is not None
    ]


def test_tokens_are_streamed_as_soon_as_they_are_no_stop() -> None:
    calls: list[list[int]] = []
    generate(counting(10), [[0]], 6, temperature=0, stop=[[2, 3, 9]], streamer=lambda _, tokens: calls.append(tokens))
    assert calls == [[1], [2, 3, 4], [5], [6]]


def test_a_half_stop_at_the_end_is_an_answer() -> None:
    calls: list[list[int]] = []
    answers = generate(
        counting(10), [[0]], 3, temperature=0, stop=[[2, 3, 4]], streamer=lambda _, tokens: calls.append(tokens)
    )
    assert answers == [[1, 2, 3]]
    assert calls == [[1], [2, 3]]


def test_the_streamer_ends_its_row_alone() -> None:
    answers = generate(
        counting(10), [[0], [4]], 5, temperature=0, stop=[[3, 9]], streamer=lambda _, tokens: tokens == [2]
    )
    assert answers == [[1, 2], [5, 6, 7, 8, 9]]

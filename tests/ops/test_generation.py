"""Generation against recomputing everything at every step; filters against cases worked out by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from playbook import UserError
from src.nets.gpt import GPT
from src.ops.generation import filtered, generate, pick

PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5], [3, 5, 8, 9, 7, 9, 3]]


def gpt(**arguments: Any) -> Any:
    """In float64, so that no draw hangs on rounding; weights are large, so that no token repeats for ever."""
    torch.manual_seed(0)
    net = GPT(11, 32, num_layers=2, dim=16, num_heads=4, num_kv_heads=2, tie_weights=False, **arguments)
    for parameter in net.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.4)
    return net.double().eval()


class Uncached(nn.Module):
    """The same net, without its cache."""

    def __init__(self, net: GPT) -> None:
        super().__init__()
        self.net = net
        self.context_length = net.context_length

    def forward(self, tokens: Tensor, documents: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        return self.net(tokens, documents, positions)


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


@torch.no_grad()
def recomputed(net: GPT, prompt: list[int], num_new: int, context: int) -> list[int]:
    """The likeliest tokens, one text at a time, without a cache; beyond the context by its last half."""
    row, start = list(prompt), 0
    for _ in range(num_new):
        if len(row) - start > context:
            start = len(row) - context // 2
        row.append(int(net(torch.tensor([row[start:]]))[0, -1].argmax()))
    return row[len(prompt) :]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("window", [None, 4])
def test_greedy_is_the_argmax_of_everything_recomputed(window: int | None, cached: bool) -> None:
    net = gpt(window=window)
    answers = generate(net if cached else Uncached(net), PROMPTS, 20, temperature=0)
    assert answers == [recomputed(net, prompt, 20, 32) for prompt in PROMPTS]
    assert len({tuple(answer) for answer in answers}) == len(PROMPTS), "answers that are all the same prove nothing"


@pytest.mark.parametrize("cached", [True, False])
def test_beyond_the_context_the_last_half_of_it_is_seen(cached: bool) -> None:
    """Each row by its own length: the long prompt forgets first."""
    net = gpt()
    net.context_length = 8
    answers = generate(net if cached else Uncached(net), PROMPTS, 15, temperature=0)
    assert answers == [recomputed(net, prompt, 15, 8) for prompt in PROMPTS]
    net.context_length = 32
    assert answers != [recomputed(net, prompt, 15, 32) for prompt in PROMPTS], "nothing was forgotten"


@pytest.mark.parametrize("cached", [True, False])
def test_draws_of_a_prompt_are_the_same_in_any_batch(cached: bool) -> None:
    net = gpt()
    net.context_length = 8
    net = net if cached else Uncached(net)
    options: dict[str, Any] = {"temperature": 1.3, "top_p": 0.95, "seed": 5}
    together = generate(net, PROMPTS, 15, **options)
    assert together == [generate(net, [prompt], 15, **options)[0] for prompt in PROMPTS]
    assert together[::-1] == generate(net, PROMPTS[::-1], 15, **options)
    assert together == generate(net, PROMPTS, 15, **options)
    assert together != generate(net, PROMPTS, 15, **{**options, "seed": 6})


def test_the_cache_reads_each_token_once() -> None:
    net, num_read = gpt(), 0

    def count(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal num_read
        num_read += args[0].shape[1]

    net.register_forward_hook(count)
    generate(net, PROMPTS, 20)
    assert num_read == 7 + 19, "the longest prompt, then one place a step"


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


@pytest.mark.parametrize("temperature", [1e-30, 1e-9, 1e-3])
def test_small_temperatures_take_the_likeliest(temperature: float) -> None:
    assert generate(gpt(), PROMPTS, 5, temperature=temperature) == generate(gpt(), PROMPTS, 5, temperature=0)


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


def test_modes_of_all_modules_come_back() -> None:
    net = gpt(dropout=0.5).train()
    net.blocks[0].eval()
    expected = generate(net, PROMPTS, 5)
    assert expected == generate(net.eval(), PROMPTS, 5), "dropout acted"
    net.train()
    net.blocks[0].eval()
    modes = [module.training for module in net.modules()]
    with pytest.raises(UserError):
        generate(net, [[1] * 40], 5)
    with pytest.raises(IndexError):
        generate(net, [[99]], 5)
    assert [module.training for module in net.modules()] == modes


def test_training_goes_on_after_generation() -> None:
    net = gpt(window=3)
    generate(net, PROMPTS, 3)
    net(torch.tensor([PROMPTS[0]])).sum().backward()


def test_no_prompts() -> None:
    assert generate(gpt(), [], 5) == []


def test_a_prompt_may_fill_the_context() -> None:
    net, prompt = gpt(), [number % 11 for number in range(32)]
    assert generate(net, [prompt], 3, temperature=0) == [recomputed(net, prompt, 3, 32)]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[1], []], "prompt 1: is empty, expected at least one token"),
        ([[1] * 33], "prompt 0: has 33 tokens, expected at most context_length 32"),
    ],
)
def test_prompts_that_cannot_be_read(prompts: list[list[int]], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        generate(gpt(), prompts, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens: expected at least 1, got 0"),
        ({"temperature": -0.1}, "temperature: expected at least 0, got -0.1"),
        ({"temperature": math.nan}, "temperature: expected at least 0, got nan"),
        ({"top_k": -1}, "top_k: expected at least 0, got -1"),
        ({"top_p": 0.0}, r"top_p: expected a share in \(0, 1\], got 0.0"),
        ({"top_p": 1.1}, r"top_p: expected a share in \(0, 1\], got 1.1"),
        ({"min_p": 1.0}, r"min_p: expected a share in \[0, 1\), got 1.0"),
        ({"min_p": -0.1}, r"min_p: expected a share in \[0, 1\), got -0.1"),
        ({"stop": [3, []]}, "stop: expected tokens or lists of at least one token, got an empty list"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        generate(gpt(), [[1]], **{"max_new_tokens": 5, **options})

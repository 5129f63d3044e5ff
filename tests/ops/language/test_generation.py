"""Generation against recomputing everything at every step; filters against cases worked out by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from playbook import UserError
from src.nets.language.gpt import GPT
from src.ops.generation import generate, num_left_out

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


@pytest.mark.parametrize("temperature", [1e-30, 1e-9, 1e-3])
def test_small_temperatures_take_the_likeliest(temperature: float) -> None:
    assert generate(gpt(), PROMPTS, 5, temperature=temperature) == generate(gpt(), PROMPTS, 5, temperature=0)


def test_modes_of_all_modules_come_back() -> None:
    net = gpt(dropout=0.5).train()
    net.blocks[0].eval()
    expected = generate(net, PROMPTS, 5)
    assert expected == generate(net.eval(), PROMPTS, 5), "dropout acted"
    net.train()
    net.blocks[0].eval()
    modes = [module.training for module in net.modules()]
    with pytest.raises(UserError):
        generate(net, [[1], []], 5)
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


@pytest.mark.parametrize("cached", [True, False])
def test_of_a_long_prompt_the_last_half_of_the_context_is_read(cached: bool) -> None:
    net = gpt()
    prompts = [[number * number % 11 for number in range(length)] for length in (33, 5, 100)]
    answers = generate(net if cached else Uncached(net), prompts, 30, temperature=0)
    assert answers == [recomputed(net, prompt, 30, 32) for prompt in prompts]
    assert answers[2] == generate(net, [prompts[2][-16:]], 30, temperature=0)[0]
    assert [num_left_out(length, 32) for length in (32, 33, 100)] == [0, 17, 84]
    assert num_left_out(100, None) == 0


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[1], []], "prompt 1: is empty, expected at least one token"),
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

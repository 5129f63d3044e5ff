"""Language modelling: losses by token against closed forms, steps however they are cut, answers to prompts."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from playbook import UserError
from src.nets.gpt import GPT
from src.ops.vocabularies import END, PAD, Bytes, Characters
from src.tasks.language_modelling import IGNORED, LanguageModelling
from tests.conftest import UNSAVED
from tests.playbook.gradients import assert_same_steps, random_split, step_gradients

V = 11


def small_gpt(**options: Any) -> GPT:
    torch.manual_seed(0)
    return GPT(V, context_length=32, num_layers=1, dim=8, num_heads=2, **options)


def rows(num_rows: int, length: int = 9) -> tuple[Tensor, Tensor]:
    """Tokens and targets (B, T), of which any number is supervised."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(V, (num_rows, length), generator=generator)
    target = torch.randint(V, (num_rows, length), generator=generator)
    share = torch.rand(num_rows, 1, generator=generator)
    return tokens, target.masked_fill(torch.rand(target.shape, generator=generator) < share, IGNORED)


class _Steps(LanguageModelling):
    """Takes plain batches [tokens, target], as a data set of ready tensors gives them."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return super().training_step(({"tokens": batch[0]}, batch[1]), batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(({"tokens": batch[0]}, batch[1]), batch_idx)


@pytest.mark.parametrize(("accumulate", "num_parts"), [(1, 3), (4, 1), (3, 2)])
def test_a_step_is_the_mean_over_its_tokens_however_it_is_cut(accumulate: int, num_parts: int) -> None:
    """Against one large batch, in float64; Lightning's mean of means is another one."""
    samples = rows(24)

    def steps(batches: list[Any], **options: Any) -> list[list[Tensor]]:
        task = _Steps(small_gpt(), optimizer=lambda groups: torch.optim.SGD(groups, lr=0.0, weight_decay=0.0)).double()
        return step_gradients(task, batches, **options)

    batches, large = random_split(samples, seed=0, accumulate=accumulate)
    batches = [batch for batch in batches if (batch[1] != IGNORED).any()]
    expected = steps(large)
    assert_same_steps(steps(batches, accumulate=accumulate, num_parts=num_parts), expected)


def evaluated(task: LanguageModelling, batches: list[Any]) -> dict[str, float]:
    from lightning.pytorch import Trainer
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    (result,) = Trainer(**UNSAVED).test(task, loader, verbose=False)
    return dict(result)


def test_loss_perplexity_and_bits_per_byte_are_those_of_all_tokens() -> None:
    net, (tokens, target) = small_gpt(), rows(10)
    vocabulary = Characters("aé日bcdefg", [END, PAD])
    task = LanguageModelling(net)
    task.facts = {"tokenizer": vocabulary.plain()}
    batches = [({"tokens": tokens[:2]}, target[:2]), ({"tokens": tokens[2:]}, target[2:])]
    found = evaluated(task, batches)
    nats = cross_entropy(net(tokens).flatten(0, 1).double(), target.flatten(), reduction="sum").item()
    told = target[target != IGNORED].tolist()
    num_bytes = sum([1, 2, 3, 1, 1, 1, 1, 1, 1, 0, 0][token] for token in told)
    assert found["test/loss"] == pytest.approx(nats / len(told), rel=1e-5)
    assert found["test/perplexity"] == pytest.approx(math.exp(nats / len(told)), rel=1e-5)
    assert found["test/bits_per_byte"] == pytest.approx(nats / math.log(2) / num_bytes, rel=1e-5)


class Counting(nn.Module):
    """Says after n: n + 1, surely; after the largest: 0."""

    vocab_size = V
    context_length = 32

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(50.0))

    def forward(self, tokens: Tensor, **_: Any) -> Tensor:
        return self.scale * nn.functional.one_hot((tokens + 1) % V, V)


def test_exact_match_counts_answers_that_equal_their_references() -> None:
    """Of packed rows, each with two prompts: 1 2 | 3 4 and 5 6 | 7 9, the second of which is answered wrongly."""
    task = LanguageModelling(Counting(), exact_match=True)
    tokens = torch.tensor([[1, 2, 3, 5, 6, 7]])
    target = torch.tensor([[IGNORED, 3, 4, IGNORED, 7, 9]])
    documents = torch.tensor([[0, 0, 0, 1, 1, 1]])
    found = evaluated(task, [({"tokens": tokens, "documents": documents}, target)])
    assert found["test/exact_match"] == 0.5
    documents[0, 3:] = -1  # padding
    task = LanguageModelling(Counting(), exact_match=True)
    found = evaluated(task, [({"tokens": tokens, "documents": documents}, target)])
    assert found["test/exact_match"] == 1


def test_predict_goes_on_from_prompts_of_any_length(capsys: pytest.CaptureFixture[str]) -> None:
    vocabulary = Characters("abcdefghi", [END, PAD])  # the end is 9
    task = LanguageModelling(Counting(), temperature=0.0)
    task.facts = {"tokenizer": vocabulary.plain()}
    task.setup("predict")
    inputs = {"tokens": torch.tensor([[0, 1, 2], [0, 0, 4]]), "documents": torch.tensor([[0, 0, 0], [-1, -1, 0]])}
    outputs = task.predict_step((inputs, torch.tensor([-1, -1])), 0)
    assert outputs == {"prompt": [[0, 1, 2], [4]], "tokens": [[3, 4, 5, 6, 7, 8], [5, 6, 7, 8]]}
    assert task.answer(outputs, task.facts) == [
        {"prompt": "abc", "text": "defghi"},
        {"prompt": "e", "text": "fghi"},
    ]
    assert task.answer(outputs, {}) == [{"tokens": [3, 4, 5, 6, 7, 8]}, {"tokens": [5, 6, 7, 8]}]
    assert not capsys.readouterr().out


def test_an_answer_ends_at_a_text_and_is_printed_while_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    task = LanguageModelling(Counting(), temperature=0.0, stop=["gh"], stream=True)
    task.facts = {"tokenizer": Characters("abcdefghi", [END, PAD]).plain()}
    task.setup("predict")
    outputs = task.predict_step(({"tokens": torch.tensor([[0]])}, torch.tensor([-1])), 0)
    assert outputs["tokens"] == [[1, 2, 3, 4, 5, 6, 7]]
    assert task.answer(outputs, task.facts) == [{"prompt": "a", "text": "bcdef"}]
    assert capsys.readouterr().out.startswith("bcdef")


def test_a_vocabulary_that_the_net_does_not_hold_is_told() -> None:
    task = LanguageModelling(small_gpt())
    task.facts = {"tokenizer": Bytes().plain()}
    with pytest.raises(UserError, match=r"vocab_size: the data has 258 bytes .*the net has 11 .*vocab_size 258"):
        task.setup("fit")
    task = LanguageModelling(small_gpt())
    with pytest.raises(UserError, match=r"vocab_size: the data contains the token 11, but the net has 11"):
        evaluated(task, [({"tokens": torch.tensor([[V]])}, torch.tensor([[0]]))])


def test_longer_texts_than_the_net_reads_are_told() -> None:
    task = LanguageModelling(small_gpt())
    task.facts = {"tokenizer": Characters("abc").plain(), "context_length": 33}
    with pytest.raises(
        UserError, match=r"context_length: the data's texts have up to 33 tokens, the net .* at most 32"
    ):
        task.setup("fit")


def test_in_float64_the_loss_is_in_float64() -> None:
    net, (tokens, target) = small_gpt().double(), rows(4)
    task = _Steps(net)
    task.log_step = lambda *_, **__: None
    loss = task.training_step([tokens, target], 0)
    expected = cross_entropy(net(tokens).flatten(0, 1), target.flatten())
    assert loss.dtype == torch.float64
    assert abs(loss - expected) < 1e-12


def test_a_training_batch_without_supervised_tokens_is_told() -> None:
    task = _Steps(small_gpt())
    batch = [torch.zeros(2, 3, dtype=torch.long), torch.full((2, 3), IGNORED)]
    with pytest.raises(UserError, match=r"batch of shape \(2, 3\) has no supervised token: every target is -100"):
        step_gradients(task, [batch])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss_chunk": -1}, "loss_chunk: expected at least 0"),
        ({"temperature": -1.0}, "temperature: expected at least 0"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 1.0}, "min_p"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"stop": [""]}, "stop: expected texts"),
    ],
)
def test_options_out_of_range_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LanguageModelling(small_gpt(), **options)
    with pytest.raises(ValueError, match="loss_chunk: expected 0, as Linear has no features and head"):
        LanguageModelling(nn.Linear(1, 1), loss_chunk=8)

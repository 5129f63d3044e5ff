"""Language modelling: losses by token against closed forms, steps however they are cut, answers to prompts."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from playbook import UserError
from playbook.testing.command import UNSAVED
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from playbook.testing.processes import read
from src.nets.language.gpt import GPT
from src.ops.vocabularies import END, PAD, Bytes, Characters
from src.tasks.language_modelling import EXAMPLE_TOKENS, IGNORED, LanguageModelling
from tests.conftest import ROOT, Group
from tests.tasks.reports import assert_means, report_of

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


@pytest.mark.parametrize("chunk", [0, 4])
def test_the_report_has_the_loss_of_each_sequence(chunk: int) -> None:
    net, (tokens, target) = small_gpt(), rows(10)
    target[3] = IGNORED
    batches: Any = [({"tokens": part}, own) for part, own in zip(tokens.split(4), target.split(4), strict=True)]
    task = LanguageModelling(net, loss_chunk=chunk)
    report, logged, outputs = report_of(task, DataLoader(batches, batch_size=None))
    logits = net(tokens).double()
    pairs = zip(logits, target, strict=True)
    expected = [cross_entropy(own, y).item() for own, y in pairs]  # nan without tokens
    assert report.samples["loss"].tolist() == pytest.approx(expected, rel=1e-5, nan_ok=True)
    assert math.isnan(expected[3]), "it has no supervised token"
    assert outputs["nats"].sum().item() / outputs["num_tokens"].sum().item() == pytest.approx(logged["loss"], rel=1e-5)
    assert report.rankings["Largest losses"][3] == -math.inf


def test_the_mean_loss_of_equally_long_sequences_is_the_metric() -> None:
    tokens, _ = rows(6)
    batches: Any = [({"tokens": part[:, :-1]}, part[:, 1:]) for part in tokens.split(4)]
    report, logged, _ = report_of(LanguageModelling(small_gpt()), DataLoader(batches, batch_size=None))
    assert_means(report, logged, {"loss"})


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
    task.facts = {"tokenizer": Bytes().plain(), "vocab_size": 258}
    with pytest.raises(UserError, match=r"vocab_size: the data has 258 tokens, the net only 11; .*vocab_size 258"):
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


@pytest.mark.slow
def test_a_sharded_net_answers_as_on_one_process(tmp_path: Path) -> None:
    """Answers of the two processes differ in length, while every forward pass needs both."""
    recipe = ("--config", str(ROOT / "configs/language/gpt-questions.yaml"), "--trainer.accelerator", "cpu")
    small = ("--model.net.dim", "16", "--model.net.num_heads", "2", "--model.net.num_layers", "1")
    limits = ("--trainer.limit_train_batches", "2", "--trainer.limit_val_batches", "1", "--trainer.max_epochs", "1")
    rest = ("--trainer.limit_test_batches", "2", "--model.max_new_tokens", "8")
    sharded = ("--config", str(ROOT / "configs/trainer/fsdp2.yaml"), "--trainer.devices", "2", "--data.batch_size", "4")
    Group(
        1, "fit", *recipe, *small, *limits, *rest, "--data.batch_size", "8", "--run_dir", "one", cwd=tmp_path
    ).finish()
    options = ("--ckpt_path", "one", *sharded)
    Group(2, "test", *options, "--trainer.limit_test_batches", "2", "--run_dir", "tested", cwd=tmp_path).finish()
    one, two = (json.loads((tmp_path / run / "metrics.json").read_text())["test"] for run in ("one", "tested"))
    assert two == pytest.approx(one, rel=1e-5)
    predict = ("predict", "--trainer.limit_predict_batches", "2")
    Group(1, *predict, "--ckpt_path", "one", "--data.batch_size", "8", "--run_dir", "answers", cwd=tmp_path).finish()
    Group(2, *predict, *options, "--run_dir", "sharded", cwd=tmp_path).finish()
    answers, from_both = (read(tmp_path / run / "predictions/predictions.csv") for run in ("answers", "sharded"))
    assert len(answers) == 16
    assert from_both == answers


def test_examples_continue_the_first_half_of_a_sequence_by_few_tokens() -> None:
    task = LanguageModelling(Counting(), temperature=0.0)
    tokens = torch.arange(8).repeat(2, 1)
    inputs = {"tokens": tokens, "documents": torch.zeros_like(tokens)}
    inputs["documents"][1, 6:] = -1  # padding
    outputs = task.example_step((inputs, tokens + 1))
    assert outputs["prompt"] == [[0, 1, 2, 3], [0, 1, 2]]
    assert outputs["target"] == [[4, 5, 6, 7], [3, 4, 5]]
    assert outputs["tokens"][0] == [(4 + step) % V for step in range(EXAMPLE_TOKENS)]
    [answer, _] = task.answer(outputs, {"tokenizer": Characters("abcdefghijk", []).plain()})
    assert (answer["prompt"], answer["target"], answer["text"][:8]) == ("abcd", "efgh", "efghijka")


def test_examples_take_prompts_as_they_are() -> None:
    task = LanguageModelling(Counting(), temperature=0.0, max_new_tokens=2)
    outputs = task.example_step(({"tokens": torch.tensor([[0, 1, 2]])}, torch.tensor([-1])))
    assert outputs == {"prompt": [[0, 1, 2]], "tokens": [[3, 4]]}

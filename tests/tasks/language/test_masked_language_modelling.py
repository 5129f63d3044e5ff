"""Masked language modelling: what is hidden, the loss against a plain computation, the way to a classifier."""

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from playbook import UserError
from playbook.testing.command import UNSAVED
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from src.nets.language.text_encoder import TextEncoder
from src.ops.vocabularies import MASK, Words
from src.tasks.masked_language_modelling import MaskedLanguageModelling, draws_of
from tests.tasks.reports import report_of

V = 50
VOCABULARY = Words([f"w{i}" for i in range(V - 3)], [MASK])
PAD_TOKEN, UNKNOWN_TOKEN, MASK_TOKEN = 0, 1, V - 1


class _Plain(MaskedLanguageModelling):
    """Hides in training what validation hides, and takes plain batches [tokens, mask]."""

    def weight(self, batch: Any) -> Tensor:
        return super().weight(as_inputs(batch))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(as_inputs(batch), batch_idx)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs = as_inputs(batch)
        loss, _ = self._step("train", inputs, draws_of(**inputs))
        return loss


def as_inputs(batch: Any) -> dict[str, Tensor]:
    return batch if isinstance(batch, dict) else {"tokens": batch[0], "mask": batch[1]}


def made(kind: type[MaskedLanguageModelling] = MaskedLanguageModelling, **options: Any) -> MaskedLanguageModelling:
    torch.manual_seed(0)
    net = TextEncoder(num_classes=0, vocab_size=V, num_layers=1, dim=8, num_heads=2, dropout=0.0)
    task = kind(net, **options)
    task.facts = {"tokenizer": VOCABULARY.plain()}
    task.setup("fit")
    return task


def texts(num: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Random words, and padding behind them."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, V - 1, (num, length), generator=generator)
    lengths = torch.randint(1, length + 1, (num, 1), generator=generator)
    mask = torch.arange(length) < lengths
    return {"tokens": tokens.masked_fill(~mask, PAD_TOKEN), "mask": mask}


def test_shares_of_what_is_hidden_and_how() -> None:
    task = made()
    tokens = torch.randint(2, V - 1, (2000, 40))
    inputs = {"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)}
    draws = torch.rand(3, *tokens.shape)
    hidden = task._hidden(inputs, draws[0])
    assert hidden.sum(dim=1).eq(6).all(), "15 % of 40"
    assert hidden.float().mean(dim=0).sub(0.15).abs().max() < 0.04, "every place alike"
    shown = task._corrupted(tokens, hidden, draws[1:])
    assert shown[~hidden].equal(tokens[~hidden])
    same = (shown == tokens)[hidden].float().mean().item()
    masked = (shown == MASK_TOKEN)[hidden].float().mean().item()
    # of 12,000, deviations are at most 0.0037; another token is the same one once in 47
    assert masked == pytest.approx(0.8, abs=0.015)
    assert same == pytest.approx(0.1 + 0.1 / 47, abs=0.011)
    others = shown[hidden & (shown != MASK_TOKEN) & (shown != tokens)]
    assert others.unique().tolist() == list(range(2, V - 1)), "any word, and no special token"


def test_only_known_words_are_hidden_and_at_least_one_of_each_text() -> None:
    task = made()
    inputs = texts(200, 9)
    inputs["tokens"][:, 0] = UNKNOWN_TOKEN
    hidden = task._hidden(inputs, torch.rand(inputs["tokens"].shape))
    can_be_hidden = inputs["mask"] & (inputs["tokens"] != UNKNOWN_TOKEN)
    assert not (hidden & ~can_be_hidden).any()
    assert hidden.any(dim=1).equal(can_be_hidden.any(dim=1))
    assert hidden.sum() == task.weight(inputs)


def test_loss_is_the_mean_over_hidden_tokens() -> None:
    task, inputs = made(_Plain).eval(), texts(20, 12)
    hidden = task._hidden(inputs, draws_of(**inputs)[0])
    shown = task._corrupted(inputs["tokens"], hidden, draws_of(**inputs)[1:])
    features = task.net.features(shown, inputs["mask"])  # type: ignore[operator]
    dense, _, norm = task.transform
    x = nn.functional.gelu(features @ dense.weight.T + dense.bias)
    logits = norm(x) @ task.net.embedding.weight.T + task.bias  # type: ignore[operator,union-attr]
    target = inputs["tokens"].masked_fill(~hidden, -100)
    expected = cross_entropy(logits.flatten(0, 1), target.flatten())
    logged: dict[str, Any] = {}
    task.log_step = lambda stage, loss, weight, **measured: logged.update(weight=weight, **measured)
    torch.testing.assert_close(task.training_step(inputs, 0), expected)
    assert task.double().training_step(inputs, 0).dtype == torch.float64
    assert logged["weight"] == hidden.sum()
    assert logged["hits"].sum() == (logits.argmax(dim=-1) == target).sum()
    assert logged["is_hidden"].sum() == hidden.sum()


def test_the_report_has_the_loss_of_each_text() -> None:
    task, inputs = made(), texts(5, 12)
    batches: Any = [{name: values[start : start + 3] for name, values in inputs.items()} for start in (0, 3)]
    report, logged, outputs = report_of(task, DataLoader(batches, batch_size=None))
    for number, loss in enumerate(report.samples["loss"].tolist()):
        alone: Any = [{name: values[number : number + 1] for name, values in inputs.items()}]
        [metrics] = Trainer(**UNSAVED).test(task, DataLoader(alone, batch_size=None), verbose=False)
        assert loss == pytest.approx(metrics["test/loss"], rel=1e-4)
    assert outputs["nats"].sum().item() / outputs["num_tokens"].sum().item() == pytest.approx(logged["loss"], rel=1e-5)


@pytest.mark.parametrize(("accumulate", "num_parts"), [(1, 3), (4, 1)])
def test_a_step_is_the_mean_over_its_hidden_tokens_however_it_is_cut(accumulate: int, num_parts: int) -> None:
    inputs = texts(24, 30)

    def steps(batches: list[Any], **options: Any) -> list[list[Tensor]]:
        def still(groups: Any) -> torch.optim.Optimizer:
            return torch.optim.SGD(groups, lr=0.0, weight_decay=0.0)

        return step_gradients(made(_Plain, optimizer=still).double(), batches, **options)

    batches, large = random_split((inputs["tokens"], inputs["mask"]), seed=0, accumulate=accumulate)
    assert_same_steps(steps(batches, accumulate=accumulate, num_parts=num_parts), steps(large))


def test_gaps_of_a_text_are_filled() -> None:
    task = made().eval()
    tokens = torch.tensor([[5, MASK_TOKEN, 7, MASK_TOKEN], [5, 6, 0, 0]])
    outputs = task.predict_step({"tokens": tokens, "mask": tokens > 0}, 0)
    first, second = task.answer(outputs, task.facts)
    words = first["text"].split()
    assert (words[0], words[2]) == ("w3", "w5")
    assert [gap.split()[0] for gap in first["choices"].split(" | ")] == [words[1], words[3]]
    assert len(second["choices"].split(" | ")) == 1, "a word is hidden where there is no gap"
    logits = task({"tokens": tokens, "mask": tokens > 0})[0, 1].softmax(dim=-1)
    assert float(first["choices"].split()[1].rstrip(",")) == pytest.approx(logits[2:-1].max().item(), abs=0.006)


def test_a_vocabulary_without_a_mask_is_refused() -> None:
    task = MaskedLanguageModelling(TextEncoder(0, V, dim=8, num_heads=2))
    task.facts = {"tokenizer": Words(["a"]).plain()}
    with pytest.raises(UserError, match="--data: the vocabulary has no token <mask>"):
        task.setup("fit")


def test_texts_of_unknown_words_alone_teach_nothing() -> None:
    tokens = torch.full((2, 3), UNKNOWN_TOKEN)
    with pytest.raises(UserError, match="no text of a training batch has a known word"):
        made().on_train_batch_start({"tokens": tokens, "mask": tokens > 0}, 0)


def test_bad_options() -> None:
    with pytest.raises(ValueError, match=r"mask_share: expected a share in \(0, 1\), got 1"):
        MaskedLanguageModelling(TextEncoder(0, V), mask_share=1.0)
    with pytest.raises(ValueError, match="net: Linear has no features and embedding"):
        MaskedLanguageModelling(nn.Linear(1, 1))

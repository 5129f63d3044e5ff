"""Masked language modelling: what is hidden, the loss against a plain computation, the way to a classifier."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from playbook import UserError
from src.nets.text_encoder import TextEncoder
from src.ops.vocabularies import MASK, Words
from src.tasks.masked_language_modelling import MaskedLanguageModelling, draws_of
from tests.conftest import Cli
from tests.playbook.gradients import assert_same_steps, random_split, step_gradients

V = 50
VOCABULARY = Words([f"w{i}" for i in range(V - 3)], [MASK])
PAD_TOKEN, UNKNOWN_TOKEN, MASK_TOKEN = 0, 1, V - 1
NET = "{class_path: TextEncoder, init_args: {num_classes: %d, vocab_size: 60, num_layers: 1, dim: 8, num_heads: 2}}"


class _Plain(MaskedLanguageModelling):
    """Hides in training what validation hides, and takes plain batches [tokens, mask]."""

    def weight(self, batch: Any) -> Tensor:
        return super().weight(as_inputs(batch))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(as_inputs(batch), batch_idx)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs = as_inputs(batch)
        return self._step("train", inputs, draws_of(**inputs))


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


@pytest.mark.parametrize(("accumulate", "num_parts"), [(1, 3), (4, 1)])
def test_a_step_is_the_mean_over_its_hidden_tokens_however_it_is_cut(accumulate: int, num_parts: int) -> None:
    inputs = texts(24, 30)

    def steps(batches: list[Any], **options: Any) -> list[list[Tensor]]:
        def still(groups: Any) -> torch.optim.Optimizer:
            return torch.optim.SGD(groups, lr=0.0, weight_decay=0.0)

        return step_gradients(made(_Plain, optimizer=still).double(), batches, **options)

    batches, large = random_split((inputs["tokens"], inputs["mask"]), seed=0, accumulate=accumulate)
    assert_same_steps(steps(batches, accumulate=accumulate, num_parts=num_parts), steps(large))


def test_validation_hides_the_same_of_a_text_whatever_is_beside_it() -> None:
    inputs = texts(6, 20)
    draws = draws_of(**inputs)
    for row in range(6):
        length = int(inputs["mask"][row].sum())
        alone = draws_of(inputs["tokens"][row : row + 1, :length], inputs["mask"][row : row + 1, :length])
        assert alone[:, 0].equal(draws[:, row, :length])


def test_fixed_draws_are_uniform_and_independent() -> None:
    draws = draws_of(torch.randint(2, V, (2000, 30)), torch.ones(2000, 30, dtype=torch.bool)).double()  # (3, B, T)
    assert 0 <= draws.min() < draws.max() < 1
    counts = torch.histc(draws.flatten(), 20) / draws.numel()
    assert counts.sub(0.05).abs().max() < 0.002
    neighbours = torch.stack([*draws.flatten(1), draws[0].roll(1, dims=1).flatten()])
    correlations = neighbours.corrcoef().fill_diagonal_(0)
    assert correlations.abs().max() < 0.02, correlations


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


@pytest.fixture
def films(workdir: Path) -> Path:
    root = Path("films")
    root.mkdir()
    for split, num in (("train", 12), ("dev", 4)):
        rows = [f"a {'fine' if i % 2 else 'dull'} film , {i % 3} times\t{i % 2}\n" for i in range(num)]
        (root / f"{split}.tsv").write_text("".join(rows))
    (root / "reviews").mkdir()
    (root / "reviews" / "0_0.txt").write_text("I don't like it.<br /><br />A dull story!\n" * 10)
    return root


@pytest.mark.slow
def test_pretrained_weights_reach_a_classifier(cli: Cli, films: Path) -> None:
    Path("mlm.yaml").write_text(
        f"model: {{class_path: MaskedLanguageModelling, init_args: {{net: {NET % 0}}}}}\n"
        "data: {class_path: UnlabelledText, init_args: {sources: [films/train.tsv, films/reviews], header: false,"
        " batch_size: 4, val_share: 0.2, bucket: 2}}\n"
        "trainer: {max_epochs: 1}\n"
    )
    Path("classify.yaml").write_text(
        f"model: {{class_path: Classification, init_args: {{num_classes: 2, net: {NET % 2},"
        " optimizer: {class_path: SGD, init_args: {lr: 0.0}}}}\n"
        "data: {class_path: LabelledText, init_args: {root: films, header: false, batch_size: 4}}\n"
        "trainer: {max_epochs: 1, limit_train_batches: 1}\n"
    )
    done = cli("fit", "--config", "mlm.yaml", "--run_dir", "pretrained")
    assert done.code == 0, done.err
    metrics = json.loads(Path("pretrained/metrics.json").read_text())["metrics"]
    assert metrics["val/perplexity"] == pytest.approx(math.exp(metrics["val/loss"]), rel=1e-5)
    done = cli("fit", "--config", "classify.yaml", "--init_from", "pretrained", "--run_dir", "run")
    assert done.code == 0, done.err
    assert "2 missing in the file" in done.out, done.out
    weights, found = (
        torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True)["state_dict"] for run in ("pretrained", "run")
    )
    carried = [name for name in found if not name.startswith("net.head")]
    assert len(carried) > 10
    assert all(found[name].equal(weights[name]) for name in carried)
    done = cli("fit", "--config", "classify.yaml", "--data.vocabulary_of", "pretrained", "--run_dir", "anew")
    assert done.code == 0, done.err
    known = [json.loads(Path(run, "metrics.json").read_text())["facts"]["tokenizer"] for run in ("pretrained", "anew")]
    assert known[0] == known[1]
    Path("gaps.txt").write_text("a <mask> film\n")
    done = cli("predict", "--ckpt_path", "pretrained", "--input", "gaps.txt")
    assert done.code == 0, done.err
    row = next(Path("pretrained/predictions").rglob("*.csv")).read_text().splitlines()[1]
    assert "a " in row
    assert " film" in row

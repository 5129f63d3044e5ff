"""Masked language modelling: what is hidden, the loss against a plain computation, the way to a classifier."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from playbook.testing.command import Cli
from src.tasks.masked_language_modelling import draws_of

V = 50
PAD_TOKEN, UNKNOWN_TOKEN, MASK_TOKEN = 0, 1, V - 1
NET = "{class_path: TextEncoder, init_args: {num_classes: %d, vocab_size: 60, num_layers: 1, dim: 8, num_heads: 2}}"


def texts(num: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Random words, and padding behind them."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, V - 1, (num, length), generator=generator)
    lengths = torch.randint(1, length + 1, (num, 1), generator=generator)
    mask = torch.arange(length) < lengths
    return {"tokens": tokens.masked_fill(~mask, PAD_TOKEN), "mask": mask}


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

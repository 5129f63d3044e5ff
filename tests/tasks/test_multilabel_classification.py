"""Several labels a sample: the loss against its formula, metrics, answers, and what is refused."""

import math
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from playbook import UserError
from src.tasks.multilabel_classification import MultilabelClassification, rarity
from tests.tasks.reports import assert_means, report_of

K = 3
FACTS: dict[str, Any] = {"classes": ["bird", "rain", "wind"], "label_counts": [8, 2, 0], "num_samples": 10}


class Fixed(nn.Module):
    """Returns its input plus an offset that can be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(K))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.offset


def trained(rows: list[tuple[torch.Tensor, torch.Tensor]], facts: dict[str, Any] | None = None, **options: Any) -> Any:
    """The task after one epoch of SGD, and its trainer."""
    task = MultilabelClassification(Fixed(), K, optimizer=lambda p: torch.optim.SGD(p, lr=1.0), **options)
    task.facts = facts or {}
    loader = DataLoader(rows, batch_size=len(rows))  # type: ignore[arg-type]
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task, loader, loader)
    return task, trainer


def samples(num_samples: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_samples, K, generator=generator)
    target = (torch.rand(num_samples, K, generator=generator) < 0.5).float()
    return list(zip(logits, target, strict=True))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [(None, [1.0, 1.0, 1.0]), ("auto", [0.25, 4.0, 1.0]), ({"rain": 3.0}, [1.0, 3.0, 1.0])],
)
def test_loss_and_its_gradient(weights: Any, expected: list[float]) -> None:
    """Against the formula: the mean of -w y log σ(x) - (1 - y) log(1 - σ(x)); validation is unweighted."""
    rows = samples()
    task, trainer = trained(rows, FACTS, class_weights=weights)
    x, y = (torch.stack(part).double() for part in zip(*rows, strict=True))
    w = torch.tensor(expected, dtype=torch.float64)
    p = x.sigmoid()
    loss = -(w * y * p.log() + (1 - y) * (1 - p).log()).mean()
    assert float(trainer.callback_metrics["train/loss"]) == pytest.approx(float(loss), rel=1e-5)
    step = -(-w * y * (1 - p) + (1 - y) * p).sum(dim=0) / (len(rows) * K)
    torch.testing.assert_close(task.net.offset.double(), step, rtol=1e-5, atol=1e-7)
    after = (x + step).sigmoid()
    expected_val = -(y * after.log() + (1 - y) * (1 - after).log()).mean()
    assert float(trainer.callback_metrics["val/loss"]) == pytest.approx(float(expected_val), rel=1e-5)


def test_metrics_by_name() -> None:
    _, trainer = trained(samples())
    assert {"val/map", "val/f1", "val/macro_f1", "train/f1", "val/loss"} <= set(trainer.callback_metrics)
    assert "train/map" not in trainer.callback_metrics, "it would keep all probabilities"


def test_the_report_has_the_scores_of_each_label() -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(40, K), torch.randint(2, (40, K)).float()
    target[:, 2] = 0
    task = MultilabelClassification(Fixed(), K, threshold=0.4)
    task.facts = {"classes": FACTS["classes"]}
    rows = list(zip(logits, target, strict=True))
    report, logged, _ = report_of(task, DataLoader(rows, batch_size=16))  # type: ignore[arg-type]
    assert_means(report, logged, {"loss"})
    bird, rain, wind = report.tables["Labels, from a probability of 0.4 on"]
    assert (bird["label"], bird["samples"]) == ("bird", int(target[:, 0].sum()))
    assert (bird["average precision"] + rain["average precision"]) / 2 == pytest.approx(logged["map"], rel=1e-5)
    assert (wind["average precision"], wind["recall"]) == (None, 0.0)
    assert (bird["F1"] + rain["F1"] + wind["F1"]) / 3 == pytest.approx(logged["macro_f1"], rel=1e-5)
    assert report.rankings["Largest losses"].equal(report.samples["loss"])
    exact = ((logits.sigmoid() >= 0.4) == (target > 0)).all(dim=1).sum()
    _, alt = report.figures["Wrong labels of a sample"]
    assert alt.startswith(f"{exact} of 40 test samples")


def test_answers() -> None:
    task = MultilabelClassification(Fixed(), K, threshold=0.6)
    logits = torch.tensor([[2.0, 1.0, -1.0], [-3.0, -2.0, 0.1]])
    target = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    first, second = task.answer(task.predict_step((logits, target), 0), FACTS, top=2)
    assert first == {
        "labels": "bird, rain",
        "label": "bird",
        "probability": pytest.approx(1 / (1 + math.exp(-2))),
        "label_2": "rain",
        "probability_2": pytest.approx(1 / (1 + math.exp(-1))),
        "target": "bird, wind",
    }
    assert (second["labels"], second["label"], second["target"]) == ("", "wind", "")
    outputs = task.predict_step((logits, torch.tensor([-1, -1])), 0)
    assert [answer["labels"] for answer in task.answer(outputs, {}, score=0.5)] == ["0, 1", "2"]
    assert "target" not in task.answer(outputs, {})[0]
    assert task.postprocessing(FACTS) == {"kind": "labels", "names": FACTS["classes"], "threshold": 0.6, "top": 5}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"top": 0}, "top: expected at least 1"),
        ({"score": 2.0}, r"score: .* \[0, 1\], got 2.0"),
    ]
    for options, message in refused:
        with pytest.raises(UserError, match=message):
            task.answer(outputs, {}, **options)


def test_pictures_have_the_labels() -> None:
    task = MultilabelClassification(Fixed(), K)
    answers = [{"labels": text, "label": "rain", "probability": 0.3} for text in ("bird, rain", "")]
    pictures = [task.draw(torch.zeros(1, 40, 40), answer) for answer in answers]
    for picture in pictures:
        caption = torch.frombuffer(bytearray(picture.convert("L").crop((0, 0, 240, 20)).tobytes()), dtype=torch.uint8)
        assert caption.min() < 100 < caption.max(), "dark letters on white"
    assert pictures[0].tobytes() != pictures[1].tobytes()
    many = [{"labels": ", ".join(["rain"] * count), "label": "rain", "probability": 0.9} for count in (100, 500)]
    assert len({task.draw(torch.zeros(1, 40, 40), answer).size for answer in many}) == 1, "not 30,000 pixels wide"


@pytest.mark.parametrize(
    ("facts", "rows", "message"),
    [
        (
            FACTS,
            [(torch.randn(K), torch.tensor(1))] * 2,
            r"targets: expected \(2, 3\) of 0 and 1, got \(2,\); one label",
        ),
        (FACTS, [(torch.randn(2, K), torch.zeros(K))] * 2, r"num_classes: expected logits of shape \(2, 3\), the net"),
        ({"classes": list("abcd")}, samples(), "--model.num_classes: expected 4, got 3"),
    ],
)
def test_data_that_does_not_fit(facts: dict[str, Any], rows: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        trained(rows, facts)


def test_weights_that_cannot_be_found() -> None:
    assert rarity(FACTS) == [0.25, 4.0, 1.0]
    with pytest.raises(UserError, match="class_weights: auto needs the number of training samples with each label"):
        rarity({})
    with pytest.raises(UserError, match="num_classes: the data has 2 classes, expected 3"):
        trained(samples(), {"label_counts": [1, 2], "num_samples": 4}, class_weights="auto")
    with pytest.raises(UserError, match="class_weights: no class is called snow"):
        trained(samples(), FACTS, class_weights={"snow": 1.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"threshold": 1.0}, r"threshold: expected a probability in \(0, 1\), got 1.0"),
        ({"class_weights": {"bird": -1.0}}, "class_weights: expected finite weights of at least 0, got -1.0 for bird"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultilabelClassification(Fixed(), **options)

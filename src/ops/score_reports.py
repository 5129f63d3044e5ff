"""Reports of tests whose samples are pairs or sets of labels: scores of links, ranks of retrieval, several labels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

from playbook import TestReport, chart_axes
from src.ops.result_charts import MOST_CLASSES, curves, histogram, precision_recall, score_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_BINS = 40
MOST_POINTS = 200  # of a curve
MOST_CANDIDATES = 50  # of the curve of recall
HITS = (1, 5, 10, 20, 50, 100)


def link_report(scores: Tensor, linked: Tensor, hits: int) -> TestReport:
    """How far linked pairs score above the others.

    Args:
        scores: logits of the test pairs (P,).
        linked: whether each is linked, 0 or 1 (P,).
        hits: the k of hits@k, which is NaN for pairs without a link.
    """
    loss = binary_cross_entropy_with_logits(scores.double(), linked.double(), reduction="none")
    report = TestReport(samples={"loss": loss})
    positive, negative = scores[linked == 1], scores[linked == 0]
    if not len(positive) or not len(negative):
        return report
    ordered = negative.sort(descending=True).values
    is_hit = (scores > ordered[min(hits, len(negative)) - 1]).double()
    report.samples[f"hits@{hits}"] = is_hit.masked_fill(linked == 0, torch.nan)
    report.tables["Linked pairs above the k-th highest of the others"] = [
        {"k": k, "score": float(ordered[k - 1]), "hits@k": float((positive > ordered[k - 1]).double().mean())}
        for k in sorted({*HITS, hits})
        if k <= len(negative)
    ]
    order = scores.unique(return_inverse=True)[1].double()  # probabilities of large scores would be equal
    auroc = float(binary_auroc(order / order.max().clamp(min=1), linked, validate_args=False))
    kinds = {f"linked ({len(positive):,})": positive, f"not linked ({len(negative):,})": negative}
    report.figures["Scores of pairs"] = (
        _histograms(kinds, "score"),
        f"The median is {float(positive.median()):.3g} for linked pairs and {float(negative.median()):.3g} for others",
    )
    report.figures["ROC curve"] = (
        _roc(scores, linked),
        f"The area under the curve is {auroc:.4f}; 0.5 is that of chance",
    )
    return report


def _histograms(values: Mapping[str, Tensor], x_label: str) -> "Figure":
    """Shares of values in bins that all of them have in common."""
    every = torch.cat([column[column.isfinite()] for column in values.values()]).double()
    figure, axes = chart_axes()
    for name, column in values.items() if len(every) else ():
        ends = (float(every.min()), float(every.max()))
        counts, edges = torch.histogram(column[column.isfinite()].double(), bins=NUM_BINS, range=ends)
        axes.stairs((counts / counts.sum().clamp(min=1)).tolist(), edges.tolist(), fill=True, alpha=0.5, label=name)
    axes.set(xlabel=x_label, ylabel="share")
    axes.legend(fontsize=8)
    return figure


def _roc(scores: Tensor, linked: Tensor) -> "Figure":
    """Share of linked pairs over that of the others above each score; equal scores are one step."""
    ordered, order = scores.sort(descending=True)
    is_last = torch.cat([ordered[1:] != ordered[:-1], torch.tensor([True])])
    hits = linked[order].double().cumsum(dim=0)[is_last]
    false = (1 - linked[order]).double().cumsum(dim=0)[is_last]
    places = torch.linspace(0, len(hits) - 1, min(MOST_POINTS, len(hits))).round().long()
    figure, axes = chart_axes()
    axes.plot([0, 1], [0, 1], linestyle="--", linewidth=0.8, label="chance")
    axes.plot(
        [0.0, *(false[places] / false[-1]).tolist()], [0.0, *(hits[places] / hits[-1]).tolist()], label="measured"
    )
    axes.set(xlabel="pairs without a link", ylabel="linked pairs", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(fontsize=8)
    return figure


def label_report(
    probability: Tensor, target: Tensor, loss: Tensor, threshold: float, names: Sequence[str]
) -> TestReport:
    """Which labels are found, and which samples to look at.

    Args:
        probability: of each label (N, K).
        target: labels, 0 or 1 (N, K).
        loss: of each sample (N,).
        threshold: probability from which on a label counts as predicted.
        names: of the K labels.
    """
    is_predicted = probability >= threshold
    totals = (is_predicted & (target > 0)).sum(dim=0), is_predicted.sum(dim=0), target.sum(dim=0)  # (K,) each
    rows = []
    for number, (row, count) in enumerate(zip(score_rows(*totals, names), totals[2].tolist(), strict=True)):
        precision = None  # of a label that all samples have, or none, there is no curve
        if 0 < count < len(target):
            precision = float(binary_average_precision(probability[:, number], target[:, number], validate_args=False))
        name = row.pop("class")
        rows.append({"label": name, "average precision": precision, **row, "samples": count})
    wrong = (is_predicted != (target > 0)).sum(dim=1)  # (N,)
    alt = f"{int((wrong == 0).sum()):,} of {len(wrong):,} test samples have exactly their labels"
    report = TestReport(
        samples={"loss": loss},
        rankings={"Largest losses": loss},
        tables={f"Labels, from a probability of {threshold:g} on": rows},
        figures={"Wrong labels of a sample": (_counts(wrong, "labels too many or missing"), alt)},
    )
    if len(names) <= MOST_CLASSES:
        alt = "Precision falls as recall grows, for each label"
        report.figures["Precision and recall"] = precision_recall(probability, target, names), alt
    return report


def _counts(values: Tensor, x_label: str) -> "Figure":
    """Numbers of test samples with each whole number."""
    figure, axes = chart_axes()
    counts = values.bincount().tolist()
    axes.bar(range(len(counts)), counts)
    axes.set(xlabel=x_label, ylabel="test samples")
    axes.locator_params(axis="x", integer=True)
    return figure


def retrieval_report(ranks: Mapping[str, Tensor], similarity: Tensor, ks: Sequence[int]) -> TestReport:
    """How many candidates are more similar than the right one, and for which samples most of them.

    Args:
        ranks: numbers of wrong candidates before the right one (N,), by direction; NaN for samples that are no query.
        similarity: of the two sides of each sample (N,).
        ks: numbers of candidates k of recall@k.
    """
    report = TestReport(samples={f"{direction}_rank": column + 1 for direction, column in ranks.items()})
    rows, recalls = [], {}
    for direction, column in ranks.items():
        is_query = column.isfinite()
        own = column[is_query]
        words = direction.replace("_", " ")
        recall = {f"recall@{k}": (column < k).double().masked_fill(~is_query, torch.nan) for k in ks}
        report.samples |= {f"{direction}_{name}": values for name, values in recall.items()}
        report.rankings[f"Worst ranks, {words}"] = column.masked_fill(~is_query | (column == 0), -torch.inf)
        most = min(MOST_CANDIDATES, len(similarity))
        recalls[words] = torch.stack([(own < k).double().mean() for k in range(1, most + 1)])
        means = {name: float(values.nanmean()) for name, values in recall.items()}
        median = int(own.median()) + 1 if len(own) else None
        rows.append({"direction": words, "queries": len(own), **means, "median rank": median})
    report.tables["Retrieval; the most similar candidate has rank 1"] = rows
    alt = ", ".join(f"{float(values[0]):.1%} from {words} with one candidate" for words, values in recalls.items())
    report.figures["Recall over the number of candidates"] = curves(recalls, "candidates", "recall"), alt
    alt = f"The median similarity of a pair is {float(similarity.median()):.3f}"
    report.figures["Similarity of pairs"] = histogram(similarity, "cosine similarity"), alt
    return report

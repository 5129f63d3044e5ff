"""Charts of test results for the reports of runs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from playbook import TestReport, chart_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 30  # of a confusion matrix whose names and counts can be read
NUM_BINS = 10
MOST_POINTS = 1000  # of a scatter plot: about 100 kB of SVG


def confusion_matrix(label: Tensor, target: Tensor, names: Sequence[str]) -> "Figure":
    """Counts of predicted classes (columns) for each target (row).

    Args:
        label: predicted classes (N,).
        target: classes (N,).
        names: of the K classes.
    """
    num_classes = len(names)
    counts = torch.bincount(target * num_classes + label, minlength=num_classes**2).view(num_classes, num_classes)
    share = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    side = 2.2 + 0.28 * num_classes
    figure, axes = chart_axes(side, side)
    for row, column in counts.nonzero().tolist():  # at most half opaque, so that the counts can be read on any ground
        axes.axvspan(
            column - 0.5,
            column + 0.5,
            1 - (row + 1) / num_classes,
            1 - row / num_classes,
            color="C0",
            alpha=0.5 * float(share[row, column]),
            linewidth=0,
        )
        axes.text(column, row, int(counts[row, column]), ha="center", va="center", fontsize=7)
    ends = (-0.5, num_classes - 0.5)
    axes.grid(visible=False)
    axes.set_xticks(range(num_classes), names, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set_yticks(range(num_classes), names)
    axes.set(xlabel="predicted", ylabel="target", xlim=ends, ylim=ends[::-1], aspect="equal")
    return figure


def reliability(confidence: Tensor, correct: Tensor) -> "Figure":
    """Accuracy of samples by their confidence, beside the diagonal of a calibrated model (Guo et al. 2017).

    Args:
        confidence: the largest probability of each sample (N,).
        correct: whether its class was right (N,).
    """
    place = (confidence * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    counts = torch.bincount(place, minlength=NUM_BINS)
    accuracy = torch.bincount(place, weights=correct.float(), minlength=NUM_BINS) / counts.clamp(min=1)
    mean = torch.bincount(place, weights=confidence, minlength=NUM_BINS) / counts.clamp(min=1)
    figure, axes = chart_axes()
    axes.plot([0, 1], [0, 1], linestyle="--", linewidth=0.8, label="calibrated")
    filled = counts > 0
    axes.plot(mean[filled].tolist(), accuracy[filled].tolist(), marker="o", label="measured")
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(fontsize=8)
    return figure


def scatter(x: Tensor, y: Tensor, x_label: str, y_label: str, slope: float = 1.0) -> "Figure":
    """Points, and a dashed line through the origin; of many points, evenly spaced ones.

    Args:
        x: of each sample (N,).
        y: of each sample (N,).
        x_label: of the axis.
        y_label: of the axis.
        slope: of the line, on which samples without an error lie.
    """
    every = -(-len(x) // MOST_POINTS)
    x, y = x[::every], y[::every]
    figure, axes = chart_axes()
    axes.scatter(x.tolist(), y.tolist(), s=6, alpha=0.5, linewidths=0)
    ends = [float(x.min()), float(x.max())]
    axes.plot(ends, [slope * end for end in ends], linestyle="--", linewidth=0.8, color="grey")
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.locator_params(axis="x", nbins=6)  # for numbers of six digits
    return figure


def histogram(values: Tensor, x_label: str, ends: tuple[float, float] | None = None) -> "Figure":
    """Numbers of test samples over their values, in bins of equal width.

    Args:
        values: of each sample (N,); those that are not finite are left out.
        x_label: of the axis.
        ends: of the first and of the last bin. Default to the lowest and the highest value.
    """
    counts, edges = torch.histogram(values[values.isfinite()].double().cpu(), bins=3 * NUM_BINS, range=ends)
    figure, axes = chart_axes()
    axes.stairs(counts.tolist(), edges.tolist(), fill=True)
    axes.set(xlabel=x_label, ylabel="test samples")
    axes.locator_params(axis="x", nbins=6)  # for numbers of six digits
    return figure


def curves(values: Mapping[str, Tensor], x_label: str, y_label: str) -> "Figure":
    """Values over the numbers 1 to N.

    Args:
        values: of each curve (N,), by name.
        x_label: of the axis.
        y_label: of the axis.
    """
    figure, axes = chart_axes()
    for name, column in values.items():
        axes.plot(range(1, len(column) + 1), column.tolist(), marker="." if len(column) < 30 else None, label=name)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    return figure


def precision_recall(probability: Tensor, target: Tensor, names: Sequence[str]) -> "Figure":
    """Precision over recall of each class against the others.

    Args:
        probability: of each class (N, K).
        target: classes (N,), or which classes a sample has (N, K), 0 or 1.
        names: of the K classes.
    """
    points = {}
    for number, name in enumerate(names):
        order = probability[:, number].argsort(descending=True)
        is_class = target == number if target.ndim == 1 else target[:, number] > 0
        hits = is_class[order].float().cumsum(dim=0)
        if len(hits) and hits[-1] > 0:
            ranks = torch.arange(1, len(hits) + 1)
            every = max(1, len(hits) // 200)
            points[name] = (hits / hits[-1])[::every], (hits / ranks)[::every]
    return precision_over_recall(points)


def precision_over_recall(points: Mapping[str, tuple[Tensor, Tensor]]) -> "Figure":
    """A curve for each class.

    Args:
        points: recall (R,) and precision (R,), by the name of the class.
    """
    figure, axes = chart_axes()
    for number, (name, (recall, precision)) in enumerate(points.items()):
        style = ("-", "--", ":")[number // 6 % 3]  # the page has six colours
        axes.plot(recall.tolist(), precision.tolist(), label=name, linewidth=1, linestyle=style)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(0, 1.02))
    if 0 < len(points) <= 12:
        axes.legend(fontsize=7, ncols=2)
    return figure


def class_report(label: Tensor, target: Tensor, probability: Tensor, names: Sequence[str]) -> TestReport:
    """Which classes are confused, how far probabilities can be trusted, and which samples to look at.

    Args:
        label: predicted classes (N,).
        target: classes (N,), or probabilities (N, K), of which the largest counts.
        probability: that was predicted (N, K).
        names: of the K classes.
    """
    if target.is_floating_point():
        target = target.argmax(dim=1)
    confidence, correct = probability.max(dim=1).values, label == target
    loss = probability[torch.arange(len(target)), target].clamp(min=1e-12).log().abs()  # -log without -0
    report = TestReport(
        samples={"accuracy": correct.float(), "loss": loss},
        rankings={"Most confident errors": confidence.masked_fill(correct, -torch.inf), "Largest losses": loss},
        tables={"Classes": class_rows(label, target, names)},
    )
    if len(names) <= MOST_CLASSES:
        alt = f"Of {len(target):,} test samples, {int(correct.sum()):,} are on the diagonal"
        report.figures["Confusion matrix"] = confusion_matrix(label, target, names), alt
        alt = "Precision falls as recall grows, for each class against the others"
        report.figures["Precision and recall"] = precision_recall(probability, target, names), alt
    gap = float((confidence.mean() - correct.float().mean()).abs())
    report.figures["Reliability"] = (
        reliability(confidence, correct),
        f"Mean confidence and accuracy differ by {gap:.3f}",
    )
    return report


def class_rows(label: Tensor, target: Tensor, names: Sequence[str]) -> list[dict[str, Any]]:
    """Precision, recall and F1 of each class, and how many test samples it has.

    Args:
        label: predicted classes (N,).
        target: classes (N,).
        names: of the K classes.
    """
    num = len(names)
    hits = torch.bincount(target[label == target], minlength=num)
    predicted, actual = torch.bincount(label, minlength=num), torch.bincount(target, minlength=num)
    rows = score_rows(hits, predicted, actual, names)
    return [{**row, "samples": count} for row, count in zip(rows, actual.tolist(), strict=True)]


def score_rows(hits: Tensor, predicted: Tensor, actual: Tensor, names: Sequence[str]) -> list[dict[str, Any]]:
    """Precision, recall and F1 of each class; 0 where nothing is to be divided.

    Args:
        hits: numbers of right predictions (K,), of samples, boxes or pixels.
        predicted: numbers of predictions (K,).
        actual: numbers of targets (K,).
        names: of the K classes.
    """
    precision = hits.double() / predicted.clamp(min=1)
    recall = hits.double() / actual.clamp(min=1)
    f1 = 2 * hits.double() / (predicted + actual).clamp(min=1)
    columns = zip(names, precision.tolist(), recall.tolist(), f1.tolist(), strict=True)
    return [{"class": name, "precision": p, "recall": r, "F1": f} for name, p, r, f in columns]


def spread_rows(values: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Mean, quantiles and extremes of values over the test samples.

    Args:
        values: of each sample (N,), by name; those that are not finite are left out.
    """
    rows = []
    for name, column in values.items():
        ordered = column[column.isfinite()].double().sort().values
        row: dict[str, Any] = {"score": name}
        if len(ordered):
            row["mean"] = float(ordered.mean())
            for title, level in (("lowest", 0.0), ("10 %", 0.1), ("median", 0.5), ("90 %", 0.9), ("highest", 1.0)):
                row[title] = float(ordered[round(level * (len(ordered) - 1))])
        rows.append(row)
    return rows


def error_rows(value: Tensor, target: Tensor) -> list[dict[str, Any]]:
    """Mean error and mean absolute error by the target, in ten groups of about as many samples.

    Equal targets are in one group, so that there may be fewer.

    Args:
        value: predicted for each sample (N,).
        target: of each sample (N,).
    """
    ordered = target.sort().values
    starts = ordered[[len(ordered) * number // NUM_BINS for number in range(NUM_BINS)]].unique()
    group = torch.bucketize(target, starts, right=True) - 1  # (N,)
    rows = []
    for number in group.unique().tolist():
        of_group = group == number
        known, error = target[of_group], (value - target)[of_group].double()
        rows.append(
            {
                "target from": float(known.min()),
                "to": float(known.max()),
                "samples": len(error),
                "mean error": float(error.mean()),
                "MAE": float(error.abs().mean()),
            }
        )
    return rows


def quantile_rows(levels: Sequence[float], below: Tensor) -> list[dict[str, Any]]:
    """How often targets are at most a predicted quantile, beside its level, which a calibrated model would reach.

    Args:
        levels: of the Q quantiles.
        below: share of the targets of each sample that are at most the quantile (N, Q).
    """
    shares = below.double().mean(dim=0).tolist()
    return [{"quantile": level, "targets at or below": share} for level, share in zip(levels, shares, strict=True)]


def loss_report(nats: Tensor, num_tokens: Tensor) -> TestReport:
    """Losses of single sequences, as means over their own tokens; NaN for those without any.

    The mean over sequences is `loss`, the mean over all tokens, only where sequences have as many tokens each.

    Args:
        nats: the sum of the loss of each sequence (N,).
        num_tokens: over which it is (N,).
    """
    loss = nats.double() / num_tokens  # 0 / 0 without tokens
    alt = f"Half of {len(loss):,} test sequences have a loss of at most {float(loss.nanmedian()):.4g}"
    return TestReport(
        samples={"loss": loss},
        rankings={"Largest losses": loss.nan_to_num(nan=-torch.inf)},
        tables={"Single sequences": spread_rows({"loss": loss, "tokens": num_tokens})},
        figures={"Loss of single sequences": (histogram(loss, "loss"), alt)},
    )

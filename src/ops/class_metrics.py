"""What classifiers are measured by, and whether logits and labels fit together."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MulticlassF1Score,
    MulticlassStatScores,
)
from torchmetrics.functional.classification import binary_auroc, binary_average_precision
from torchmetrics.utilities.data import dim_zero_cat

from playbook import UserError


def class_metrics(num_classes: int, top_k: int = 1, macro: bool = False) -> MetricCollection:
    """Accuracy, and on request the mean per-class accuracy and how often the target is among the k most likely classes.

    Args:
        num_classes: number of classes K.
        top_k: if above 1, measures `top5_accuracy` for 5.
        macro: whether to measure `macro_accuracy`.
    """
    # check_labels has looked at shapes and labels; torchmetrics need not do so again
    metrics: dict[str, Metric | MetricCollection] = {
        "accuracy": MulticlassAccuracy(num_classes, average="micro", validate_args=False)
    }
    if macro:
        metrics["macro_accuracy"] = MacroAccuracy(num_classes)
    if top_k > 1:
        metrics[f"top{top_k}_accuracy"] = MulticlassAccuracy(num_classes, top_k, average="micro", validate_args=False)
    return MetricCollection(metrics)


class MacroAccuracy(MulticlassStatScores):
    """Accuracy averaged over the classes that occur in targets; torchmetrics counts 0 for one only predicted.

    Args:
        num_classes: number of classes K.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, average=None, validate_args=False)

    def compute(self) -> Tensor:
        hits, _, _, _, targets = super().compute().unbind(dim=1)  # (K,)
        return (hits / targets)[targets > 0].mean()


class CalibrationError(MulticlassCalibrationError):
    """Expected calibration error of logits; torchmetrics takes logits in [0, 1] for probabilities, batch by batch.

    Args:
        num_classes: number of classes K.
        num_bins: number of bins of confidence.
    """

    def __init__(self, num_classes: int, num_bins: int) -> None:
        super().__init__(num_classes, num_bins, validate_args=False)

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds.float().softmax(dim=-1), target)


def rare_class_metrics(num_classes: int, names: Sequence[str]) -> dict[str, Metric | MetricCollection]:
    """Metrics by name that tell how well rare classes are found, which accuracy hardly shows.

    Args:
        num_classes: number of classes K.
        names: of RARE_CLASS_METRICS.

    Raises:
        ValueError: a name is unknown.
    """
    if unknown := [name for name in names if name not in RARE_CLASS_METRICS]:
        raise ValueError(f"metrics: expected some of {', '.join(RARE_CLASS_METRICS)}, got {', '.join(unknown)}")
    return {name: RARE_CLASS_METRICS[name](num_classes) for name in names}


class F1(MulticlassF1Score):
    """F1 of the second of two classes, or the mean over more classes, of those that are predicted or in targets.

    Args:
        num_classes: number of classes K.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, average="none" if num_classes == 2 else "macro", validate_args=False)

    def compute(self) -> Tensor:
        score = super().compute()
        return score[1] if score.ndim else score


class RankMetric(Metric):
    """A metric of how a class's probability ranks the samples, for the second of two classes or as a mean over more.

    Keeps the probabilities of all samples. The mean is over the classes that the metric is defined for: those with and
    without a sample; NaN if there are none.

    Args:
        num_classes: number of classes K.
    """

    probability: list[Tensor]
    target: list[Tensor]
    score: Callable[..., Tensor]  # of the probabilities of a class (N,), and whether each sample is of it (N,)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first = 1 if num_classes == 2 else 0
        self.add_state("probability", [], dist_reduce_fx="cat")
        self.add_state("target", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.probability.append(preds.detach().float().softmax(dim=-1)[:, self.first :])  # (B, 1) or (B, K)
        self.target.append(target)

    def compute(self) -> Tensor:
        probability, target = dim_zero_cat(self.probability), dim_zero_cat(self.target)  # (N, 1) or (N, K), (N,)
        scores = []
        for number, column in enumerate(probability.unbind(dim=1), self.first):
            is_class = (target == number).long()
            if 0 < int(is_class.sum()) < len(is_class):
                scores.append(self.score(column, is_class, validate_args=False))
        return torch.stack(scores).mean() if scores else probability.new_tensor(torch.nan)


class AUROC(RankMetric):
    """Area under the receiver operating characteristic: how often a sample of the class ranks above one of another."""

    score = staticmethod(binary_auroc)


class AveragePrecision(RankMetric):
    """Mean precision over the ranks of the samples of the class; for a random order, their share of the samples."""

    score = staticmethod(binary_average_precision)


RARE_CLASS_METRICS: dict[str, Callable[[int], Metric]] = {
    "f1": F1,
    "auroc": AUROC,
    "average_precision": AveragePrecision,
}


def check_labels(logits: Tensor, target: Tensor, num_classes: int, has_members: bool = False) -> None:
    """Checks that logits are (B, K), and targets class numbers (B,) below K or probabilities (B, K).

    Args:
        logits: of a net.
        target: of the same batch.
        num_classes: number of classes K.
        has_members: whether logits may also be those of an ensemble (B, k, K), and targets those of each member: class
            numbers (B, k) or probabilities (B, k, K).

    Raises:
        UserError: they are not.
    """
    if target.ndim == 1 and target.is_floating_point():
        raise UserError(
            "targets: expected classes, got numbers, as in a regression; set --data.target_kind classes, or --model "
            "Regression"
        )
    members = tuple(logits.shape[1:2]) if has_members and logits.ndim == 3 else ()
    expected = (len(target), *members, num_classes)
    if logits.shape != expected:
        raise UserError(
            f"num_classes: expected logits of shape {expected}, "
            f"the net returned {tuple(logits.shape)}; set --model.num_classes and the net's num_classes to the same"
        )
    tail = (num_classes,) if target.is_floating_point() else ()
    if target.shape[1:] not in (tail, members + tail):
        shape, got = (len(target), num_classes), tuple(target.shape)
        raise UserError(f"num_classes: expected labels (B,) or probabilities {shape}, got {got}")
    if target.is_floating_point():
        return
    low, high = (value.item() for value in target.aminmax())
    if low < 0 or high >= num_classes:
        raise UserError(f"num_classes: labels run from {low} to {high}, expected 0 to {num_classes - 1}")

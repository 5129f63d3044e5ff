"""Semantic segmentation: one of K classes for every pixel."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassConfusionMatrix

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, class_name
from src.ops.class_counts import require_class_count
from src.ops.class_weights import check_weights, weights_by_name, weights_of
from src.ops.losses import cross_entropy_loss, dice_loss, focal_loss, lovasz_softmax
from src.ops.pictures import as_image, with_mask
from src.ops.result_charts import histogram, score_rows, spread_rows
from src.ops.tiles import tiled_logits

Batch = tuple[Tensor, Tensor]
ROWS = 64  # of an image, interpolated at a time


class Segmentation(Task):
    """Logits (B, K, H, W) against class masks (B, H, W), measured by intersection over union and pixel accuracy.

    Both are computed over all pixels of the set together. miou is the mean over the classes that occur in a mask or a
    prediction.

    Args:
        net: maps images (B, C, H, W) to logits (B, K, H, W).
        num_classes: number of classes K, at least 2.
        loss: loss to minimise; losses joined by + are added.
        ignore_index: class of pixels to exclude from loss and metrics, often 255. Defaults to that of the data, if it
            has one.
        class_names: K names for metrics and answers, as in val/iou_pet. Default to those of the data, or else numbers.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.stem.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.head, lr_factor: 10}].
        class_weights: weights of the classes in the cross-entropy or focal loss of training, at least 0, by name, as in
            {pet: 2.0}, and 1 for the others. Validation and test losses stay unweighted. Defaults to 1 for every class.

    Raises:
        ValueError: a value is out of range, logits have another shape, or a mask has a class outside 0 … K - 1.
    """

    monitor, monitor_mode = "val/miou", "max"
    program_outputs = ("logits",)
    class_weight: Tensor | None  # a buffer

    def __init__(
        self,
        net: nn.Module,
        num_classes: int = 2,
        loss: Literal[
            "cross-entropy", "dice", "focal", "lovasz", "cross-entropy+dice", "cross-entropy+lovasz"
        ] = "cross-entropy",
        ignore_index: int | None = None,
        class_names: Sequence[str] | None = None,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
        class_weights: dict[str, float] | None = None,
    ) -> None:
        if num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {num_classes}")
        unknown = set(loss.split("+")) - set(LOSSES)
        if unknown:
            raise ValueError(f"loss: expected {', '.join(LOSSES)}, or some of them joined by +, got {loss}")
        names = list(class_names) if class_names is not None else [str(k) for k in range(num_classes)]
        if len(set(names)) != len(names) or len(names) != num_classes:
            raise ValueError(f"class_names: expected {num_classes} different names, got {', '.join(names)}")
        if class_weights is not None:
            check_weights(class_weights)
            if MEANS_OVER_PIXELS.isdisjoint(loss.split("+")):
                raise ValueError(f"class_weights: expected a cross-entropy or focal loss, got loss {loss}")
        scores = _Scores(names, ignore_index)
        super().__init__(net, optimizer, schedule, MetricCollection({"scores": scores}), parameter_groups)
        self.tile: int | None = None  # side of the tiles of `predict --tile`
        self.num_classes = num_classes
        self.class_names = None if class_names is None else names
        self.loss = loss
        self.loss_name = loss
        self.ignore_index = ignore_index
        self.class_weights = class_weights
        weight = None if class_weights is None else torch.ones(num_classes)
        self.register_buffer("class_weight", weight, persistent=False)  # (K,), in the order of the classes

    def weight(self, batch: Batch) -> Tensor | int | None:
        """Number of pixels that count in the loss, or the sum of their class weights.

        None for Dice and Lovász losses, which are ratios over the whole batch.
        """
        return self._weight(batch, self.class_weight)

    def _weight(self, batch: Batch, class_weight: Tensor | None) -> Tensor | int | None:
        if not MEANS_OVER_PIXELS.issuperset(self.loss.split("+")):
            return None
        _, mask = batch
        if class_weight is not None:
            return weights_of(mask, class_weight, self.ignore_index).sum()
        return mask.numel() if self.ignore_index is None else (mask != self.ignore_index).sum()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss, _ = self._step("train", batch, batch_idx)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns numbers of pixels per image and class (B, K): `target`, `predicted`, and `hits`, which are both."""
        _, mask = batch
        _, predicted = self._step("test", batch, batch_idx)
        counts = torch.ones_like(mask, dtype=torch.bool) if self.ignore_index is None else mask != self.ignore_index
        hits = counts & (predicted == mask)
        return {
            "target": _pixels(mask, counts, self.num_classes),
            "predicted": _pixels(predicted, counts, self.num_classes),
            "hits": _pixels(predicted, hits, self.num_classes),
        }

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        """Returns: `mask`, the most likely class of every pixel, as bytes if K is at most 256.

        (B, H, W) for a batch of images and masks. A list of dicts of (H, W) for images whose target is the size of
        their files, `file_size` (B, 2), to which the logits are scaled.
        """
        image, target = batch
        kind = torch.uint8 if self.num_classes <= 256 else torch.int32
        logits = self(image) if self.tile is None else tiled_logits(self, image, self.tile)
        if isinstance(target, dict):
            sizes = target["file_size"].tolist()
            return [{"mask": likeliest_at(one, size).to(kind)} for one, size in zip(logits, sizes, strict=True)]
        return {"mask": _likeliest(logits).to(kind)}

    def answer(self, outputs: Any, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Names the classes in each image: `mask` (H, W), and `area`, the share of the pixels of each class.

        Args:
            outputs: returned by predict_step.
            facts: with `classes`; without them, numbers are used as names.
        """
        masks = [output["mask"] for output in outputs] if isinstance(outputs, list) else outputs["mask"]
        names = self._names(facts)
        answers = []
        for mask in masks:
            counts = mask.long().flatten().bincount(minlength=self.num_classes)
            shares = (counts.double() / max(mask.numel(), 1)).tolist()
            answers.append({"mask": mask, "area": dict(zip(names, shares, strict=True))})
        return answers

    def target_answer(self, batch: Batch, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """The answers that would be right: true masks, in which pixels that are ignored have the number K.

        Args:
            batch: of test_step.
            facts: with `classes`; without them, numbers are used as names.
        """
        names, answers = self._names(facts), []
        masks = batch[1]
        if self.ignore_index is not None:
            masks = masks.masked_fill(masks == self.ignore_index, self.num_classes)
        for mask in masks:
            counts = mask.long().flatten().bincount(minlength=self.num_classes)[: self.num_classes].double()
            shares = (counts / counts.sum().clamp(min=1)).tolist()
            answers.append({"mask": mask, "area": dict(zip(names, shares, strict=True))})
        return answers

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """Scores of each class over all pixels, those of single images, and which images to look at.

        `image_miou` and `image_pixel_accuracy` of an image are computed from its pixels alone, so their means are not
        `miou` and `pixel_accuracy`. They are NaN for an image all of whose pixels are ignored.

        Args:
            outputs: of test_step, for all test samples.
            facts: with `classes`; without them, numbers are used as names.
        """
        names = self._names(facts)
        hits, predicted, target = (outputs[name].double() for name in ("hits", "predicted", "target"))  # (N, K)
        miou = self._iou(hits, predicted, target).nanmean(dim=1)  # (N,)
        scores = {"image_miou": miou, "image_pixel_accuracy": hits.sum(dim=1) / target.sum(dim=1)}
        totals = hits.sum(dim=0), predicted.sum(dim=0), target.sum(dim=0)
        iou = self._iou(*totals).tolist()
        shares = (totals[2] / totals[2].sum()).tolist()
        num_images = (target > 0).sum(dim=0).tolist()
        rows = [
            {"class": row["class"], "IoU": None if math.isnan(iou[k]) else iou[k]}
            | {name: value for name, value in row.items() if name != "class"}
            | {"share of pixels": shares[k], "images": num_images[k]}
            for k, row in enumerate(score_rows(*totals, names))
            if k != self.ignore_index
        ]
        alt = f"Half of {len(miou):,} test images have a mean IoU of at least {float(miou.nanmedian()):.3f}"
        return TestReport(
            samples=scores,
            rankings={"Lowest IoU": (-miou).nan_to_num(nan=-torch.inf)},
            tables={"Classes, over all pixels": rows, "Scores of single images": spread_rows(scores)},
            figures={"Mean IoU of single images": (histogram(miou, "mean IoU", (0.0, 1.0)), alt)},
        )

    def _iou(self, hits: Tensor, predicted: Tensor, target: Tensor) -> Tensor:
        """Intersection over union (…, K) of numbers of pixels, NaN for classes that do not occur or are ignored."""
        iou = hits / (predicted + target - hits)
        if self.ignore_index is not None and 0 <= self.ignore_index < self.num_classes:
            iou[..., self.ignore_index] = math.nan
        return iou

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "mask", "names": self._names(facts)}

    def draw(self, inputs: Tensor, answer: dict[str, Any]) -> Image.Image:
        """Draws the mask over the image, with the names of the classes."""
        return with_mask(as_image(inputs), answer["mask"], [*self._names(self.facts), "ignored"])

    def _names(self, facts: dict[str, Any]) -> list[str]:
        return self.class_names or [class_name(facts, number) for number in range(self.num_classes)]

    def setup(self, stage: str) -> None:
        if stage == "fit":
            require_class_count(self.num_classes, self.facts)
        self._ignore(self.facts.get("ignore_index"))
        for metrics in (self.train_metrics, self.val_metrics, self.test_metrics):
            metrics["scores"].names = self._names(self.facts)
        if stage == "fit" and self.class_weights is not None and self.class_weight is not None:
            weights = weights_by_name(self.class_weights, self._names(self.facts))
            self.class_weight = self.class_weight.new_tensor(weights)

    def _ignore(self, of_data: int | None) -> None:
        """Takes the class of pixels without one from the data, where the task has none.

        Raises:
            UserError: the task ignores another class.
        """
        if of_data is None or self.ignore_index == of_data:
            return
        if self.ignore_index is not None:
            raise UserError(
                f"--model.ignore_index: expected {of_data} as in the data, got {self.ignore_index}; leave it out to "
                "take the data's"
            )
        self.ignore_index = of_data
        for metrics in (self.train_metrics, self.val_metrics, self.test_metrics):
            metrics["scores"].ignore_index = metrics["scores"].ignored = of_data

    def _step(self, stage: str, batch: Batch, batch_idx: int) -> tuple[Tensor, Tensor]:
        """The mean loss, and the most likely classes (B, H, W)."""
        image, mask = batch
        logits = self(image)  # (B, K, H, W)
        if batch_idx == 0 or mask.device.type == "cpu":  # elsewhere, looking at every pixel would wait for the device
            self._check(logits, mask)
        class_weight = self.class_weight if stage == "train" else None
        loss = torch.stack([self._loss(name, logits, mask, class_weight) for name in self.loss.split("+")]).sum()
        weight = self._weight(batch, class_weight)
        predicted = _likeliest(logits)
        self.log_step(stage, loss, len(mask) if weight is None else weight, preds=predicted, target=mask)
        return loss, predicted

    def _loss(self, name: str, logits: Tensor, mask: Tensor, class_weight: Tensor | None) -> Tensor:
        weight = {"weight": class_weight} if name in MEANS_OVER_PIXELS else {}
        return LOSSES[name](logits, mask, self.ignore_index, **weight)

    def _check(self, logits: Tensor, mask: Tensor) -> None:
        expected = (len(mask), self.num_classes, *mask.shape[1:])
        if logits.shape != expected:
            raise UserError(
                f"num_classes: expected logits of shape {expected}, the net returned {tuple(logits.shape)}; "
                f"set --model.num_classes and the net's num_classes to the same"
            )
        wrong = (mask < 0) | (mask >= self.num_classes)
        if self.ignore_index is not None:
            wrong &= mask != self.ignore_index
        if wrong.any():  # doctor: ignore[host-sync] a class that is none must be named, not trained on
            unknown_classes = ", ".join(str(k) for k in mask[wrong].unique().tolist()[:5])
            exception = "none is ignored" if self.ignore_index is None else f"{self.ignore_index} is ignored"
            raise UserError(
                f"num_classes: masks contain {unknown_classes}, expected 0 to {self.num_classes - 1}; "
                f"{exception}, see --model.num_classes and --model.ignore_index"
            )


class _Scores(MulticlassConfusionMatrix):
    """Scores of one confusion matrix over all pixels: mean and per-class intersection over union, and accuracy."""

    def __init__(self, names: list[str], ignore_index: int | None) -> None:
        super().__init__(len(names), ignore_index=ignore_index, validate_args=False)  # Segmentation looks at the masks
        self.names = names
        self.ignored = ignore_index

    def compute(self) -> dict[str, Tensor]:
        matrix = self.confmat.cpu().double()  # (K, K), target by prediction; float32 is too short to count pixels
        hit = matrix.diag()
        union = matrix.sum(dim=0) + matrix.sum(dim=1) - hit
        iou = hit / union  # (K,), 0 / 0 where a class does not occur
        occurs = [k for k, size in enumerate(union.tolist()) if size and k != self.ignored]
        scores = {"miou": iou[occurs].mean(), "pixel_accuracy": hit.sum() / matrix.sum()}
        scores |= {f"iou_{self.names[k]}": iou[k] for k in occurs}
        return {name: value.float() for name, value in scores.items()}


def likeliest_at(logits: Tensor, size: Sequence[int]) -> Tensor:
    """The most likely class of every pixel (H', W') of a larger or smaller image, from logits (K, H, W).

    Logits are interpolated bilinearly, a strip of rows at a time: all of them at once would take gigabytes for a
    photograph and many classes.
    """
    height, width = size
    if list(logits.shape[1:]) == [height, width]:
        return _likeliest(logits[None])[0]
    wide = interpolate(logits[None].float(), size=(logits.shape[1], width), mode="bilinear")[0]  # (K, H, W')
    last = logits.shape[1] - 1
    strips = []
    for start in range(0, height, ROWS):
        rows = torch.arange(start, min(start + ROWS, height), device=logits.device)
        place = ((rows + 0.5) * logits.shape[1] / height - 0.5).clamp(0, last)
        above = place.floor().long()
        share = (place - above)[:, None]
        strip = wide[:, above] * (1 - share) + wide[:, (above + 1).clamp(max=last)] * share  # (K, rows, W')
        strips.append(_likeliest(strip[None])[0])
    return torch.cat(strips)


def _likeliest(logits: Tensor) -> Tensor:
    # not argmax, which took 23 ms in place of 7 for 32 × 11 × 64² (one CPU thread, medians of 9)
    return logits.detach().max(dim=1).indices  # (B, H, W)


def _pixels(mask: Tensor, counts: Tensor, num_classes: int) -> Tensor:
    """Numbers of pixels of each class (B, K) in masks (B, H, W), of those that count."""
    images = torch.arange(len(mask), device=mask.device).view(-1, 1, 1)
    bins = (images * (num_classes + 1) + torch.where(counts, mask, num_classes)).flatten()
    numbers = bins.bincount(minlength=len(mask) * (num_classes + 1))
    return numbers.view(len(mask), num_classes + 1)[:, :num_classes]  # the last bin has those that do not count


LOSSES: dict[str, Any] = {
    "cross-entropy": cross_entropy_loss,
    "dice": dice_loss,
    "focal": focal_loss,
    "lovasz": lovasz_softmax,
}
MEANS_OVER_PIXELS = {"cross-entropy", "focal"}

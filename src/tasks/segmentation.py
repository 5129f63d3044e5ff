"""Semantic segmentation: one of K classes for every pixel."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassConfusionMatrix

from playbook import OptimizerFactory, ScheduleFactory, Task, class_name
from src.ops.class_weights import check_weights, weights_by_name, weights_of
from src.ops.losses import cross_entropy_loss, dice_loss, focal_loss, lovasz_softmax
from src.ops.pictures import as_image, with_mask
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
        ignore_index: class of pixels to exclude from loss and metrics, often 255. Defaults to none.
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
        return self._step("train", batch, batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self._step("test", batch, batch_idx)

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

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "mask", "names": self._names(facts)}

    def draw(self, inputs: Tensor, answer: dict[str, Any]) -> Image.Image:
        """Draws the mask over the image, with the names of the classes."""
        return with_mask(as_image(inputs), answer["mask"], self._names(self.facts))

    def _names(self, facts: dict[str, Any]) -> list[str]:
        return self.class_names or [class_name(facts, number) for number in range(self.num_classes)]

    def setup(self, stage: str) -> None:
        for metrics in (self.train_metrics, self.val_metrics, self.test_metrics):
            metrics["scores"].names = self._names(self.facts)
        if stage == "fit" and self.class_weights is not None and self.class_weight is not None:
            weights = weights_by_name(self.class_weights, self._names(self.facts))
            self.class_weight = self.class_weight.new_tensor(weights)

    def _step(self, stage: str, batch: Batch, batch_idx: int) -> Tensor:
        image, mask = batch
        logits = self(image)  # (B, K, H, W)
        if batch_idx == 0 or mask.device.type == "cpu":  # elsewhere, looking at every pixel would wait for the device
            self._check(logits, mask)
        class_weight = self.class_weight if stage == "train" else None
        loss = torch.stack([self._loss(name, logits, mask, class_weight) for name in self.loss.split("+")]).sum()
        weight = self._weight(batch, class_weight)
        self.log_step(stage, loss, len(mask) if weight is None else weight, preds=_likeliest(logits), target=mask)
        return loss

    def _loss(self, name: str, logits: Tensor, mask: Tensor, class_weight: Tensor | None) -> Tensor:
        weight = {"weight": class_weight} if name in MEANS_OVER_PIXELS else {}
        return LOSSES[name](logits, mask, self.ignore_index, **weight)

    def _check(self, logits: Tensor, mask: Tensor) -> None:
        expected = (len(mask), self.num_classes, *mask.shape[1:])
        if logits.shape != expected:
            raise ValueError(
                f"num_classes: expected logits of shape {expected}, the net returned {tuple(logits.shape)}; "
                f"set --model.num_classes and the net's num_classes to the same"
            )
        wrong = (mask < 0) | (mask >= self.num_classes)
        if self.ignore_index is not None:
            wrong &= mask != self.ignore_index
        if wrong.any():  # doctor: ignore[host-sync] a class that is none must be named, not trained on
            unknown_classes = ", ".join(str(k) for k in mask[wrong].unique().tolist()[:5])
            exception = "none is ignored" if self.ignore_index is None else f"{self.ignore_index} is ignored"
            raise ValueError(
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


LOSSES: dict[str, Any] = {
    "cross-entropy": cross_entropy_loss,
    "dice": dice_loss,
    "focal": focal_loss,
    "lovasz": lovasz_softmax,
}
MEANS_OVER_PIXELS = {"cross-entropy", "focal"}

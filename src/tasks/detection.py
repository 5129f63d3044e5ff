"""Detection: a box, a class and a score for every object in an image."""

from pathlib import PurePath
from typing import Any

import torch
from PIL import Image
from torch import Tensor, distributed, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.detection import MeanAveragePrecision
from torchvision.models.detection import FCOS
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.ssd import SSD

from playbook import OptimizerFactory, ScheduleFactory, Task, TestReport, UserError, class_name
from src.ops.boxes import are_covered, match_boxes
from src.ops.class_counts import require_class_count
from src.ops.pictures import as_image, with_boxes
from src.ops.result_charts import MOST_CLASSES, histogram, precision_over_recall, score_rows, spread_rows
from src.ops.tiles import tiled_boxes

LEAST_SCORE = 0.25  # of a box in an answer, and in the counts of the report
SIDES = ("left", "top", "right", "bottom")
Target = dict[str, Any]  # boxes (N, 4), labels (N,) and further data of an image
Batch = tuple[list[Tensor], list[Target]]
# torchvision divides their losses by the proposals, or the objects, of all images of a batch together
MEANS_OVER_BATCH = (GeneralizedRCNN, FCOS, SSD)


class Detection(Task):
    """Sum of a detector's losses, measured by COCO's mean average precision (Lin et al. 2014).

    `val/map` is the mean over IoU thresholds from 0.50 to 0.95; `val/map_50` and `val/map_75` are at a single one. The
    test adds `test/map_<class>` for every class with objects in the test set. Detectors compute losses only in training
    mode, in which batch norms would be updated with the validation data, so there is no `val/loss`.

    Args:
        net: maps images and targets to a dict of scalar losses in training mode, else images to a list of dicts of
            boxes (M, 4), labels (M,) and scores (M,).
        num_classes: number of classes K, labelled 0 … K - 1, without a background class.
        optimizer: callable that builds the optimizer from the parameters. Defaults to AdamW with lr=1e-3 and
            weight_decay=0.01.
        schedule: callable that builds a learning-rate schedule from the optimizer. Defaults to a constant rate.
        parameter_groups: rules for parameters by name; the last matching rule applies. Each has a `pattern` such as
            net.stem.*, and any of lr_factor, lr, layer_decay, weight_decay and frozen, as in
            [{pattern: net.head, lr_factor: 10}].
        loss_weights: factors of the net's losses by name. Default to 1.
        class_names: names of the K classes in metrics and answers. Default to those of the data, or else numbers.

    Raises:
        ValueError: a value is out of range, the net has a different K, a weight names a loss that the net does not
            have, boxes are malformed, or a label is outside 0 … K - 1.
    """

    monitor, monitor_mode = "val/map_50", "max"
    loss_name = "the detector's losses"

    def __init__(
        self,
        net: nn.Module,
        num_classes: int = 80,
        optimizer: OptimizerFactory | None = None,
        schedule: ScheduleFactory | None = None,
        parameter_groups: list[dict[str, Any]] | None = None,
        loss_weights: dict[str, float] | None = None,
        class_names: list[str] | None = None,
    ) -> None:
        if num_classes < 1:
            raise ValueError(f"num_classes: expected at least 1, got {num_classes}")
        if (of_net := getattr(net, "num_classes", num_classes)) != num_classes:
            raise ValueError(f"num_classes: expected {of_net} as in the net, got {num_classes}")
        if class_names is not None and len(class_names) != num_classes:
            raise ValueError(f"class_names: expected num_classes = {num_classes} names, got {len(class_names)}")
        if class_names is not None and len(set(class_names)) != num_classes:
            raise ValueError(f"class_names: expected different names, got {class_names}")
        super().__init__(net, optimizer, schedule, MetricCollection({"losses": _MeanLosses()}), parameter_groups)
        self.num_classes = num_classes
        self.tile: int | None = None  # side of the tiles of `predict --tile`
        self.class_names = class_names
        self.loss_weights = loss_weights or {}
        names = class_names or [str(label) for label in range(num_classes)]
        self.val_metrics = MetricCollection({"map": _AveragePrecision()}, prefix="val/")
        self.test_metrics = MetricCollection({"map": _AveragePrecision(names)}, prefix="test/")

    def weight(self, batch: Batch) -> int | None:
        """Number of images, over which the losses of YOLO and RetinaNet are means; None for MEANS_OVER_BATCH."""
        images, _ = batch
        return None if isinstance(self.net, MEANS_OVER_BATCH) else len(images)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        images, targets = batch
        self._check(targets, batch_idx)
        losses = self.net(images, targets)
        if unknown := self.loss_weights.keys() - losses.keys():
            raise ValueError(f"loss_weights: expected names among {', '.join(losses)}, got {', '.join(unknown)}")
        loss = torch.stack([self.loss_weights.get(name, 1.0) * value for name, value in losses.items()]).sum()
        self.log_step("train", loss, len(images), losses=losses)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._measure(self.val_metrics, batch, batch_idx)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Returns numbers of boxes per image and class (B, K) at IoU 0.5 and score 0.25: `hits`, `false`, `missed`."""
        detections = self._measure(self.test_metrics, batch, batch_idx)
        counts = [_counts(*pair, self.num_classes) for pair in zip(detections, batch[1], strict=True)]
        return dict(zip(("hits", "false", "missed"), torch.stack(counts).unbind(dim=1), strict=True))

    def predict_step(self, batch: Batch, batch_idx: int) -> list[dict[str, Tensor]]:
        """Returns: a dict per image: `image_id`, `boxes` (M, 4) in pixels of its file, `labels` and `scores` (M,)."""
        images, targets = batch
        tile = self.tile
        detections = self.net(images) if tile is None else [tiled_boxes(self.net, image, tile) for image in images]
        return [_in_file(*one) for one in zip(detections, images, targets, strict=True)]

    def answer(
        self, outputs: list[dict[str, Any]], facts: dict[str, Any], score: float = LEAST_SCORE
    ) -> list[dict[str, Any]]:
        """Names the objects in each image: `boxes`, each with class, score, left, top, right and bottom in pixels.

        Args:
            outputs: returned by predict_step.
            facts: with `classes`; without them, numbers are used as names.
            score: lowest score of a box in an answer, in [0, 1].
        """
        if not 0 <= score <= 1:
            raise UserError(f"score: expected a number in [0, 1], got {score}")
        return [
            {"boxes": [box for box in _named_boxes(output, self._named(facts)) if box["score"] >= score]}
            for output in outputs
        ]

    def target_answer(self, batch: Batch, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """The answers that would be right: the objects of each image, as boxes without a score.

        Args:
            batch: of test_step.
            facts: with `classes`; without them, numbers are used as names.
        """
        named = self._named(facts)
        return [
            {
                "boxes": [
                    {"class": class_name(named, label), **dict(zip(SIDES, corners, strict=True))}
                    for corners, label in zip(target["boxes"].tolist(), target["labels"].tolist(), strict=True)
                ]
            }
            for target in batch[1]
        ]

    def postprocessing(self, facts: dict[str, Any]) -> dict[str, Any] | None:
        suppression: dict[str, Any] | None = getattr(self.net, "suppression", None)
        if suppression is None:
            return None  # torchvision's detectors are exported with their own
        names = [class_name(self._named(facts), k) for k in range(self.num_classes)]
        return {"kind": "boxes", "names": names, "score": LEAST_SCORE, **suppression}

    def draw(self, inputs: Tensor, answer: dict[str, Any]) -> Image.Image:
        """Draws the boxes with their classes and scores."""
        names = self._named(self.facts).get("classes", [])
        return with_boxes(as_image(inputs), answer["boxes"], {name: number for number, name in enumerate(names)})

    def report(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> TestReport:
        """Which classes are found, at which cost in false boxes, and which images to look at.

        Args:
            outputs: of test_step, for all test samples.
            facts: with `classes`; without them, numbers are used as names.
        """
        names = [class_name(self._named(facts), number) for number in range(self.num_classes)]
        hits, false, missed = (outputs[name].double() for name in ("hits", "false", "missed"))  # (N, K)
        wrong = (false + missed).sum(dim=1)  # (N,)
        f1 = 1 - wrong / (2 * hits.sum(dim=1) + wrong).clamp(min=1)  # 1 where there is nothing, and nothing is found
        numbers = {"objects": hits + missed, "found": hits, "missed": missed, "false": false}
        totals = {name: counts.sum(dim=0).long() for name, counts in numbers.items()}  # (K,)
        scores = score_rows(totals["found"], totals["found"] + totals["false"], totals["objects"], names)
        rows = [row | {name: int(counts[k]) for name, counts in totals.items()} for k, row in enumerate(scores)]
        report = TestReport(
            samples={"image_f1": f1},
            rankings={"Most missed and false boxes": wrong.masked_fill(wrong == 0, -torch.inf)},
            tables={
                f"Classes, at IoU 0.5 and score {LEAST_SCORE}": rows,
                "Single images": spread_rows({"image_f1": f1, "missed or false boxes": wrong}),
            },
            figures={
                "F1 of single images": (
                    histogram(f1, "F1", (0.0, 1.0)),
                    f"Of {len(f1):,} test images, {int((wrong == 0).sum()):,} have neither missed nor false boxes",
                )
            },
        )
        curves: Any = self.test_metrics["map"].curves
        if curves and self.num_classes <= MOST_CLASSES:
            alt = "Precision at IoU 0.5 falls as recall grows, for each class that occurs"
            points = {names[label]: points for label, points in curves.items()}
            report.figures["Precision and recall at IoU 0.5"] = precision_over_recall(points), alt
        return report

    def results(
        self, outputs: list[dict[str, Any]], facts: dict[str, Any], ids: list[str]
    ) -> list[list[dict[str, Any]]] | None:
        """Entries for COCO's evaluation tools, for all boxes; None without the category ids of COCO data.

        Args:
            outputs: returned by predict_step.
            facts: with `category_ids` by class number.
            ids: names of the images. The number in a name such as 000000000139.jpg is the image's id in COCO; other
                names are used as ids.
        """
        if "category_ids" not in facts:
            return None
        entries = []
        for output, name in zip(outputs, ids, strict=True):
            stem = PurePath(name).stem
            image_id = output.get("image_id", int(stem) if stem.isdecimal() else name)
            boxes = zip(output["boxes"].tolist(), output["labels"].tolist(), output["scores"].tolist(), strict=True)
            entries.append(
                [
                    {
                        "image_id": image_id,
                        "category_id": facts["category_ids"][label],
                        "bbox": [left, top, right - left, bottom - top],
                        "score": certainty,
                    }
                    for (left, top, right, bottom), label, certainty in boxes
                ]
            )
        return entries

    def _named(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts, with class_names if they are set."""
        return facts if self.class_names is None else {**facts, "classes": self.class_names}

    program_outputs = ("boxes", "scores")

    def program(self) -> nn.Module:
        """Candidates of all images, whose number is fixed; `select` of the net follows.

        Raises:
            UserError: the net cannot be exported.
        """
        if not hasattr(self.net, "candidates"):
            raise UserError(
                f"{type(self.net).__name__} selects a different number of boxes at each step, which cannot be traced"
            )
        return _Candidates(self.net)

    def program_inputs(self, batch: Batch) -> dict[str, Tensor]:
        images, _ = batch
        if len({image.shape for image in images}) > 1:
            raise UserError("images of different sizes cannot be batched; set --data.image_size")
        return {"image": torch.stack(images)}

    def use_program(self, program: nn.Module) -> None:
        self.net = _Selected(self.net, program)

    def setup(self, stage: str) -> None:
        if stage == "fit":
            require_class_count(self.num_classes, self.facts)
        names = self._named(self.facts).get("classes", [])
        if len(names) == self.num_classes:
            self.test_metrics["map"].class_names = list(names)

    def _measure(self, metrics: MetricCollection, batch: Batch, batch_idx: int) -> list[dict[str, Tensor]]:
        images, targets = batch
        self._check(targets, batch_idx)
        detections = self.net(images)
        metrics.update(preds=detections, target=targets)
        return detections

    def _check(self, targets: list[Target], batch_idx: int) -> None:
        if batch_idx > 0 and targets[0]["boxes"].device.type != "cpu":
            return  # looking at every box would wait for the device
        for target in targets:
            if target["boxes"].shape != (len(target["labels"]), 4):
                shape, count = tuple(target["boxes"].shape), len(target["labels"])
                raise ValueError(f"boxes: expected shape ({count}, 4) for {count} labels, got {shape}")
        boxes, labels = (torch.cat([target[name] for target in targets]) for name in ("boxes", "labels"))
        empty = (boxes[:, 2:] <= boxes[:, :2]).any(1)
        if empty.any():  # doctor: ignore[host-sync] a box without area must be named, not trained on
            raise ValueError(f"boxes: expected left < right and top < bottom, got {boxes[empty][0].tolist()}")
        low, high = (labels.min().item(), labels.max().item()) if len(labels) else (0, 0)
        if low < 0 or high >= self.num_classes:
            raise UserError(f"num_classes: labels run from {low} to {high}, expected 0 to {self.num_classes - 1}")


class _Candidates(nn.Module):
    """Boxes (B, N, 4) and scores (B, N, K) before overlapping ones are removed."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return self.net.candidates(image)  # type: ignore[operator]  # the task has looked


class _Selected(nn.Module):
    """A detector whose candidates come from an exported program."""

    def __init__(self, net: nn.Module, program: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.program = program

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> list[dict[str, Tensor]]:
        boxes, scores = self.program(torch.stack(images))
        sizes = boxes.new_tensor([(image.shape[2], image.shape[1]) for image in images])
        return self.net.select(boxes, scores, sizes)  # type: ignore[operator]  # as above


class _MeanLosses(Metric):
    """The mean over samples of every loss in a dict, whose names may be unknown in advance."""

    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.add_state("total", torch.zeros(1), dist_reduce_fx="sum")
        self.add_state("weight", torch.zeros(()), dist_reduce_fx="sum")

    @property
    def metric_state(self) -> dict[str, Any]:
        """State that a checkpoint within an epoch saves."""
        return {**super().metric_state, "names": self.names}

    def update(self, losses: dict[str, Tensor], weight: int) -> None:
        self.names = list(losses)
        self.total = self.total + weight * torch.stack([value.detach() for value in losses.values()])
        self.weight = self.weight + weight

    def compute(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.total / self.weight, strict=False))


def _named_boxes(output: dict[str, Any], facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Boxes of one image as dicts, the highest score first."""
    order = output["scores"].argsort(descending=True)
    values = (output[name][order].tolist() for name in ("boxes", "labels", "scores"))
    return [
        {"class": class_name(facts, label), "score": score, **dict(zip(SIDES, corners, strict=True))}
        for corners, label, score in zip(*values, strict=True)
    ]


def _counts(found: dict[str, Tensor], target: Target, num_classes: int) -> Tensor:
    """Numbers of hits, of false boxes and of missed objects, of each class of an image, (3, K).

    As in COCO's evaluation, crowds are not to be found, and what is found in them is not false.
    """
    sure = found["scores"] >= LEAST_SCORE
    order = found["scores"][sure].argsort(descending=True, stable=True)
    boxes, labels = (found[name][sure][order].cpu() for name in ("boxes", "labels"))
    objects, classes = (target[name].as_subclass(Tensor).cpu() for name in ("boxes", "labels"))
    is_crowd = target.get("iscrowd", torch.zeros_like(classes)).bool().cpu()
    hits = match_boxes(boxes, labels, objects[~is_crowd], classes[~is_crowd])
    is_false = (hits < 0) & ~are_covered(boxes, labels, objects[is_crowd], classes[is_crowd])
    is_missed = torch.ones(int((~is_crowd).sum()), dtype=torch.bool).index_fill(0, hits[hits >= 0], False)
    parts = labels[hits >= 0], labels[is_false], classes[~is_crowd][is_missed]
    return torch.stack([part.bincount(minlength=num_classes) for part in parts])


def _in_file(detections: dict[str, Any], image: Tensor, target: Target) -> dict[str, Any]:
    """Detections in pixels of the image's file, which the data may have resized, with the id of the image."""
    if "file_size" in target:
        width, height = target["file_size"]
        scale = detections["boxes"].new_tensor([width / image.shape[2], height / image.shape[1]] * 2)
        detections = {**detections, "boxes": detections["boxes"] * scale}
    return {"image_id": target["image_id"], **detections} if "image_id" in target else detections


class _AveragePrecision(MeanAveragePrecision):
    """The mean average precision of COCO's evaluation, and that of each class if their names are set."""

    def __init__(self, class_names: list[str] | None = None) -> None:
        import pycocotools  # noqa: F401  # an optional extra; torchmetrics would not name it alone

        # the code of COCO runs on the CPU anyway
        has_classes = class_names is not None
        super().__init__(class_metrics=has_classes, extended_summary=has_classes, compute_on_cpu=True)
        self.class_names = class_names or []
        self.curves: dict[int, tuple[Tensor, Tensor]] = {}  # recall and precision (R,) at IoU 0.5, by label

    def compute(self) -> dict[str, Tensor]:
        results = super().compute()
        if "precision" in results:  # (IoU, R, K, area, number), -1 for a class without objects
            recall = torch.tensor(self.rec_thresholds)
            columns = results["precision"][0, :, :, 0, -1].unbind(dim=1)
            of_classes = zip(results["classes"].tolist(), columns, strict=True)
            self.curves = {label: (recall, column) for label, column in of_classes if (column >= 0).all()}
        measured = {name: results[name] for name in ("map", "map_50", "map_75")}
        if self.class_names:
            # -1 for a class of false alarms only, which is left out of the mean as well
            of_classes = zip(results["classes"].tolist(), results["map_per_class"], strict=True)
            measured |= {f"map_{self.class_names[label]}": value for label, value in of_classes if value >= 0}
        return measured

    def _sync_dist(self, dist_sync_fn: Any = None, process_group: Any = None) -> None:
        """Gathers the state of all processes; torchmetrics would expect as many images in each of them."""
        states: list[Any] = [None] * distributed.get_world_size(process_group)
        distributed.all_gather_object(states, self.metric_state, process_group)
        for name in self.metric_state:
            setattr(self, name, [entry for state in states for entry in state[name]])

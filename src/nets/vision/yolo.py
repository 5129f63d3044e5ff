"""A one-stage detector without anchors, of the YOLO family (Redmon et al. 2016)."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, pad, softplus
from torchvision.ops import batched_nms, box_iou, clip_boxes_to_image, complete_box_iou_loss

from src.ops.assignment import task_aligned
from src.ops.boxes import are_inside, boxes_to_distances, distances_to_boxes, grid_points, stack_targets
from src.ops.detection_loss import distribution_focal_loss, varifocal_loss

Target = dict[str, Tensor]
SIZES = {"n": (0.25, 1), "s": (0.5, 1), "m": (0.75, 2)}  # factors of the widths and of the depths below
STAGES = {4: (128, 1), 8: (256, 2), 16: (512, 3), 32: (1024, 1)}  # stride: width, depth
BOX_WEIGHT, DISTRIBUTION_WEIGHT = 2.5, 0.5  # beside 1 for the classes (Xu et al. 2022)
PRIOR = 0.01  # score that every class begins with (Lin et al. 2017)
NEAREST = 0.01  # the least distance in strides: the IoU of a box without extent has no gradient
MOST_CANDIDATES = 1000  # of an image that go into the non-maximum suppression


class YOLO(nn.Module):
    """Scores and boxes at every point of three feature maps, trained with task-aligned assignment (Feng et al. 2021).

    The backbone is a CSPNet (Wang et al. 2020), the neck a PANet (Liu et al. 2018), and the head has one branch for
    classes and one for boxes (YOLOX, Ge et al. 2021). Scores are trained to predict the quality of their box with the
    varifocal loss (Zhang et al. 2021), boxes with the complete IoU (Zheng et al. 2020) and with distributions over
    distances (Li et al. 2020). Each image's losses are divided by its number of objects, then averaged over images.

    With 80 classes, sizes n, s and m have 2.3, 8.9 and 25.2 million parameters; an image of 256 × 320 pixels takes 1.3,
    5.2 and 14.1 GFLOPs. Forward and backward pass of size n take 89 ms of CPU time per image in channels-last format
    and 98 ms otherwise (best of 4 batches of 16, 15 objects per image, one thread); the losses take 3 ms of that.

    Args:
        num_classes: number of classes K, at least 1.
        size: size of the net: n, s or m.
        in_channels: 1 for grey images, 3 for RGB.
        strides: strides of the feature maps, consecutive ones among 4, 8, 16, 32. Use 4 for objects below about 30
            pixels.
        num_bins: number of values 0, 1, … (in strides) over which a distance is distributed, at least 2; they must
            reach the sides of the largest object. 0 predicts the distance itself.
        top_k: largest number of points that are assigned to an object in training, at least 1.
        score_threshold: boxes with lower scores are dropped.
        nms_iou: IoU above which the lower-scoring of two boxes of one class is dropped.
        max_detections: largest number of boxes per image; those with the highest scores are returned.

    Shapes:
        images: list of B tensors (in_channels, H, W) in [0, 1], sizes may differ; targets: list of B dicts of boxes
        (N, 4), as left, top, right and bottom in pixels, and labels (N,) from 0 to K - 1 → in training a dict of scalar
        losses, else a list of B dicts of boxes (M, 4) in the image's own pixels, labels (M,) and scores (M,).

    Raises:
        ValueError: an argument is out of range, an image has a different number of channels, or targets are missing in
            training.
    """

    bins: Tensor

    def __init__(
        self,
        num_classes: int = 80,
        size: Literal["n", "s", "m"] = "n",
        in_channels: int = 3,
        strides: Sequence[int] = (8, 16, 32),
        num_bins: int = 16,
        top_k: int = 10,
        score_threshold: float = 0.01,
        nms_iou: float = 0.65,
        max_detections: int = 100,
    ) -> None:
        super().__init__()
        counts = {"num_classes": num_classes, "in_channels": in_channels, "top_k": top_k}
        for name, count in {**counts, "max_detections": max_detections}.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if size not in SIZES:
            raise ValueError(f"size: expected one of {', '.join(SIZES)}, got {size}")
        known = list(STAGES)
        if not strides or list(strides) != [s for s in known if min(strides) <= s <= max(strides)]:
            raise ValueError(f"strides: expected consecutive ones of {known} in this order, got {list(strides)}")
        if num_bins < 0 or num_bins == 1:
            raise ValueError(f"num_bins: expected 0 or at least 2, got {num_bins}")
        for name, share in {"score_threshold": score_threshold, "nms_iou": nms_iou}.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name}: expected a number in [0, 1], got {share}")
        self.num_classes = num_classes
        self.in_channels = in_channels
        self.strides = list(strides)
        self.top_k = top_k
        self.score_threshold = score_threshold
        self.nms_iou = nms_iou
        self.max_detections = max_detections
        width, depth = SIZES[size]
        stages = {s: (round(w * width), d * depth) for s, (w, d) in STAGES.items() if s <= max(strides)}
        widths = [w for w, _ in stages.values()]
        self.stem = _conv(in_channels, widths[0] // 2, 3, stride=2)
        self.stages = nn.ModuleList(
            nn.Sequential(_conv(c_in, c_out, 3, stride=2), _CSP(c_out, c_out, d, residual=True))
            for c_in, (c_out, d) in zip([widths[0] // 2, *widths], stages.values(), strict=False)
        )
        self.pool = _Pool(widths[-1])
        widths = widths[-len(strides) :]
        self.neck = _Neck(widths, depth)
        # on 1,000 scenes of digits and strides from 4, 300 steps reached a mAP50 of 0.84 with 64 channels, 0.78 with 32
        width = max(64, widths[0])
        self.head = nn.ModuleList(_Head(w, width, num_classes, 4 * max(num_bins, 1)) for w in widths)
        self.register_buffer("bins", torch.arange(num_bins, dtype=torch.float32), persistent=False)
        self._initialise()

    @property
    def suppression(self) -> dict[str, Any]:
        """How boxes are selected among those of all points, for exported models."""
        return {
            "score_threshold": self.score_threshold,
            "nms_iou": self.nms_iou,
            "max_detections": self.max_detections,
            "max_candidates": MOST_CANDIDATES,
        }

    def _initialise(self) -> None:
        """He et al. 2015 before a norm; last layers as Lin et al. 2017, with distances that begin in the middle."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        for head in self.head:
            assert isinstance(head, _Head)
            for layer, bias in ((head.labels, -math.log(1 / PRIOR - 1)), (head.sides, 1.0)):
                assert layer.bias is not None
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.constant_(layer.bias, bias)

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> Any:
        logits, sides, grid = self._outputs(self._batch(images))
        sizes = grid[0].new_tensor([(image.shape[2], image.shape[1]) for image in images])  # (B, 2), width and height
        on_image = (grid[0] < sizes[:, None]).all(-1)  # (B, N), not in what was padded
        if not self.training:
            return self.select(self._boxes(sides, grid), logits.sigmoid() * on_image[..., None], sizes)
        if targets is None:
            raise ValueError("targets: expected a dict of boxes and labels for every image in training, got none")
        return self._losses(logits, sides, grid, on_image, targets)

    def candidates(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """All boxes of images of one size, before overlapping ones are removed by `select`.

        Args:
            image: (B, C, H, W).

        Returns:
            Boxes (B, N, 4) as left, top, right and bottom in pixels, and scores (B, N, K), 0 outside of the image.
        """
        step = self.strides[-1]
        height, width = image.shape[2:]
        padded = pad(image, (0, -width % step, 0, -height % step))
        logits, sides, grid = self._outputs(padded)
        on_image = (grid[0] < grid[0].new_tensor([width, height])).all(-1)  # (N,)
        return self._boxes(sides, grid), logits.sigmoid() * on_image[:, None]

    def _outputs(self, image: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Logits (B, N, K) and sides (B, N, 4, R) at each point, and the points (N, 2) with their strides (N, 1)."""
        x = self.stem(image)  # (B, C, H / 2, W / 2)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        maps = self.neck([*maps[-len(self.strides) : -1], self.pool(x)])
        outputs, points, scales = [], [], []
        for x, head, stride in zip(maps, self.head, self.strides, strict=True):
            outputs.append(head(x))  # (B, N, K), (B, N, 4, R)
            points.append(grid_points(x.shape[2], x.shape[3], stride, outputs[-1][0]))  # (N, 2)
            scales.append(torch.full_like(points[-1][:, :1], stride))  # (N, 1)
        logits, sides = (torch.cat(parts, dim=1) for parts in zip(*outputs, strict=True))
        return logits, sides, (torch.cat(points), torch.cat(scales))

    def _batch(self, images: list[Tensor]) -> Tensor:
        """Pads images with black at the right and bottom to one size, a multiple of the largest stride."""
        for image in images:
            if image.ndim != 3 or image.shape[0] != self.in_channels:
                shape = f"({self.in_channels}, H, W)"
                raise ValueError(f"in_channels: expected images of shape {shape}, got {tuple(image.shape)}")
        step = self.strides[-1]
        height, width = (-(-max(image.shape[side] for image in images) // step) * step for side in (1, 2))
        return torch.stack([pad(x, (0, width - x.shape[2], 0, height - x.shape[1])) for x in images])  # (B, C, H, W)

    def _distances(self, sides: Tensor) -> Tensor:
        """Distances to the sides of the box, in strides: (…, 4, R) → (…, 4)."""
        return NEAREST + ((sides.softmax(-1) * self.bins).sum(-1) if len(self.bins) else softplus(sides[..., 0]))

    def _losses(
        self, logits: Tensor, sides: Tensor, grid: tuple[Tensor, Tensor], on_image: Tensor, targets: list[Target]
    ) -> dict[str, Tensor]:
        points, scales = grid
        distances = self._distances(sides)  # (B, N, 4)
        boxes, labels, is_object = stack_targets(targets, like=points)  # (B, M, 4), (B, M), (B, M)
        overlaps = box_iou(boxes, distances_to_boxes(points, distances.detach() * scales))  # (B, M, N)
        inside = are_inside(points, boxes, least=scales)  # or an object between four points would have none
        owner, quality = task_aligned(logits.sigmoid(), overlaps, inside & is_object[..., None], labels, self.top_k)
        share = 1 / (len(targets) * is_object.sum(1).clamp(min=1))  # (B,)
        image, place = (owner >= 0).nonzero(as_tuple=True)  # (P,) each
        owner, weight = owner[image, place], quality[image, place] * share[image]
        wanted_scores = torch.zeros_like(logits)
        wanted_scores[image, place, labels[image, owner]] = quality[image, place]
        of_classes = varifocal_loss(logits, wanted_scores).sum(-1) * on_image  # (B, N)
        wanted = boxes_to_distances(points[place], boxes[image, owner]) / scales[place]  # (P, 4)
        origin = wanted.new_zeros(2)  # as seen from the point, no digits are lost
        of_boxes = complete_box_iou_loss(
            distances_to_boxes(origin, distances[image, place]), distances_to_boxes(origin, wanted)
        )
        losses = {
            "class_loss": (of_classes.sum(1) * share).sum(),
            "box_loss": BOX_WEIGHT * (of_boxes * weight).sum(),
        }
        if len(self.bins):
            numbers = wanted.flatten() - NEAREST  # (4 P,)
            of_sides = distribution_focal_loss(sides[image, place].flatten(0, 1), numbers).view(-1, 4)  # (P, 4)
            losses["distribution_loss"] = DISTRIBUTION_WEIGHT * (of_sides.mean(1) * weight).sum()
        return losses

    def _boxes(self, sides: Tensor, grid: tuple[Tensor, Tensor]) -> Tensor:
        points, scales = grid
        return distances_to_boxes(points, self._distances(sides) * scales)  # (B, N, 4)

    def select(self, boxes: Tensor, scores: Tensor, sizes: Tensor) -> list[dict[str, Tensor]]:
        """Detections of each image: the best of overlapping candidates of a class.

        Args:
            boxes: (B, N, 4).
            scores: (B, N, K).
            sizes: (B, 2), width and height of each image in pixels.
        """
        detections = []
        for score, box, (width, height) in zip(scores, boxes, sizes.int().tolist(), strict=True):
            place, label = (score > self.score_threshold).nonzero(as_tuple=True)
            best, order = score[place, label].topk(min(len(place), MOST_CANDIDATES))
            corners, label = clip_boxes_to_image(box[place[order]], (height, width)), label[order]
            kept_index = batched_nms(corners, best, label, self.nms_iou)[: self.max_detections]
            detections.append({"boxes": corners[kept_index], "labels": label[kept_index], "scores": best[kept_index]})
        return detections


def _conv(c_in: int, c_out: int, kernel_size: int = 1, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, kernel_size, stride, padding=kernel_size // 2, bias=False),
        nn.BatchNorm2d(c_out),
        nn.SiLU(inplace=True),
    )


class _CSP(nn.Module):
    """Half of the channels pass through blocks of 1×1 and 3×3 convolutions, half bypass them."""

    def __init__(self, c_in: int, c_out: int, depth: int, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.split = _conv(c_in, c_out)
        half = c_out // 2
        self.blocks = nn.ModuleList(nn.Sequential(_conv(half, half), _conv(half, half, 3)) for _ in range(depth))
        self.merge = _conv(c_out, c_out)

    def forward(self, x: Tensor) -> Tensor:
        beside, x = self.split(x).chunk(2, dim=1)  # (B, C / 2, H, W) each
        for block in self.blocks:
            x = x + block(x) if self.residual else block(x)
        return self.merge(torch.cat([beside, x], dim=1))


class _Pool(nn.Module):
    """Spatial pyramid pooling (He et al. 2014): maxima over 5×5, 9×9 and 13×13, each pooled from the one before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = _conv(width, width // 2)
        self.merge = _conv(4 * (width // 2), width)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.reduce(x)]
        for _ in range(3):
            maps.append(max_pool2d(maps[-1], 5, stride=1, padding=2))
        return self.merge(torch.cat(maps, dim=1))


class _Neck(nn.Module):
    """Path aggregation: features flow from the coarsest map to the finest, then back."""

    def __init__(self, widths: list[int], depth: int) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.reduce = nn.ModuleList(_conv(coarse, fine) for fine, coarse in pairs)
        self.down = nn.ModuleList(_CSP(2 * fine, fine, depth, residual=False) for fine, _ in pairs)
        self.shrink = nn.ModuleList(_conv(fine, fine, 3, stride=2) for fine, _ in pairs)
        self.up = nn.ModuleList(_CSP(2 * fine, coarse, depth, residual=False) for fine, coarse in pairs)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        *finer, x = maps
        reduced = []
        for fine, reduce, merge in zip(finer[::-1], self.reduce[::-1], self.down[::-1], strict=True):
            reduced.append(reduce(x))
            x = merge(torch.cat([interpolate(reduced[-1], scale_factor=2.0), fine], dim=1))
        outputs = [x]
        for coarse, shrink, merge in zip(reduced[::-1], self.shrink, self.up, strict=True):
            outputs.append(merge(torch.cat([shrink(outputs[-1]), coarse], dim=1)))
        return outputs


class _Head(nn.Module):
    """Classes and sides of the box at every point of a map, from one branch each."""

    def __init__(self, c_in: int, width: int, num_classes: int, num_sides: int) -> None:
        super().__init__()
        self.stem = _conv(c_in, width)
        self.label_branch = nn.Sequential(_conv(width, width, 3), _conv(width, width, 3))
        self.side_branch = nn.Sequential(_conv(width, width, 3), _conv(width, width, 3))
        self.labels = nn.Conv2d(width, num_classes, 1)
        self.sides = nn.Conv2d(width, num_sides, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        labels, sides = (
            y.permute(0, 2, 3, 1).flatten(1, 2).to(torch.promote_types(y.dtype, torch.float32))  # not lower in losses
            for y in (self.labels(self.label_branch(x)), self.sides(self.side_branch(x)))
        )
        return labels, sides.unflatten(-1, (4, -1))  # (B, N, K), (B, N, 4, R)

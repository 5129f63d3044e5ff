"""A picture of the model's training batches."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from playbook import UserError

COLUMNS = 8
TILE = 1.6  # inches
SHOWN_LABELS = 2  # shares of a mixed target
SHOWN_CLASSES = 3  # of a mask, those with most pixels


class Browse(Callback):
    """Draws the first training batches into the run's `browse.png`: augmented images with labels, boxes and masks.

    It shows the input of training_step, after all transforms on the device, including MixUp. The contrast of each image
    is stretched to its darkest and brightest value. A resumed run shows its first batches after resuming.

    Args:
        num_images: number of images to draw, at least 1.
        class_names: names to show instead of class numbers. Defaults to the data's own, if it has any.

    Raises:
        ValueError: num_images is below 1.
        UserError: a batch holds no images.
    """

    def __init__(self, num_images: int = 32, class_names: list[str] | None = None) -> None:
        if num_images < 1:
            raise ValueError(f"num_images: expected at least 1, got {num_images}")
        self.num_images = num_images
        self.class_names = class_names
        self._tiles: list[tuple[Tensor, Any]] = []
        self._is_drawn = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._is_drawn or not trainer.is_global_zero:
            return
        images, targets = _parts(batch)
        wanted = self.num_images - len(self._tiles)
        for image, target in zip(images[:wanted], targets[:wanted], strict=True):
            self._tiles.append((image.detach().float().cpu(), _on_cpu(target)))
        if len(self._tiles) == self.num_images:
            self._draw(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._tiles:
            self._draw(trainer)

    def _draw(self, trainer: Any) -> None:
        from matplotlib.figure import Figure  # without pyplot, which would look for a screen

        self.class_names = self.class_names or getattr(getattr(trainer, "datamodule", None), "facts", {}).get("classes")
        columns = min(COLUMNS, len(self._tiles))
        rows = -(-len(self._tiles) // columns)
        figure = Figure((TILE * columns, 1.15 * TILE * rows), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).flatten()
        for place in places:
            place.set_axis_off()
        for place, (image, target) in zip(places, self._tiles, strict=False):
            place.imshow(_pixels(image), cmap="gray", interpolation="nearest")
            self._mark(place, target)
        folder = trainer.run.path if getattr(trainer, "run", None) else Path(trainer.default_root_dir)
        file = folder / "browse.png"
        figure.savefig(file, dpi=100)
        print(f"pictures of the model's inputs: {file.as_posix()}", flush=True)
        self._tiles, self._is_drawn = [], True

    def _mark(self, place: Any, target: Any) -> None:
        from matplotlib.patches import Rectangle

        if isinstance(target, dict):
            for (left, top, right, bottom), label in zip(target["boxes"].tolist(), target["labels"], strict=True):
                colour = f"C{int(label) % 10}"
                corner = (left - 0.5, top - 0.5)  # pixel 0 is drawn from -0.5 to 0.5
                place.add_patch(Rectangle(corner, right - left, bottom - top, fill=False, color=colour))
                place.text(left, top, self._name(int(label)), color=colour, fontsize=6, va="bottom")
        elif target.ndim == 2:
            alpha = 0.5 * (target != 0).float().numpy()
            place.imshow(target.numpy() % 20, cmap="tab20", vmin=0, vmax=19, alpha=alpha, interpolation="nearest")
            numbers, counts = target.unique(return_counts=True)
            largest = numbers[counts.argsort(descending=True, stable=True)].tolist()
            more = ", …" if len(largest) > SHOWN_CLASSES else ""
            place.set_title(", ".join(map(self._name, largest[:SHOWN_CLASSES])) + more, fontsize=7)
        elif target.ndim == 1:  # a mixed sample has shares of classes
            shares = target.topk(min(SHOWN_LABELS, len(target)))
            pairs = zip(shares.values.tolist(), shares.indices.tolist(), strict=True)
            place.set_title(", ".join(f"{self._name(i)} {share:.2f}" for share, i in pairs if share > 0), fontsize=7)
        else:
            place.set_title(self._name(int(target)), fontsize=7)

    def _name(self, label: int) -> str:
        return self.class_names[label] if self.class_names and label < len(self.class_names) else str(label)


def _parts(batch: Any) -> tuple[Any, Any]:
    images, targets = batch if isinstance(batch, list | tuple) and len(batch) == 2 else (None, None)
    first = images[0] if isinstance(images, Tensor | list | tuple) and len(images) else None
    if not isinstance(first, Tensor) or first.ndim != 3 or not isinstance(targets, Tensor | list | tuple):
        raise UserError("trainer.callbacks: Browse needs batches of images (C, H, W) and targets")
    return images, targets


def _on_cpu(target: Any) -> Any:
    return {name: target[name].cpu() for name in ("boxes", "labels")} if isinstance(target, dict) else target.cpu()


def _pixels(image: Tensor) -> Any:
    low, high = image.min(), image.max()
    image = (image - low) / (high - low).clamp(min=torch.finfo(image.dtype).tiny)  # (C, H, W)
    return image[:3].permute(1, 2, 0).numpy() if len(image) >= 3 else image[0].numpy()

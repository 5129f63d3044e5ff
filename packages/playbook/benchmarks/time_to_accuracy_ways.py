"""The ways that time_to_accuracy.py compares Playbook with; what it starts as `run PROBLEM WAY SEED`."""

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from playbook.data.augment import cutout
from playbook.data.splits import split_indices

ROOT = Path(__file__).parents[3]
IDX = "images-idx3", "labels-idx1"


class Problem(NamedTuple):
    """What is to be reached, and how each way gets there."""

    recipe: str
    metric: str
    goal: float
    options: tuple[str, ...]  # of the recipe


PROBLEMS = {
    "digits": Problem("configs/vision/cnn-digits.yaml", "val/accuracy", 0.98, ("--data.shift", "0")),
    "fashion": Problem("configs/vision/airbench-fashion.yaml", "val/accuracy", 0.92, ()),
    "shakespeare": Problem(
        "configs/language/gpt-shakespeare.yaml", "val/loss", 1.88, ("--trainer.val_check_interval", "50")
    ),
}


# the data, as tensors


def digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    from sklearn.datasets import load_digits

    images, targets = (torch.as_tensor(values) for values in load_digits(return_X_y=True))
    images = images.float().view(-1, 1, 8, 8) / 16
    train, val, _ = split_indices(len(images), [0.6, 0.2, 0.2])
    return (images[train], targets[train]), (images[val], targets[val])


def fashion() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    folder = ROOT / "data/FashionMNIST/raw"
    pixels, labels = (gzip.decompress((folder / f"train-{name}-ubyte.gz").read_bytes()) for name in IDX)
    images = torch.frombuffer(bytearray(pixels[16:]), dtype=torch.uint8).view(-1, 1, 28, 28)
    targets = torch.frombuffer(bytearray(labels[8:]), dtype=torch.uint8).long()
    images = (images.float() / 255 - 0.286) / 0.353
    train, val = split_indices(len(images), [0.95, 0.05])
    return (images[train], targets[train]), (images[val], targets[val])


def shakespeare() -> tuple[Tensor, Tensor, int]:
    text = (ROOT / "data/tinyshakespeare/input.txt").read_text(encoding="utf-8")
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    tokens = torch.tensor([numbers[character] for character in text])
    cut = int(0.9 * len(tokens))
    return tokens[:cut], tokens[cut:], len(characters)


def network(name: str, vocab_size: int = 65) -> nn.Module:
    from src.nets.language.gpt import GPT
    from src.nets.vision.airbench import Airbench
    from src.nets.vision.cnn import CNN

    if name == "digits":
        return CNN(widths=[64, 128])
    if name == "fashion":
        return Airbench(width=32, in_channels=1)
    return GPT(vocab_size, 256, num_layers=4, dim=128, num_heads=4, activation="relu2", qk_norm=1.4)


# a plain loop


def plain(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    if name == "shakespeare":
        train, val, vocab_size = shakespeare()
        steps = 5 * (len(train) // (256 * 8))
        net, make = network(name, vocab_size), muon(6e-3, 0.1, 0.03)
        loop(net, windows(train, 256, 8), steps, 50, held_out_loss(val, 256), PROBLEMS[name].goal, make)
        return
    (images, targets), (val_images, val_targets) = digits() if name == "digits" else fashion()
    size, epochs = (64, 30) if name == "digits" else (256, 8)
    per_epoch = -(-len(images) // size)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for rows in torch.randperm(len(images)).split(size):
                yield (augmented(images[rows]) if name == "fashion" else images[rows]), targets[rows]

    def accuracy(net: nn.Module) -> float:
        parts = zip(val_images.split(512), val_targets.split(512), strict=True)
        hits = sum(int((net(images).argmax(1) == targets).sum()) for images, targets in parts)
        return hits / len(val_targets)

    make = adamw(3e-3, 0.1) if name == "digits" else muon(1e-2, 0.05, 0.2)
    smoothing = 0.0 if name == "digits" else 0.2
    loop(network(name), batches(), epochs * per_epoch, per_epoch, accuracy, PROBLEMS[name].goal, make, smoothing)


def loop(
    net: nn.Module,
    batches: Iterator[tuple[Tensor, Tensor]],
    steps: int,
    every: int,
    measure: Callable[[nn.Module], float],
    goal: float,
    make: Callable[[nn.Module, int], tuple[Any, Any]],
    smoothing: float = 0.0,
) -> None:
    """Trains until a measurement reaches the goal; below 1, more is better."""
    optimizer, schedule = make(net, steps)
    step, value = 0, float("nan")
    for step in range(1, steps + 1):
        inputs, targets = next(batches)
        optimizer.zero_grad()
        cross_entropy(net(inputs).flatten(0, -2), targets.flatten(), label_smoothing=smoothing).backward()
        if goal > 1:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % every == 0:
            net.eval()
            with torch.no_grad():
                value = measure(net)
            net.train()
            if (value >= goal) if goal < 1 else (value <= goal):
                break
    note_end(step, value)


def note_end(steps: int, value: float) -> None:
    """Leaves for time_to_accuracy.py how many steps were taken, and the last validation's result."""
    Path(os.environ["RUN"], "end.json").write_text(json.dumps({"steps": steps, "value": value}))


def adamw(lr: float, warmup: float) -> Callable[[nn.Module, int], tuple[Any, Any]]:
    def make(net: nn.Module, steps: int) -> tuple[Any, Any]:
        optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=0.01, fused=True)
        return optimizer, cosine(optimizer, steps, warmup)

    return make


def muon(lr: float, weight_decay: float, warmup: float) -> Callable[[nn.Module, int], tuple[Any, Any]]:
    """Muon for the hidden matrices, AdamW for the rest, without decay of embeddings and vectors."""

    def make(net: nn.Module, steps: int) -> tuple[Any, Any]:
        from playbook.optim.muon import Muon

        outer_names, hidden, outer, rest = ("stages.0.0.weight", "head.weight"), [], [], []
        for name, weight in net.named_parameters():
            is_hidden = weight.ndim > 1 and name.startswith(("blocks.", "stages."))
            (outer if name in outer_names else hidden if is_hidden else rest).append(weight)
        groups = [{"params": hidden, "hidden": True}, {"params": outer}, {"params": rest, "weight_decay": 0.0}]
        optimizer = Muon([group for group in groups if group["params"]], lr=lr, weight_decay=weight_decay)
        return optimizer, cosine(optimizer, steps, warmup)

    return make


def cosine(optimizer: Any, steps: int, warmup: float) -> Any:
    from playbook.optim.schedules import WarmupCosine

    return WarmupCosine(optimizer, steps, warmup)


def augmented(images: Tensor) -> Tensor:
    """Images moved by up to 2 pixels, half of them mirrored, each with a square of 4 pixels blanked."""
    count, _, height, width = images.shape
    padded = nn.functional.pad(images, [2] * 4, mode="reflect")
    top, left = torch.randint(0, 5, (2, count, 1))
    rows = top + torch.arange(height)
    columns = left + torch.arange(width)
    columns = torch.where(torch.rand(count, 1) < 0.5, columns.flip(1), columns)
    moved = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    row, column = torch.randint(height, (2, count))
    return cutout(moved, row, column, 4)


def windows(tokens: Tensor, length: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    offsets = torch.arange(length)
    while True:
        rows = torch.randint(len(tokens) - length - 1, (size, 1)) + offsets
        yield tokens[rows], tokens[rows + 1]


def held_out_loss(tokens: Tensor, length: int) -> Callable[[nn.Module], float]:
    count = (len(tokens) - 1) // length
    inputs, targets = tokens[: count * length].view(count, length), tokens[1 : count * length + 1].view(count, length)

    def measure(net: nn.Module) -> float:
        losses = [
            cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="sum").item()
            for x, y in zip(inputs.split(32), targets.split(32), strict=True)
        ]
        return sum(losses) / targets.numel()

    return measure


def nanogpt(name: str, seed: int) -> None:
    """Batches of 12 windows of 64 characters, AdamW with 1e-3 and betas 0.9, 0.99, no dropout, 2,000 steps."""
    from src.nets.language.gpt import GPT

    torch.manual_seed(seed)
    train, val, vocab_size = shakespeare()
    net = GPT(vocab_size, 64, num_layers=4, dim=128, num_heads=4, activation="gelu")

    def make(net: nn.Module, steps: int) -> tuple[Any, Any]:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
        return optimizer, cosine(optimizer, steps, 0.05)

    loop(net, windows(train, 64, 12), 2000, 50, held_out_loss(val, 64), 1.88, make)


# the way of lightning-hydra-template


class Samples(torch.utils.data.Dataset):
    """Single samples, transformed when they are read, as torchvision's data sets do."""

    def __init__(self, values: Any, targets: Any, transform: Callable[[Any], Any]) -> None:
        self.values, self.targets, self.transform = values, targets, transform

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transform(self.values[index]), self.targets[index]


def template(name: str, seed: int) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, RichModelSummary, RichProgressBar
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.data import DataLoader
    from torchmetrics import Accuracy, MaxMetric, MeanMetric

    problem, is_text = PROBLEMS[name], name == "shakespeare"
    pl.seed_everything(seed, verbose=False)
    if is_text:
        train_tokens, val_tokens, num_classes = shakespeare()
        sets = [text_samples(train_tokens), text_samples(val_tokens)]
    else:
        train, val = digits() if name == "digits" else fashion()
        sets = [Samples(*part, lambda image: (image - 0.1307) / 0.3081) for part in (train, val)]
        num_classes = 10

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network(name, num_classes)
            for stage in ("train", "val"):
                setattr(self, f"{stage}_acc", Accuracy("multiclass", num_classes=num_classes))
                setattr(self, f"{stage}_loss", MeanMetric())
            self.val_acc_best: Any = MaxMetric()

        def _step(self, batch: Any, stage: str) -> Tensor:
            inputs, targets = batch
            logits = self.net(inputs).flatten(0, -2)
            loss = cross_entropy(logits, targets.flatten())
            mean, accuracy = getattr(self, f"{stage}_loss"), getattr(self, f"{stage}_acc")
            mean(loss)
            accuracy(logits.argmax(1), targets.flatten())
            self.log(f"{stage}/loss", mean, on_step=False, on_epoch=True, prog_bar=True)
            self.log(f"{stage}/accuracy", accuracy, on_step=False, on_epoch=True, prog_bar=True)
            return loss

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self._step(batch, "train")

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self._step(batch, "val")

        def on_validation_epoch_end(self) -> None:
            accuracy: Any = self.val_acc
            self.val_acc_best(accuracy.compute())
            self.log("val/acc_best", self.val_acc_best.compute(), sync_dist=True, prog_bar=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.1, patience=10)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val/loss"}}

    folder, mode = os.environ["RUN"], "min" if is_text else "max"
    goal: Any = {"monitor": problem.metric, "mode": mode}
    trainer = pl.Trainer(
        max_epochs=100,
        val_check_interval=50 if is_text else None,
        default_root_dir=folder,
        logger=CSVLogger(folder),
        callbacks=[
            ModelCheckpoint(folder, save_last=True, auto_insert_metric_name=False, **goal),
            EarlyStopping(patience=1000, stopping_threshold=problem.goal, **goal),
            RichModelSummary(max_depth=-1),
            RichProgressBar(),
        ],
    )
    size = 8 if is_text else 128
    loaders = [DataLoader(data, batch_size=size, shuffle=not number) for number, data in enumerate(sets)]
    trainer.fit(Module(), loaders[0], loaders[1])
    note_end(trainer.global_step, float(trainer.callback_metrics[problem.metric]))


def text_samples(tokens: Tensor) -> Samples:
    count = (len(tokens) - 1) // 256
    return Samples(tokens[: count * 256].view(count, 256), tokens[1 : count * 256 + 1].view(count, 256), lambda x: x)


WAYS: dict[str, Callable[[str, int], None]] = {"template": template, "plain": plain, "nanogpt": nanogpt}

"""The output of `fit`: one line about the run before training, and a summary after it."""

import re
import shlex
from collections.abc import Iterable
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.nn.modules.loss import _Loss

from playbook.project import current
from playbook.runs.directory import Run
from playbook.training.lightning.results import validation_names

SETS = {"predict": ("predict_set", "test_set"), "test": ("test_set",)}  # of Data, that the loaders load
BASE = "playbook.data.base"  # of Data, whose loaders are those of its sets


def header(trainer: Trainer, run: Run) -> str:
    """«cnn-digits · CPU, 2 threads, fp32 · 1,078 train, 359 val, 360 test · runs/…»."""
    parts = [run.title, hardware(trainer)]
    sizes = [(stage, num_samples_of(trainer, stage)) for stage in ("train", "val", "test")]
    if counted := [f"{count:,} {stage}" for stage, count in sizes if count is not None]:
        parts.append(", ".join(counted))
    return " · ".join([*parts, str(run)])


def summary(trainer: Any, model: LightningModule, test: dict[str, float]) -> str:
    """Architecture, optimization, training, results, and what to run next."""
    lines = [f"{name:<14} {value}" for name, value in rows(trainer, model, test).items()]
    lines.append("")
    lines += [f"{name:<14} {command}" for name, command in _next_commands(trainer, model, trainer.run).items()]
    return "\n".join(["", *lines]).rstrip()


def rows(trainer: Any, model: LightningModule, test: dict[str, float]) -> dict[str, str]:
    """Architecture, optimization, training, what ended it, results and which checkpoint was chosen, a line each."""
    metrics = trainer.run.read_metrics()
    lines = {
        "Architecture": _architecture(model),
        "Optimization": f"{hardware(trainer)}, {compiled(model)}, {devices(trainer)}",
        "Training": ", ".join([*_training(trainer, model), _duration(trainer, metrics.get("train_seconds", 0.0))]),
        "Ended by": "; ".join(ending.text for ending in trainer.endings),
        "Results": _results(trainer, metrics, test),
    }
    if speed := getattr(trainer, "speed", None):
        lines["Speed"] = f"bound by {speed['bound_by']}: {speed['advice']}"
        if speed["notes"]:
            lines["Note"] = "; ".join(speed["notes"])
    if (choice := getattr(trainer.checkpoint_callback, "choice", None)) is not None:
        lines["Checkpoint"] = choice(trainer)
    return lines


def _next_commands(trainer: Any, model: LightningModule, run: Run) -> dict[str, str]:
    """What can be run on this run, each command ready to paste."""
    if not run.has_checkpoint() or not getattr(trainer, "config", ""):  # Python has built what no command could
        return {}
    datamodule = getattr(trainer, "datamodule", None)
    directory = shlex.quote(str(run))
    commands = {
        name: f"{current().command} {name} --ckpt_path {directory}"
        for name in ("predict", "test")
        if _can_run(name, model, datamodule) and not (name == "test" and trainer.test_dataloaders == [])
    }
    if "predict" not in commands and _reads_inputs(datamodule) and is_overridden("predict_step", model):
        command = f"{current().command} predict --ckpt_path {directory} --input <file or folder>"
        commands = {"predict": command, **commands}
    if trainer.endings and all(ending.more for ending in trainer.endings):
        more = dict.fromkeys(ending.more for ending in trainer.endings)
        commands["continue"] = " ".join([run.continue_command(), *more])
    return commands


def _can_run(verb: str, model: LightningModule, datamodule: Any) -> bool:
    """Whether the model has a step for this verb, and someone has data for it."""
    hook = f"{verb}_dataloader"
    sources = [source for source in (model, datamodule) if source is not None and is_overridden(hook, source)]
    is_empty = all(getattr(datamodule, name, None) is None for name in SETS[verb])
    if datamodule in sources and is_empty and _owner(datamodule, hook) == BASE:
        sources.remove(datamodule)  # its loader has nothing to load
    return is_overridden(f"{verb}_step", model) and bool(sources)


def _reads_inputs(datamodule: Any) -> bool:
    """Whether `predict --input` works with this data."""
    return _owner(datamodule, "read") not in ("", BASE)


def _owner(datamodule: Any, method: str) -> str:
    """The module of the class that defines a method; empty if none does."""
    return next((kind.__module__ for kind in type(datamodule).__mro__ if method in vars(kind)), "")


def _architecture(model: LightningModule) -> str:
    net = getattr(model, "net", model)
    total = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    frozen = "" if trained == total else f", {trained:,} of them trained"
    name = type(net).__name__.removeprefix("FSDP")  # which fully_shard puts before it
    return f"{name}, {total:,} parameters{frozen}"


def hardware(trainer: Trainer) -> str:
    """The device, and the precision."""
    precision = {"32-true": "fp32", "bf16-mixed": "bf16 mixed", "16-mixed": "fp16 mixed"}.get(
        str(trainer.precision), str(trainer.precision)
    )
    device = trainer.strategy.root_device
    if device.type == "cpu":
        return f"CPU, {torch.get_num_threads()} threads, {precision}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return f"{name}, {precision}"


def compiled(model: LightningModule) -> str:
    """Whether a part of the model is compiled."""
    return "compiled" if any(module._compiled_call_impl is not None for module in model.modules()) else "eager"


def devices(trainer: Trainer) -> str:
    """How many processes train, and on what kind of device."""
    kind = trainer.strategy.root_device.type.upper().replace("CUDA", "GPU")
    return f"{trainer.world_size} {kind} process{'es' if trainer.world_size > 1 else ''}"


def _training(trainer: Trainer, model: LightningModule) -> list[str]:
    parts = []
    for optimizer in trainer.optimizers:
        rate = f", lr {_peak_rate(optimizer):.3g}" if optimizer.param_groups else ""
        parts.append(f"{type(optimizer).__name__}{rate}")
    parts += [type(config.scheduler).__name__ for config in trainer.lr_scheduler_configs]
    criteria = [type(module).__name__ for module in model.modules() if isinstance(module, _Loss)]
    if loss := getattr(model, "loss_name", "") or next(iter(criteria), ""):
        parts.append(loss)
    return parts


def _peak_rate(optimizer: torch.optim.Optimizer) -> float:
    group = optimizer.param_groups[0]
    return float(max(group.get("initial_lr", group["lr"]), group.get("max_lr", 0.0)))


def _duration(trainer: Trainer, seconds: float) -> str:
    count, unit = (trainer.current_epoch, "epoch") if trainer.current_epoch else (trainer.global_step, "step")
    epochs = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{epochs} in {seconds:.0f} s" if seconds < 600 else f"{epochs} in {seconds / 60:.0f} min"


def _results(trainer: Trainer, metrics: dict[str, Any], test: dict[str, float]) -> str:
    best = metrics.get("best")
    measured = (best or metrics).get("metrics", {}) | test
    monitor = best["monitor"] if best else _main_metric(measured, test, validation_names(trainer))
    if monitor is None:
        return "nothing was logged"
    quantity = re.sub(r"^(train|val|test)[/_]", "", monitor)
    parts = []
    shown = set()
    for stage in ("train", "val", "test"):
        for name in (f"{stage}/{quantity}", f"{stage}_{quantity}"):
            if name in measured:
                parts.append(f"{stage} {measured[name]:.4g}")
                shown.add(name)
    parts = parts or [f"{measured[monitor]:.4g}"]
    if not shown & test.keys():  # the test measures something else
        parts += [f"{_line(name)} {value:.4g}" for name, value in list(test.items())[:3] if name != monitor]
    return f"{_line(quantity)}: {' · '.join(parts)}" + (f"   (best epoch {best['epoch']})" if best else "")


def _main_metric(measured: Iterable[str], test: Iterable[str], validated: set[str]) -> str | None:
    """The metric to name without a monitor: one of an evaluation, and no loss, as far as there are such."""
    names = list(measured)
    evaluated = [name for name in names if name in test or name.partition("/dataloader_idx_")[0] in validated]
    evaluated = evaluated or [name for name in names if re.match(r"(val|test)[/_]", name)]
    for choice in (evaluated, [name for name in names if name.startswith("train")], names):
        if choice:
            return next((name for name in choice if "loss" not in name), choice[0])
    return None


def _line(name: str) -> str:
    """A metric's name in one line."""
    return " ".join(name.split())


def num_samples_of(trainer: Trainer, stage: str) -> int | None:
    """Samples of a stage's data set; None where it has no length.

    That of its loader; before the test, and after it, when the loaders of the training are gone, the data module's.
    """
    loader = {"train": trainer.train_dataloader, "val": trainer.val_dataloaders}.get(stage)
    dataset = getattr(loader, "dataset", None)
    if loader is None:
        dataset = getattr(getattr(trainer, "datamodule", None), f"{stage}_set", None)
    try:
        return len(dataset) if dataset is not None else None
    except TypeError:  # an iterable data set
        return None

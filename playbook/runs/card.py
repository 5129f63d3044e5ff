"""The output of `fit`: one line about the run before training, and a summary after it."""

import re
import shlex
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.nn.modules.loss import _Loss

from playbook.project import current
from playbook.runs.directory import Run

SETS = {"predict": ("predict_set", "test_set"), "test": ("test_set",)}  # of Data, that the loaders load
BASE = "playbook.data.base"  # of Data, whose loaders are those of its sets


def header(trainer: Trainer, run: Run) -> str:
    """«cnn-digits · CPU, 2 threads, fp32 · 1,078 train, 359 val, 360 test · runs/…»."""
    parts = [run.title, _hardware(trainer)]
    sizes = [(stage, _num_samples(trainer, stage)) for stage in ("train", "val", "test")]
    if counted := [f"{count:,} {stage}" for stage, count in sizes if count is not None]:
        parts.append(", ".join(counted))
    return " · ".join([*parts, str(run)])


def summary(trainer: Any, model: LightningModule, test: dict[str, float]) -> str:
    """Architecture, optimization, training, results, and what to run next."""
    run = trainer.run
    metrics = run.read_metrics()
    rows = {
        "Architecture": _architecture(model),
        "Optimization": f"{_hardware(trainer)}, {_compiled(model)}, {_devices(trainer)}",
        "Training": ", ".join([*_training(trainer, model), _duration(trainer, metrics.get("train_seconds", 0.0))]),
        "Results": _results(trainer, metrics, test),
    }
    lines = [f"{name:<14} {value}" for name, value in rows.items()]
    lines.append("")
    lines += [f"{name:<14} {command}" for name, command in _next_commands(trainer, model, run).items()]
    return "\n".join(["", *lines]).rstrip()


def _next_commands(trainer: Trainer, model: LightningModule, run: Run) -> dict[str, str]:
    """What can be run on this run, each command ready to paste."""
    if not run.has_checkpoint() or not getattr(trainer, "config", ""):  # Python has built what no command could
        return {}
    datamodule = getattr(trainer, "datamodule", None)
    directory = shlex.quote(str(run))
    commands = {
        verb: f"{current().command} {verb} --ckpt_path {directory}"
        for verb in ("predict", "test")
        if _can_run(verb, model, datamodule)
    }
    if "predict" not in commands and _reads_inputs(datamodule) and is_overridden("predict_step", model):
        command = f"{current().command} predict --ckpt_path {directory} --input <file or folder>"
        commands = {"predict": command, **commands}
    if trainer.max_epochs and trainer.max_epochs > 0:
        commands["continue"] = f"{run.continue_command()} --trainer.max_epochs {2 * trainer.max_epochs}"
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


def _hardware(trainer: Trainer) -> str:
    precision = {"32-true": "fp32", "bf16-mixed": "bf16 mixed", "16-mixed": "fp16 mixed"}.get(
        str(trainer.precision), str(trainer.precision)
    )
    device = trainer.strategy.root_device
    if device.type == "cpu":
        return f"CPU, {torch.get_num_threads()} threads, {precision}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return f"{name}, {precision}"


def _compiled(model: LightningModule) -> str:
    return "compiled" if any(module._compiled_call_impl is not None for module in model.modules()) else "eager"


def _devices(trainer: Trainer) -> str:
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
    monitor = best["monitor"] if best else next((name for name in measured if "loss" not in name), None)
    monitor = monitor or next(iter(measured), None)
    if monitor is None:
        return "nothing was logged"
    quantity = re.sub(r"^(train|val|test)[/_]", "", monitor)
    parts = []
    for stage in ("train", "val", "test"):
        for name in (f"{stage}/{quantity}", f"{stage}_{quantity}"):
            if name in measured:
                parts.append(f"{stage} {measured[name]:.4g}")
    text = " · ".join(parts) or f"{measured[monitor]:.4g}"
    return f"{quantity}: {text}" + (f"   (best epoch {best['epoch']})" if best else "")


def _num_samples(trainer: Trainer, stage: str) -> int | None:
    loaders = {"train": trainer.train_dataloader, "val": trainer.val_dataloaders}
    source = loaders.get(stage)
    if stage == "test":
        source = getattr(trainer, "datamodule", None)
        dataset = getattr(source, "test_set", None)
    else:
        dataset = getattr(source, "dataset", None)
    try:
        return len(dataset) if dataset is not None else None
    except TypeError:  # an iterable data set
        return None

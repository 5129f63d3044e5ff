"""Writes the weights of a checkpoint as one file; the suffix of its name selects the format."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import yaml
from safetensors.torch import save_file
from torch import Tensor, nn

from playbook import facts
from playbook.checkpoints.files import replace
from playbook.checkpoints.io import AtomicCheckpointIO, load, weights_of
from playbook.checkpoints.single import PREFIX
from playbook.errors import UserError, nearest
from playbook.runs.directory import remove


def export_weights(model: pl.LightningModule, checkpoint: Path, output: Path) -> None:
    """Writes a checkpoint in another format; the file appears once it is whole.

    Args:
        model: what the checkpoint is of.
        checkpoint: a file, or a folder that several processes wrote.
        output: .safetensors for only the weights, .ckpt for everything in one plain file.

    Raises:
        UserError: the suffix is not a known format, or the checkpoint is damaged.
    """
    if output.suffix not in FORMATS:
        known = ", ".join(FORMATS)
        close = nearest(output.suffix, FORMATS)
        raise UserError(f"--output {output.as_posix()}: expected a name that ends in {known}{close}")
    if output.is_dir():
        raise UserError(f"--output {output.as_posix()}: is a folder, expected the name of a file")
    output.parent.mkdir(parents=True, exist_ok=True)
    FORMATS[output.suffix](model, checkpoint, output)


def _safetensors(model: pl.LightningModule, checkpoint: Path, output: Path) -> None:
    """Weights by their names in the net, with class and configuration of the task as text, for --init_from and test."""
    content = _merged(model, load(checkpoint), checkpoint)
    weights = weights_of(content, checkpoint)
    net = net_of(model, weights)
    metadata = {"format": "pt", "class_path": f"{type(model).__module__}.{type(model).__qualname__}"}
    metadata |= {key: content[key] for key in ("config", "pytorch-lightning_version") if key in content}
    if facts.KEY in content:
        metadata[facts.KEY] = json.dumps(content[facts.KEY])
    if net.is_all:
        metadata[PREFIX] = net.prefix
        weights = {name.removeprefix(net.prefix): value for name, value in weights.items()}
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        beside.touch()
        mode = beside.stat().st_mode  # safetensors lets nobody else read
        save_file(_apart(weights), beside, metadata)
        beside.chmod(mode)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        replace(beside, output)
    except BaseException:  # a signal too leaves nothing half written
        remove(beside)
        raise


@dataclass(frozen=True)
class Net:
    """The net in a model.

    Args:
        prefix: of the names of its weights in the model.
        kind: its class, as text.
        is_all: whether the model has no other weights.
    """

    prefix: str
    kind: str
    is_all: bool


def net_of(model: nn.Module, names: Iterable[str]) -> Net:
    """Finds the net in a task, and in a net that only wraps one of a library, such as torchvision, that one.

    Args:
        model: the task.
        names: of its weights.
    """
    names = list(names)
    prefix, module = "", model
    while True:
        weighted = {
            name: child
            for name, child in module.named_children()
            if any(weight.startswith(f"{prefix}{name}.") for weight in names)
        }
        name = "net" if module is model and "net" in weighted else next(iter(weighted), "")
        if not name or (module is not model and not _wraps(module, weighted)):
            break
        if module is model and len(weighted) > 1 and name != "net":
            break
        prefix, module = f"{prefix}{name}.", weighted[name]
        if hasattr(module, "merged"):
            merge: Any = module.merged
            module = merge()
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    return Net(prefix, kind, bool(prefix) and all(weight.startswith(prefix) for weight in names))


def _wraps(module: nn.Module, weighted: Mapping[str, nn.Module]) -> bool:
    """Whether a module has weights in a single child alone, and this is of another package, other than torch."""
    packages = [type(part).__module__.partition(".")[0] for part in (module, *weighted.values())]
    is_bare = not any(True for _ in module.named_parameters(recurse=False))
    return is_bare and len(packages) == 2 and packages[1] not in (packages[0], "torch")


def _apart(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share no memory: the format knows none. Tied ones are written under each of their names."""
    addresses: set[int] = set()
    copies = {}
    for name, tensor in weights.items():
        copies[name] = tensor.contiguous()
        memory = copies[name].untyped_storage()
        if memory.data_ptr() in addresses or memory.nbytes() != copies[name].nbytes:
            copies[name] = copies[name].clone()
        addresses.add(memory.data_ptr())
    return copies


def _plain(model: pl.LightningModule, checkpoint: Path, output: Path) -> None:
    """All that the checkpoint holds, as a single process would have saved it."""
    AtomicCheckpointIO().save_checkpoint(_merged(model, load(checkpoint), checkpoint), output)


def _merged(model: pl.LightningModule, content: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """The checkpoint of the net alone, where another wraps it, its argument `net`, and says how by a method `merged`.

    An optimizer's state is of the wrapper's parameters, and left out.
    """
    wrappers: dict[str, Any] = {name: net for name, net in model.named_children() if hasattr(net, "merged")}
    if not wrappers:
        return content
    weights = weights_of(content, checkpoint)
    model.load_state_dict(weights, strict=model.strict_loading)
    content = {key: value for key, value in content.items() if key not in ("optimizer_states", "lr_schedulers")}
    config = yaml.safe_load(content.get("config", "")) or {}
    hyperparameters = dict(content.get("hyper_parameters", {}))
    for name, net in wrappers.items():
        weights = {key: value for key, value in weights.items() if not key.startswith(f"{name}.")}
        weights |= {f"{name}.{key}": value for key, value in net.merged().state_dict().items()}
        for options in (config.get("model", {}).get("init_args", {}), hyperparameters):
            if isinstance(options.get(name), Mapping):
                options[name] = options[name].get("init_args", {}).get("net", options[name])
    if "config" in content:
        content["config"] = yaml.safe_dump(config, sort_keys=False)
    if "hyper_parameters" in content:
        content["hyper_parameters"] = hyperparameters
    return {**content, "state_dict": weights}


# a format is a function of the model, the checkpoint and the file to write
FORMATS: dict[str, Callable[[pl.LightningModule, Path, Path], Any]] = {".safetensors": _safetensors, ".ckpt": _plain}

"""What an error means: one line that names the option, the value, what was expected, the nearest choice."""

import errno
import inspect
import os
import re
import signal
import traceback
from argparse import ArgumentError
from importlib import import_module
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.exceptions import MisconfigurationException

from playbook import project
from playbook.command import discovery
from playbook.command.arguments import Invocation, near_option
from playbook.errors import nearest
from playbook.runs.directory import Run
from playbook.training.microbatches import is_out_of_memory

PLAYBOOK = Path(__file__).parents[1]
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
EXTRAS = {"tensorboard": "tensorboard", "pycocotools": "detection"}  # module → extra of pyproject.toml


def stopped(run: Run, number: int) -> None:
    """Says where the checkpoint is and how to go on."""
    print(f"\nstopped by {'Ctrl-C' if number == signal.SIGINT else signal.Signals(number).name}: {_progress(run)}")
    if run.has_checkpoint():
        print(f"continue  {run.continue_command()}")


def _progress(run: Run) -> str:
    metrics = run.read_metrics()
    last = metrics.get("limits", {}).get("max_epochs", -1)
    epoch = metrics.get("epoch", 0) + 1 if last in (-1, None) else min(metrics.get("epoch", 0) + 1, last)
    if not run.has_checkpoint():
        return "no step was done, there is no checkpoint"
    return f"epoch {epoch}, step {metrics.get('step', 0)}, saved in {run.checkpoints.as_posix()}"


def explain(error: Exception, invocation: Invocation) -> str | None:
    """One line for a mistake of the user; None for an error in code, which deserves its traceback."""
    if isinstance(error, ArgumentError):
        return _argument_error(str(error), invocation)
    while error.__cause__ is not None and "Does not validate against any" in str(error):
        error = error.__cause__  # type: ignore[assignment]  # KeyboardInterrupt never is one
    text = _one_line(str(error))
    if "Found more than one stateful callback" in text:
        name = re.search(r"callback of type `(\w+)`", text)
        return f"--trainer.callbacks: {name[1] if name else 'a callback'} is there twice"
    if "argument after ** must be a mapping" in text:
        return "--checkpoint: expected a mapping of options, as in {monitor: val/loss}"
    # outside the training step, which splits its batches
    if is_out_of_memory(error):
        return f"--data.batch_size: out of memory ({text.partition('. ')[0]})"
    if channels := re.search(r"expected input\[.*\] to have ([134]) channels, but got ([134]) channels instead", text):
        return f"--model.net: takes images of {channels[1]} channels, the data has {channels[2]}; set its in_channels"
    if "Error(s) in loading state_dict" in text:
        return f"--ckpt_path: does not fit this model: {text.partition(':')[2].strip()}"
    if "loaded state dict" in text and "parameter group" in text:
        return "--ckpt_path: its optimizer does not fit this one; --init_from takes the weights alone"
    if isinstance(error, MisconfigurationException):
        return _named(text, invocation)
    if isinstance(error, OSError):
        in_data = _raised_under(error, "prepare_data", "setup")
        if in_data or error.errno in FULL or not invocation.running:
            name = error.filename or (os.environ.get("PLAYBOOK_RUN_DIR") if error.errno in FULL else None)
            return ("--data: " if in_data else "") + (f"{name}: {error.strerror}" if name else text)
    if isinstance(error, ValueError | TypeError) and _raised_under(error, "configure_optimizers"):
        in_torch = "optim" in Path(traceback.extract_tb(error.__traceback__)[-1].filename).parts
        if in_torch and not _raised_in_src(error):
            return f"--model.optimizer, --model.schedule: {text}"
        return _named(text, invocation) if _raised_in_src(error) or "val_check_interval" in text else None
    for module, extra in EXTRAS.items():
        if re.search(rf"(No module named|Neither) ['`]{module}['`.]", text) and not invocation.running:
            return f"{module} is not installed: uv run --extra {extra} {project.current().command} {invocation.verb} …"
    if isinstance(error, ImportError) and not invocation.running:
        return text
    if isinstance(error, ValueError | TypeError) and (not invocation.running or _raised_in_src(error)):
        return _named(text, invocation)
    return None


def _raised_in_src(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    roots = {PLAYBOOK, project.current().folder}
    return bool(frames) and not roots.isdisjoint(Path(frames[-1].filename).parents)


def _raised_under(error: BaseException, *functions: str) -> bool:
    return any(frame.name in functions for frame in traceback.extract_tb(error.__traceback__))


def _named(text: str, invocation: Invocation) -> str:
    """Puts the option and its place before a message that names it, as ours and Lightning's do."""
    text = text.partition(" Find a complete list")[0]
    word = re.match(r"(\w+):", text) or re.match(r"[`'\"](?:Trainer\()?(\w+)", text) or re.search(r"`(\w+)=", text)
    if "backend found" in text:
        word = re.match("accelerator", "accelerator")
    name = (word[1] if word.re.groups else word[0]) if word else ""
    given = [re.split(r"[=+]", arg.removeprefix("--"))[0] for arg in invocation.args if arg.startswith("--")]
    paths = [path for path in given if path.rpartition(".")[2] == name]
    paths = paths or [path for path in invocation.known if path.rpartition(".")[2] == name]
    if not paths:
        return text
    paths.sort(key=len)  # the task's own before its net's
    rest = re.sub(rf"^[`'\"]?{name}[`'\"]?:?", "", text).strip()
    return f"{_place(paths[0], invocation)}--{paths[0]}: {rest}"


def _place(path: str, invocation: Invocation) -> str:
    """file:line of an option, unless the command line gave it."""
    given = any(re.split(r"[=+]", arg.removeprefix("--"))[0] == path for arg in invocation.args)
    return "" if given else invocation.where(path)


def _argument_error(message: str, invocation: Invocation) -> str:
    if found := re.match(r"unrecognized arguments: (.+)", message):
        return _unknown(found[1].split()[0], invocation)
    if found := re.search(r"does not accept option '([\w.+-]+)'", message):
        path = found[1]
        return f"{_place(path, invocation)}--{path}: no such option{near_option(path, invocation.known)}"
    if found := re.match(r"argument (\S+): expected .*argument", message):
        return f"{found[1]}: expected a value, got none"
    if found := re.match(r"the following arguments are required: (.+)", message):
        missing = found[1].replace(f"{invocation.verb}.", "")
        if missing == "model":
            return (
                f"--model: required; name a recipe with --config ({project.current().command} list recipes), "
                "a checkpoint with --ckpt_path, or a task"
            )
        return f"--{missing}: required"
    return _parsing_error(message, invocation)


def _unknown(arg: str, invocation: Invocation) -> str:
    if not arg.startswith("-"):
        return f"{arg}: expected options in the form --name value"
    path = re.split(r"[=+]", arg.lstrip("-"))[0]
    return f"--{path}: no such option{near_option(path, invocation.known)}"


def _parsing_error(message: str, invocation: Invocation) -> str:
    """Reads jsonargparse's nested report: the chain of keys down to the first leaf."""
    keys, class_path = [], ""
    leaves: list[str] = []
    for line in (raw.strip().removeprefix("- ").strip() for raw in message.splitlines()):
        if found := re.search(r'Parser key "([^"]+)":', line):
            keys += [found[1]] if found[1] not in keys[-1:] else []
        if found := re.search(r"Problem with given class_path '([^']+)'", line):
            class_path = found[1]
        if line.startswith(("Expected a <class 'NoneType'>", "Subtypes:", "Errors:", "Does not validate")):
            continue
        leaves.append(line)
    text = "\n".join(leaves)
    path = ".".join(keys)
    value = _given_value(message)
    if found := re.search(r"Option '([\w.-]+)' is not accepted", text):
        inner = _class_in(text) if "callable class" in text else ""  # an optimizer or a schedule
        return _not_accepted(path, found[1], inner or class_path, invocation)
    place = _place(path, invocation)
    if found := re.search(r"Unable to load config ['\"]([^'\"]+)['\"]", text):
        return f"{place}--{path} {found[1]}: no such file, or not a mapping of options"
    if found := re.search(r"the following arguments are required: ([\w, ]+)", text):
        made = _class_in(text) if "callable class" in text else class_path  # an optimizer or a schedule
        return f"{place}--{path}: {made.rpartition('.')[2]} needs {found[1]}"
    if problem := _class_problem(path, text, value):
        return place + problem
    if "Expected" in text:
        return f"{place}--{path}: expected {_expected(message)}, got {value}"
    return f"{place}--{path}: {_one_line(text)}"


def _not_accepted(path: str, option: str, class_path: str, invocation: Invocation) -> str:
    accepted = _parameters(class_path)
    full = f"{path}.{option}" if path else option
    close = nearest(option, accepted).replace("Nearest: ", f"Nearest: --{path}.").replace(", ", f", --{path}.")
    close = close or (f". Expected one of {', '.join(accepted)}" if accepted else "")
    return f"{_place(full, invocation)}--{full}: no such option of {class_path.rpartition('.')[2]}{close}"


def _class_in(text: str) -> str:
    found = re.search(r"class_path='([^']+)'", text)
    return found[1] if found else ""


def _parameters(class_path: str) -> list[str]:
    module, _, name = class_path.rpartition(".")
    try:
        signature = inspect.signature(getattr(import_module(module), name))
    except (ImportError, AttributeError, ValueError):
        return []
    return [name for name in signature.parameters if name not in ("self", "args", "kwargs", "params", "optimizer")]


def _class_problem(path: str, text: str, value: str) -> str | None:
    """A class that does not exist, or of the wrong kind."""
    ours = [entry.name for kind in discovery.KINDS for entry in discovery.choices(kind)]
    kind = {"Module": "a net (torch.nn.Module)", "LightningModule": "a task", "LightningDataModule": "a data module"}
    kind |= {"Callback": "a callback", "Optimizer": "an optimizer", "LRScheduler": "a schedule"}
    if found := re.search(r"not correspond to a subclass of (\w+)|to be a subclass of <class '(\w+)'>", text):
        base = found[1] or found[2]
        return f"--{path} {value}: expected {kind.get(base, f'a {base}')}{_of_kind(path)}"
    if found := re.search(r"class_path '([^']+)':\s*(No module named \S+|module \S+ has no attribute \S+)", text):
        name = found[1].rpartition(".")[2]
        missing = re.search(r"No module named '([^']+)'", found[2])
        full = (discovery.class_paths(found[1]) or [found[1]])[0]
        if missing and not full.startswith(f"{missing[1]}."):
            return f"--{path} {found[1]}: its module needs {missing[1]}, which is not installed"
        if found[1].endswith((".yaml", ".yml", ".json")):
            return f"--{path} {found[1]}: no such file"
        known = {entry.path: entry.name for kind in discovery.KINDS for entry in discovery.classes(kind)}
        close = nearest(found[1], known) or nearest(name, ours)
        return f"--{path} {found[1]}: no such class ({found[2]}){close}"
    if found := re.search(r"Expected a dot import path string: (.+)", text):
        if "class 'float'" in text or "class 'int'" in text:
            return None
        return f"--{path} {found[1]}: no such class{nearest(found[1], ours + _subclass_names(path)) or _of_kind(path)}"
    if "Not a valid subclass of" in text:
        return f"--{path}: expected a class by name or class_path, got {value}"
    return None


def _subclass_names(path: str) -> list[str]:
    """Names of torch's and Lightning's classes that fit an option."""
    import lightning.pytorch.callbacks
    import lightning.pytorch.loggers
    import torch

    last = path.rpartition(".")[2]
    source: Any = {
        "optimizer": torch.optim,
        "schedule": torch.optim.lr_scheduler,
        "callbacks": lightning.pytorch.callbacks,
        "logger": lightning.pytorch.loggers,
    }.get(last)
    return [name for name in vars(source) if name[:1].isupper()] if source else []


def _of_kind(path: str) -> str:
    kind = {"model": "tasks", "net": "nets", "data": "data", "callbacks": "callbacks"}.get(path.rpartition(".")[2])
    names = ", ".join(entry.name for entry in discovery.choices(kind)) if kind else ""
    return f". Ours: {names}" if names else ""


def _given_value(message: str) -> str:
    found = re.findall(r"(?:Given value: |Got value: )(.+)", message)
    values = [re.sub(r"NestedArg\(key='[^']*', val=(.*)\)$", r"\1", value).strip().strip("'\"") for value in found]
    return min(values, key=len, default="nothing")[:200]


def _expected(message: str) -> str:
    """The types of a report, in words."""
    names = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "text"}
    found = re.findall(r"Expected a <class '([\w.]+)'>|Expected a (?:typing\.)?Literal\[([^\]]+)\]", message)
    words, choices = [], []
    for name, literals in found:
        if literals:
            choices += [choice.strip("' ") for choice in literals.split(",")]
        elif name not in ("NoneType", "lightning.pytorch.core.module.LightningModule"):
            words.append(names.get(name, f"a {name.rpartition('.')[2].lower()}"))
    if choices:
        words.append(f"one of {', '.join(dict.fromkeys(choices))}")
    return " or ".join(dict.fromkeys(words)) or "another value"


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().rstrip(".")

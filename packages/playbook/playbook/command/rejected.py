"""Explains rejected options: finds the wrong option in jsonargparse's nested reports."""

import inspect
import re
from importlib import import_module
from typing import Any

from playbook.command import discovery
from playbook.command.arguments import Invocation, near_option
from playbook.errors import nearest

BASES = {
    "torch.optim.Optimizer": "AdamW",
    "torch.optim.lr_scheduler.LRScheduler": "CLASS",
}  # where nothing names a class


def rejected_option(message: str, invocation: Invocation) -> str:
    """One line for an ArgumentError.

    Args:
        message: jsonargparse's report.
        invocation: the command, which knows the options and the lines of the configs.
    """
    if match := re.match(r"unrecognized arguments: (.+)", message):
        return _unknown(match[1].split()[0], invocation)
    if rejected := re.search(r"(?:Group '([\w.]+)' )?does not accept option '([\w.+-]+)'", message):
        path = ".".join(filter(None, rejected.groups()))
        return f"{place_of(path, invocation)}--{path}: no such option{near_option(path, invocation.known)}"
    if match := re.match(r"argument (\S+): expected .*argument", message):
        return f"{match[1]}: expected a value, got none"
    if match := re.match(r"the following arguments are required: (.+)", message):
        missing = match[1].replace(f"{invocation.verb.name}.", "")
        return invocation.lacks_model if missing == "model" else f"--{missing}: required"
    return _parsing_error(message, invocation)


def _unknown(arg: str, invocation: Invocation) -> str:
    if not arg.startswith("--"):
        return f"{arg}: expected options in the form --name value"
    path = re.split(r"[=+]", arg.lstrip("-"))[0]
    return f"--{path}: no such option{near_option(path, invocation.known)}"


def _parsing_error(message: str, invocation: Invocation) -> str:
    """Reads jsonargparse's nested report: the chain of keys down to the first leaf."""
    keys, class_path = [], ""
    leaves: list[str] = []
    for line in (raw.strip().removeprefix("- ").strip() for raw in message.splitlines()):
        if match := re.search(r'Parser key "([^"]+)":', line):
            keys += [match[1]] if match[1] not in keys[-1:] else []
        if match := re.search(r"Problem with given class_path '([^']+)'", line):
            class_path = match[1]
        if line.startswith(("Expected a <class 'NoneType'>", "Subtypes:", "Errors:", "Does not validate")):
            continue
        leaves.append(line)
    text = "\n".join(leaves)
    path = ".".join(keys)
    value = _given_value(message)
    if match := re.search(r"Option '([\w.-]+)' is not accepted", text):
        inner = _class_in(text) if "callable class" in text else ""  # an optimizer or a schedule
        return _not_accepted(path, match[1], inner or class_path, invocation)
    if match := re.search(r"unrecognized arguments: --([\w.-]+)", text):
        return _not_accepted(path, match[1], class_path, invocation)
    place = place_of(path, invocation)
    if match := re.search(r"Unable to load config ['\"]([^'\"]+)['\"]", text):
        return f"{place}--{path} {match[1]}: no such file, or not a mapping of options"
    if match := re.search(r"the following arguments are required: ([\w, ]+)", text):
        factory_class = _class_in(text) if "callable class" in text else class_path  # an optimizer or a schedule
        return f"{place}--{path}: {factory_class.rpartition('.')[2]} needs {match[1]}"
    if problem := _class_problem(path, text, value):
        return place + problem
    if "Expected" in text:
        return f"{place}--{path}: expected {_expected(message)}, got {value}"
    return f"{place}--{path}: {one_line(text)}"


def _not_accepted(path: str, option: str, class_path: str, invocation: Invocation) -> str:
    option = re.sub(r"\.(class_path|init_args)(?=\.|$)", "", option)
    full = f"{path}.{option}".lstrip(".")
    if not class_path:
        sections = [name for name in invocation.known if "." not in name]
        return f"{place_of(full, invocation)}--{full}: no such option{near_option(full, sections)}"
    if class_path in BASES:
        return f"{place_of(full, invocation)}--{full}: nothing says which class; add --{path} {BASES[class_path]}"
    accepted = _parameters(class_path)
    first, dot, rest = option.partition(".")
    names = nearest(first, accepted).removeprefix(". Nearest: ").split(", ")
    close = f". Nearest: {', '.join(f'--{path}.{name}{dot}{rest}' for name in names)}" if names != [""] else ""
    close = close or (f". Expected one of {', '.join(accepted)}" if accepted else "")
    return f"{place_of(full, invocation)}--{full}: no such option of {class_path.rpartition('.')[2]}{close}"


def _class_in(text: str) -> str:
    match = re.search(r"class_path='([^']+)'", text)
    return match[1] if match else ""


def _parameters(class_path: str) -> list[str]:
    module, _, name = class_path.rpartition(".")
    try:
        signature = inspect.signature(getattr(import_module(module), name))
    except (ImportError, AttributeError, ValueError):
        return []
    names = [name for name in signature.parameters if name not in ("self", "args", "kwargs")]
    return names[1:] if names[:1] in (["params"], ["optimizer"]) else names  # what torch's factories are given


def _class_problem(path: str, text: str, value: str) -> str | None:
    """A class that does not exist, or of the wrong kind."""
    ours = [entry.name for kind in discovery.KINDS for entry in discovery.choices(kind)]
    kind = {"Module": "a net (torch.nn.Module)", "LightningModule": "a task", "LightningDataModule": "a data module"}
    kind |= {"Callback": "a callback", "Optimizer": "an optimizer", "LRScheduler": "a schedule"}
    if match := re.search(r"not correspond to a subclass of (\w+)|to be a subclass of <class '(\w+)'>", text):
        base = match[1] or match[2]
        return f"--{path} {value}: expected {kind.get(base, f'a {base}')}{_of_kind(path)}"
    if match := re.search(r"class_path '([^']+)':\s*(No module named \S+|module \S+ has no attribute \S+)", text):
        name = match[1].rpartition(".")[2]
        missing = re.search(r"No module named '([^']+)'", match[2])
        full = (discovery.class_paths(match[1]) or [match[1]])[0]
        if missing and not full.startswith(f"{missing[1]}."):
            return f"--{path} {match[1]}: its module needs {missing[1]}, which is not installed"
        if match[1].endswith((".yaml", ".yml", ".json")):
            return f"--{path} {match[1]}: no such file"
        known = {entry.path: entry.name for kind in discovery.KINDS for entry in discovery.classes(kind)}
        close = nearest(match[1], known) or nearest(name, ours)
        return f"--{path} {match[1]}: no such class ({match[2]}){close}"
    if match := re.search(r"Expected a dot import path string: (.+)", text):
        if "class 'float'" in text or "class 'int'" in text:
            return None
        names = dict.fromkeys(ours + _subclass_names(path))
        return f"--{path} {match[1]}: no such class{nearest(match[1], names) or _of_kind(path)}"
    if re.search(r"Expected '\S+' to be a function that returns <class 'Optimizer'>", text):
        return f"--{path} {value}: expected an optimizer"
    if "not accessible or invalid" in text and "Expected a <" not in text:
        return f"--{path} {value}: no such class{nearest(value.rpartition('.')[2], _subclass_names(path))}"
    if "Not a valid subclass of" in text or "Expected an import path or a subclass spec" in text:
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
    matches = re.findall(r"(?:Given value: |Got value: )(.+)", message)
    values = [re.sub(r"NestedArg\(key='[^']*', val=(.*)\)$", r"\1", value).strip().strip("'\"") for value in matches]
    return min(values, key=len, default="")[:200] or "nothing"


def _expected(message: str) -> str:
    """The types of a report, in words."""
    names = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "text"}
    if match := re.search(r"Expected a member of <enum '\w+'>: \{([^}]*)\}", message):
        return f"one of {', '.join(match[1].split(','))}"
    matches = re.findall(r"Expected a <class '([\w.]+)'>|Expected a (?:typing\.)?Literal\[([^\]]+)\]", message)
    words, choices = [], []
    for name, literals in matches:
        if literals:
            choices += [choice.strip("' ") for choice in literals.split(",")]
        elif name not in ("NoneType", "lightning.pytorch.core.module.LightningModule"):
            words.append(names.get(name, f"a {name.rpartition('.')[2].lower()}"))
    if choices:
        words.append(f"one of {', '.join(dict.fromkeys(choices))}")
    return " or ".join(dict.fromkeys(words)) or "another value"


def place_of(path: str, invocation: Invocation) -> str:
    """file:line of an option, unless the command line gave it."""
    is_given = any(re.split(r"[=+]", arg.removeprefix("--"))[0] == path for arg in invocation.args)
    return "" if is_given else invocation.where(path)


def one_line(text: str) -> str:
    """Without line breaks, and without the full stop at the end."""
    return re.sub(r"\s+", " ", text).strip().rstrip(".")

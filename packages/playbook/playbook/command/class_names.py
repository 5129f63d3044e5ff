"""Finds the class of a short name, without importing any class."""

import ast
import os
import re
from pathlib import Path

from playbook import project
from playbook.command import annotations, discovery, docstrings, signatures
from playbook.command.discovery import Entry
from playbook.command.signatures import Parameter
from playbook.errors import nearest

KINDS = {  # which class a parameter takes, by the last word of its annotation
    "Module": "net",
    "OptimizerFactory": "optimizer",
    "OptimizerCallable": "optimizer",
    "Optimizer": "optimizer",
    "ScheduleFactory": "schedule",
    "LRSchedulerCallable": "schedule",
    "LRScheduler": "schedule",
    "lr_scheduler": "schedule",  # torch's module, as in lightning-hydra-template
    "Callback": "callback",
    "Logger": "logger",
    "Profiler": "profiler",
    "Strategy": "strategy",
}
OURS = {  # where discovery finds those of the project and the machine
    "task": "tasks",
    "data": "data",
    "net": "nets",
    "optimizer": "optim",
    "schedule": "optim",
    "callback": "callbacks",
    "strategy": "strategies",
}
PUBLISHED = {  # modules whose classes a short name may mean
    "optimizer": "torch.optim",
    "schedule": "torch.optim.lr_scheduler",
    "callback": "lightning.pytorch.callbacks",
    "logger": "lightning.pytorch.loggers",
    "profiler": "lightning.pytorch.profilers",
    "strategy": "lightning.pytorch.strategies",
}
BASES = {  # of the classes of a kind, where a folder or a module holds other classes as well
    "net": "Module",
    "optimizer": "Optimizer",
    "schedule": "LRScheduler",
    "callback": "Callback",
    "logger": "Logger",
    "profiler": "Profiler",
    "strategy": "Strategy",
}
# packages that the parser knows such classes of, all imported by then; other kinds are Lightning's
SEARCHED = {
    "net": ("torch", "torchvision", "torchmetrics", "lightning"),
    "optimizer": ("torch",),
    "schedule": ("torch",),
}


def kind_of(parameter: Parameter) -> tuple[str, bool]:
    """Which kind of class a parameter takes, empty if none or several, and whether it takes text as well."""
    types, admits_text = annotations.class_names(parameter)
    kinds = {KINDS[name] for name in types if name in KINDS}
    return (kinds.pop(), admits_text) if len(kinds) == 1 else ("", True)


def ours(kind: str) -> list[Entry]:
    """Classes of a kind in the project and in the machine."""
    entries = discovery.classes(OURS[kind]) if kind in OURS else ()
    return [entry for entry in entries if OURS[kind] != "optim" or _is_of(entry.path, kind)]


def published(kind: str) -> list[Entry]:
    """Classes of a kind that torch or Lightning publishes in one module."""
    place = module_of(kind)
    paths = [f"{place}.{name}" for name in _public_names(place)]
    definitions = [(path, signatures.find(path)) for path in paths if _is_of(path, kind)]
    return [
        Entry(path.rpartition(".")[2], path, docstrings.summary(definition))
        for path, definition in definitions
        if definition is not None
    ]


def module_of(kind: str) -> str:
    """The module of torch or Lightning that publishes classes of a kind; empty if there is none."""
    return "torch.nn" if kind == "net" else PUBLISHED.get(kind, "")  # short names of torch's nets are ambiguous


def _public_names(module: str) -> list[str]:
    """What looks like the name of a class in a module, and in those of which it imports everything."""
    source = signatures.module(module)
    names = {name for star in source.stars for name in _public_names(star)} if source is not None else set()
    return sorted(names | {name for name in (source.bindings if source is not None else ()) if name[:1].isupper()})


def _is_of(path: str, kind: str) -> bool:
    """Whether a class inherits from the base of its kind."""
    definition = signatures.find(path)
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return False
    names = [base.class_path.rpartition(".")[2] for base in signatures.resolution_order(definition) if base is not None]
    return BASES[kind] in names[1:] and names[0] != BASES[kind]


def full_path(name: str, kind: str) -> str:
    """The class that a short name means: ours before those that torch and Lightning publish."""
    if "." in name:
        return name
    ours = discovery.class_paths(name, [OURS[kind]]) if kind in OURS else []
    if ours:
        return ours[0]
    elsewhere = bool(discovery.class_paths(name))  # the parser prefers ours even if they do not fit
    return f"{PUBLISHED[kind]}.{name}" if kind in PUBLISHED and not elsewhere else ""


def nearest_of_none(name: str, kind: str) -> str | None:
    """«. Nearest: …», where a name is certainly no class; None where it may be one."""
    if "." in name:
        module, _, short = name.rpartition(".")
        if module == module_of(kind):
            return _nearest_published(module, short)
        top = module.partition(".")[0]
        entries = [entry.path for folder in discovery.KINDS for entry in discovery.classes(folder)]
        is_ours = top in ("playbook", project.current().package)
        if not is_ours or signatures.module_file(top) is None:
            return None
        source = signatures.module(module)
        if source is None and signatures.module_file(module) is not None:
            return None
        if source is not None and (short in source.bindings or source.stars or "__getattr__" in source.bindings):
            return None
        return nearest(name, entries) or None
    choices = [entry.name for entry in discovery.choices(OURS[kind])] if kind in OURS else []
    published = signatures.module(PUBLISHED[kind]) if kind in PUBLISHED else None
    choices += [choice for choice in (published.bindings if published else ()) if choice[:1].isupper()]
    close = nearest(name, dict.fromkeys(choices))
    return close if close and not discovery.class_paths(name) and not is_defined(name, kind) else None


def _nearest_published(module: str, short: str) -> str | None:
    """The same for what torch or Lightning would publish; None where the source does not tell all names."""
    source = signatures.module(module)
    if source is None or short in source.bindings or "__getattr__" in source.bindings:
        return None
    names = _public_names(module)
    if short in names or any(signatures.module(star) is None for star in source.stars):
        return None
    return nearest(f"{module}.{short}", [f"{module}.{name}" for name in names]) or None


def is_defined(name: str, kind: str) -> bool:
    """Whether a class of this name may have been imported before the parser looks for it."""
    own = project.current().folder
    imports = {
        word.decode()
        for file in own.rglob("*.py")
        for word in re.findall(rb"^\s*(?:import|from)\s+(\w+)", file.read_bytes(), re.MULTILINE)
    }
    packages = {*SEARCHED.get(kind, ("lightning",)), "playbook", *imports}
    files = [file for package in packages if (file := signatures.module_file(package)) is not None]
    folders = [own, *(file.parent for file in files if file.name == "__init__.py")]
    words = f"class {name}".encode()
    definition = re.compile(rb"\b" + words + rb"\b")
    for folder in folders:
        for place, _, names in os.walk(folder):
            for file_name in names:
                text = Path(place, file_name).read_bytes() if file_name.endswith(".py") else b""
                if words in text and definition.search(text):  # the first of the two takes a tenth of the time
                    return True
    return False

"""Reads the command line and its configs without importing torch, so that common mistakes are reported immediately."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from playbook import project
from playbook.command import discovery
from playbook.command.environment import expand_arguments, expand_node, expand_values
from playbook.command.verb import ModelVerb
from playbook.errors import UserError, nearest
from playbook.runs.directory import require_there

RESOLVED = ("run_dir", "ckpt_path", "init_from")  # options that are resolved before the parser sees them


@dataclass
class Invocation:
    """One command: its verb, the arguments for the parser, and what decides about runs and checkpoints.

    Args:
        verb: what is run.
        args: what follows the verb, without the resolved options.
        configs: files given by --config, in order.
        settings: values of the resolved options, from the command line or else the last config that has one.
        nodes: the syntax tree of every config file, for the lines of errors.
        known: dotted names of the options that exist here, for the nearest ones.
        given: all that follows the verb.
        inline: whether some YAML came on the command line itself.
        running: whether everything is built, and the verb has begun.
        options: what was configured, as nested plain values, once it is known.
    """

    verb: ModelVerb
    args: list[str]
    configs: list[Path]
    settings: dict[str, str | None]
    nodes: list[tuple[Path, yaml.Node]] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    inline: bool = False
    running: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def report_is_for_programs(self) -> bool:
        """Whether --format asks for JSON or the like."""
        words = [word for arg in self.args for word in (arg.split("=", 1) if arg.startswith("--format=") else [arg])]
        values = [value for option, value in pairwise(words) if option == "--format"]
        return self.verb.reports and values[-1:] not in ([], ["terminal"])

    @property
    def recipe(self) -> str | None:
        """Name of the first config."""
        return self.configs[0].stem if self.configs else None

    @property
    def shows_help(self) -> bool:
        """Whether help is asked for, so that nothing runs."""
        return any(arg == "--help" or arg.partition("=")[0].endswith(".help") for arg in self.args)

    def require_checkpoint(self) -> None:
        """Refuses a checkpoint that does not exist, before torch is imported; `best` and `last` are looked for later.

        Raises:
            UserError: there is no such file or run directory.
        """
        if self.shows_help:
            return
        if spec := self.settings.get("ckpt_path"):
            require_there(spec, "--ckpt_path")
        elif self.verb.checkpoint == "continued" and (spec := self.settings.get("init_from")):
            require_there(spec, "--init_from")

    @property
    def lacks_model(self) -> str:
        """The message where nothing says which model to use."""
        return (
            f"--model: required; name a recipe with --config ({project.current().command} list recipes), "
            "a checkpoint with --ckpt_path, or a task"
        )

    def where(self, key: str) -> str:
        """«file:line: » of a dotted key in the last config that has it; empty if none does.

        The words class_path and init_args may be left out of the key.
        """
        if self.inline:  # it may stand in YAML that came without a file
            return ""
        for path, node in reversed(self.nodes):
            line = _line_of(node, [part for part in key.split(".") if part not in ("class_path", "init_args")])
            if line is not None:
                return f"{path.as_posix()}:{line}: "
        return ""


def is_inline(config: str) -> bool:
    """Whether a value of --config is YAML itself instead of a file."""
    return "\n" in config or config.lstrip().startswith("{")


def read(verb: ModelVerb, args: list[str]) -> Invocation:
    """Splits the arguments and looks into the configs.

    Raises:
        UserError: a config is missing, is not YAML, or has a list under `config:`.
    """
    args = _classes_first(expand_arguments([_underscored(arg) for arg in args]))
    parts = _split(args)
    invocation = Invocation(verb, parts.rest, parts.configs, {}, given=args, inline=bool(parts.inlines))
    for path in parts.configs:
        invocation.settings |= _resolved_options(_check(path, "--config", invocation.nodes))
    for text in parts.inlines:
        with contextlib.suppress(yaml.YAMLError):  # the parser says what is wrong with it
            invocation.settings |= _resolved_options(yaml.safe_load(text))
    invocation.settings |= parts.settings
    if parts.settings.get("init_from") and verb.checkpoint != "continued":
        raise UserError(f"--init_from: only for fit; use --ckpt_path with {verb.name}")
    if parts.settings.get("init_from") and parts.settings.get("ckpt_path", "last") != "last":
        raise UserError(
            "--init_from, --ckpt_path: expected only one of them, or --ckpt_path last for repeated starts of one run"
        )
    return invocation


@dataclass
class _Parts:
    """What a command line consists of: YAML files, YAML texts, options resolved here, and the rest for the parser."""

    rest: list[str] = field(default_factory=list)
    configs: list[Path] = field(default_factory=list)
    inlines: list[str] = field(default_factory=list)
    settings: dict[str, str | None] = field(default_factory=dict)

    def add_config(self, value: str) -> None:
        if is_inline(value):
            self.inlines.append(value)
            self.rest += ["--config", value]
            return
        self.configs.append(Path(value))
        if not _is_empty(Path(value)):  # which the parser would refuse
            self.rest += ["--config", value]


def _split(args: list[str]) -> _Parts:
    parts, remaining = _Parts(), iter(args)
    for arg in remaining:
        name, equals, value = arg.partition("=")
        option = {"-c": "config"}.get(name, name.removeprefix("--") if name.startswith("--") else "")
        if option not in ("config", *RESOLVED):
            parts.rest.append(arg)
            continue
        if not equals:
            value = next(remaining, "")
        if not value or (value.startswith("--") and not equals):
            raise UserError(f"--{option}: expected a value, got {value or 'nothing'}")
        if option == "config":
            parts.add_config(value)
        else:
            parts.settings[option] = value
    return parts


def _resolved_options(content: Any) -> dict[str, str | None]:
    values = content if isinstance(content, dict) else {}
    return {name: values[name] for name in RESOLVED if isinstance(values.get(name), str)}


def grouped(args: Sequence[str]) -> list[list[str]]:
    """The words of a command line by option: each option with the words that follow it."""
    options: list[list[str]] = []
    for arg in args:
        if arg.startswith("--") or not options:
            options.append([arg])
        else:
            options[-1].append(arg)
    return options


def _classes_first(args: list[str]) -> list[str]:
    """Moves each option that names a class before the first option of that class, as the parser needs it.

    An option of a class follows it where the class is named before as well.
    """
    ordered: list[list[str]] = []
    for option in grouped(args):
        path = _path_of(option[0])
        names = [_path_of(other[0]) for other in ordered]
        first = next((index for index, name in enumerate(names) if path and name.startswith(f"{path}.")), None)
        if first is None or path in names[:first]:
            ordered.append(option)
        else:
            ordered.insert(first, option)
    return [arg for option in ordered for arg in option]


def _path_of(arg: str) -> str:
    """Dotted name of an option of the model or the data, without init_args; empty for others."""
    path = arg.partition("=")[0].removeprefix("--").replace(".init_args", "")
    return path if path.partition(".")[0] in ("model", "data") and not path.endswith("+") else ""


def _underscored(arg: str) -> str:
    """--run_dir for --run-dir; what follows a dot may be the key of a dict, and stays as it is."""
    name = re.match(r"--[\w-]+", arg)
    return "--" + name[0][2:].replace("-", "_") + arg[name.end() :] if name else arg


def _check(path: Path, option: str, nodes: list[tuple[Path, yaml.Node]], depth: int = 0) -> dict[str, Any]:
    """Loads a config and those it names under `config:`; returns the top level."""
    if not path.is_file():
        choices = [entry.path for entry in discovery.recipes() + discovery.partials()]
        what = "a directory" if path.is_dir() else "no such file"
        by_name = [choice for choice in choices if Path(choice).stem == path.stem]
        close = f". Nearest: {', '.join(by_name)}" if by_name else nearest(path.as_posix(), choices)
        root = project.current().root
        if not path.is_absolute() and (root / path).is_file() and root != Path.cwd():
            raise UserError(f"{option} {path.as_posix()}: {what} here; it is in {root}, run the command from there")
        raise UserError(f"{option} {path.as_posix()}: {what}{close}")
    if depth > 20:
        raise UserError(f"{option} {path.as_posix()}: its `config:` refers back to itself")
    try:
        text = path.read_text(encoding="utf-8")
        node, content = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise UserError(f"{option} {path.as_posix()}{line}: not valid YAML: {problem}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{option} {path.as_posix()}: expected a mapping of options, got a {type(content).__name__}")
    assert node is not None
    expand_node(node, path.as_posix())
    content = expand_values(content)
    if fault := _faulty_key(node):
        raise UserError(f"{path.as_posix()}:{fault}")
    below = content.get("config")
    if not isinstance(below, str | None):
        line = _line_of(node, ["config"])
        got = "a list; use one --config per file" if isinstance(below, list) else below
        raise UserError(f"{path.as_posix()}:{line}: config: expected one file, got {got}")
    base = (
        _check(path.parent / below, f"{path.as_posix()}: config:", nodes, depth + 1) if isinstance(below, str) else {}
    )
    nodes.append((path, node))
    return base | content


def _is_empty(path: Path) -> bool:
    return path.is_file() and all(
        not line.strip() or line.lstrip().startswith("#")
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    )


def _faulty_key(node: yaml.Node) -> str | None:
    """A key that is not text, or that occurs twice in its mapping, so that the first would be dropped silently."""
    if not isinstance(node, yaml.MappingNode):
        return None
    names: set[str] = set()
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
            return f"{line}: {key.value}: expected the name of an option"
        if key.value in names:
            return f"{line}: {key.value}: occurs twice; the first one would be ignored"
        names.add(key.value)
        if deeper := _faulty_key(value):
            return deeper
    return None


def keys_of(node: yaml.Node, prefix: str = "") -> list[str]:
    """Dotted keys of a config, without class_path and init_args."""
    if not isinstance(node, yaml.MappingNode):
        return []
    keys = []
    for key, value in node.value:
        name = str(key.value).removesuffix("+")
        path = prefix if name == "init_args" else f"{prefix}.{name}".lstrip(".")
        keys += [path] if name not in ("init_args", "class_path") else []
        keys += keys_of(value, path)
    return keys


def appended_callbacks(args: list[str]) -> set[str]:
    """Short names of the classes given by --trainer.callbacks+ on the command line."""
    names = set()
    for arg, following in zip(args, [*args[1:], ""], strict=False):
        name, equals, value = arg.partition("=")
        if name != "--trainer.callbacks+":
            continue
        with contextlib.suppress(yaml.YAMLError):  # the parser says what is wrong with it
            content = yaml.safe_load(value if equals else following)
            for entry in content if isinstance(content, list) else [content]:
                path = entry.get("class_path") if isinstance(entry, dict) else entry
                names |= {path.rpartition(".")[2]} if isinstance(path, str) else set()
    return names


def near_option(path: str, known: list[str]) -> str:
    """Nearest options by their whole path, or by their last word, as for --max_epochs."""
    if by_last := same_last_word(path, known):
        return f". Nearest: {', '.join(by_last)}"
    known = [choice for choice in known if choice != path]
    full = nearest(f"--{path}", [f"--{choice}" for choice in known])
    words = {choice.rpartition(".")[2]: choice for choice in known}
    return full or nearest(path.rpartition(".")[2], words).replace("Nearest: ", "Nearest: --")


def same_last_word(path: str, known: list[str]) -> list[str]:
    """Up to three options that end as a path does, with their dashes."""
    last = path.rpartition(".")[2]
    return [f"--{choice}" for choice in known if choice != path and choice.rpartition(".")[2] == last][:3]


def _line_of(node: yaml.Node, parts: list[str]) -> int | None:
    """Line of a key, counted from 1, looking through class_path and init_args."""
    if not parts or not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        name = str(key.value).removesuffix("+")
        if name == parts[0]:
            deeper = _line_of(value, parts[1:]) if len(parts) > 1 else None
            if len(parts) == 1 or deeper is not None:
                return deeper or key.start_mark.line + 1
        elif name == "init_args":
            line = _line_of(value, parts)
            if line is not None:
                return line
    return None

"""Names the option that a message is about: puts it, its place and its value to what constructors and Lightning say."""

import re
from typing import Any

from playbook.command.arguments import Invocation
from playbook.command.rejected import place_of

KINDS = {
    "The strategy `": "strategy",
    "Strategy`": "strategy",
    "backend found": "accelerator",
    "Accelerator` can not run": "accelerator",
    "torch_xla": "accelerator",
}  # in Lightning's words that do not name the option first


def named(text: str, invocation: Invocation) -> str:
    """Puts the option and its place before a message that names it first, as ours do."""
    word = re.match(r"(\w+):", text) or re.match(r"[`'\"](?:Trainer\()?(\w+)", text)
    word = word or re.search(r"`(?:Trainer\()?(\w+)=", text)
    path = _path_of(word[1], invocation) if word else ""
    return _prefixed(path, text, invocation) if path else text


def refused(text: str, callback: str, invocation: Invocation) -> str:
    """Lightning's own words, with the option, wherever they name it, and with its value.

    Args:
        text: its message.
        callback: class of the callback that refuses; empty if none does.
        invocation: the command, which knows the options.
    """
    text = text.partition(" Find a complete list")[0]
    kind = next((name for words, name in KINDS.items() if words in text), "")
    path = _path_of(kind, invocation)
    if not path and (line := named(text, invocation)) != text:
        path = line.partition(": ")[0] if line.startswith("--") else line.split(": ")[1]
        path = path.removeprefix("--")
    for word in re.findall(r"[`'(]?\b[a-z]\w*\b[`'=]?", text) if not path else ():
        if name := word.strip("`'(="):
            path = path or (_path_of(name, invocation) if name != word or "_" in name else "")
    if not path and not callback:
        return text
    if not path:
        return f"{place_of('trainer.callbacks', invocation)}--trainer.callbacks: {callback}: {text}"
    value = value_of(path, invocation)
    is_said = value is None or re.search(rf"(?<![\w.]){re.escape(str(value))}(?![\w.]*\w)", text)
    got = "" if is_said else f"; got {value}"
    return _prefixed(path, text, invocation) + got


def _path_of(name: str, invocation: Invocation) -> str:
    """The option of this name: the shortest that was given, else that exists; a task's own comes before its net's."""
    given_options = [re.split(r"[=+]", arg.removeprefix("--"))[0] for arg in invocation.args if arg.startswith("--")]
    for paths in (given_options, [*invocation.known, *_names_in(invocation.options)]):
        if same_name := [path for path in paths if path.rpartition(".")[2] == name]:
            return min(same_name, key=len)
    return ""


def _prefixed(path: str, text: str, invocation: Invocation) -> str:
    name = path.rpartition(".")[2]
    rest = re.sub(rf"^[`'\"]?{name}\b[`'\"]?:?(?!\w|=)", "", text).strip()
    return f"{place_of(path, invocation)}--{path}: {rest}"


def value_of(path: str, invocation: Invocation) -> Any:
    """What was given for an option: the last on the command line, else what is configured."""
    for number, arg in reversed(list(enumerate(invocation.args))):
        name, equals, value = arg.removeprefix("--").partition("=")
        if name == path and arg.startswith("--"):
            return value if equals else next(iter(invocation.args[number + 1 :]), None)
    value: Any = invocation.options
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str | int | float) else None


def _names_in(options: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of a configuration, without class_path and init_args."""
    names = []
    for key, value in options.items():
        path = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        names += [path] if key not in ("class_path", "init_args") else []
        names += _names_in(value, path) if isinstance(value, dict) else []
    return names

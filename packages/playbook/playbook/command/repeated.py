"""Options of a verb that a command line gives twice, of which only the last counts."""

from collections.abc import Sequence

from playbook.command.arguments import grouped


def unused(args: Sequence[str]) -> list[str]:
    """What a command line says in vain, a line for each, such as the first of two folders.

    Args:
        args: what follows the verb. Dotted options, which override a recipe's, and --config may be repeated.
    """
    options: list[tuple[str, str]] = []
    for option, *values in grouped(args):
        name, _, value = option.partition("=")
        options.append((name, " ".join([value, *values]).strip()))
    last = dict(options)
    return [
        f"{name} {value}: not used, as {name} {last[name]} follows"
        for name, value in options
        if value != last[name] and name != "--config" and "." not in name
    ]

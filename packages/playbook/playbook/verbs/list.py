"""list: shows what the project provides."""

import json
from dataclasses import asdict

from playbook import project
from playbook.command import discovery
from playbook.command.verb import PlainVerb
from playbook.errors import UserError, nearest

SECTIONS = {
    "recipes": discovery.recipes,
    "partials": discovery.partials,
    **{kind: (lambda kind=kind: list(discovery.classes(kind))) for kind in discovery.KINDS},
}


class List(PlainVerb):
    """Reads the sources, and imports none of them."""

    name = "list"
    summary = "List recipes, tasks, nets, data and callbacks."
    examples = ("", "nets")

    def answer(self, args: list[str]) -> int:
        """Prints all sections, or the one named: recipes, partials, tasks, nets, data, callbacks, optim, strategies."""
        if {"-h", "--help"} & set(args):
            print(f"{project.current().command} list [{'|'.join(SECTIONS)}] [--format terminal|json]")
            return 0
        args, is_json = _split_format(args)
        if len(args) > 1:
            raise UserError(f"list {' '.join(args)}: expected one section, got {len(args)}")
        if args and args[0] not in SECTIONS:
            wrong = args[0]
            raise UserError(f"list {wrong}: expected one of {', '.join(SECTIONS)}{nearest(wrong, SECTIONS)}")
        found = {section: SECTIONS[section]() for section in args or SECTIONS}
        if is_json:
            print(json.dumps({name: [asdict(entry) for entry in found[name]] for name in found}, indent=2))
            return 0
        blocks = []
        for section, entries in found.items():
            names = [entry.path if section in ("recipes", "partials") else entry.name for entry in entries]
            width = max(map(len, names), default=0)
            lines = [f"  {name:<{width}}  {entry.summary}" for name, entry in zip(names, entries, strict=True)]
            blocks.append("\n".join([section, *lines]))
        print("\n\n".join(blocks))
        return 0


def _split_format(args: list[str]) -> tuple[list[str], bool]:
    """The arguments without --format, and whether it asks for JSON."""
    words = [word for arg in args for word in (arg.split("=", 1) if arg.startswith("--format=") else [arg])]
    if "--format" not in words:
        return words, False
    position = words.index("--format")
    value = words[position + 1] if position + 1 < len(words) else ""
    if value not in ("terminal", "json"):
        raise UserError(f"--format {value}: expected terminal or json")
    return words[:position] + words[position + 2 :], value == "json"


VERB = List()
ORDER = 20

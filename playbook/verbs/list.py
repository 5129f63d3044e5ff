"""list: shows what the project provides."""

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
        if args[:1] and args[0] in ("-h", "--help"):
            print(f"{project.current().command} list [{'|'.join(SECTIONS)}]")
            return 0
        if len(args) > 1:
            raise UserError(f"list {' '.join(args)}: expected one section, got {len(args)}")
        if args and args[0] not in SECTIONS:
            wrong = args[0]
            raise UserError(f"list {wrong}: expected one of {', '.join(SECTIONS)}{nearest(wrong, SECTIONS)}")
        blocks = []
        for section in args or SECTIONS:
            entries = SECTIONS[section]()
            names = [entry.path if section in ("recipes", "partials") else entry.name for entry in entries]
            width = max(map(len, names), default=0)
            lines = [f"  {name:<{width}}  {entry.summary}" for name, entry in zip(names, entries, strict=True)]
            blocks.append("\n".join([section, *lines]))
        print("\n\n".join(blocks))
        return 0


VERB = List()
ORDER = 20

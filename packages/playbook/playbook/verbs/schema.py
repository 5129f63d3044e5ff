"""schema: writes a JSON Schema of recipes, for editors that check and complete them."""

import json
from pathlib import Path

from playbook import project
from playbook.command.verb import PlainVerb
from playbook.errors import UserError

USAGE = """schema [--output FILE]

Prints a JSON Schema of recipes, or writes it to a file. It contains the project's tasks, nets, data modules, callbacks
and so on, with their options, descriptions and defaults: write it again when they change.

In VS Code, install the extension YAML (redhat.vscode-yaml), run

  {command} schema --output .vscode/recipe.schema.json

and add to .vscode/settings.json

  {{"yaml.schemas": {{".vscode/recipe.schema.json": "configs/**/*.yaml"}}}}

Any editor with yaml-language-server also takes it from a comment in the recipe, below the first line:

  # yaml-language-server: $schema=../../.vscode/recipe.schema.json"""


class SchemaVerb(PlainVerb):
    """Reads the sources of the project, of torch and of Lightning, and imports none of them."""

    name = "schema"
    summary = "Write a JSON Schema of recipes for checks and completion in editors."
    examples = ("--output .vscode/recipe.schema.json",)

    def answer(self, args: list[str]) -> int:
        """Prints or writes the schema."""
        from playbook.command.json_schema import recipe_schema  # lists the verbs, of which this is one

        if {"-h", "--help"} & set(args):
            print(f"{project.current().command} {USAGE.format(command=project.current().command)}")
            return 0
        output = _output(args)
        text = json.dumps(recipe_schema(), indent=1, ensure_ascii=False) + "\n"
        if output is None:
            print(text, end="")
            return 0
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise UserError(f"schema --output {output.as_posix()}: {error.strerror}") from error
        print(f"wrote  {output.as_posix()}")
        return 0


def _output(args: list[str]) -> Path | None:
    """The file that the arguments name, if any."""
    words = [word for arg in args for word in (arg.split("=", 1) if arg.startswith("--output=") else [arg])]
    if not words:
        return None
    if words[0] != "--output":
        raise UserError(f"schema {words[0]}: no such option, expected --output FILE")
    if len(words) != 2 or not words[1] or words[1].startswith("-"):
        raise UserError(f"schema --output: expected one file, got {' '.join(words[1:]) or 'none'}")
    return Path(words[1])


VERB = SchemaVerb()
ORDER = 23

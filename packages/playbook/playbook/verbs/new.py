"""new: writes a net, task or data set, its test and a recipe that is ready to train."""

import ast
import keyword
import re
from pathlib import Path
from string import Template

from playbook import project
from playbook.command import discovery
from playbook.command.verb import PlainVerb
from playbook.errors import UserError, nearest

TEMPLATES = Path(__file__).parent / "templates"  # <kind>.py.txt, test_<kind>.py.txt and <kind>.yaml
USAGE = "new net|task|data [DOMAIN/]NAME"
SPELLING = """NAME in any spelling: TinyNet, tiny_net and tiny-net are class TinyNet in tiny_net.py.
DOMAIN is the folder below nets/ or data/, as in vision/TinyNet. In a project with such folders, a net without one goes
to vision/, data to tables/."""
BORROWED = ("Classification", "CNN", "Digits", "MLP")  # classes of the template that the written files name
LONGEST_NAME = 36  # of a file; the templates keep to the project's line length up to here
# what each kind writes: module, test and recipe
TARGETS = {
    "net": ("{package}/nets/{room}{name}.py", "tests/nets/{room}test_{name}.py", "configs/vision/{name}-digits.yaml"),
    "task": ("{package}/tasks/{name}.py", "tests/tasks/test_{name}.py", "configs/vision/{name}-digits.yaml"),
    "data": ("{package}/data/{room}{name}.py", "tests/data/{room}test_{name}.py", "configs/tables/{name}.yaml"),
}
DOMAINS = {"net": "vision", "data": "tables"}  # of what the templates hold


class New(PlainVerb):
    """Writes files that train and pass their tests without changes; never overwrites files."""

    name = "new"
    summary = "Write a new net, task or data set, its test and a recipe that is ready to train."
    examples = ("net TinyNet", "net language/TinyNet", "data my-table")

    def answer(self, args: list[str]) -> int:
        """Writes the three files of a new net, task or data set, and prints what to do next."""
        if {"-h", "--help"} & set(args):
            print(f"{project.current().command} {USAGE}\n{SPELLING}")
            return 0
        kind, name = _read(args)
        domain, slash, short = name.rpartition("/")
        if slash:
            _require_domain(f"new {kind} {name}", kind, domain)
        stem, class_name = _spell(f"new {kind} {name}", short)
        own = project.current()
        room = f"{domain}/" if domain or (domain := _usual_domain(kind)) else ""
        targets = [target.format(package=own.package, name=stem, room=room) for target in TARGETS[kind]]
        for target in targets:
            if (own.root / target).exists():
                raise UserError(f"new {kind} {name}: {_shown(own.root / target)} already exists; nothing was written")
        if clash := discovery.class_paths(class_name):
            raise UserError(f"new {kind} {name}: {clash[0]} already has this name; choose another")
        if class_name in _names_used(kind):
            raise UserError(f"new {kind} {name}: the written files use a different {class_name}; choose another name")
        module = ".".join(Path(targets[0]).with_suffix("").parts)
        contents = _fill(kind, module=module, Class=class_name, recipe=targets[2])
        texts = {own.root / target: text for target, text in zip(targets, contents, strict=True)}
        _write(f"new {kind} {name}", texts)
        print("\n".join(f"wrote  {_shown(path)}" for path in texts))
        if missing := [name for name in BORROWED if name in " ".join(contents) and not discovery.class_paths(name)]:
            print(f"\nedit   the files name {', '.join(missing)} of the template, which {own.package} does not have")
        print(f"\ntrain  {own.command} fit --config {_shown(own.root / targets[2])}")
        print(f"test   python -m pytest {_shown(own.root / targets[1])}")
        return 0


def _read(args: list[str]) -> tuple[str, str]:
    """Kind and name."""
    if options := [arg for arg in args if arg.startswith("-")]:
        raise UserError(f"new: {options[0]}: no such option, expected {project.current().command} {USAGE}")
    if not args:
        raise UserError(f"new: expected a kind and a name: {project.current().command} {USAGE}")
    kind, *names = args
    if kind not in TARGETS:
        raise UserError(f"new {kind}: expected one of {', '.join(TARGETS)}{nearest(kind, TARGETS)}")
    if len(names) != 1:
        raise UserError(f"new {kind}: expected one name, got {' '.join(names) or 'none'}")
    return kind, names[0]


def _require_domain(command: str, kind: str, domain: str) -> None:
    if kind not in DOMAINS:
        raise UserError(f"{command}: tasks are shared by all domains, expected a name without a folder")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", domain) or keyword.iskeyword(domain):
        raise UserError(f"{command}: expected small letters and digits as the name of a folder, as in vision/TinyNet")


def _usual_domain(kind: str) -> str:
    """The folder of a net or data without one: the templates' own domain, in projects that sort by domain."""
    own, folder = project.current(), {"net": "nets", "data": "data"}.get(kind)
    sorts = folder is not None and any(own.root.glob(f"{own.package}/{folder}/*/*.py"))
    return DOMAINS.get(kind, "") if sorts else ""


def _spell(command: str, name: str) -> tuple[str, str]:
    """The file's stem, snake_case, and the class's name, CamelCase."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*", name):
        raise UserError(f"{command}: expected letters and digits with _ or - between, a letter first, as in tiny_net")
    # TinyNet, CNNBlock: before a capital that follows a small letter, or that a small letter follows
    words = re.split(r"[_-]|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", name)
    stem, class_name = "_".join(words).lower(), "".join(word[:1].upper() + word[1:] for word in words)
    if reserved := [word for word in (name, stem, class_name) if keyword.iskeyword(word)]:
        raise UserError(f"{command}: {reserved[0]} is a keyword of Python; choose another name")
    if stem == "base":
        raise UserError(f"{command}: base.py is reserved for base classes, which are not listed; choose another name")
    if len(stem) > LONGEST_NAME:
        raise UserError(f"{command}: expected a name of at most {LONGEST_NAME} characters, got {len(stem)}")
    return stem, class_name


def _fill(kind: str, **names: str) -> list[str]:
    """Texts of module, test and recipe."""
    package = project.current().package
    names |= {"package": package, "digits": f"{package}.data.digits", "mlp": f"{package}.nets.mlp"}
    for known, cls in (("digits", "Digits"), ("mlp", "MLP")):
        for path in discovery.class_paths(cls)[:1]:
            names[known] = path.rpartition(".")[0]
    sources = (f"{kind}.py.txt", f"test_{kind}.py.txt", f"{kind}.yaml")
    return [Template((TEMPLATES / source).read_text(encoding="utf-8")).substitute(names) for source in sources]


def _names_used(kind: str) -> set[str]:
    """What module and test import or refer to, which a class of the same name would hide."""
    module, test, _ = _fill(kind, module="_", Class="_", recipe="_")
    nodes = list(ast.walk(ast.parse(module + test)))
    imported = {node.name for node in nodes if isinstance(node, ast.alias)}
    return imported | {node.id for node in nodes if isinstance(node, ast.Name)}


def _write(command: str, texts: dict[Path, str]) -> None:
    """All files or none."""
    written: list[Path] = []
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink()
        raise UserError(f"{command}: {error.filename}: {error.strerror}; nothing was written") from error


def _shown(path: Path) -> str:
    """As short as it can be pasted into the shell."""
    return (path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path).as_posix()


VERB = New()
ORDER = 21

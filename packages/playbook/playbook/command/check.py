"""Reports wrong options before torch is imported, by reading the classes that a command names from their source.

Only certain mistakes are reported. Whatever the source does not show is left to the parser.
"""

import re
from itertools import count
from pathlib import Path

import yaml

from playbook.command import annotations, class_names, signatures
from playbook.command.annotations import Plain
from playbook.command.arguments import RESOLVED, Invocation, is_inline, near_option, same_last_word
from playbook.command.lightning_sections import SECTIONS, in_place_of
from playbook.command.nodes import entries_of, is_file, is_null, node_of, written
from playbook.command.ranges import fault
from playbook.command.slots import Finding, Place, Slot
from playbook.command.verb import own_options
from playbook.errors import UserError, nearest

TRAINER = "lightning.pytorch.trainer.trainer.Trainer"
CHECKPOINT = "playbook.training.resume.checkpoint.Checkpoint"
COMMON = ("config", "print_config", "seed_everything", "trainer", "model", "data", "checkpoint", *RESOLVED)
SEED = Plain({"int", "bool"})
KEYS = ("class_path", "init_args", "dict_kwargs")  # of a mapping that names a class
FACTORIES = ("optimizer", "schedule")  # classes whose first argument the task gives
USUAL_FACTS = (
    "num_classes", "in_channels", "image_size", "image_shape", "num_features", "vocab_size", "context_length",
    "max_length", "ignore_index",
)  # fmt: skip
LISTED = 20  # names of options that a message lists; the Trainer has twice as many


def check(invocation: Invocation) -> None:
    """Reports the first option that is certainly wrong, without importing torch.

    Raises:
        UserError: an option or a class that does not exist, a value of the wrong type, or a missing argument.
    """
    if invocation.shows_help:
        return
    try:
        command = _Command(invocation)
        command.read()
    except (SyntaxError, OSError, UnicodeDecodeError, RecursionError):
        return  # in a file that the parser will meet as well
    if (text := command.first_mistake()) is not None:
        raise UserError(text)


def slot_of(invocation: Invocation, path: str) -> Slot | None:
    """The option of a dotted name, as far as the command says what holds it; None where it is none of a class."""
    command = _Command(invocation)
    try:
        command.read()
    except (SyntaxError, OSError, UnicodeDecodeError, RecursionError):
        return None  # in a file that the parser will meet as well
    slot = command.root
    for key in [key for key in path.split(".") if key != "init_args"]:
        below = slot.children.get(key) or _slot_below(slot, key)
        if below is None:
            return None
        slot = below
    return slot


def _slot_below(slot: Slot, key: str) -> Slot | None:
    """The option of a class that nothing is said of yet; of any of our classes, if it is open which one holds it."""
    holders = [slot.signature]
    if slot.signature is None and slot.kind:
        holders = [signatures.signature(entry.path) for entry in class_names.ours(slot.kind)]
    for holder in holders:
        if holder is not None and key in holder.parameters and (kind := class_names.kind_of(holder.parameters[key])[0]):
            return Slot(f"{slot.path}.{key}", kind)
    return None


class _Command:
    """Follows a command from option to option, as the parser will."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.ranks = count()
        self.root = Slot("")
        self.sections: list[tuple[str, yaml.Node, Place]] = []  # of LightningCLI's configs
        own = own_options(invocation.verb)
        self.options = [*COMMON, *(name for name, _, _ in own)]
        self.flags = ["print_config", *(name for name, value, _ in own if not value)]  # without a value
        self.root.children = {
            "trainer": Slot("trainer", class_path=TRAINER),
            "checkpoint": Slot("checkpoint", class_path=CHECKPOINT),
            "model": Slot("model", "task"),
            "data": Slot("data", "data"),
        }

    def read(self) -> None:
        """Goes through configs and options in their order."""
        nodes = list(self.invocation.nodes)
        args = list(self.invocation.args)
        while args:
            arg = args.pop(0)
            if not arg.startswith("--"):
                self._report(self.root, arg, Place(), f"{arg}: expected options in the form --name value")
                continue
            name, equals, value = arg[2:].partition("=")
            if not equals and name not in self.flags:
                value = None if not args or args[0].startswith("--") else args.pop(0)
            if name != "config":
                self._option(name, value)
            elif value is not None and is_inline(value):
                self._inline_config(value)
            else:
                path = Path(value or "")
                while any(file == path for file, _ in nodes):  # after the files that it builds on
                    file, node = nodes.pop(0)
                    self._config(node, file)
        model = self.root.children["model"].signature
        for name, value, place in self.sections:
            self._report(self.root, name, place, f"{name}: {in_place_of(name, value, model)}")

    def first_mistake(self) -> str | None:
        """What to report; None if nothing is certainly wrong."""
        findings = [finding for slot in self.root.slots() for finding in slot.findings.values()]
        if not findings:
            return self._missing()
        finding = min(findings, key=lambda finding: finding.rank)
        close = self._nearest(finding) if finding.keys else ""
        return f"{finding.place}{finding.text}{close}"

    def _known(self) -> list[str]:
        """Dotted names of the options that exist here."""
        names = list(self.options)
        for slot in self.root.slots():
            if slot.signature is not None:
                names += [f"{slot.path}.{name}" for name in _accepted(slot)]
        return sorted(set(names))

    def _nearest(self, finding: Finding) -> str:
        key, dot, below = finding.keys.partition(".")
        if close := nearest(key, finding.accepted):
            names = close.removeprefix(". Nearest: ").split(", ")
            return f". Nearest: {', '.join(f'--{finding.parent}{name}{dot}{below}' for name in names)}"
        path = finding.parent + finding.keys
        if not finding.accepted:
            return near_option(path, self._known())
        if elsewhere := same_last_word(path, self._known()):
            return f". Nearest: {', '.join(elsewhere)}"
        return f". Expected one of {', '.join(finding.accepted)}" if len(finding.accepted) <= LISTED else ""

    def _missing(self) -> str | None:
        """An argument without default that nothing sets; a checkpoint may hold what is missing."""
        names = [arg.partition("=")[0] for arg in self.invocation.args]
        if self.invocation.settings.get("ckpt_path") or "--batch" in names or "--print_config" in names:
            return None
        if self.invocation.verb.checkpoint == "required":
            return self.invocation.verb.lacks_checkpoint
        if "model" not in self.root.assigned and not self.root.is_opaque:
            return self.invocation.lacks_model
        for slot in self.root.slots():
            if slot.orphan:
                default = " AdamW" if slot.kind == "optimizer" else ""
                return f"--{slot.path}.{slot.orphan}: nothing says which class; add --{slot.path}{default or ' CLASS'}"
        for slot in self.root.transparent_slots():
            if slot.signature is None or slot.is_fixed:
                continue
            parameters = list(slot.signature.parameters.values())[1 if slot.kind in FACTORIES else 0 :]
            needed = [p.name for p in parameters if p.is_required and not annotations.admits_none(p)]
            missing = [name for name in needed if name not in slot.assigned]
            if slot.section == "model":
                missing = [name for name in missing if not self._may_follow_from_data(name)]
            if missing:
                name = slot.signature.class_path.rpartition(".")[2]
                return f"{slot.place}--{slot.path}: {name} needs {', '.join(missing)}"
        return None

    def _may_follow_from_data(self, name: str) -> bool:
        """Whether the data may know an option of the model: by its usual name, or because its file names it."""
        data = self.root.children["data"]
        if "data" not in self.root.assigned:
            return False
        if data.signature is None or name in USUAL_FACTS:
            return True
        file = signatures.module_file(data.signature.class_path.rpartition(".")[0])
        return file is not None and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None

    def _config(self, node: yaml.Node, file: Path | None) -> None:
        for key, value in entries_of(node):
            self._root_key(str(key.value), value, Place(file).at(key))

    def _inline_config(self, text: str) -> None:
        try:
            node = yaml.compose(text, yaml.SafeLoader)
        except yaml.YAMLError:  # the parser says what is wrong with it
            node = None
        if not isinstance(node, yaml.MappingNode) or any(str(key.value) == "config" for key, _ in entries_of(node)):
            self.root.is_opaque = True
            return
        self._config(node, None)

    def _root_key(self, name: str, value: yaml.Node, place: Place) -> None:
        slot = self.root.children.get(name)
        self.root.assigned.add(name)
        if slot is not None:
            self._assign(slot, value, place)
        elif name == "seed_everything":
            self._set_plain(self.root, name, SEED, value, place)
        elif name in SECTIONS:
            self.sections.append((name, value, place))
        elif name not in self.options:
            self._unknown(self.root, name, place)

    def _option(self, name: str, value: str | None) -> None:
        """One option of the command line."""
        top, *rest = name.removesuffix("+").split(".")
        slot = self.root.children.get(top)
        if slot is None:
            if name == "seed_everything" and (node := node_of(value)) is not None:
                self._set_plain(self.root, name, SEED, node, Place())
            if top not in self.options and re.fullmatch(r"\w+", top):
                self._unknown(self.root, ".".join([top, *rest]), Place())
            return
        self.root.assigned.add(top)
        node = node_of(value)
        keys = [part for part in rest if part != "init_args"]
        if not rest:
            if node is None:
                slot.is_opaque = True
            else:
                self._assign(slot, node, Place())
        elif keys:
            self._descend(slot, keys, node, Place(), append=name.endswith("+"))

    def _descend(self, slot: Slot, keys: list[str], node: yaml.Node | None, place: Place, append: bool) -> None:
        """Follows a dotted name below a slot."""
        key, *rest = keys
        if key == "class_path" and not rest:
            if node is not None:
                self._name_class(slot, node, place)
            return
        if key == "dict_kwargs":
            slot.is_opaque = True
            return
        if not rest:
            self._set(slot, key, node, place, append)
            return
        slot.assigned.add(key)
        if slot.signature is None:
            self._open(slot, ".".join(keys))
        elif key not in slot.signature.parameters:
            self._unknown(slot, ".".join(keys), place)
        elif key in slot.children or (kind := class_names.kind_of(slot.signature.parameters[key])[0]):
            if key not in slot.children:
                slot.children[key] = Slot(f"{slot.path}.{key}", kind)
                slot.children[key].is_opaque = slot.is_replaced
            child = slot.children[key]
            self._descend(child, rest, node, place, append)

    def _open(self, slot: Slot, name: str) -> None:
        """Notes an option of a class that is not known."""
        if not slot.is_opaque and slot.section in ("model", "data"):
            slot.orphan = name
        slot.is_opaque = True

    def _assign(self, slot: Slot, node: yaml.Node, place: Place) -> None:
        """Gives a slot a class by name, a mapping, a list of them or a file of one."""
        slot.place = place
        if isinstance(node, yaml.ScalarNode):
            if Path(node.value).suffix in (".yaml", ".yml", ".json"):
                self._assign_file(slot, place.folder / node.value)
            elif not slot.is_fixed:
                self._name_class(slot, node, place)
            elif not is_file(node, place.folder):
                self._report(slot, "", place, f"--{slot.path}: expected a mapping of options, got {written(node)}")
            return
        if not isinstance(node, yaml.MappingNode):
            if slot.is_fixed:
                self._report(slot, "", place, f"--{slot.path}: expected a mapping of options, got {written(node)}")
            slot.is_opaque = True
            return
        names = {str(key.value) for key, _ in entries_of(node)}
        if slot.is_fixed or not names & {*KEYS}:  # arguments of the class that was named before
            self._set_all(slot, node, place)
        else:
            self._assign_class(slot, node, place)

    def _assign_class(self, slot: Slot, node: yaml.MappingNode, place: Place) -> None:
        """Gives a slot a class by class_path, and its arguments by init_args."""
        entries = {str(key.value): (key, value) for key, value in entries_of(node)}
        if "class_path" in entries:
            key, value = entries["class_path"]
            self._name_class(slot, value, place.at(key))
            if not isinstance(value, yaml.ScalarNode) or not value.value:
                text = f"--{slot.path}: expected the name of a class as class_path, got {written(value)}"
                self._report(slot, "class_path", place.at(key), text)
        if "init_args" in entries:
            key, value = entries["init_args"]
            if not isinstance(value, yaml.MappingNode) and not is_null(value):
                text = f"--{slot.path}: expected a mapping as init_args, got {written(value)}"
                self._report(slot, "init_args", place.at(key), text)
            self._set_all(slot, value, place)
        slot.is_opaque |= "dict_kwargs" in entries
        for name, (key, _) in entries.items():
            if name not in KEYS:
                self._misplaced(slot, name, place.at(key))

    def _assign_file(self, slot: Slot, file: Path) -> None:
        try:
            node = yaml.compose(file.read_text(encoding="utf-8"), yaml.SafeLoader)
        except (OSError, ValueError, yaml.YAMLError):
            node = None
        if isinstance(node, yaml.MappingNode):
            self._assign(slot, node, Place(file, 1))
        else:
            slot.is_opaque = True
            slot.choose(None if not slot.is_fixed else slot.signature)

    def _set_all(self, slot: Slot, node: yaml.Node, place: Place) -> None:
        if not isinstance(node, yaml.MappingNode):
            slot.is_opaque = True
        for key, value in entries_of(node):
            name = str(key.value)
            self._set(slot, name.removesuffix("+"), value, place.at(key), append=name.endswith("+"))

    def _set(self, slot: Slot, name: str, node: yaml.Node | None, place: Place, append: bool) -> None:
        """Gives one argument of a slot's class a value."""
        slot.assigned.add(name)
        if slot.signature is None:
            self._open(slot, name)
            return
        slot.findings.pop(name, None)
        parameter = slot.signature.parameters.get(name)
        if parameter is None:
            self._unknown(slot, name, place)
            return
        if node is None:
            return
        plain = annotations.plain_type(parameter)
        if plain is not None:
            if not append:
                self._set_plain(slot, name, plain, node, place)
            return
        kind, admits_text = class_names.kind_of(parameter)
        if kind:
            self._set_classes(slot, name, kind, node, place, append, admits_text)

    def _set_plain(self, slot: Slot, name: str, plain: Plain, node: yaml.Node, place: Place) -> None:
        """Gives an option of plain type a value."""
        path = f"{slot.path}.{name}".lstrip(".")
        slot.findings.pop(name, None)
        if not plain.admits(node):
            if slot.section == "model" and annotations.is_link(node.value):
                return
            if not is_file(node, place.folder):
                self._report(slot, name, place, f"--{path}: expected {plain.describe(node)}, got {written(node)}")
        elif slot.path in ("", "trainer") and (text := fault(name, annotations.value(str(node.value)))) is not None:
            self._report(slot, name, place, f"--{path}: {text}")

    def _set_classes(
        self, slot: Slot, name: str, kind: str, node: yaml.Node, place: Place, append: bool, admits_text: bool
    ) -> None:
        """Gives an argument a class, or a list of classes, of which later options mean the last."""
        values = node.value if isinstance(node, yaml.SequenceNode) else [node]
        is_list = append or isinstance(node, yaml.SequenceNode)
        path = f"{slot.path}.{name}"
        if is_list and not append:
            slot.children.pop(name, None)
            slot.elements = [element for element in slot.elements if element.path != path]
        for value in values:
            if is_list and name in slot.children:
                slot.elements.append(slot.children.pop(name))
            child = slot.children.setdefault(name, Slot(path, kind))
            if isinstance(value, yaml.ScalarNode) and admits_text:
                child.is_opaque = True
                child.choose(None)
            else:
                self._assign(child, value, place.at(value) if is_list else place)

    def _name_class(self, slot: Slot, node: yaml.Node, place: Place) -> None:
        name = str(node.value).strip() if isinstance(node, yaml.ScalarNode) else ""
        if not name or name.lower() in annotations.NULLS or not re.fullmatch(r"[\w.]+", name):
            slot.choose(None)
            slot.is_opaque = True
            return
        chosen = signatures.signature(class_names.full_path(name, slot.kind))
        slot.choose(chosen)
        slot.findings.pop("class_path", None)
        slot.is_opaque |= chosen is None
        if (
            chosen is None
            and not is_file(node, place.folder)
            and (close := class_names.nearest_of_none(name, slot.kind)) is not None
        ):
            self._report(slot, "class_path", place, f"--{slot.path} {name}: no such class{close}")

    def _misplaced(self, slot: Slot, name: str, place: Place) -> None:
        """Notes what stands beside class_path or init_args: an argument of the class, or one of the two misspelt."""
        if slot.signature is not None and name in slot.signature.parameters:
            text = f"--{slot.path}.{name}: expected under init_args, not beside class_path"
        else:
            text = f"--{slot.path}: expected class_path and init_args, got {name}{nearest(name, KEYS)}"
        self._report(slot, name, place, text)

    def _report(self, slot: Slot, name: str, place: Place, text: str) -> None:
        slot.findings[name] = Finding(next(self.ranks), place, text)

    def _unknown(self, slot: Slot, keys: str, place: Place) -> None:
        """Notes an option that does not exist, if the class's source says that it takes no others."""
        if slot is not self.root and (slot.signature is None or not slot.signature.is_complete):
            slot.is_opaque = True
            return
        prefix = f"{slot.path}." if slot.path else ""
        of = f" of {slot.signature.class_path.rpartition('.')[2]}" if slot.signature and not slot.is_fixed else ""
        text = f"--{prefix}{keys}: no such option{of}"
        accepted = _accepted(slot) if slot is not self.root else []
        key = keys.partition(".")[0]
        slot.findings[key] = Finding(next(self.ranks), place, text, prefix, keys, accepted)


def _accepted(slot: Slot) -> list[str]:
    assert slot.signature is not None, slot.path
    names = list(slot.signature.parameters)
    return names[1:] if slot.kind in FACTORIES else names

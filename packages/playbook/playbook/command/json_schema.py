"""A JSON Schema of recipes for editors, made from the sources of the classes that recipes name; none is imported."""

import ast
from typing import Any

from playbook.command import annotations, class_names, docstrings, signatures
from playbook.command.arguments import RESOLVED
from playbook.command.check import CHECKPOINT, FACTORIES, TRAINER
from playbook.command.discovery import Entry
from playbook.command.helptext import COMMON
from playbook.command.signatures import Parameter, Source
from playbook.command.verb import ModelVerb, own_options, verbs

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"  # the newest that all editors read
PLAIN = {"int": "integer", "float": "number", "bool": "boolean", "str": "string", "Path": "string"}
ARRAYS = (*annotations.SEQUENCES, "Set", "set", "frozenset", "Tuple", "tuple")
OBJECTS = ("dict", "Dict", "Mapping", "MutableMapping")
FILE: Schema = {"type": "string", "pattern": r"\.(ya?ml|json)$", "description": "a file that holds it"}
SECTIONS = {
    "seed_everything": ({"type": ["integer", "boolean", "null"]}, COMMON["--seed_everything N"]),
    "config": ({"type": "string"}, "file that this one builds on, relative to it; what stands here overrides it"),
}


def recipe_schema() -> Schema:
    """Describes a recipe, or a partial file that stacks on one."""
    maker = _Maker()
    sections: Schema = {
        "trainer": ({"anyOf": [maker.options(TRAINER), FILE]}, "options of Lightning's Trainer"),
        "checkpoint": ({"anyOf": [maker.options(CHECKPOINT), FILE]}, "which checkpoints are kept, and how often"),
        "model": ({"anyOf": [maker.kind("task")]}, "the task, with its net, optimizer and schedule"),
        "data": ({"anyOf": [maker.kind("data"), {"type": "null"}]}, "the data module"),
        **SECTIONS,
    }
    properties = {name: {**schema, "description": text} for name, (schema, text) in sections.items()}
    for verb in verbs().values():
        own = own_options(verb) if isinstance(verb, ModelVerb) else []
        properties |= {name: {"description": f"{verb.name}: {text}"} for name, _, text in own if name not in properties}
    properties |= {name: {"type": ["string", "null"]} for name in RESOLVED}
    return {
        "$schema": DRAFT,
        "title": "Recipe",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "definitions": maker.definitions,
    }


class _Maker:
    """Makes the schemas of classes and of their options, each once, as definitions that others refer to."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def kind(self, kind: str) -> Schema:
        """A class of a kind: its name, a file, or a mapping of class_path and init_args."""
        if kind not in self.definitions:
            self.definitions[kind] = {}  # so that a class which takes another of its kind finds an end
            entries = [*class_names.ours(kind), *(class_names.published(kind) if kind != "net" else [])]
            spellings = {entry.path: _spellings(entry, kind) for entry in entries}
            self.definitions[f"{kind}.name"] = _name(entries, spellings)
            name = _reference(f"{kind}.name")
            options = {path: self.options(path, kind in FACTORIES) for path in spellings}
            chosen = [
                {
                    "if": {"required": ["class_path"], "properties": {"class_path": {"enum": spellings[path]}}},
                    "then": {"properties": {"init_args": of_class}},
                }
                for path, of_class in options.items()
            ]
            self.definitions[f"{kind}.any"] = self._any_of_kind(list(options))
            open_choice = {
                "if": {"not": {"required": ["class_path"]}},
                "then": {"properties": {"init_args": _reference(f"{kind}.any")}},
            }
            mapping = {
                "type": "object",
                "additionalProperties": False,
                "properties": {"class_path": name, "init_args": {"type": "object"}, "dict_kwargs": {"type": "object"}},
                "allOf": [*chosen, open_choice],
            }
            self.definitions[kind] = {"anyOf": [mapping, name, FILE]}
        return _reference(kind)

    def options(self, class_path: str, is_factory: bool = False) -> Schema:
        """The arguments of a class; without the first one, which the task gives, where it is a factory."""
        if class_path not in self.definitions:
            self.definitions[class_path] = {}
            self.definitions[class_path] = self._options(class_path, is_factory)
        return _reference(class_path)

    def _options(self, class_path: str, is_factory: bool) -> Schema:
        definition, signature = signatures.find(class_path), signatures.signature(class_path)
        if definition is None or signature is None:
            return {"type": "object"}
        texts = docstrings.argument_texts(definition)
        properties: dict[str, Schema] = {}
        for parameter in list(signature.parameters.values())[is_factory:]:
            values = self._values(parameter)
            text = {"description": texts[parameter.name]} if texts.get(parameter.name) else {}
            properties[parameter.name] = values | text | _default(parameter)
            if arrays := [member for member in values.get("anyOf", [values]) if member.get("type") == "array"]:
                items = arrays[0].get("items", {})
                properties[f"{parameter.name}+"] = {"anyOf": [{"type": "array", "items": items}, items], **text}
        schema: Schema = {
            "type": "object",
            "description": docstrings.summary(definition),
            "properties": properties,
        }
        return schema | ({"additionalProperties": False} if signature.is_complete else {})

    def _any_of_kind(self, class_paths: list[str]) -> Schema:
        """Options where a partial file leaves open which class they are for: those of any that we know, and others."""
        values: dict[str, list[Schema]] = {}
        for path in class_paths:
            for name, value in self.definitions[path].get("properties", {}).items():
                values.setdefault(name, []).append({key: value[key] for key in value if key != "default"})
        return {"type": "object", "properties": {name: _any_of(schemas) for name, schemas in values.items()}}

    def _values(self, parameter: Parameter) -> Schema:
        """What an argument may be; {} where its annotation does not tell."""
        schema = self._type(parameter.annotation, parameter.source)
        is_none = isinstance(parameter.default, ast.Constant) and parameter.default.value is None
        return _any_of([schema, {"type": "null"}]) if is_none or annotations.admits_none(parameter) else schema

    def _type(self, annotation: ast.expr | None, source: Source, depth: int = 0) -> Schema:
        members = [self._member(member, source, depth + 1) for member in annotations.members(annotation)]
        return _any_of([member for member in members if member is not None])

    def _member(self, member: ast.expr, source: Source, depth: int) -> Schema | None:
        """One type of a union; None for a tensor, which no recipe holds."""
        if depth > signatures.DEPTH:
            return {}
        if isinstance(member, ast.Subscript):
            return self._subscript(member, source, depth)
        parts = signatures.dotted(member)
        name = parts[-1] if parts else ""
        if name == "Tensor":
            return None
        if name in class_names.KINDS:
            return self.kind(class_names.KINDS[name])
        is_builtin = name == "Path" or name not in source.bindings
        if name in PLAIN and is_builtin:
            return {"type": PLAIN[name]}
        if name in (*ARRAYS, *OBJECTS):
            return {"type": "array" if name in ARRAYS else "object"}
        alias = signatures.resolve(source, parts) if parts else None
        if alias is None or isinstance(alias.node, ast.ClassDef) or alias.node is member:
            return {}
        return self._type(alias.node, alias.source, depth)

    def _subscript(self, member: ast.Subscript, source: Source, depth: int) -> Schema:
        name = (signatures.dotted(member.value) or [""])[-1]
        inner = member.slice.elts if isinstance(member.slice, ast.Tuple) else [member.slice]
        if name == "Literal":
            return {"enum": [entry.value for entry in inner if isinstance(entry, ast.Constant)]}
        if name in OBJECTS and len(inner) == 2:
            return {"type": "object", "additionalProperties": self._type(inner[1], source, depth)}
        if name not in ARRAYS:
            return {}
        of_each = [entry for entry in inner if not isinstance(entry, ast.Constant) or entry.value is not ...]
        items = _any_of([self._type(entry, source, depth) for entry in of_each])
        is_fixed = name.lower() == "tuple" and len(of_each) == len(inner)
        length = {"minItems": len(inner), "maxItems": len(inner)} if is_fixed else {}
        return {"type": "array", "items": items, **length}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _spellings(entry: Entry, kind: str) -> list[str]:
    """Names by which a recipe may call a class."""
    short = [entry.name] if class_names.full_path(entry.name, kind) == entry.path else []
    definition = signatures.find(entry.path)
    inner = [definition.class_path] if definition is not None else []
    return list(dict.fromkeys([*short, entry.path, *inner]))


def _name(entries: list[Entry], spellings: dict[str, list[str]]) -> Schema:
    """Names of classes that we know, and any dotted path into modules that we do not."""
    known = {path.rpartition(".")[0].replace(".", r"\.") for path in spellings}
    elsewhere = rf"^(?!({'|'.join(sorted(known))})\.\w+$)[A-Za-z_]\w*(\.\w+)+$" if known else r"^[A-Za-z_]\w*(\.\w+)+$"
    short = [entry for entry in entries if entry.name in spellings[entry.path]]
    return {
        "anyOf": [
            {"enum": [entry.name for entry in short], "enumDescriptions": [entry.summary for entry in short]},
            {"enum": sorted({name for names in spellings.values() for name in names if "." in name})},
            {"type": "string", "pattern": elsewhere, "description": "full path of another class"},
        ]
    }


def _any_of(schemas: list[Schema]) -> Schema:
    """What one of several schemas admits, where unions are taken apart."""
    members: list[Schema] = []
    for schema in schemas:
        members += [member for member in schema.get("anyOf", [schema]) if member not in members]
    if {} in members or not members:
        return {}
    return members[0] if len(members) == 1 and "$ref" not in members[0] else {"anyOf": members}


def _default(parameter: Parameter) -> Schema:
    """The default, where it is a literal that JSON knows."""
    try:
        value = ast.literal_eval(parameter.default) if parameter.default is not None else None
    except ValueError:
        return {}
    is_plain = isinstance(value, str | bool | int | float | list | tuple)
    return {"default": list(value) if isinstance(value, tuple) else value} if is_plain else {}

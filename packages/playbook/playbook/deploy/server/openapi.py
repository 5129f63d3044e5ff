"""What /openapi.json says of requests and answers."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from playbook.deploy.table_rows import typical_row

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]


def record(**properties: Schema) -> Schema:
    """An object that has these entries, and may have more."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def content_of(schema: Schema, media_type: str = "application/json") -> Schema:
    """The content of a request or an answer."""
    return {"content": {media_type: {"schema": schema}}}


def answered(description: str, schema: Schema, media_type: str = "application/json") -> Responses:
    """The answer with status 200."""
    return {200: {"description": description, **content_of(schema, media_type)}}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
TEXTS: Schema = {"type": "array", "items": TEXT}
FILE: Schema = {"type": "string", "format": "binary"}
OPTIONS: Schema = {"type": "object", "additionalProperties": {"type": "number"}}
MODEL = record(
    name=TEXT,
    version=NUMBER,
    versions={"type": "array", "items": NUMBER},
    kind={"enum": ["image", "audio", "text", "prompt", "row", "tensor"]},
    classes=TEXTS,
    row={"type": ["object", "null"], "description": "JSON schema of a row, for a model of tables"},
    options={"type": "object", "additionalProperties": {"enum": ["int", "float"]}},
    audio={"type": ["object", "null"], "description": "how a long recording is divided into windows"},
    target={"type": ["string", "null"], "description": "what a value is"},
    defaults={"type": "object", "additionalProperties": {"type": "number"}},
    example={
        "type": ["object", "null"],
        "description": "of a body; `is_sample` says whether it is a validation sample, and not made up",
        "properties": {"type": TEXT, "is_sample": {"type": "boolean"}},
    },
    streams={"type": "boolean"},
)
MODELS = record(models={"type": "array", "items": MODEL})
STATUS = record(status=TEXT)
CHANGES = record(loaded=TEXTS, removed=TEXTS, failed=TEXTS)
ANSWERS = record(model=TEXT, version=NUMBER, answers={"type": "array", "items": {"type": "object"}, "minItems": 1})

REFUSED = (400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 500, 503, 504)
REFUSALS: Responses = {status: {"description": "refused", **content_of(record(error=TEXT))} for status in REFUSED}


def json_body(source: Schema) -> Schema:
    """A request in JSON, of one input or several."""
    several = {"type": "array", "items": source, "minItems": 1}
    return {
        "type": "object",
        "properties": {"input": source, "inputs": several, "options": OPTIONS},
        "additionalProperties": False,
        "oneOf": [{"required": ["input"]}, {"required": ["inputs"]}],
    }


FORM: Schema = {"type": "object", "properties": {"file": {"type": "array", "items": FILE}, "text": TEXTS}}
FILES = (
    "application/octet-stream",
    "text/plain",
    "text/csv",
    "application/x-ndjson",
    "image/png",
    "image/jpeg",
    "audio/wav",
)
BODIES = {"application/json": json_body({}), "multipart/form-data": FORM, **dict.fromkeys(FILES, FILE)}
ROW_FILES = ("text/csv", "text/tab-separated-values", "application/x-ndjson")
TYPES = {"number": ["number", "null"], "category": ["string", "number", "boolean", "null"], "date": ["string", "null"]}
MOST_EXAMPLES = 50  # categories of a column
DESCRIPTIONS = {"date": "a date, or date and time, in ISO 8601"}
OPTIONS_IN_ADDRESS: Schema = {
    "name": "options",
    "in": "query",
    "description": "Options of the model, each by its name, such as ?top=3.",
    "style": "form",
    "explode": True,
    "schema": OPTIONS,
}


def requested(path: str, takes_input: bool = True) -> Schema:
    """What a request to a model has, for FastAPI's `openapi_extra`."""
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": TEXT}
        for name in ("name", "version")
        if f"{{{name}}}" in path
    ]
    if not takes_input:
        return {"parameters": parameters}
    content = {media_type: {"schema": schema} for media_type, schema in BODIES.items()}
    return {"parameters": [*parameters, OPTIONS_IN_ADDRESS], "requestBody": {"required": True, "content": content}}


def row_schema(plan: Mapping[str, Any]) -> Schema:
    """A row of a table: its columns with their types; null is a missing value, and other columns are not read.

    Args:
        plan: the manifest's `preprocessing`, of the kind table.
    """
    examples, properties = typical_row(plan), {}
    for column in plan["columns"]:
        typical = examples[column["name"]]
        others = [code for code in column.get("codes", ()) if code and code != typical]
        schema: Schema = {"type": TYPES[column["kind"]], "examples": [typical, *others[: MOST_EXAMPLES - 1]]}
        if column["kind"] in DESCRIPTIONS:
            schema["description"] = DESCRIPTIONS[column["kind"]]
        properties[column["name"]] = schema
    return record(**properties) | {"description": "null is a missing value; other columns are not read"}


def add_rows(schema: Schema, rows: Mapping[str, Schema]) -> Schema:
    """Adds the addresses of models of tables, whose inputs have columns of their own.

    Args:
        schema: of the server.
        rows: of each such model, by its name.
    """
    schema = deepcopy(schema)
    for name, row in rows.items():
        schema.setdefault("components", {}).setdefault("schemas", {})[f"{name}.row"] = row
        operation = deepcopy(schema["paths"]["/v1/models/{name}"]["post"])
        operation |= {"summary": f"Answer rows, newest version of {name}", "operationId": f"answer_{name}"}
        operation["parameters"] = [entry for entry in operation["parameters"] if entry["in"] != "path"]
        body = json_body({"$ref": f"#/components/schemas/{name}.row"})
        bodies = {"application/json": body, "multipart/form-data": FORM, **dict.fromkeys(ROW_FILES, FILE)}
        operation["requestBody"]["content"] = {media_type: {"schema": own} for media_type, own in bodies.items()}
        schema["paths"][f"/v1/models/{name}"] = {"post": operation}
    return schema

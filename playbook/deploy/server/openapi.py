"""What /openapi.json says of requests and answers."""

from typing import Any

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
    kind={"enum": ["image", "text", "prompt", "tensor"]},
    classes=TEXTS,
    options={"type": "object", "additionalProperties": {"enum": ["int", "float"]}},
    streams={"type": "boolean"},
)
MODELS = record(models={"type": "array", "items": MODEL})
STATUS = record(status=TEXT)
CHANGES = record(loaded=TEXTS, removed=TEXTS, failed=TEXTS)
ANSWERS = record(model=TEXT, version=NUMBER, answers={"type": "array", "items": {"type": "object"}, "minItems": 1})

REFUSED = (400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 500, 503, 504)
REFUSALS: Responses = {status: {"description": "refused", **content_of(record(error=TEXT))} for status in REFUSED}

JSON_BODY: Schema = {
    "type": "object",
    "properties": {"input": {}, "inputs": {"type": "array", "minItems": 1}, "options": OPTIONS},
    "additionalProperties": False,
    "oneOf": [{"required": ["input"]}, {"required": ["inputs"]}],
}
FORM: Schema = {"type": "object", "properties": {"file": {"type": "array", "items": FILE}, "text": TEXTS}}
FILES = ("application/octet-stream", "text/plain", "text/csv", "application/x-ndjson", "image/png", "image/jpeg")
BODIES = {"application/json": JSON_BODY, "multipart/form-data": FORM, **dict.fromkeys(FILES, FILE)}
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

"""Inputs in JSON, in one object or one a line."""

import base64
import binascii
import io
import json
import re
from itertools import islice
from typing import Any, NoReturn

from playbook.deploy.served import Served
from playbook.deploy.server.limits import Limits
from playbook.deploy.server.payloads.body import Body, Payload, refuse, text_of
from playbook.errors import nearest

JSON_KEYS = ("input", "inputs", "options")
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # halves of a character in JSON, which is no text alone


def from_json(body: Body, served: Served, limits: Limits) -> Payload:
    """One input or several, with options."""
    content = parse_json(body.text.encode())
    if not isinstance(content, dict) or not content.keys() & {"input", "inputs"}:
        refuse(422, 'the body: expected {"input": …} for one input, or {"inputs": […]} for several')
    if unknown := [key for key in content if key not in JSON_KEYS]:
        refuse(422, f"{unknown[0][:80]}: expected one of {', '.join(JSON_KEYS)}{nearest(unknown[0][:80], JSON_KEYS)}")
    if "input" in content and "inputs" in content:
        refuse(422, "input, inputs: expected only one of them")
    sources = [content["input"]] if "input" in content else content["inputs"]
    if not isinstance(sources, list):
        refuse(422, f"inputs: expected a list, got {_called(sources)}")
    options = content.get("options", {})
    if not isinstance(options, dict):
        refuse(422, f'options: expected an object such as {{"top": 3}}, got {_called(options)}')
    if len(sources) <= limits.max_queue:
        sources = [_from_value(source, served, number) for number, source in enumerate(sources)]
    return Payload(sources, options)


def from_lines(body: Body, served: Served, limits: Limits) -> Payload:
    """One input a line."""
    lines = (line for line in io.BytesIO(body.text.encode()) if line.strip())
    values = enumerate(map(parse_json, islice(lines, limits.max_queue + 1)))
    return Payload([_from_value(value, served, number) for number, value in values])


def parse_json(content: bytes) -> Any:
    """Reads JSON strictly: no NaN, no half characters, no endless depth.

    Raises:
        RefusalError: it is not that.
    """
    try:
        value = json.loads(text_of(content), parse_constant=_no_number)
        if SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        refuse(400, "the JSON contains half of a character (a lone surrogate), which is no text")
    except RecursionError:
        refuse(400, "the JSON is nested too deeply")
    except json.JSONDecodeError as error:
        refuse(400, f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}")
    except ValueError as error:  # an integer of thousands of digits
        refuse(400, f"the body is not valid JSON: {str(error).partition(';')[0]}")
    return value


def _no_number(name: str) -> NoReturn:
    refuse(400, f"the JSON contains {name}, expected finite numbers")


def _from_value(source: Any, served: Served, number: int) -> Any:
    """One input in JSON as what `read` takes."""
    if served.kind in ("image", "audio"):
        if not isinstance(source, str):
            refuse(422, f"input {number}: expected an {served.kind} file as base64 text, got {_called(source)}")
        try:
            return base64.b64decode(re.sub(r"^data:[\w/+.-]+;base64,", "", source), validate=True)
        except (binascii.Error, ValueError):
            refuse(422, f"input {number}: is not base64")
    if served.kind in ("text", "prompt"):
        if not isinstance(source, str | dict):
            refuse(422, f"input {number}: expected a text, or a row as an object, got {_called(source)}")
        return source
    if served.kind == "row":
        if not isinstance(source, dict):
            refuse(422, f'input {number}: expected a row as an object, such as {{"age": 39}}, got {_called(source)}')
        for name, value in source.items():
            if isinstance(value, list | dict):
                refuse(422, f"input {number}: {name[:80]}: expected a number or a text, got {_called(value)}")
        return source
    if not isinstance(source, list | dict | int | float):
        refuse(422, f"input {number}: expected numbers in nested lists, or an object of them, got {_called(source)}")
    return source


def _called(value: Any) -> str:
    """What a value is called in JSON."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")

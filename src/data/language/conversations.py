"""Conversations in files: the formats of chat data, and their messages in one form."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from playbook import UserError, decode_text, json_array, nearest, parse_json

ROLES = ("system", "user", "assistant", "tool")
OTHER_NAMES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "developer": "system",
    "function": "tool",
    "function_response": "tool",
    "observation": "tool",
    "tool_response": "tool",
}  # of roles, in other formats
LISTS = ("messages", "conversations", "conversation")  # columns of messages
PROMPTS = ("prompt", "instruction", "question", "query")
ANSWERS = ("completion", "output", "response", "answer")
CONTEXTS = ("input", "context")  # of an instruction
SUFFIXES = (".jsonl", ".json")

Message = dict[str, Any]  # role and content, which are text, and what else a template may read, such as tool_calls
Messages = list[Message]


def read_conversations(file: Path) -> Iterator[tuple[str, Messages | str]]:
    """Reads a file of JSON lines, or a JSON array, also one within an object.

    Yields:
        File and line, or number in an array, such as `train.jsonl:17`, and the conversation, or a sentence that says
        why there is none.

    Raises:
        UserError: the file is empty or not text.
    """
    text = decode_text(file.read_bytes(), f"--data.root: {file.as_posix()}", option="", numbers_line=False)
    is_empty = True
    for number, row in _rows(file, text):
        is_empty = False
        try:
            yield f"{file.name}:{number}", conversation(_parsed(row.text) if isinstance(row, _Line) else row)
        except UserError as error:
            yield f"{file.name}:{number}", str(error)
    if is_empty:
        raise UserError(f"--data.root: {file.as_posix()}: is empty, expected a conversation a line")


def conversation(row: Any) -> Messages:
    """The messages of a row in one of the accepted formats.

    Raises:
        UserError: it is in none of them.
    """
    if isinstance(row, list) and row and all(_is_message(entry) for entry in row):
        return checked_messages(row)
    if isinstance(row, Mapping):
        if column := next((name for name in LISTS if name in row), None):
            return _with_tools(_system(row) + checked_messages(row[column]), row)
        prompt = next((name for name in PROMPTS if name in row), None)
        answer = next((name for name in ANSWERS if name in row), None)
        if prompt and answer:
            return _with_tools([*_turns(row, prompt, "user"), *_turns(row, answer, "assistant")], row)
    keys = ", ".join(map(str, row)) or "none" if isinstance(row, Mapping) else f"{row!r:.80}"
    raise UserError(
        f"expected messages, or prompt and completion, got {keys}; also read are conversations of from and value "
        "(ShareGPT), and instruction, input and output (Alpaca)"
    )


def question(row: Mapping[str, Any]) -> Messages | None:
    """The messages of a row without its answer, for `predict`; None if it holds no such row.

    Raises:
        UserError: the last message is an answer, or a message cannot be used.
    """
    if column := next((name for name in LISTS if name in row), None):
        value = row[column]
        if isinstance(value, str):  # in a table, JSON within a field
            try:
                value = parse_json(value)
            except ValueError as error:
                raise UserError(f"{column}: is not valid JSON: {error}") from error
        messages = _system(row) + checked_messages(value)
        if messages[-1]["role"] == "assistant":
            raise UserError(f"{column}: the last one is the assistant's, expected a message to answer")
        return _with_tools(messages, row)
    prompt = next((name for name in PROMPTS if name in row), None)
    return None if prompt is None else _with_tools(_turns(row, prompt, "user"), row)


def checked_messages(messages: Any) -> Messages:
    """Messages with `role` and `content` as text, whichever names and forms they have.

    Raises:
        UserError: one of them cannot be used.
    """
    if not isinstance(messages, list):
        raise UserError(f"messages: expected a list, got {messages!r:.80}")
    if not messages:
        raise UserError("messages: the conversation is empty, expected at least one message")
    return [_message(message, number) for number, message in enumerate(messages, start=1)]


def text_of_message(message: Message) -> str:
    """Content of a message, and behind it the tools that it calls, as lines of JSON."""
    listed = message.get("tool_calls") or []
    calls = [*(listed if isinstance(listed, list) else [listed]), *filter(None, [message.get("function_call")])]
    calls = [call.get("function", call) if isinstance(call, Mapping) else call for call in calls]
    lines = [message["content"]] if message["content"] else []
    return "\n".join([*lines, *(json.dumps(call, ensure_ascii=False) for call in calls)])


def without_empty_answers(messages: Messages) -> tuple[Messages, int]:
    """The messages without answers that say nothing, and without the turns that ask for them; and their number."""
    rest: Messages = []
    num_empty = 0
    tools = {"tools": messages[0]["tools"]} if "tools" in messages[0] else {}
    for message in messages:
        if message["role"] != "assistant" or text_of_message(message).strip():
            rest.append(message)
            continue
        num_empty += 1
        while rest and rest[-1]["role"] in ("user", "tool"):
            rest.pop()
    return [message | tools if place == 0 else message for place, message in enumerate(rest)], num_empty


class _Line(NamedTuple):
    text: str  # of JSON


def _rows(file: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Number and value of each row."""
    # not splitlines: JSON may hold other separators
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        return
    are_rows = len(lines) > 1 and _is_json(lines[0][1])
    if are_rows or (file.suffix.lower() == ".jsonl" and not lines[0][1].lstrip().startswith("[")):
        yield from ((number, _Line(line)) for number, line in lines)
        return
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        raise UserError(f"--data.root: {file.as_posix()}:{error.lineno}: is not valid JSON: {error.msg}") from error
    except ValueError as error:
        raise UserError(f"--data.root: {file.as_posix()}: is not valid JSON: {error}") from error
    rows = json_array(text)
    is_one = rows is None or all(_is_message(row) for row in rows) or not any(isinstance(row, Mapping) for row in rows)
    yield from [(1, value)] if is_one else enumerate(rows or (), start=1)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parsed(line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise UserError(f"is not valid JSON: {error}") from error


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and bool({"role", "from"} & set(value))


def _system(row: Mapping[str, Any]) -> Messages:
    """The system's message of formats that have it beside the others."""
    text = row.get("system")
    return [{"role": "system", "content": text}] if isinstance(text, str) and text.strip() else []


def _with_tools(messages: Messages, row: Mapping[str, Any]) -> Messages:
    """The same messages; the first one holds the descriptions of tools that the row has beside them."""
    tools = row.get("tools")
    tools = _parsed(tools) if isinstance(tools, str) and tools.strip() else tools
    return [{**messages[0], "tools": tools}, *messages[1:]] if tools else messages


def _turns(row: Mapping[str, Any], column: str, role: str) -> Messages:
    """The prompt or the answer of a row: a text, or a list of messages."""
    value = row[column]
    if isinstance(value, list) and value and all(_is_message(entry) for entry in value):
        return checked_messages(value)
    if not isinstance(value, str):
        raise UserError(f"{column}: expected text, got {value!r:.80}")
    if role == "assistant":
        return [{"role": role, "content": value}]
    contexts = [row[name] for name in CONTEXTS if column != "prompt" and isinstance(row.get(name), str)]
    content = "\n\n".join([value, *(context for context in contexts if context.strip())])
    return [*_system(row), {"role": role, "content": content}]


def _message(message: Any, number: int) -> Message:
    if not _is_message(message):
        raise UserError(f"message {number} has no role; expected one of {', '.join(ROLES)}")
    given = message["role"] if "role" in message else message["from"]
    role = OTHER_NAMES.get(given, given) if isinstance(given, str) else given
    if role not in ROLES:
        raise UserError(
            f"message {number}: role: expected one of {', '.join(ROLES)}, got {given!r}{nearest(str(given), ROLES)}"
        )
    content = message["content"] if "content" in message else message.get("value")
    if isinstance(content, list):
        content = "\n".join(_part(part, number) for part in content)
    if content is None and role == "assistant":  # it calls tools, or says nothing
        content = ""
    if not isinstance(content, str):
        raise UserError(f"message {number}: content: expected text, got {content!r:.80}")
    others = {name: value for name, value in message.items() if name not in ("role", "from", "content", "value")}
    return {"role": role, "content": content, **others}


def _part(part: Any, number: int) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else part
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, Mapping) else part
        raise UserError(f"message {number}: content: expected parts of the type text, got {kind!r:.80}")
    return text

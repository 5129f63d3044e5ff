"""Formats of chat data become the same messages; what is none of them is refused in a line."""

import json
from pathlib import Path
from typing import Any

import pytest

from playbook import UserError
from src.data.language.conversations import (
    conversation,
    question,
    read_conversations,
    text_of_message,
    without_empty_answers,
)

USER, ANSWER = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
SYSTEM = {"role": "system", "content": "Be short."}
CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"messages": [USER, ANSWER], "id": 3}, [USER, ANSWER]),
        ([USER, ANSWER], [USER, ANSWER]),
        ({"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]}, [USER, ANSWER]),
        ({"conversations": [{"from": "human", "value": "2+2?"}], "system": "Be short."}, [SYSTEM, USER]),
        ({"conversation": [{"role": "developer", "content": "Be short."}, USER]}, [SYSTEM, USER]),
        ({"instruction": "2+2?", "input": "", "output": "4"}, [USER, ANSWER]),
        ({"instruction": "Add.", "input": "2, 2", "output": "4"}, [{**USER, "content": "Add.\n\n2, 2"}, ANSWER]),
        ({"instruction": "Add.", "context": "2", "response": "4"}, [{**USER, "content": "Add.\n\n2"}, ANSWER]),
        ({"system": "Be short.", "instruction": "2+2?", "output": "4"}, [SYSTEM, USER, ANSWER]),
        ({"prompt": "2+2?", "completion": "4"}, [USER, ANSWER]),
        ({"prompt": [SYSTEM, USER], "completion": [ANSWER]}, [SYSTEM, USER, ANSWER]),
        ({"question": "2+2?", "answer": "4"}, [USER, ANSWER]),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "2+2"}, {"text": "?"}]}]},
            [{"role": "user", "content": "2+2\n?"}],
        ),
        (
            {
                "messages": [
                    USER,
                    {"role": "assistant", "content": None, "tool_calls": [CALL]},
                    {"role": "function", "content": "4"},
                ]
            },
            [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "4"}],
        ),
        ({"messages": [USER], "tools": '[{"name": "add"}]'}, [{**USER, "tools": [{"name": "add"}]}]),
        ({"messages": [USER], "tools": []}, [USER]),
    ],
)
def test_formats(row: Any, messages: list[dict[str, Any]]) -> None:
    """As in Lightning-AI/litgpt#204, meta-pytorch/torchtune#2405 and NVIDIA-NeMo/Automodel#2375."""
    assert conversation(row) == messages


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"text": "a"}, r"expected messages, or prompt and completion, got text; also read are .*ShareGPT.*Alpaca"),
        ({"chosen": [], "rejected": []}, "got chosen, rejected"),
        (3, "got 3"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type text, got 'image_url'"),
        ({"messages": [{"role": "user", "content": [3]}]}, "message 1: content: expected parts .* text, got 3"),
        ({"messages": [{"from": "humam", "value": "a"}]}, "message 1: role: .* got 'humam'"),
        ({"messages": [USER, {"role": "user", "content": None}]}, "message 2: content: expected text, got None"),
        ({"instruction": "a", "output": 3}, "output: expected text, got 3"),
        ({"messages": [USER], "tools": "["}, "is not valid JSON"),
    ],
)
def test_other_formats_are_refused(row: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        conversation(row)


def test_questions_of_predict() -> None:
    assert question({"conversations": json.dumps([USER])}) == question({"prompt": "2+2?"}) == [USER]
    assert question({"instruction": "Add.", "input": "2"}) == [{"role": "user", "content": "Add.\n\n2"}]
    assert question({"text": "a"}) is None
    for row, sentence in (
        ({"messages": [USER, ANSWER]}, "messages: the last one is the assistant's"),
        ({"messages": "["}, "messages: is not valid JSON"),
    ):
        with pytest.raises(UserError, match=sentence):
            question(row)


def test_calls_of_tools_are_lines_of_json() -> None:
    call = '{"name": "add", "arguments": "{\\"a\\": 2}"}'
    assert text_of_message({**ANSWER, "tool_calls": [CALL]}) == f"4\n{call}"
    assert text_of_message({**ANSWER, "content": "", "function_call": CALL["function"]}) == call
    assert text_of_message({**ANSWER, "content": "", "tool_calls": "add"}) == '"add"'


def test_empty_answers_are_removed_with_their_questions() -> None:
    empty = {"role": "assistant", "content": " \n"}
    other = {"role": "user", "content": "So?"}
    assert without_empty_answers([SYSTEM, USER, empty, other, ANSWER]) == ([SYSTEM, other, ANSWER], 1)
    assert without_empty_answers([SYSTEM, USER, empty]) == ([SYSTEM], 1)
    assert without_empty_answers([USER, {**empty, "tool_calls": [CALL]}]) == (
        [USER, {**empty, "tool_calls": [CALL]}],
        0,
    )
    assert without_empty_answers([{**USER, "tools": [1]}, empty, other]) == ([{**other, "tools": [1]}], 1)


PAIR = {"prompt": "2+2?", "completion": "4"}


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("a.jsonl", f"{json.dumps(PAIR)}\n\n{json.dumps(PAIR)}\n", [1, 3]),
        ("a.json", f"{json.dumps(PAIR)}\n{json.dumps(PAIR)}\n", [1, 2]),
        ("a.json", json.dumps([PAIR, PAIR], indent=2), [1, 2]),
        ("a.jsonl", json.dumps([PAIR, PAIR], indent=2), [1, 2]),
        ("a.jsonl", json.dumps([PAIR, PAIR]), [1, 2]),
        ("a.json", json.dumps({"version": 1, "data": [PAIR]}), [1]),
        ("a.json", json.dumps({"messages": [USER, ANSWER]}, indent=1), [1]),
        ("a.json", json.dumps([[USER, ANSWER], {"conversations": [USER, ANSWER]}]), [1, 2]),
        ("a.json", json.dumps([USER, ANSWER]), [1]),
    ],
)
def test_rows_of_a_file(tmp_path: Path, name: str, text: str, places: list[int]) -> None:
    (tmp_path / name).write_text(text)
    rows = list(read_conversations(tmp_path / name))
    assert rows == [(f"{name}:{place}", [USER, ANSWER]) for place in places]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\n", r"a\.json: is empty, expected a conversation a line"),
        (b'[{"prompt": "a",\n"completion": }]', r"a\.json:2: is not valid JSON: Expecting value"),
        (rb'[{"prompt": "\ud800"}]', r"a\.json: is not valid JSON: .*surrogates"),
        (
            b'["\xff"]',
            r"a\.json: is not text in UTF-8: .* in line 1; expected UTF-8, as from iconv -f latin-1 -t utf-8",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=f"^--data.root: .*{sentence}"):
        list(read_conversations(tmp_path / "a.json"))

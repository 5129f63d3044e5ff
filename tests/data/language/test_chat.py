"""Conversations: which tokens are learnt, packing, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook import UserError
from src.data.language.chat import Chat, _packed, _Renderer, read_conversations
from src.data.language.questions import questions
from src.ops.vocabularies import Bytes, Characters

TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Sure?"},
    {"role": "assistant", "content": "Yes."},
]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def pairs(num: int) -> list[dict[str, str]]:
    return [{"prompt": f"{number}+1?", "completion": str(number + 1)} for number in range(num)]


def ready(data: Chat) -> Any:
    data.setup("fit")
    return data


def learnt(data: Chat, index: int, part: str = "val_set") -> str:
    """What is learnt of a row; | stands where the mark of the end is."""
    _, target = getattr(data, part)[index]
    return "".join("|" if token == 256 else chr(token) for token in target.tolist() if token >= 0)


def test_answers_and_their_ends_alone_are_learnt(tmp_path: Path) -> None:
    file = write(tmp_path / "chat.jsonl", [{"messages": TALK}] * 10)
    data = ready(Chat(str(file), packing=False))
    inputs, target = data.train_set[0]
    text = "System: Be short.|User: 2+2?|Assistant: 4|User: Sure?|Assistant: Yes.|"
    assert "".join("|" if token == 256 else chr(token) for token in inputs["tokens"].tolist()) == text[:-1]
    assert learnt(data, 0) == " 4| Yes.|"
    # each target is the token behind its place
    places = (target >= 0).nonzero()[:, 0].tolist()
    assert [text[place + 1] for place in places] == list(" 4| Yes.|")
    assert data.facts["stop_tokens"] == [256]


def test_both_forms_of_a_line_are_the_same(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    file = write(tmp_path / "chat.jsonl", [{"messages": messages}, "", {"prompt": "2+2?", "completion": "4"}])
    (first, one), (third, other) = read_conversations(file)
    assert one == other == messages
    assert (first, third) == ("chat.jsonl:1", "chat.jsonl:3")


def test_packing_keeps_every_conversation_once_and_restarts_positions(tmp_path: Path) -> None:
    file = write(tmp_path / "chat.jsonl", pairs(40))
    alone, packed = (ready(Chat(str(file), context_length=64, packing=packing)) for packing in (False, True))
    assert len(packed.train_set) * 2 <= len(alone.train_set)
    rows = []
    for index in range(len(packed.train_set)):
        inputs, target = packed.train_set[index]
        assert len(target) <= 64
        for number in range(int(inputs["documents"].max()) + 1):
            own = inputs["documents"] == number
            assert inputs["positions"][own].tolist() == list(range(int(own.sum())))
            rows.append((inputs["tokens"][own].tolist(), target[own].tolist()))
    single = [alone.train_set[index] for index in range(len(alone.train_set))]
    assert sorted(rows) == sorted((inputs["tokens"].tolist(), target.tolist()) for inputs, target in single)


def test_packing_fills_rows() -> None:
    from src.data.language.chat import _Sample

    lengths = [9, 8, 7, 5, 4, 3, 2, 2]  # of which one token each is only predicted
    rows = _packed([_Sample([0] * length, [True] * length, "", []) for length in lengths], 8)
    assert sorted(sum(len(sample.tokens) - 1 for sample in row) for row in rows) == [8, 8, 8, 8]


def test_batches_are_padded_where_nothing_is_learnt(tmp_path: Path) -> None:
    file = write(tmp_path / "chat.jsonl", [{"prompt": "a" * size, "completion": "b"} for size in range(1, 40)])
    for packing, names in ((True, {"tokens", "documents", "positions"}), (False, {"tokens"})):
        data = ready(Chat(str(file), batch_size=8, packing=packing))
        inputs, target = next(iter(data.val_dataloader()))
        assert set(inputs) == names
        assert all(value.shape == target.shape for value in inputs.values())
        is_padding = inputs["tokens"] == 0
        assert is_padding.any()
        assert (target[is_padding] == -100).all()
        if packing:
            assert torch.equal(inputs["documents"] == -1, is_padding)


def test_parts_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", pairs(20))
    write(tmp_path / "test.jsonl", pairs(3))
    data = ready(Chat(str(tmp_path), packing=False))
    assert (len(data.train_set), len(data.val_set), len(data.test_set)) == (18, 2, 3)
    assert data.ids(data.test_set) == ["test.jsonl:1", "test.jsonl:2", "test.jsonl:3"]


def test_generated_questions() -> None:
    rows = questions(500, seed=1)
    assert rows == questions(500, seed=1) != questions(500, seed=2)
    assert len({row[0]["content"] for row in rows}) == 500
    answers = {row[0]["content"]: row[1]["content"] for row in rows}
    for question, answer in answers.items():
        if question.startswith("What is"):
            assert answer == str(eval(question.removeprefix("What is ").removesuffix("?")))
    data = ready(Chat(context_length=128))
    assert len(data.val_set) == 300


def test_prompts_end_where_the_answer_begins(tmp_path: Path) -> None:
    file = write(tmp_path / "chat.jsonl", pairs(20))
    data = ready(Chat(str(file)))
    assert bytes(data.read("2+2?")["tokens"].tolist()[:10]) == b"User: 2+2?"
    expected = [*b"User: 2+2?", 256, *b"Assistant:"]
    text = tmp_path / "question.txt"
    text.write_text("2+2?", encoding="utf-8")
    turn = [{"role": "user", "content": "2+2?"}]
    for source in ("2+2?", {"prompt": "2+2?"}, text, {"messages": turn}, {"messages": json.dumps(turn)}):
        assert data.read(source)["tokens"].tolist() == expected
    inputs, target = data.predict_set[0]
    assert inputs["tokens"].tolist()[-10:] == list(b"Assistant:")
    assert target == -1
    with pytest.raises(UserError, match="last one is the assistant's"):
        data.read({"messages": TALK})
    fresh = Chat()
    fresh.facts = data.facts
    assert fresh.read("2+2?")["tokens"].tolist() == expected


def test_a_vocabulary_without_a_mark_of_the_end_takes_an_empty_line() -> None:
    vocabulary = Characters("".join(sorted(set("User: Assistant:?\nhi"))))
    renderer = _Renderer(vocabulary, "plain")
    tokens, learns = renderer.conversation(
        [{"role": "user", "content": "hi?"}, {"role": "assistant", "content": "hi"}], ""
    )
    assert vocabulary.decode(tokens) == "User: hi?\n\nAssistant: hi\n\n"
    assert vocabulary.decode([token for token, learn in zip(tokens, learns, strict=True) if learn]) == " hi\n\n"
    assert renderer.stop_tokens([]) == [vocabulary.encode("\n\n")]
    with pytest.raises(UserError, match=r"chat\.jsonl:3: vocabulary: the character '☃'"):
        renderer.conversation([{"role": "user", "content": "☃"}], "chat.jsonl:3")


def test_long_conversations_are_cut_and_those_without_an_answer_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*pairs(20), {"prompt": "a", "completion": "b" * 99}, {"prompt": "a" * 99, "completion": "b"}]
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "val.jsonl", pairs(2))
    data = ready(Chat(str(tmp_path), context_length=40, packing=False))
    assert data.counts == {"cut_train": 2, "left_out_train": 1}
    assert len(data.train_set) == 21
    inputs, target = data.train_set[20]
    assert len(inputs["tokens"]) == 40
    assert (target >= 0).sum() == 40 - len("User: a|Assistant:") + 1
    text = capsys.readouterr()
    assert "truncated 2 conversations of train to 40 tokens, such as train.jsonl:21" in text.out
    assert "left out 1 conversations of train without a target token, such as train.jsonl:22" in text.err


def test_empty_answers_copies_and_unread_files_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [{"prompt": f"{number}?", "completion": "yes"} for number in range(5)]
    write(tmp_path / "train.jsonl", [{"prompt": "a", "completion": " "}, *pairs(20), *own])
    (tmp_path / "val.json").write_text(json.dumps([own[0], {"prompt": "new", "completion": "b"}]))
    write(tmp_path / "more.jsonl", pairs(2))
    data = ready(Chat(str(tmp_path)))
    told = capsys.readouterr().err.splitlines()
    assert told == [
        f"warning: left out 1 file (more.jsonl) of {tmp_path.as_posix()}, not read for any split",
        "warning: left out 1 empty answer and its question, in train.jsonl:1",
        "warning: 1 of 2 val conversations also occur in train, such as val.json:1, which equals train.jsonl:22",
    ]
    assert data.counts == {"left_out_files": 1, "left_out_answers": 1}
    write(tmp_path / "val.jsonl", own)
    with pytest.raises(UserError, match=r"holds val\.jsonl and val\.json, expected one file for val"):
        Chat(str(tmp_path)).setup("fit")
    file = write(tmp_path / "empty.jsonl", [{"prompt": "a", "completion": ""}] * 2)
    with pytest.raises(UserError, match=r"has 2 empty answers .*such as empty\.jsonl:1, and no other answer"):
        Chat(str(file)).setup("fit")


def test_rows_that_are_no_conversations_are_left_out_on_request(tmp_path: Path) -> None:
    file = write(tmp_path / "chat.jsonl", [*pairs(20), {"text": "a"}, "{"])
    with pytest.raises(UserError, match=r"chat\.jsonl:21: expected .* --data\.on_error skip leaves .* \(2 of 22\)$"):
        Chat(str(file)).setup("fit")
    data = ready(Chat(str(file), on_error="skip", packing=False))
    assert len(data.train_set) == 16
    assert data.skipped_samples == {"chat.jsonl:21", "chat.jsonl:22"}


def test_turns_of_tools_are_read_but_not_learnt(tmp_path: Path) -> None:
    call = {"function": {"name": "add"}}
    messages = [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ]
    file = write(tmp_path / "chat.jsonl", [{"messages": messages, "tools": [{"name": "add"}]}] * 10)
    sample = ready(Chat(str(file), packing=False)).train_set.rows[0][0]
    read = bytes(token if token < 256 else ord("|") for token in sample.tokens).decode()
    assert read == 'Tools: [{"name": "add"}]|User: 2+2?|Assistant: {"name": "add"}|Tool: 4|Assistant: It is 4.|'
    learnt = [token for token, learns in zip(sample.tokens, sample.learns, strict=True) if learns]
    assert bytes(token if token < 256 else ord("|") for token in learnt) == b' {"name": "add"}| It is 4.|'


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], "chat.jsonl:1: is not valid JSON"),
        ([r'{"prompt": "a", "completion": "\ud800"}'], "chat.jsonl:1: is not valid JSON: .*surrogates"),
        ([], "is empty, expected a conversation a line"),
        ([{"text": "a"}], "chat.jsonl:1: expected messages, or prompt and completion, got text"),
        (["[1]"], r"chat.jsonl:1: expected messages, or prompt and completion, got \[1\]"),
        ([{"prompt": "a", "completion": 1}], "chat.jsonl:1: completion: expected text, got 1"),
        ([{"messages": []}], "chat.jsonl:1: messages: the conversation is empty"),
        ([{"messages": "a"}], "chat.jsonl:1: messages: expected a list, got 'a'"),
        ([{"messages": [{"content": "a"}]}], "chat.jsonl:1: message 1 has no role; expected one of system, user"),
        ([{"messages": [{"role": "usr", "content": "a"}]}], "message 1: role: .* got 'usr'.*user"),
        (pairs(2), r"--data\.val_share: 0\.1 of 2 conversations leaves none for val"),
        ([{"messages": [{"role": "user"}]}], "message 1: content: expected text, got None"),
        ([{"messages": TALK[:2]}] * 9, "none of the 7 conversations of train has a target token"),
        (
            [{"prompt": "a" * 999, "completion": "b"}] * 9,
            "no conversation of train has a target token; .* 256 tokens",
        ),
    ],
)
def test_bad_lines(tmp_path: Path, rows: list[Any], message: str) -> None:
    file = write(tmp_path / "chat.jsonl", rows)
    with pytest.raises(UserError, match=message):
        Chat(str(file)).setup("fit")


def test_bad_options(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="context_length: expected at least 2 tokens, got 1"):
        Chat(context_length=1)
    with pytest.raises(ValueError, match=r"val_share: expected a share in \(0, 1\), got 0"):
        Chat(val_share=0)
    with pytest.raises(ValueError, match="test_share: expected"):
        Chat(test_share=0.95)
    write(tmp_path / "chat.jsonl", pairs(20))
    with pytest.raises(UserError, match=r"no such file or folder.*chat\.jsonl"):
        Chat(str(tmp_path / "chat.json")).setup("fit")
    with pytest.raises(UserError, match=r"expected train\.jsonl in it, found chat\.jsonl"):
        Chat(str(tmp_path)).setup("fit")
    with pytest.raises(UserError, match="only Hugging Face tokenizers take a template"):
        Chat(str(tmp_path / "chat.jsonl"), template="x.jinja").setup("fit")
    with pytest.raises(UserError, match=r"--data\.tokenizer .*: no such folder"):
        Chat(str(tmp_path / "chat.jsonl"), tokenizer="./nowhere/llama").setup("fit")


def test_the_checkpoints_vocabulary_counts(tmp_path: Path) -> None:
    file = write(tmp_path / "chat.jsonl", [{"prompt": "hi", "completion": "it"}] * 20)
    data = Chat(str(file))
    data.facts = {"tokenizer": Characters("Asitanuer: \nh,U").plain()}
    data.setup("fit")
    assert data.facts["tokenizer"]["kind"] == "characters"
    assert Bytes().plain() != data.facts["tokenizer"]

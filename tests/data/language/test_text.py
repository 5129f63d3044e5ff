"""Text: windows that hold every token once, the parts, prompts, and what it says of files that it cannot read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from playbook import UserError, split_indices
from src.data.language import text as text_data
from src.data.language.prompts import collate
from src.data.language.text import Text
from src.data.language.windows import IGNORED, Windows
from src.ops.vocabularies import vocabulary_from

LETTERS = "".join(chr(97 + i % 26) for i in range(1000))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "input.txt"
    path.write_text(LETTERS)
    return str(path)


def set_up(root: str | None, **options: Any) -> Any:
    data = Text(root, context_length=options.pop("context_length", 16), **options)
    data.setup("fit")
    return data


@pytest.mark.parametrize("num_tokens", [2, 7, 8, 9, 16, 17, 33])
def test_evaluation_predicts_every_token_but_the_first_once(num_tokens: int) -> None:
    tokens = np.arange(num_tokens, dtype=np.uint16)
    samples = [Windows(tokens, 8, pad=99)[index] for index in range(len(Windows(tokens, 8, 99)))]
    targets = torch.cat([target for _, target in samples])
    assert targets[targets != IGNORED].tolist() == list(range(1, num_tokens))
    for inputs, target in samples:
        told = target != IGNORED
        assert torch.equal(inputs["tokens"][told], target[told] - 1), "each token stands before its target"
        assert (inputs["tokens"][~told] == 99).all()


def test_a_file_is_cut_where_it_stands(file: str) -> None:
    data = set_up(file, val_share=0.1, test_share=0.2)
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    parts = [data.train_tokens, data.val_set.tokens, data.test_set.tokens]
    texts = [vocabulary.decode(part.tolist()) for part in parts]
    assert [len(text) for text in texts] == [700, 100, 200]
    assert "".join(texts) == LETTERS
    assert data.facts["context_length"] == 16


def test_training_windows_begin_anywhere_and_are_a_function_of_seed_and_epoch(file: str) -> None:
    batches = []
    for num_workers in (0, 2):
        data = set_up(file, num_workers=num_workers, batch_size=4)
        (inputs, target), *_ = [*data.train_dataloader()]
        assert torch.equal(inputs["tokens"][:, 1:], target[:, :-1])
        batches.append(inputs["tokens"])
    assert torch.equal(*batches)
    windows = set_up(file).train_set
    samples = [windows[epoch, 1, 1] for epoch in range(200)]
    firsts = {int(inputs["tokens"][0]) for inputs, _ in samples}
    assert firsts == set(windows.tokens[16:32].tolist()), "a window begins up to T - 1 tokens later"
    keys = [(3, index, index) for index in range(len(windows))]
    inputs, targets = windows.__getitems__(keys)
    assert torch.equal(inputs["tokens"], torch.stack([windows[key][0]["tokens"] for key in keys]))
    assert torch.equal(targets, torch.stack([windows[key][1] for key in keys])), "alone as in a batch"
    other = set_up(file)
    other.train_set.seed = 1
    assert not torch.equal(inputs["tokens"], other.train_set.__getitems__(keys)[0]["tokens"])


def test_a_folder_is_cut_by_file_and_documents_have_an_end(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(f"{number}" * 40 + "0123456789")
    data = set_up(str(tmp_path), val_share=0.2, test_share=0.2)
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    parts = [data.train_tokens, data.val_set.tokens, data.test_set.tokens]
    ends = [int((part == vocabulary.end).sum()) for part in parts]
    assert ends == [6, 2, 2]


def test_a_checkpoints_vocabulary_wins(file: str, tmp_path: Path) -> None:
    first = set_up(file)
    other = tmp_path / "other.txt"
    other.write_text("cab" * 300)
    second = Text(str(other), context_length=16)
    second.facts = dict(first.facts)
    second.setup("test")
    assert second.facts["tokenizer"] == first.facts["tokenizer"]
    third = Text(str(other), "bytes", context_length=16)
    third.facts = dict(first.facts)
    with pytest.raises(UserError, match=r"--data.vocabulary bytes: the checkpoint has 26 characters .*expected char"):
        third.setup("test")


def test_prompts_come_from_texts_rows_and_files(file: str, tmp_path: Path) -> None:
    data = set_up(file)
    prompt = tmp_path / "prompt.md"
    prompt.write_text("abc")
    for source in ("abc", {"text": "abc", "id": 3}, {"text": "no", "prompt": "abc"}, prompt, b"abc"):
        assert data.read(source)["tokens"].tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="expected a column prompt or text, got body"):
        data.read({"body": "abc"})
    with pytest.raises(UserError, match=r"the character 'Z'"):
        data.read("aZ")
    with pytest.raises(UserError, match="prompt is empty"):
        data.read("")
    assert data.read("a" * 17)["tokens"].tolist() == [0] * 17, "generation leaves out what exceeds the context"
    with pytest.raises(UserError, match="expected text, got 3"):
        data.read({"text": 3})


def test_prompts_of_different_lengths_are_padded_on_the_left() -> None:
    samples: list[Any] = [({"tokens": torch.tensor(tokens)}, -1) for tokens in ([5, 6, 7], [8])]
    inputs, target = collate(samples)
    assert inputs["tokens"].tolist() == [[5, 6, 7], [0, 0, 8]]
    assert inputs["documents"].tolist() == [[0, 0, 0], [-1, -1, 0]]
    assert inputs["positions"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert target.tolist() == [-1, -1]
    assert set(collate(samples[:1])[0]) == {"tokens"}


def test_without_input_the_evaluated_text_gives_prompts(file: str) -> None:
    data = set_up(file, context_length=8)
    (inputs, _), *_ = [*data.predict_dataloader()]
    assert inputs["tokens"].shape == (8, 4)
    assert data.ids(data.predict_set)[:2] == ["val:0", "val:8"]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", {}, r"--data.root .*input\.txt: is empty"),
        (b"a" * 10, {}, "the train part is too short, expected over 16 tokens"),
        (b"ab\xff" * 100, {}, r"input\.txt: is not text in UTF-8"),
        (b"a" * 900 + b"b" * 100, {}, "the character 'b' in 'b"),
    ],
)
def test_text_that_does_not_do_is_told(tmp_path: Path, content: bytes, options: dict[str, Any], message: str) -> None:
    (tmp_path / "input.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        set_up(str(tmp_path / "input.txt"), **options)


@pytest.mark.parametrize("large_bytes", [text_data.LARGE_BYTES, 0])
def test_the_file_of_an_unknown_character_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    monkeypatch.setattr(text_data, "LARGE_BYTES", large_bytes)
    root = tmp_path / "texts"
    root.mkdir()
    for name in "abcd":
        (root / f"{name}.txt").write_text(LETTERS)
    (place,) = split_indices(4, [0.75, 0.25])[1]
    name = "abcd"[place]
    (root / f"{name}.txt").write_text("abc é")
    with pytest.raises(UserError, match=rf"--data.root: .*texts/{name}\.txt: vocabulary: the character ' '"):
        set_up(str(root), val_share=0.25, cache=str(tmp_path / "cache"))


def test_files_that_are_left_out_are_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "texts"
    root.mkdir()
    for name in "abcdefgh":
        (root / f"{name}.txt").write_text(LETTERS)
    (root / "empty.txt").write_text("")
    (root / "table.csv").write_text("a,b")
    data = set_up(str(root), suffixes=[".txt"])
    assert data.counts == {"left_out_files": 2}
    told = capsys.readouterr().err.splitlines()
    assert told == [
        f"warning: left out 1 files of other suffixes (1 .csv), such as {root.as_posix()}/table.csv",
        f"warning: left out 1 file ({root.as_posix()}/empty.txt), which hold no text",
    ]
    (root / "a.png").write_bytes(b"\x89PNG\r\n")
    (root / "z.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(UserError, match=r"\w\.png: is not text in UTF-8: .*--data\.suffixes \[\.txt\] reads only such"):
        set_up(str(root))
    data = set_up(str(root), on_error="skip")
    assert data.skipped_samples == {f"{root.as_posix()}/{name}.png" for name in "az"}


def test_packing_says_what_it_cuts_and_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    texts = [LETTERS[:3], LETTERS[:400], ""] * 20
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    data = set_up(str(file), packing=True, vocabulary="bytes", cache=str(tmp_path / "cache"))
    told = capsys.readouterr().err
    num_cut, num_empty = data.counts["documents_in_pieces"], data.counts["left_out_documents"]
    assert num_cut > 5 < num_empty
    assert f"cut {num_cut} longer documents of train into pieces of --data.context_length 16 tokens" in told
    assert f"left out {num_empty} documents of train without a token to predict" in told


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--data.root .*nowhere: no such file or folder"):
        set_up(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="expected at least one file per split, found 0"):
        set_up(str(tmp_path))


@pytest.mark.parametrize(
    ("option", "value"),
    [("vocabulary", "words"), ("context_length", 1), ("val_share", 0.0), ("test_share", 0.95)],
)
def test_options_out_of_range_are_errors(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option}: expected"):
        Text("input.txt", **{option: value})
    with pytest.raises(ValueError, match="vocab_size: expected at least 258 for bpe, got 257"):
        Text("input.txt", "bpe", vocab_size=257)


@pytest.mark.slow
def test_the_standard_library_is_text_of_its_own(tmp_path: Path) -> None:
    data = set_up(None, vocabulary="bytes", val_share=0.05, test_share=0.05, cache=str(tmp_path))
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    assert len(data.train_tokens) > 5_000_000
    assert "def " in vocabulary.decode(data.val_set.tokens[:20_000].tolist())

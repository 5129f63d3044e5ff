"""Files of tokens: the same bytes after a kill, by any number of processes, and what is said of broken ones."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from playbook import UserError
from src.data.language import token_files
from src.data.language.text import Text
from src.data.language.token_files import SPLITS, open_tokens, plan_parts, texts_of, write_tokens
from src.ops.vocabularies import Bytes, Characters, vocabulary_from
from tests.conftest import ROOT

SHARES = [0.7, 0.2, 0.1]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    draw = random.Random(0)
    texts = ["".join(draw.choices("abcé \n", k=draw.randint(0, 80))) for _ in range(300)]
    file = tmp_path / "corpus.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}, ensure_ascii=bool(len(text) % 2)) for text in texts))
    return file


def documents(file: Path) -> list[str]:
    return [json.loads(line)["text"] for line in file.read_text().split("\n")]


def set_up(file: Path, **options: Any) -> Any:
    data = Text(str(file), "bytes", context_length=16, cache=str(file.parent / "cache"), **options)
    data.setup("fit")
    return data


def test_every_document_is_in_one_split_with_its_end(corpus: Path) -> None:
    data = set_up(corpus, val_share=0.2, test_share=0.1)
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    texts, shares = [], []
    for tokens in (data.train_tokens, data.val_set.tokens, data.test_set.tokens):
        rows = np.split(tokens[:], np.flatnonzero(tokens[:] == vocabulary.end) + 1)
        assert len(rows[-1]) == 0, "the last document has an end, too"
        texts += [vocabulary.decode(row.tolist()) for row in rows[:-1]]
        shares.append((len(rows) - 1) / 300)
    assert sorted(texts) == sorted(documents(corpus))
    assert shares == pytest.approx(SHARES, abs=0.08)


@pytest.mark.parametrize("part_bytes", [1, 50, 1000, 2**20])
def test_parts_hold_all_text_once(
    tmp_path: Path, corpus: Path, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "PART_BYTES", part_bytes)
    text = "\n".join(documents(corpus))
    file = tmp_path / "whole.txt"
    file.write_bytes(text.encode())
    parts = plan_parts([(file, None)], SHARES)
    rows = [row for part in parts for row in texts_of(part, SHARES)]
    assert "".join(text for _, text, _ in rows) == text
    assert [split for split in SPLITS if any(row[0] == split for row in rows)] == list(SPLITS)
    assert sum(ends for _, _, ends in rows) == 3
    lines = [row for part in plan_parts([(corpus, None)], SHARES) for row in texts_of(part, SHARES)]
    assert [text for _, text, _ in lines] == documents(corpus)


def test_an_interrupted_writing_goes_on_to_the_same_bytes(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "PART_BYTES", 1000)
    parts = plan_parts([(corpus, None)], SHARES)
    assert len(parts) > 5
    write_tokens(tmp_path / "whole", parts, SHARES, Bytes())
    token_files._write_part((tmp_path / "rest", 2, parts[2], SHARES, Bytes().plain()))  # alone, before a kill
    (tmp_path / "rest" / "parts" / "000003.train").write_bytes(b"not finished")
    done = token_files._done(tmp_path / "rest", 2)
    written = done.stat().st_mtime_ns
    marks = []
    monkeypatch.setattr(token_files.shutil, "rmtree", lambda folder: marks.append(done.stat().st_mtime_ns))
    write_tokens(tmp_path / "rest", parts, SHARES, Bytes())
    assert marks == [written], "a finished part is not written again"
    for name in ("train.bin", "val.bin", "test.bin", "tokens.json"):
        assert (tmp_path / "rest" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


PROGRAM = """
import sys
from pathlib import Path
from src.data.language import token_files
from src.ops.vocabularies import Bytes
if __name__ == "__main__":
    token_files.PART_BYTES = 200_000
    parts = token_files.plan_parts([(Path(sys.argv[1]), None)], [0.9, 0.1, 0.0])
    token_files.write_tokens(Path(sys.argv[2]), parts, [0.9, 0.1, 0.0], Bytes())
"""


@pytest.mark.slow
def test_kill_9_amid_the_writing_changes_no_byte(tmp_path: Path) -> None:
    corpus, program = tmp_path / "corpus.jsonl", tmp_path / "program.py"
    corpus.write_text("\n".join(json.dumps({"text": f"{number} " * 300}) for number in range(15_000)))
    program.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = [sys.executable, str(program), str(corpus)]
    subprocess.run([*run, str(tmp_path / "whole")], env=environment, check=True)
    process = subprocess.Popen([*run, str(tmp_path / "killed")], env=environment)
    deadline = time.monotonic() + 120
    while not (done := list((tmp_path / "killed").glob("parts/*.done"))) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert done, "killed amid the parts"
    assert not (tmp_path / "killed" / "tokens.json").exists()
    subprocess.run([*run, str(tmp_path / "killed")], env=environment, check=True)
    for name in ("train.bin", "val.bin", "tokens.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_file_of_tokens_travels_without_its_content(corpus: Path) -> None:
    tokens = set_up(corpus).train_tokens
    first = tokens[:5]
    copy = pickle.dumps(tokens)
    assert len(copy) < 1000 < len(tokens)
    assert np.array_equal(pickle.loads(copy)[:5], first)


def test_a_resumed_run_uses_the_same_files(corpus: Path) -> None:
    first = set_up(corpus)
    second: Any = Text(str(corpus), "bytes", context_length=16, cache=str(corpus.parent / "cache"))
    second.facts = dict(first.facts)
    second.prepare_data()
    second.setup("fit")
    assert second.train_tokens.path == first.train_tokens.path


def test_broken_files_of_tokens_are_told(corpus: Path) -> None:
    path = set_up(corpus).train_tokens.path
    content = path.read_bytes()
    with pytest.raises(UserError, match=r"has tokens of 258 bytes .* the checkpoint has 3 characters"):
        open_tokens(path.parent, Characters("abc"))
    path.write_bytes(content[:-4])
    with pytest.raises(UserError, match=r"train\.bin: has .* bytes, expected .*: it is truncated; delete"):
        set_up(corpus)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=r"train\.bin: is damaged"):
        set_up(corpus)
    manifest = path.with_name("tokens.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 0}))
    with pytest.raises(UserError, match="is of version 0, expected 1"):
        set_up(corpus)
    manifest.write_text("{")
    with pytest.raises(UserError, match=r"tokens\.json: cannot be read"):
        set_up(corpus)
    vocabulary = path.parents[1] / "bytes.json"
    vocabulary.write_text(vocabulary.read_text()[:-2])
    with pytest.raises(UserError, match=r"bytes\.json: is damaged; delete it"):
        set_up(corpus)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": "a"', r"corpus\.jsonl:301: is not valid JSON"),
        (b'{"body": "a"}', r"corpus\.jsonl:301: expected a JSON object with text, .* got \{'body': 'a'\}"),
        (b'{"text": 3}', r"corpus\.jsonl:301: expected a JSON object with text, .* got \{'text': 3\}"),
        (b"3", r"corpus\.jsonl:301: expected a JSON object with text, .* got 3"),
        (rb'{"text": "\ud800"}', r"corpus\.jsonl:301: is not valid JSON: .*surrogates"),
        (b'{"text": "\xff"}', r"corpus\.jsonl: is not text in UTF-8 at byte"),
    ],
)
def test_a_broken_line_is_told_with_its_number(corpus: Path, line: bytes, message: str) -> None:
    corpus.write_bytes(corpus.read_bytes() + b"\n" + line)
    with pytest.raises(UserError, match=message):
        set_up(corpus)


def test_packed_documents_come_as_the_task_expects(corpus: Path) -> None:
    data = set_up(corpus, packing=True, batch_size=4)
    inputs, target = next(iter(data.train_dataloader()))
    assert {name: tuple(value.shape) for name, value in inputs.items()} == dict.fromkeys(
        ("tokens", "documents", "positions"), (4, 16)
    )
    assert target.shape == (4, 16)
    assert data.counts["documents_in_pieces"] > 0
    (corpus.parent / "one.txt").write_text("abc" * 500)
    with pytest.raises(UserError, match=r"--data.packing: 3 characters .* have no end-of-document token"):
        Text(str(corpus.parent / "one.txt"), context_length=16, packing=True).setup("fit")


def test_large_text_has_the_same_windows_as_small_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "input.txt"
    file.write_text("".join(f"{number}\n" for number in range(1000)))
    small: Any = Text(str(file), context_length=16)
    small.setup("fit")
    monkeypatch.setattr("src.data.language.text.LARGE_BYTES", 1000)
    large: Any = Text(str(file), context_length=16, cache=str(tmp_path / "cache"))
    large.setup("fit")
    assert large.facts == small.facts
    first, second = (np.concatenate([data.train_tokens[:], data.val_set.tokens[:]]) for data in (small, large))
    assert np.array_equal(first, second)
    assert 0 <= len(large.train_tokens) - len(small.train_tokens) < 4, "cut at the end of the line"

"""Texts with a class each: the forms of files, their faults by line, and a vocabulary that travels."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook.errors import UserError
from playbook.testing.command import Cli
from src.data.language.labelled_text import LabelledText
from src.ops.vocabularies import vocabulary_from

GOOD, BAD = ("a fine film", "a great and moving story", "I loved it"), ("dull", "a bad , boring film", "I hated it")
RECIPE = """
model:
  class_path: Classification
  init_args:
    num_classes: 2
    net: {class_path: TextEncoder, init_args: {vocab_size: 40, num_layers: 1, dim: 8, num_heads: 2}}
data: {class_path: LabelledText, init_args: {root: reviews, batch_size: 4, bucket: 2}}
trainer: {max_epochs: 1}
"""


def rows(num: int = 6) -> list[tuple[str, str]]:
    return [(GOOD[i // 2 % 3], "good") if i % 2 else (BAD[i // 2 % 3], "bad") for i in range(num)]


def write(file: Path, entries: list[tuple[Any, Any]], header: bool = True) -> Path:
    """A table in the form of its suffix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".jsonl":
        lines = [json.dumps({"text": text, "label": label}) for text, label in entries]
    else:
        separator = "," if file.suffix == ".csv" else "\t"
        quote = '"' if file.suffix == ".csv" else ""
        lines = [f"text{separator}label"] * header
        lines += [f"{quote}{text}{quote}{separator}{label}" for text, label in entries]
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, num in (("train", 12), ("dev", 4), ("test", 6)):
        write(tmp_path / "reviews" / f"{name}.csv", rows(num))
    return tmp_path / "reviews"


def made(root: Path, **options: Any) -> LabelledText:
    settings: dict[str, Any] = {"batch_size": 4} | options
    data = LabelledText(str(root), **settings)
    data.setup("fit")
    return data


def texts_of(data: LabelledText, dataset: Any) -> list[tuple[str, str]]:
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    samples = [dataset[index] for index in range(len(dataset))]
    return [(vocabulary.decode(inputs["tokens"].tolist()), data.facts["classes"][k]) for inputs, k in samples]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("dev", ["dev", "val", "valid", "validation"])
def test_files_of_each_form(tmp_path: Path, suffix: str, dev: str) -> None:
    for name, num in (("train", 12), (dev, 4), ("test", 6)):
        write(tmp_path / f"{name}.{suffix}", rows(num))
    data = made(tmp_path)
    lower = [(text.lower(), label) for text, label in rows(12)]
    assert data.facts["classes"] == ["bad", "good"]
    assert data.facts["class_counts"] == [6, 6]
    for part, num in ((data.train_set, 12), (data.val_set, 4), (data.test_set, 6)):
        assert texts_of(data, part) == lower[:num]
    first = 1 if suffix == "jsonl" else 2  # behind the header
    assert data.ids(data.test_set) == [f"test.{suffix}:{line}" for line in range(first, first + 6)]


def test_batches_are_padded_to_their_longest_text(root: Path) -> None:
    data = made(root)
    for inputs, target in data.val_dataloader():
        tokens, mask = inputs["tokens"], inputs["mask"]
        assert tokens.dtype == target.dtype == torch.int64
        assert mask.dtype == torch.bool
        assert tokens.shape == mask.shape == (4, 5)
        assert mask.sum(dim=1).tolist() == [1, 3, 5, 5]
        assert not (mask[:, 1:] & ~mask[:, :-1]).any(), "padding is behind the text"
        assert not tokens[~mask].any()


def test_table_without_header_and_with_names_of_labels(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.tsv", [(text, int(label == "good")) for text, label in rows()], header=False)
    data = made(tmp_path, header=False, class_names={"0": "negative", "1": "positive"})
    assert data.facts["classes"] == ["negative", "positive"]
    assert [label for _, label in texts_of(data, data.train_set)] == ["negative", "positive"] * 3
    assert data.test_set is None
    with pytest.raises(UserError, match=r"train.tsv:\d: expected a label of 0, 2, got 1"):
        made(tmp_path, header=False, class_names={"0": "negative", "2": "positive"})


def test_integers_are_sorted_by_number(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [(f"text {k}", k) for k in (10, 9, -1)] * 2)
    write(tmp_path / "dev.jsonl", [("text", 9)])
    assert made(tmp_path).facts["classes"] == ["-1", "9", "10"]
    write(tmp_path / "train.jsonl", [(f"text {k}", k) for k in (10, 9, "--1")] * 2)
    assert made(tmp_path).facts["classes"] == ["--1", "10", "9"]


def test_quotes_and_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('label,text\na,"one, ""two""\nthree"\nb,"four"\n', newline="")
    (tmp_path / "dev.tsv").write_text('text\tlabel\n"one\ta\n"a ""b"" c"\tb\r\nfour"\tb\n', newline="")
    data = made(tmp_path, vocabulary="bytes")
    assert texts_of(data, data.train_set) == [('one, "two"\nthree', "a"), ("four", "b")]
    assert data.ids(data.train_set) == ["train.csv:3", "train.csv:4"]
    assert texts_of(data, data.val_set) == [('"one', "a"), ('a "b" c', "b"), ('four"', "b")]


def test_a_field_may_be_a_book(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", [("word " * 30_000, "long"), ("word", "short")] * 2)
    data = made(tmp_path, val_share=0.25, max_length=40_000)
    assert int(data.train_set.lengths.max()) == 30_000  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_single_file_is_cut(tmp_path: Path, is_folder: bool) -> None:
    file = write(tmp_path / "all.csv", [(f"text {i}", "ab"[i % 2]) for i in range(20)])
    data = made(tmp_path if is_folder else file, val_share=0.2, test_share=0.1, min_count=1)
    parts = [data.ids(part) for part in (data.train_set, data.val_set, data.test_set)]
    assert [len(part) for part in parts] == [14, 4, 2]
    assert sorted(name for part in parts for name in part) == sorted(f"all.csv:{line}" for line in range(2, 22))
    again = made(file, val_share=0.2, test_share=0.1)
    assert again.ids(again.val_set) == parts[1]
    words = data.facts["tokenizer"]["words"]
    seen = {word for text, _ in texts_of(data, data.train_set) for word in text.split()}
    assert set(words) == seen, "the vocabulary is of the training part alone"


def test_validation_is_cut_from_train_and_the_test_stays(root: Path) -> None:
    (root / "dev.csv").unlink()
    data = made(root, val_share=0.25)
    assert (len(data.train_set), len(data.val_set), len(data.test_set)) == (9, 3, 6)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.csv", "", r"train.csv: is empty, expected rows"),
        ("train.csv", "text,label\n", r"train.csv: is empty"),
        ("train.csv", "text,label\na,x\nb\n", r"train.csv:3: expected 2 fields \(text, label\), got 1"),
        ("train.csv", "text,label\na,x\n ,y\n", r"train.csv:3: the text is empty; --data.on_error skip leaves such"),
        ("train.csv", "text,label\na,x\nb,\n", r"train.csv:3: the label is empty"),
        ("train.csv", "txt,label\na,x\n", r"train.csv:2: expected a column text, .* got txt, label. Nearest: txt"),
        ("train.csv", "text,labels\na,x\n", r"train.csv:2: expected a column label, .* got text, labels. Nearest: lab"),
        ("train.csv", "one,1\ntwo,0\n", r"got one, 1"),
        ("train.csv", "text,label\na,x\nb,x\n", r"train.csv: every text has the label x, expected two or more classes"),
        (
            "dev.csv",
            "text,label\na,good\nb,goof\n",
            r"dev.csv:3: training had no class goof, but bad, good. Nearest: g",
        ),
        ("train.jsonl", '{"text": "a", "label": 1}\n{"text"\n', r"train.jsonl:2: is not valid JSON: "),
        (
            "train.jsonl",
            '{"text": "\\ud83d\\ude00 \\ud83d", "label": 1}\n',
            r"train.jsonl:1: is not valid JSON: .*surrogates",
        ),
        ("train.jsonl", '{"text": 3, "label": 1}\n', r"train.jsonl:1: expected a text, got 3"),
        ("train.jsonl", '{"text": "a", "label": null}\n', r"train.jsonl:1: expected a label, got None"),
        ("train.jsonl", "[1]\n", r"train.jsonl:1: expected an object, got \[1\]"),
    ],
)
def test_faults_are_named_by_file_and_line(root: Path, name: str, content: str, message: str) -> None:
    if name.startswith("train"):
        (root / "train.csv").unlink()
    (root / name).write_text(content)
    with pytest.raises(UserError, match=f"^--data.root: .*{message}"):
        made(root)


def test_files_that_cannot_be_used(root: Path, tmp_path: Path) -> None:
    (root / "test.csv").write_bytes(b"text,label\nfine,good\n\xff\xfe,bad\n")
    with pytest.raises(UserError, match=r"test.csv:3: is not text in UTF-8"):
        made(root)
    (root / "test.csv").unlink()
    write(root / "val.tsv", rows())
    with pytest.raises(UserError, match=r"holds dev.csv and val.tsv, expected one file for val"):
        made(root)
    (root / "val.tsv").unlink()
    with pytest.raises(UserError, match=r"--data.root \S*/nowhere: no such file or folder"):
        made(tmp_path / "nowhere")
    (root / "train.csv").rename(root / "trian.csv")
    with pytest.raises(UserError, match=r"expected \S*reviews/train.\*, a file of .csv.*Nearest: trian"):
        made(root)


def test_files_of_the_hub(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    features = {"label": {"names": ["negative", "positive"], "_type": "ClassLabel"}, "sentence": {"_type": "Value"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    for number in range(2):
        table = pa.table({"sentence": [f"a good film {number}", f"no film {number}"], "label": [1, 0]})
        table = table.replace_schema_metadata(metadata)
        parquet.write_table(table, tmp_path / f"train-0000{number}-of-00002.parquet")
    parquet.write_table(table, tmp_path / "validation-00000-of-00001.parquet")
    data = made(tmp_path)
    assert data.facts["classes"] == ["negative", "positive"]
    assert data.ids(data.train_set) == [f"train-0000{i}-of-00002.parquet:{row}" for i in (0, 1) for row in (1, 2)]
    assert [target for _, target in (data.train_set[index] for index in range(4))] == [1, 0, 1, 0]
    (tmp_path / "validation-00000-of-00001.parquet").write_bytes(b"PAR")
    with pytest.raises(UserError, match=r"validation-00000-of-00001.parquet: is no Parquet file"):
        made(tmp_path)


def test_rows_are_left_out_on_request(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root / "train.csv", [*rows(), ("", "good"), ("…", "")])
    write(root / "dev.csv", [*rows(2), ("fine", "goof")])
    data = made(root, on_error="skip")
    assert (len(data.train_set), len(data.val_set)) == (6, 2)  # type: ignore[arg-type]
    assert data.skipped_samples == {
        f"{root.as_posix()}/{place}" for place in ("train.csv:8", "train.csv:9", "dev.csv:4")
    }
    told = capsys.readouterr().err
    assert re.search(r"skipped \S*train.csv:8: the text is empty", told)
    assert re.search(r"skipped \S*dev.csv:4: training had no class goof", told)


def test_longer_texts_are_cut_and_counted_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(root, max_length=4)
    data.setup("test")
    expected = sum(len(text.split()) > 4 for num in (12, 4, 6) for text, _ in rows(num))
    assert data.counts["cut_texts"] == expected > 0
    assert data.train_set.lengths.max() == 4  # type: ignore[attr-defined]
    told = [line for line in capsys.readouterr().err.splitlines() if "max_length" in line]
    assert told == [f"warning: --data.max_length 4: truncated {expected} longer texts, such as train.csv:4"]


def test_a_quote_that_swallows_rows_ends_the_run_or_leaves_out_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"text {number},{'ab'[number % 2]}" for number in range(40)]
    lines[20] = '"He said,a'
    file = tmp_path / "all.csv"
    file.write_text("\n".join(["text,label", *lines, '"Yes" she said,b']) + "\n")
    with pytest.raises(
        UserError,
        match=r"all.csv:22: the quote .* not closed: .*line 42.*--data.quotes false .*such rows out \(1 of 41\)$",
    ):
        made(file)
    texts = made(file, quotes=False, vocabulary="bytes")
    assert [len(part) for part in (texts.train_set, texts.val_set, texts.test_set)] == [33, 4, 4]  # type: ignore[arg-type]
    data = made(file, on_error="skip")
    assert sum(map(len, (data.train_set, data.val_set, data.test_set))) == 40  # type: ignore[arg-type]
    assert data.skipped_samples == {f"{file.as_posix()}:22"}
    file.write_text('"text,label\na,b\n')
    with pytest.raises(UserError, match=r"all.csv:1: the quote"):
        made(file, on_error="skip")
    capsys.readouterr()
    file.write_text("\n".join(["text,label", *lines[:20], '"two,a', 'rows",b']) + "\n")
    made(file)
    told = [line for line in capsys.readouterr().err.splitlines() if "several rows" in line]
    assert len(told) == 1
    assert f"{file.as_posix()}:22: a quoted field looks like several rows" in told[0]


def test_other_separators_and_encodings(tmp_path: Path) -> None:
    entries = [("café; olé", "gut"), ("naïve", "schlecht")] * 5
    for name, separator in (("a.csv", ";"), ("a.tsv", "|"), ("b.csv", "\t")):
        lines = [f'"{text}"{separator}{label}' for text, label in entries]
        content = "\n".join([f"text{separator}label", *lines]) + "\n"
        for encoding in ("latin-1", "utf-16", "utf-8-sig"):
            (tmp_path / name).write_bytes(content.encode(encoding))
            option = "\\t" if separator == "\t" else separator
            data = made(tmp_path / name, separator=option, encoding=encoding, vocabulary="bytes", test_share=0)
            assert texts_of(data, data.train_set)[0] in entries
            assert data.read(tmp_path / name)["tokens"].tolist() == list(content.encode())
            if encoding != "utf-8-sig":
                with pytest.raises(
                    UserError, match=rf"a?b?\.\wsv:\d: is not text .*; expected --data.encoding {encoding}$"
                ):
                    made(tmp_path / name, separator=option)
        with pytest.raises(UserError, match=rf'expected --data.separator "{re.escape(option)}"$'):
            made(tmp_path / name)
    with pytest.raises(ValueError, match=r"separator: expected one character, such as ; or \\t, got ';;'"):
        LabelledText("a", separator=";;")
    with pytest.raises(ValueError, match="encoding: expected an encoding such as utf-8"):
        LabelledText("a", encoding="latin-99")


def test_skipping_is_no_remedy_where_it_leaves_out_every_row(tmp_path: Path) -> None:
    file = write(tmp_path / "all.csv", [("", "a"), ("", "b")])
    for on_error in ("stop", "skip"):
        with pytest.raises(UserError, match=r"all\.csv:2: the text is empty$"):
            made(file, on_error=on_error)
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.csv", rows() if name == "train" else [("fine", "positive")])
    with pytest.raises(UserError, match=r"dev\.csv:2: training had no class positive, but bad, good$"):
        made(tmp_path)


def test_a_column_that_is_used_has_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "all.csv"
    file.write_text("id,text,id,label\n" + "".join(f"{i},text {i},{i},{'ab'[i % 2]}\n" for i in range(20)))
    assert made(file).facts["classes"] == ["a", "b"]
    file.write_text(file.read_text().replace("text 3", "text\0"))
    made(file)
    assert f"warning: --data.root: {file.as_posix()}:5: contains a character of code 0" in capsys.readouterr().err
    file.write_text("text,text,label\na,b,c\n")
    with pytest.raises(UserError, match=r"all\.csv:1: two columns are called text, expected one"):
        made(file)


def test_a_line_of_a_tsv_with_part_of_a_quoted_field(tmp_path: Path) -> None:
    file = tmp_path / "all.tsv"
    file.write_text('text\tlabel\none\ta\n"two\nlines"\tb\n')
    with pytest.raises(UserError, match=r"all\.tsv:3: expected 2 fields .* got 1; every line of a TSV is a row"):
        made(file)


def test_copies_alike_classes_and_unread_files_are_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root / "train.csv", [*rows(), ("a", "Good"), ("b", "1"), ("c", "1.0")])
    write(root / "dev.csv", [("new", "good")])
    write(root / "test.csv", [(GOOD[0], "good"), ("other", "bad"), ("new", "good")])
    write(root / "more.csv", rows())
    (root / "test.xlsx").write_bytes(b"")
    (root / "notes.md").write_text("")
    data = made(root)
    place = root.as_posix()
    assert capsys.readouterr().err.splitlines() == [
        f"warning: left out 2 files (more.csv, test.xlsx) of {place}, not read for any split",
        "warning: --data.root: 1 and 1.0 count as two classes of 1, 1.0, Good, bad, good",
        "warning: --data.root: Good and good count as two classes of 1, 1.0, Good, bad, good",
        "warning: 2 of 3 test texts also occur in train or val, such as test.csv:2, which equals train.csv:3",
    ]
    assert data.counts == {"left_out_files": 2}


def test_a_long_input_is_said_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made(root, max_length=5)
    capsys.readouterr()
    for text in ("short", "one two three four five six", "one two three four five six seven"):
        data.read(text)
    assert capsys.readouterr().err == (
        "warning: --data.max_length 5: longer texts are truncated, the first is 'one two three four five six'…\n"
    )


def test_classes_and_vocabulary_of_a_checkpoint_count(root: Path) -> None:
    facts = made(root).facts
    write(root / "test.csv", [("I loved unheard words", "good")])
    data = LabelledText(str(root))
    data.facts = {**facts, "classes": ["good", "unused", "bad"]}
    (root / "train.csv").write_text("")  # not read: that would be an error
    data.setup("test")
    assert texts_of(data, data.test_set) == [("i loved <unk> <unk>", "good")]
    assert data.test_set[0][1] == 0  # type: ignore[index]


def test_another_vocabulary_than_the_checkpoints_is_an_error(root: Path) -> None:
    data = LabelledText(str(root), vocabulary="bytes")
    data.facts = dict(made(root).facts)
    with pytest.raises(
        UserError, match=r"--data.vocabulary bytes: the checkpoint has \d+ words \(\w+\); expected words"
    ):
        data.setup("fit")


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "bpe"])
def test_reads_what_evaluation_gets(root: Path, tmp_path: Path, kind: Any) -> None:
    data = made(root, vocabulary=kind, vocab_size=300)
    text = GOOD[1]
    file = tmp_path / "review.txt"
    file.write_text(text)
    expected = next(inputs for inputs, _ in map(data.train_set.__getitem__, range(12)) if len(inputs["tokens"]) and
                    data.read(text)["tokens"].equal(inputs["tokens"]))  # fmt: skip
    for source in (text, {"review": text, "other": 1}, file, text.encode()):
        found = data.read(source)
        assert all(torch.equal(found[name], expected[name]) for name in ("tokens", "mask"))
    for source, message in (
        (" ", "the text is empty"),
        ({"txt": "a"}, "expected a column text, .*, got txt. Nearest: txt; expected --data.text_column txt"),
        (b"\xff", "is not text in UTF-8"),
        ({"text": 3}, "expected a text, got 3"),
    ):
        with pytest.raises(UserError, match=message):
            data.read(source)


@pytest.mark.slow
def test_a_run_from_training_to_predictions_of_rows(cli: Cli, root: Path) -> None:
    Path("recipe.yaml").write_text(RECIPE)
    options = ("--data.root", str(root), "--model.class_weights", "auto", "--run_dir", "run")
    done = cli("fit", "--config", "recipe.yaml", *options)
    assert done.code == 0, done.err
    write(root.parent / "new.csv", [("a great film", ""), ("boring", "")])
    done = cli("predict", "--ckpt_path", "run", "--input", str(root.parent / "new.csv"))
    assert done.code == 0, done.err
    table = next(path for path in Path("run/predictions").rglob("*.csv") if path.is_file()).read_text().splitlines()
    assert [line.split(",")[0] for line in table[1:]] == ["new.csv:2", "new.csv:3"], table
    assert all(line.split(",")[1] in ("bad", "good") for line in table[1:])
    done = cli("test", "--ckpt_path", "run", "--data.vocabulary", "bytes")
    assert done.code == 2
    assert "--data.vocabulary bytes: the checkpoint has" in done.err
    done = cli("fit", "--config", "recipe.yaml", *options[:2], "--run_dir", "small", "--model.net.vocab_size", "5")
    assert done.code == 2
    message = r"--model.net.vocab_size: expected at least \d+, as in the data, got 5"
    assert re.search(message, done.err), done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": "word"}, "vocabulary: expected one of words, characters, bytes, bpe, got word"),
        ({"max_length": 0}, "max_length: expected at least 1 token, got 0"),
        ({"vocab_size": 2}, "vocab_size: expected at least 3 for words, got 2"),
        ({"vocab_size": 100, "vocabulary": "bpe"}, "vocab_size: expected at least 258 for bpe, got 100"),
        ({"min_count": 0}, "min_count: expected at least 1, got 0"),
        ({"val_share": 0.0}, r"val_share: expected a share in \(0, 1\), got 0.0"),
        ({"test_share": 0.9}, r"test_share: expected a share in \[0, 1 - val_share\), got 0.9"),
        ({"class_names": {"0": "a", "1": "a"}}, "class_names: expected different names, got a, a"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabelledText("nowhere", **options)

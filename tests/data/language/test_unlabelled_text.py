"""Texts without labels: the forms of files, pieces of long texts, gaps in inputs, and faults."""

import json
from pathlib import Path
from typing import Any

import pytest

from playbook import UserError
from src.data.language.unlabelled_text import UnlabelledText
from src.ops.vocabularies import MASK, vocabulary_from


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews" / "0_0.txt").write_text("Good.<br /><br />I don't mind\n\nBad .\n")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": f"row {i}"}) + "\n" for i in range(6)))
    (tmp_path / "train.tsv").write_text("a fine film\t1\na dull film\t0\n")
    return tmp_path


def made(*sources: Path, **options: Any) -> UnlabelledText:
    data = UnlabelledText([str(source) for source in sources], val_share=0.3, **options)
    data.setup("fit")
    return data


def texts_of(data: UnlabelledText) -> dict[str, str]:
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    return {
        name: vocabulary.decode(part[i]["tokens"].tolist())
        for part in (data.train_set, data.val_set)
        for i, name in enumerate(data.ids(part))
    }


def test_texts_of_every_form_of_file(root: Path) -> None:
    data = made(root / "reviews", root / "train.tsv", header=False)
    names = ["0_0.txt:1", "0_0.txt:3", "train.tsv:1", "train.tsv:2"]
    assert sorted(texts_of(data)) == names
    assert set(data.ids(data.val_set)).isdisjoint(data.ids(data.train_set))
    texts = [texts_of(data)[name].split() for name in names]
    assert [len(text) for text in texts] == [6, 2, 3, 3], "good . i do n't mind"


def test_long_texts_are_cut_into_pieces(root: Path) -> None:
    whole, cut = made(root / "reviews", root / "rows.jsonl"), made(root / "reviews", root / "rows.jsonl", max_length=4)
    assert cut.train_set.lengths.max() <= 4  # type: ignore[attr-defined]
    pieces = texts_of(cut)
    assert f"{pieces['0_0.txt:1']} {pieces['0_0.txt:1:4']}" == texts_of(whole)["0_0.txt:1"]


def test_gaps_of_an_input_are_mask_tokens(root: Path) -> None:
    data = made(root / "rows.jsonl")
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    row = vocabulary.encode("row")[0]
    assert data.read("row <mask> Row <mask>")["tokens"].tolist() == [row, vocabulary.special[MASK]] * 2
    assert data.read({"text": "row"})["mask"].tolist() == [True]
    with pytest.raises(UserError, match="the text is empty"):
        data.read(" ")


def test_byte_pairs(root: Path) -> None:
    pytest.importorskip("tokenizers")
    data = made(root / "rows.jsonl", vocabulary="bpe", vocab_size=300)
    vocabulary = vocabulary_from(data.facts["tokenizer"])
    assert vocabulary.special[MASK] in data.read("row <mask>")["tokens"]
    assert set(texts_of(data).values()) == {f"row {i}" for i in range(6)}


def test_another_vocabulary_than_the_checkpoints_is_an_error(root: Path) -> None:
    data = UnlabelledText([str(root / "rows.jsonl")], vocabulary="bpe", val_share=0.3)
    data.facts = dict(made(root / "rows.jsonl").facts)
    with pytest.raises(UserError, match=r"--data.vocabulary bpe: the checkpoint has .* words"):
        data.setup("fit")


def test_what_is_left_out_is_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.csv").write_text("text;n\nfilm;1\n ;2\n" + "".join(f"a film {i};3\n" for i in range(40)) + '"open;1\n')
    (folder / "b.txt").write_bytes("caf\xe9\n\nol\xe9\n".encode("latin-1"))
    (folder / "c.pdf").write_bytes(b"")
    options: dict[str, Any] = {"separator": ";", "encoding": "latin-1"}
    with pytest.raises(UserError, match=r"^--data\.sources: \S*a\.csv:44: the quote that opens a field"):
        made(folder, **options)
    data = made(folder, on_error="skip", **options)
    assert len(data.train_set) + len(data.val_set) == 43  # type: ignore[arg-type]
    assert data.counts == {"left_out_files": 1, "left_out_rows": 1}
    assert data.skipped_samples == {f"{folder.as_posix()}/a.csv:44"}
    told = capsys.readouterr().err
    assert "left out 1 rows without a text, such as a.csv:3" in told
    assert f"left out 1 files that hold no lines or rows (1 .pdf), such as {folder.as_posix()}/c.pdf" in told
    with pytest.raises(UserError, match=r"b\.txt:1: is not text in UTF-8: .*--data.encoding latin-1"):
        made(folder / "b.txt")
    (folder / "d.jsonl").write_text('{"text": 3}\n')
    with pytest.raises(UserError, match=r"d\.jsonl:1: expected a text, got 3"):
        made(folder / "d.jsonl")


def test_faults_are_named(root: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        made(root / "nowhere")
    with pytest.raises(UserError, match=r"train.tsv:2: expected a column text, .*film, 1; .*--data.header false"):
        made(root / "train.tsv")
    (root / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: expected files of .txt, .csv"):
        made(root / "empty")
    (root / "reviews" / "0_1.txt").write_text("\n")
    with pytest.raises(UserError, match=r"0_1.txt: holds no text"):
        made(root / "reviews")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sources": []}, "sources: expected at least one file or folder, got none"),
        ({"vocabulary": "word"}, "vocabulary: expected words or bpe, got word"),
        ({"vocab_size": 3}, "vocab_size: expected at least 4 for words, got 3"),
        ({"min_count": 0}, "min_count: expected at least 1, got 0"),
        ({"max_length": 1}, "max_length: expected at least 2 tokens, got 1"),
        ({"val_share": 1.0}, r"val_share: expected a share in \(0, 1\), got 1.0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UnlabelledText(**{"sources": ["nowhere"], **options})

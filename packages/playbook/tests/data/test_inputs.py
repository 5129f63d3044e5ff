"""Which files an input means, and that data without `read` says how to write one."""

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from playbook import Data
from playbook.data.inputs import Inputs
from playbook.data.sources import Sources, find_sources
from playbook.errors import HowTo, UserError

FORMATS = (".png", ".jpg")

WANTED = "expected a column path, file, image, filename or file_name of paths, got "


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"x")


def test_a_file_is_called_by_its_name_whatever_its_suffix() -> None:
    write("a/photo.heic")
    sources = find_sources("a/photo.heic", FORMATS)
    assert (sources.names, sources.places, len(sources)) == (["photo.heic"], [Path("a/photo.heic")], 1)


def test_a_folder_is_taken_with_what_is_below_it() -> None:
    write("in/b.png", "in/a.JPG", "in/deep/er/c.png", "in/notes.txt", "in/.hidden.png", "in/.cache/d.png")
    sources = find_sources("in", FORMATS)
    assert sources.names == ["a.JPG", "b.png", "deep/er/c.png"]
    assert sources.places == [Path("in") / name for name in sources.names]
    assert find_sources("in", ()).names == ["a.JPG", "b.png", "deep/er/c.png", "notes.txt"]


def test_other_files_of_a_folder_are_counted_by_suffix(capsys: pytest.CaptureFixture[str]) -> None:
    write("in/a.png", "in/b.heic", "in/deep/c.HEIC", "in/notes")
    assert find_sources("in", FORMATS).names == ["a.png"]
    assert capsys.readouterr().err == (
        "warning: --input in: left out 3 files of other formats: 2 .heic, 1 without suffix, such as in/b.heic; "
        "uv sync --extra heic reads .heic\n"
    )
    find_sources("in", ())
    assert not capsys.readouterr().err


def test_links_are_followed_once() -> None:
    write("in/a.png", "elsewhere/b.png")
    os.symlink("../elsewhere", "in/link")
    os.symlink("..", "in/loop")
    names = find_sources("in", FORMATS).names
    assert "link/b.png" in names
    assert names.count("a.png") == 1
    assert len(names) == len(set(names)) < 5, names


def test_a_glob_names_files_from_its_first_wildcard_on() -> None:
    write("in/x/1.png", "in/y/2.png", "in/y/z/3.png", "in/y/4.txt")
    assert find_sources("in/*/*.png", FORMATS).names == ["x/1.png", "y/2.png"]
    assert find_sources("in/**/*.png", FORMATS).names == ["x/1.png", "y/2.png", "y/z/3.png"]
    assert find_sources("in/y/*", FORMATS).names == ["2.png", "4.txt"]
    assert find_sources(str(Path("in/x").absolute() / "?.png"), FORMATS).names == ["1.png"]


LISTS = {
    "plain.txt": "a.png\n\n  deep/b.png  \n",
    "table.csv": 'label,path\ncat,a.png\ndog,"deep/b.png"\n',
    "table.tsv": "file\tlabel\na.png\tcat\ndeep/b.png\tdog\n",
    "spaced.csv": " image , label\na.png,cat\n deep/b.png ,dog\n",
    "mark.csv": "\ufefffilename\na.png\ndeep/b.png\n",
    "lines.jsonl": '{"file_name": "a.png"}\n\n"deep/b.png"\n',
    "two.csv": "image,path\nwrong,a.png\nwrong,deep/b.png\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_paths_in_a_list_are_relative_to_it(name: str) -> None:
    write("lists/a.png", "lists/deep/b.png", "a.png")
    file = Path("lists") / name
    file.write_text(LISTS[name], encoding="utf-8")
    sources = find_sources(str(file), FORMATS)
    assert sources.names == ["a.png", "deep/b.png"]
    assert sources.places == [Path("lists/a.png"), Path("lists/deep/b.png")]


def test_paths_in_a_list_may_be_relative_to_the_working_directory_or_absolute(place: Path) -> None:
    write("pictures/a.png", "other/b.png")
    Path("lists").mkdir()
    absolute = (place / "other/b.png").as_posix()
    Path("lists/l.txt").write_text(f"pictures/a.png\n{absolute}\nnowhere.png\n")
    sources = find_sources("lists/l.txt", FORMATS)
    assert sources.names == ["pictures/a.png", absolute, "nowhere.png"]
    assert sources.places == [Path("pictures/a.png"), Path(absolute), Path("lists/nowhere.png")]


BROKEN = {
    "column.csv": (
        "name,label\na.png,cat\n",
        "column.csv:2: expected a column path, file, image, filename or file_name of paths, got name",
    ),
    "cell.csv": ("path,label\na.png,cat\n,dog\n", "cell.csv:3: path is empty"),
    "short.tsv": ("label\tpath\ncat\ta.png\ndog\n", "short.tsv:3: path is empty"),
    "no_rows.csv": ("path\n", "no_rows.csv: the list is empty"),
    "empty.csv": ("", "empty.csv: the list is empty"),
    "empty.txt": ("\n \n", "empty.txt: the list is empty"),
    "empty.jsonl": ("\n", "empty.jsonl: the list is empty"),
    "cut.jsonl": ('{"path": "a.png"}\n{"path": \n', "cut.jsonl:2: is not valid JSON"),
    "key.jsonl": (
        '\n{"name": "a.png"}\n',
        "key.jsonl:2: expected a column path, file, image, filename or file_name of paths, got name",
    ),
    "half.jsonl": ('{"path": "\\ud800"}\n', "half.jsonl:1: is not valid JSON: 'utf-8' codec can't encode"),
    "number.jsonl": ('{"path": 3}\n', "number.jsonl:1: expected the path of a file, got 3"),
    "list.jsonl": ('["a.png"]\n', "list.jsonl:1: expected the path of a file, got ['a.png']"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_list_is_told_in_a_line(name: str) -> None:
    text, message = BROKEN[name]
    Path(name).write_text(text)
    with pytest.raises(UserError) as told:
        find_sources(name, FORMATS)
    assert str(told.value).startswith(f"--input {message}")
    assert "\n" not in str(told.value)


ROWS = {
    "l.csv": (
        'label,text\n1,"two\nlines"\n0, b \n',
        [(3, {"label": "1", "text": "two\nlines"}), (4, {"label": "0", "text": " b "})],
    ),
    "l.tsv": ("text\ta\nb\tc\n", [(2, {"text": "b", "a": "c"})]),
    "quotes.tsv": (
        'text\n"open\nshut"\n"a ""b"""\n',
        [(2, {"text": '"open'}), (3, {"text": 'shut"'}), (4, {"text": 'a "b"'})],
    ),
    "book.csv": (f"text\n{'x' * 140_000}\n", [(2, {"text": "x" * 140_000})]),
    "l.jsonl": ('{"text": "a\\u2028"}\n\n"b"\n', [(1, {"text": "a\u2028"}), (3, "b")]),
    "l.txt": ("a b \r\n\n c\n", [(1, "a b "), (3, " c")]),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_the_inputs_of_data_that_reads_rows(name: str) -> None:
    text, rows = ROWS[name]
    Path(name).write_text(text, newline="")
    sources = find_sources(name, (), ("prompt", "text"))
    assert sources.names == [f"{name}:{line}" for line, _ in rows]
    assert sources.places == [row for _, row in rows]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a film\t1\nnone\t0\n", [{"1": "a film", "2": "1"}, {"1": "none", "2": "0"}]),
        ("label\ttext\n1\ta film\n", [{"label": "1", "text": "a film"}]),
    ],
)
def test_tables_of_data_without_headers_may_have_one(text: str, rows: list[dict[str, str]]) -> None:
    Path("l.tsv").write_text(text)
    sources = find_sources("l.tsv", (), ("1", "text"), header=False)
    assert sources.places == rows
    assert sources.names == [f"l.tsv:{line}" for line in range(3 - len(rows), 3)]


def test_files_are_whole_texts_and_may_stand_in_a_list() -> None:
    write("in/a.md", "in/b.txt")
    Path("l.csv").write_text("path\nin/a.md\n")
    assert find_sources("in", (), ("text",)).places == [Path("in/a.md"), Path("in/b.txt")]
    assert find_sources("in/a.md", (), ("text",)).places == [Path("in/a.md")]
    assert find_sources("l.csv", (), ("text",)).places == [Path("in/a.md")]


def test_lines_of_standard_input_are_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\ufeffü b\r\n\n c\u2028d\f\n".encode())))
    sources = find_sources("-", (), ("text",))
    assert (sources.names, sources.places) == (["stdin:1", "stdin:3"], ["ü b", " c\u2028d\f"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l.csv", "txt,label\na,b\n", r"--input l\.csv:2: expected a column prompt or text, got txt, label"),
        ("l.jsonl", "3\n", r"--input l\.jsonl:1: expected a text or a row with prompt or text, got 3"),
    ],
)
def test_rows_without_a_text_are_told_in_a_line(name: str, text: str, message: str) -> None:
    Path(name).write_text(text)
    with pytest.raises(UserError, match=message):
        find_sources(name, (), ("prompt", "text"))


def test_a_text_in_place_of_a_file_is_told_how_to_be_given() -> None:
    with pytest.raises(UserError, match="no such file or folder; to pass a text itself, use standard input"):
        find_sources("ROMEO:", (), ("text",))


def test_a_list_that_is_no_text() -> None:
    Path("l.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"--input l\.txt: is not text in UTF-8"):
        find_sources("l.txt", FORMATS)


def test_a_quote_that_swallows_rows_is_told() -> None:
    Path("l.csv").write_text('text,label\na,1\n"b,0\nc,1\n"d" e,0\n')
    with pytest.raises(UserError, match=r"^--input l\.csv:3: the quote that opens a field in this line is not closed"):
        find_sources("l.csv", (), ("text",))
    places = find_sources("l.csv", (), ("text",), quotes=False).places
    assert [row["text"] for row in places] == ["a", '"b', "c", '"d" e']
    Path("l.csv").write_text('path\n"a.png\nb.png\n')
    with pytest.raises(UserError, match=r"^--input l\.csv:2: the quote"):
        find_sources("l.csv", FORMATS)


def test_tables_of_another_form() -> None:
    Path("l.csv").write_bytes("text;label\ncaf\xe9, ol\xe9;1\n".encode("latin-1"))
    sources = find_sources("l.csv", (), ("text",), separator=";", encoding="latin-1")
    assert sources.places == [{"text": "café, olé", "label": "1"}]
    with pytest.raises(UserError, match=r"is not text in UTF-8: .* in line 2; expected --data\.encoding latin-1$"):
        find_sources("l.csv", (), ("text",), encoding="utf-8")
    with pytest.raises(UserError, match=r"expected UTF-8, as from iconv -f latin-1 -t utf-8$"):
        find_sources("l.csv", ())
    Path("l.csv").write_text("text;label\na;1\n")
    with pytest.raises(UserError, match=r'expected a column text, got text;label; expected --data.separator ";"$'):
        find_sources("l.csv", (), ("text",))


def test_rows_with_other_numbers_of_fields_are_counted_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l.csv").write_text("text,label\na,1,,\nb, c,1\nd\n")
    places = find_sources("l.csv", (), ("text",)).places
    assert places == [{"text": "a", "label": "1"}, {"text": "b", "label": " c"}, {"text": "d", "label": ""}]
    assert capsys.readouterr().err == (
        "warning: --input l.csv:3: left out the fields after them: 2 rows without exactly 2 fields, the first with 3\n"
    )
    Path("l.tsv").write_text("text\tlabel\nd\n")
    find_sources("l.tsv", (), ("text",))
    assert "l.tsv:2: read the missing ones as empty: 1 row without exactly 2 fields" in capsys.readouterr().err


def test_a_column_that_is_read_has_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l.csv").write_text("id,text,id\n1,a\0,2\n")
    assert find_sources("l.csv", (), ("text",)).places == [{"id": "2", "text": "a\0"}]
    assert capsys.readouterr().err.startswith("warning: --input l.csv:2: contains a character of code 0")
    Path("l.csv").write_text("text,text\na,b\n")
    with pytest.raises(UserError, match=r"^--input l\.csv:1: two columns are called text, expected one$"):
        find_sources("l.csv", (), ("text",))


def test_a_json_array_has_rows() -> None:
    rows = [{"text": "a"}, "b"]
    for value in (rows, {"data": rows}):
        Path("l.json").write_text(json.dumps(value))
        sources = find_sources("l.json", (), ("text",))
        assert (sources.names, sources.places) == (["l.json:1", "l.json:2"], rows)
    assert find_sources("l.json", ()).places == [Path("l.json")], "a file of data that reads no rows"
    for content in (b'{"text": "a"}', b"\xff"):
        Path("l.json").write_bytes(content)
        assert find_sources("l.json", (), ("text",)).places == [Path("l.json")]


def test_nothing_there_is_told_in_a_line() -> None:
    write("in/notes.txt", "photos/a.png")
    cases = {
        "photo": r"--input photo: no such file or folder\. Nearest: photos",
        "no/such/folder": r"--input no/such/folder: no such file or folder$",
        "in": r"--input in: the folder contains no files of \.png, \.jpg",
        "photos/*.jpg": r"--input photos/\*\.jpg: no file matches",
    }
    for spec, message in cases.items():
        with pytest.raises(UserError, match=message):
            find_sources(spec, FORMATS)
    Path("empty").mkdir()
    with pytest.raises(UserError, match=r"the folder contains no files$"):
        find_sources("empty", ())


def read_from(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    return find_sources("-", FORMATS)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00", b"ab\0cd\n"], ids=["not text", "zeros"])
def test_standard_input_may_be_one_file(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = read_from(content, monkeypatch)
    assert (sources.names, sources.places) == (["-"], [content])


def test_standard_input_may_be_a_path_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = read_from("a.png\r\n\n grün/b.png\n".encode(), monkeypatch)
    assert (sources.names, sources.places) == (["a.png", "grün/b.png"], [Path("a.png"), Path("grün/b.png")])


def test_empty_standard_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--input -: standard input is empty"):
        read_from(b" \n", monkeypatch)


class Lengths(Data):
    """Reads how long a file is."""

    def read(self, source: Any) -> Tensor:
        return torch.tensor([float(len(source if isinstance(source, bytes) else source.read_bytes()))])


def test_data_without_read_is_shown_the_method() -> None:
    sources = Sources(["a"], [b"a"])
    for data, name in ((Data(), "Data"), (None, "the model alone")):
        with pytest.raises(HowTo) as told:
            Inputs(data, sources)
        lines = str(told.value).splitlines()
        assert lines[0] == f"--input: {name} cannot read a single input. Add this method:"
        assert [line.strip().split("#")[0].strip() for line in lines[1:4]] == [
            "def read(self, source):",
            "image = ...",
            "return image",
        ]
        assert len(lines) == 5


def test_whole_images_need_a_read_that_may_leave_the_size() -> None:
    with pytest.raises(UserError, match=r"--tile: Lengths\.read has no parameter resize, so it resizes all images"):
        Inputs(Lengths(), Sources(["a"], [b"a"]), whole=True)


def test_batches_come_in_the_order_of_the_sources() -> None:
    places = [b"x" * length for length in (3, 1, 2)]
    data = Lengths(batch_size=2)
    batches = list(Inputs(data, Sources(["a", "b", "c"], places)).predict_dataloader())
    assert [inputs.flatten().tolist() for inputs, _ in batches] == [[3, 1], [2]]
    assert [targets.tolist() for _, targets in batches] == [[-1, -1], [-1]]


def test_samples_that_are_predicted_already_are_left_out() -> None:
    data = Lengths(batch_size=2)
    inputs = Inputs(data, Sources(["a", "b", "c"], [b"x", b"xx", b"xxx"]))
    inputs.trainer = SimpleNamespace(predicting=True, world_size=1, global_rank=0)  # type: ignore[assignment]
    data.predicted = {1}
    loader = inputs.predict_dataloader()
    assert [batch[0].flatten().tolist() for batch in loader] == [[1, 3]]
    assert list(loader.indices) == [[0, 2]]  # type: ignore[attr-defined]  # it is Playbook's


def test_data_may_bring_its_facts_up_to_date_before_it_reads() -> None:
    class Moved(Lengths):
        def prepare_read(self) -> None:
            self.facts["place"] = "new"

    data = Moved()
    data.facts = {"place": "old"}
    inputs = Inputs(data, Sources(["a"], [b"a"]))
    inputs.setup("predict")
    assert inputs.facts == {"place": "new"}


def test_a_missing_file_is_named(place: Path) -> None:
    Path("l.txt").write_text("nowhere.png\n")
    inputs = Inputs(Lengths(), find_sources("l.txt", FORMATS))
    with pytest.raises(UserError, match=r"input sample 0 \(nowhere\.png\): FileNotFoundError"):
        list(inputs.predict_dataloader())


def test_a_row_that_cannot_be_read_is_named(place: Path) -> None:
    Path("l.csv").write_text("text\na\n\nb\n")
    inputs = Inputs(Lengths(), find_sources("l.csv", (), ("text",)))
    with pytest.raises(
        UserError, match=r"input sample 0 \(l\.csv:2\): .*; --data\.on_error skip leaves such inputs out"
    ):
        list(inputs.predict_dataloader())


def test_a_quoted_name_may_hold_a_line_break() -> None:
    Path("list.csv").write_text('name,path\none,"a\nb.png"\ntwo,c.png\n')
    assert list(find_sources("list.csv", FORMATS).names) == ["a\nb.png", "c.png"]

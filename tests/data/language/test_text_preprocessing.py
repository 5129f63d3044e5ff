"""An exported model reads texts as `read` does: the same tokens, or an error where `read` has one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playbook import Data, UserError
from playbook.data.sources import find_sources
from playbook.deploy.runtime import InputError
from playbook.deploy.runtime.texts import TextReader, rows_of
from playbook.deploy.runtime.vocabularies import load_vocabulary
from src.data.language.chat import Chat
from src.data.language.labelled_text import LabelledText
from src.data.language.text import Text
from src.data.language.unlabelled_text import UnlabelledText
from src.ops.vocabularies import END, MASK, PAD, Characters, learn_vocabulary, standalone, vocabulary_from

TRAINING = [
    "It's a film that doesn't work, isn't it? We'll see 42 of them.",
    "Größe und Straße — naïve café, 東京 и Москва 😀👩‍👩‍👧!",
    "def f(x):\n\treturn x**2  # naïve\r\n",
    "<|end|> <mask> <unk> user: Assistant:",
]
TEXTS = st.text(max_size=60) | st.lists(
    st.sampled_from([*" \n\t'’", *" ".join(TRAINING).split(" "), "don't", "\u0130", "ǆ", "<|pad|>", "[CLS]", "n't"])
).map(" ".join)


def save_pretrained(folder: Path, frames: bool) -> dict[str, Any]:
    """A small tokenizer of Hugging Face, of word pieces with [CLS] … [SEP], or of bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]") if frames else models.BPE())
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    if frames:
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    tokenizer.train_from_iterator(TRAINING, trainer)
    if frames:
        pair = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=pair)
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="[SEP]", **names).save_pretrained(folder)
    from src.ops.vocabularies import Pretrained

    return Pretrained(str(folder)).plain()


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tokenizers")
    texts = [*TRAINING, "".join(map(chr, range(32, 127)))]
    return {
        "words": learn_vocabulary("words", texts, 200, special=[MASK]).plain(),
        "characters": Characters("".join(sorted(set("".join(texts)))), [END, PAD]).plain(),
        "plain characters": learn_vocabulary("characters", texts).plain(),
        "bytes": learn_vocabulary("bytes", texts).plain(),
        "bpe": learn_vocabulary("bpe", texts, 400, special=[MASK]).plain(),
        "word pieces": save_pretrained(folder / "pieces", frames=True),
        "pretrained bytes": save_pretrained(folder / "bytes", frames=False),
    }


KINDS = ["words", "characters", "plain characters", "bytes", "bpe", "word pieces", "pretrained bytes"]


def reading_of(data: Data, tokenizer: dict[str, Any], **facts: Any) -> tuple[Data, TextReader]:
    """Data that knows a vocabulary, and the reader of a model exported with it."""
    data.facts = {"tokenizer": tokenizer, **facts}
    plan = data.preprocessing()
    assert plan is not None
    return data, TextReader(json.loads(json.dumps(plan)))


def compare(data: Data, reader: TextReader, source: Any) -> None:
    try:
        inputs = data.read(source)
    except (UserError, UnicodeEncodeError):
        with pytest.raises(InputError):
            reader(source)
        return
    sample = reader(source)
    assert {name: value.tolist() for name, value in sample.inputs.items()} == {
        name: value.tolist() for name, value in inputs.items()
    }, source
    assert {name: value.dtype.name for name, value in sample.inputs.items()} == {
        name: str(value.dtype).removeprefix("torch.") for name, value in inputs.items()
    }


QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", KINDS)
@QUICK
@given(text=TEXTS)
def test_tokens_and_texts_equal(kind: str, tokenizers: dict[str, Any], text: str) -> None:
    own = vocabulary_from(tokenizers[kind]) if kind not in _OWN else _OWN[kind]
    _OWN[kind] = own
    theirs = _THEIRS.setdefault(kind, load_vocabulary(standalone(tokenizers[kind])))
    try:
        tokens = own.encode(text)
    except (UserError, UnicodeEncodeError):
        with pytest.raises(InputError):
            theirs.encode(text)
        return
    assert theirs.encode(text) == tokens
    assert theirs.decode(tokens) == own.decode(tokens)
    assert theirs.decode([*tokens[:3], *own.special.values(), *tokens]) == own.decode(
        [*tokens[:3], *own.special.values(), *tokens]
    )
    assert (theirs.size, theirs.end, theirs.special) == (own.size, own.end, own.special)


_OWN: dict[str, Any] = {}
_THEIRS: dict[str, Any] = {}


SOURCES = TEXTS | TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=8)
ROWS = st.dictionaries(st.sampled_from(["text", "prompt", "sentence", "other", "messages"]), TEXTS | st.none())
DATA: dict[str, Callable[[], Data]] = {
    "LabelledText": lambda: LabelledText("texts", max_length=9),
    "LabelledText column": lambda: LabelledText("texts", text_column="other", max_length=3),
    "Text": lambda: Text("texts.txt", context_length=30),
    "Chat": lambda: Chat(context_length=60),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DATA)
@settings(QUICK, max_examples=60)
@given(source=SOURCES | ROWS)
@pytest.mark.slow
def test_inputs_equal_those_of_read(name: str, kind: str, tokenizers: dict[str, Any], source: Any) -> None:
    if (name, kind) not in _READING:
        _READING[name, kind] = reading_of(DATA[name](), tokenizers[kind], context_length=30)
    data, reader = _READING[name, kind]
    compare(data, reader, source)


_READING: dict[tuple[str, str], Any] = {}


@pytest.mark.parametrize("kind", ["words", "bpe"])
@settings(QUICK, max_examples=60)
@given(source=SOURCES | ROWS)
def test_gaps_equal_those_of_read(kind: str, tokenizers: dict[str, Any], source: Any) -> None:
    if ("gaps", kind) not in _READING:
        _READING["gaps", kind] = reading_of(UnlabelledText(["texts"], max_length=12), tokenizers[kind])
    data, reader = _READING["gaps", kind]
    compare(data, reader, source)
    compare(data, reader, f"a{MASK}film {MASK}")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "Be short."}, {"role": "user", "content": "2+2?"}],
        '[{"role": "user", "content": "2+2?"}]',
        [{"role": "assistant", "content": "4"}],
        [{"role": "robot", "content": "4"}],
        [{"role": "user"}],
        [{"content": "4"}],
        ["4"],
        [],
        "[",
        '"\\ud800"',
        4,
        [{"role": "user", "content": "long " * 40}],
        [{"role": "user", "content": [{"type": "text", "text": "2+2?"}, {"text": "now"}, "!"]}],
        [{"role": "user", "content": [{"type": "image_url"}]}],
        [
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]},
            {"role": "tool", "content": "4", "tool_call_id": "1"},
        ],
    ],
)
def test_conversations_equal(messages: Any, tokenizers: dict[str, Any]) -> None:
    for kind in ("bytes", "plain characters"):
        data, reader = reading_of(Chat(), tokenizers[kind], context_length=50, chat_template="plain")
        compare(data, reader, {"messages": messages})
        compare(data, reader, {"messages": messages, "tools": [{"name": "add"}]})


def test_what_has_no_vocabulary_or_another_template_is_not_described(tokenizers: dict[str, Any]) -> None:
    for make in (*DATA.values(), lambda: UnlabelledText(["texts"])):
        assert make().preprocessing() is None
    chat = Chat()
    chat.facts = {"tokenizer": tokenizers["word pieces"], "context_length": 9, "chat_template": "{{ messages }}"}
    assert chat.preprocessing() is None


LISTS = {
    "a.txt": "one\n\n two \r\nthree",
    "a.csv": 'text,other\n"a ""b""\nc",1\n\nd,2,3\ne\n',
    "a.tsv": 'label\ttext\n0\t"a ""b"""\r\n1\tit\'s "so"\n',
    "a.jsonl": '{"text": "a"}\n"b"\n\n{"text": "\\u2028c"}\n',
    "a.md": "whole file",
}


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("name", LISTS)
def test_lists_hold_the_inputs_of_predict(name: str, header: bool, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(LISTS[name], newline="")
    columns = ("text", "1")
    assert rows_of(file, columns, header) == list(find_sources(str(file), (), columns, header).places)


def test_a_table_without_a_header_has_numbers_for_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("good film,1\nbad film,0\n")
    rows = rows_of(tmp_path / "a.csv", ("1",), header=False)
    assert [row["1"] for row in rows] == ["good film", "bad film"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", b'text\n"a\rb\0', "line 2 is not closed"),
        ("a.csv", b'text,label\na,1\n"b,0\nc,1\n"d" e,0\n', "line 3 is not closed"),
        ("a.csv", b'text,label\n"b" c,0\n"a ""b""\nc",1\n"x"y', None),
        ("a.txt", b"\n \n", "the list is empty"),
        ("a.csv", b"", "the list is empty"),
        ("a.csv", b"text\n", "the list is empty"),
        ("a.txt", b"\xff", "is not text in UTF-8"),
        ("a.jsonl", b"{", "is not valid JSON"),
    ],
)
def test_lists_that_cannot_be_read(name: str, content: bytes, sentence: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    if sentence is None:
        assert rows_of(tmp_path / name, ("text",)) == list(find_sources(str(tmp_path / name), (), ("text",)).places)
        return
    with pytest.raises(InputError, match=sentence):
        rows_of(tmp_path / name, ("text",))


def test_files_of_texts(tmp_path: Path, tokenizers: dict[str, Any]) -> None:
    data, reader = reading_of(Text("texts.txt"), tokenizers["bytes"], context_length=30)
    (tmp_path / "a.md").write_bytes(b"\xef\xbb\xbfhello\n")
    compare(data, reader, tmp_path / "a.md")
    with pytest.raises(InputError, match=r"b\.md: No such file"):
        reader(tmp_path / "b.md")
    with pytest.raises(InputError, match="expected a text, a row or a file, got 3"):
        reader(3)
    with pytest.raises(InputError, match="half of a surrogate pair at character 1"):
        reader("a\ud800")


def test_an_unknown_vocabulary_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"tokenizer: expected a kind of characters, .*, got 'runes'"):
        load_vocabulary({"kind": "runes"})

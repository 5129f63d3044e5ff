"""Mixtures: the share of each part, no sample twice before all came, exact resuming, and parts that do not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook import Data, ResidentImages, UserError
from src.data.language.chat import Chat
from src.data.language.text import Text
from src.data.mixture import Mixture


class Numbered(Data):
    """Sample i is the number `first` + i, and what the augmentation drew."""

    hold: Any = list

    def __init__(self, first: int, size: int, **loader: Any) -> None:
        super().__init__(**loader)
        self.first, self.size = first, size

    def setup(self, stage: str) -> None:
        self.train_set = self.val_set = self.hold(torch.tensor([self.first + i, 0.0]) for i in range(self.size))
        self.test_set = None

    def augment(self, sample: torch.Tensor) -> torch.Tensor:
        return torch.stack([sample[0], torch.rand(())])


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def ready(data: Data) -> Any:
    data.setup("fit")
    return data


@pytest.fixture
def texts(tmp_path: Path) -> tuple[str, str]:
    for name, letters in (("zero", "abcdefgh"), ("two", "fedcba")):
        (tmp_path / f"{name}.txt").write_text(
            "".join(letters[i * i % len(letters)] for i in range(1500)) + letters * 90
        )
    return str(tmp_path / "zero.txt"), str(tmp_path / "two.txt")


def mixed_texts(texts: tuple[str, ...], vocabulary: Any = "characters", **options: Any) -> Mixture:
    parts: Any = {Path(file).stem: Text(file, vocabulary, context_length=16, test_share=0.1) for file in texts}
    return Mixture(parts, {"zero": 3, "two": 1}, **options)


def test_the_parts_share_the_vocabulary_of_the_first(texts: tuple[str, str]) -> None:
    data = ready(mixed_texts(texts))
    assert data.facts["tokenizer"] == data.parts["two"].facts["tokenizer"]
    assert data.facts["tokenizer"]["characters"].startswith("abcdefgh")
    assert data.read("abh")["tokens"].tolist() == [0, 1, 7]
    assert data.columns == ("prompt", "text")
    names = data.ids(data.test_set)
    assert names[0] == "zero/test:0"
    assert "two/test:16" in names
    inputs, target = next(iter(data.train_dataloader()))
    assert torch.equal(inputs["tokens"][:, 1:], target[:, :-1])
    (prompts, _), *_ = [*data.predict_dataloader()]
    assert prompts["tokens"].shape == (16, 8), "8 prompts of each part"


def test_a_character_that_the_first_part_lacks_is_told(texts: tuple[str, str]) -> None:
    with pytest.raises(UserError, match=r"the character '[gh]'"):
        ready(mixed_texts(texts[::-1]))


def test_a_checkpoints_facts_go_to_all_parts(texts: tuple[str, str]) -> None:
    facts = ready(mixed_texts(texts)).facts
    data = mixed_texts(texts[::-1])
    data.facts = dict(facts)
    assert ready(data).facts == facts
    assert all(part.facts == facts for part in data.parts.values())
    other = mixed_texts(texts, "bytes")
    other.facts = dict(facts)
    with pytest.raises(UserError, match=r"--data.parts.zero.vocabulary bytes: the checkpoint has 8 characters"):
        other.setup("test")


def test_large_texts_are_tokenised_once_with_the_shared_vocabulary(
    texts: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("src.data.language.text.LARGE_BYTES", 1)
    for file in texts:  # these are cut at the ends of lines
        Path(file).write_text(Path(file).read_text().replace("b", "b\n"))
    parts: Any = {
        Path(file).stem: Text(file, "bpe", vocab_size=300, context_length=16, cache=str(tmp_path / "cache"))
        for file in texts
    }
    data = Mixture(parts)
    data.prepare_data()
    assert len([*tmp_path.glob("cache/*/*/tokens.json")]) == 2
    ready(data)
    assert len([*tmp_path.glob("cache/*/*/tokens.json")]) == 2
    assert len(next(iter(data.train_dataloader()))[1][0]) == 16


def chat_file(path: Path, rows: list[dict[str, str]]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.fixture
def chats(tmp_path: Path) -> list[str]:
    rows = [{"prompt": f"{i}+{i}?", "completion": str(2 * i)} for i in range(40)]
    return [chat_file(tmp_path / f"{name}.jsonl", rows[k:]) for k, name in enumerate(("sums", "more"))]


def test_conversations_mix_with_packed_text(chats: list[str], texts: tuple[str, str]) -> None:
    data = ready(
        Mixture(
            {
                "sums": Chat(chats[0], context_length=64),
                "text": Text(texts[0], "bytes", context_length=64, packing=True),
            },
            {"sums": 1, "text": 1},
            samples_per_epoch=32,
            batch_size=32,
        )
    )
    assert data.facts["stop_tokens"] == [256]
    inputs, target = next(iter(data.train_dataloader()))
    assert inputs["tokens"].shape == inputs["documents"].shape == target.shape == (32, 64)
    assert (target[inputs["documents"] == -1] == -100).all()


def test_parts_whose_rows_differ_are_told(chats: list[str]) -> None:
    parts: Any = {name: Chat(file, packing=name == "sums") for name, file in zip(("sums", "more"), chats, strict=True)}
    with pytest.raises(UserError, match=r"--data.parts.more: its samples are \(\{tokens: int64 \(1D\)\}, int64"):
        ready(Mixture(parts))


def test_contexts_of_different_lengths_are_told(texts: tuple[str, str]) -> None:
    parts: Any = {str(size): Text(texts[0], context_length=size) for size in (16, 32)}
    with pytest.raises(UserError, match=r"--data.parts.32: has the context_length 32, earlier parts 16; expected"):
        ready(Mixture(parts))


class Whole(ResidentImages):
    """Makes its batches at once."""


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        ({}, {}, "parts: expected at least two to mix, got none"),
        ({"a": Numbered(0, 3)}, {}, "parts: expected at least two to mix, got a"),
        ({"a": Numbered(0, 3), "b": Whole()}, {}, "parts: b: Whole makes whole batches"),
        ({"a": Numbered(0, 3), "b": Numbered(0, 3, balanced=True)}, {}, "parts: b: balanced has no effect"),
        ({"a": Numbered(0, 3), "b": Text()}, {}, r"parts: a \(Numbered\) and b \(Text\) have different .* `collate`"),
        (None, {"weights": {"book": 1}}, "weights: no part is called book. Nearest: books"),
        (None, {"weights": {"x": 1}}, "weights: no part is called x; expected books, code"),
        (None, {"weights": {"books": 1, "code": -0.1}}, "weights: code: expected a number of at least 0, got -0.1"),
        (None, {"weights": {"books": 1, "code": float("nan")}}, "weights: code: expected .* got nan"),
        (None, {"weights": {"books": 0, "code": 0}}, "weights: expected at least one above 0"),
        (None, {"weights": {"books": 1}}, "weights: expected one for each part, got none for code"),
        (None, {"samples_per_epoch": 0}, "samples_per_epoch: expected at least 1, got 0"),
    ],
)
def test_bad_options_are_told(parts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mixture({"books": Numbered(0, 3), "code": Numbered(0, 3)} if parts is None else parts, **options)


def options(texts: tuple[str, str], run: str, *args: str) -> list[str]:
    parts = {
        Path(file).stem: {"class_path": "Text", "init_args": {"root": file, "context_length": 16}} for file in texts
    }
    return [
        "fit", "--model", "LanguageModelling", "--model.net", "GPT", "--model.net.vocab_size", "8",
        "--model.net.context_length", "16", "--model.net.num_layers", "1", "--model.net.dim", "16",
        "--model.net.num_heads", "2", "--model.net.dropout", "0.1", "--data", "Mixture",
        "--data.parts", json.dumps(parts), "--data.weights", '{"zero": 0.8, "two": 0.2}', "--data.batch_size", "8",
        "--data.samples_per_epoch", "84", "--trainer.max_epochs", "3", "--run_dir", run, "--ckpt_path", "last",
        "--checkpoint.every_n_steps", "1", *args,
    ]  # fmt: skip

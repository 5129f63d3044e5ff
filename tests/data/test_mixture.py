"""Mixtures: the share of each part, no sample twice before all came, exact resuming, and parts that do not fit."""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from playbook import Data, ResidentImages, UserError
from src.data.chat import Chat
from src.data.image_folder import ImageFolder
from src.data.mixture import Mixture, quotas
from src.data.text import Text
from tests.conftest import Cli, cli_process
from tests.playbook.training.resume.test_exact import PowerCutError, assert_same_ending

SIZES = {"a": 7, "b": 40, "c": 100}


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


def mixture(weights: dict[str, float] | None = None, sizes: dict[str, int] = SIZES, **options: Any) -> Any:
    parts: dict[str, Data] = {name: Numbered(1000 * k, size) for k, (name, size) in enumerate(sizes.items())}
    return ready(Mixture(parts, weights, **options))


def ready(data: Data) -> Any:
    data.setup("fit")
    return data


def place(data: Data, epoch: int, rank: int = 0, world: int = 1) -> None:
    data.trainer = SimpleNamespace(current_epoch=epoch, global_rank=rank, world_size=world)  # type: ignore[assignment]


def epoch_of(data: Data, epoch: int, rank: int = 0, world: int = 1) -> torch.Tensor:
    """Numbers and random numbers of an epoch's samples, (N, 2)."""
    place(data, epoch, rank, world)
    return torch.cat([*data.train_dataloader()])


def test_each_epoch_has_the_shares() -> None:
    data = mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60, batch_size=8)
    for epoch in range(3):
        parts = Counter((epoch_of(data, epoch)[:, 0] // 1000).long().tolist())
        assert parts == {0: 30, 1: 18, 2: 12}


def test_what_is_left_by_rounding_goes_to_those_that_lost_most() -> None:
    assert quotas([0.7, 0.3], 10) == [7, 3]
    assert quotas([1, 1, 1], 10) == [4, 3, 3]
    assert quotas([0.5, 0.3, 0.2], 7) == [4, 2, 1]  # of 3.5, 2.1, 1.4
    assert quotas([2, 0], 5) == [5, 0]


def test_without_weights_every_sample_comes_once_an_epoch() -> None:
    data = mixture()
    epochs = [epoch_of(data, epoch) for epoch in range(2)]
    numbers = [1000 * k + i for k, size in enumerate(SIZES.values()) for i in range(size)]
    assert [sorted(rows[:, 0].tolist()) for rows in epochs] == [numbers] * 2
    assert not torch.equal(*epochs)


def test_a_part_is_exhausted_before_a_sample_comes_again() -> None:
    data = mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60)
    rows = torch.cat([data.draw(epoch) for epoch in range(9)])
    first = 0
    for size in SIZES.values():
        own = rows[(rows[:, 0] >= first) & (rows[:, 0] < first + size)]
        passes = own[:, 1].unique().tolist()
        assert passes == [*range(len(own) // size + bool(len(own) % size))]
        orders = [own[own[:, 1] == number, 0] for number in passes]
        assert all(sorted(order.tolist()) == [*range(first, first + size)] for order in orders[: len(own) // size])
        assert len(orders[-1].unique()) == len(orders[-1])
        first += size
    assert not torch.equal(*(rows[(rows[:, 0] < 7) & (rows[:, 1] == number), 0] for number in (0, 1)))


def test_a_repeated_sample_is_augmented_anew_by_its_own_part() -> None:
    data = mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60)
    rows = torch.cat([epoch_of(data, epoch) for epoch in range(3)])
    assert (rows[:, 0] == 3).sum() >= 12
    assert len(rows[:, 1].unique()) == len(rows), "no two of them have the same random number"


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_position_gives_exactly_the_remaining_batches(num_workers: int) -> None:
    options: Any = {"samples_per_epoch": 60, "batch_size": 8}
    weights = {"a": 0.5, "b": 0.3, "c": 0.2}
    whole = mixture(weights, **options)
    place(whole, 5)
    batches = [*whole.train_dataloader()]
    data = mixture(weights, num_workers=num_workers, **options)
    data.load_state_dict({"epoch": 5, "batch": 3})
    place(data, 5)
    rest = [*data.train_dataloader()]
    assert len(rest) == len(batches) - 3
    assert all(torch.equal(one, other) for one, other in zip(rest, batches[3:], strict=True))


def test_two_ranks_share_what_one_has() -> None:
    one, two = (mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60, batch_size=size) for size in (8, 4))
    ranks = [epoch_of(two, 4, rank, world=2) for rank in range(2)]
    assert [len(rank) for rank in ranks] == [30, 30]
    assert torch.equal(torch.stack(ranks, dim=1).flatten(0, 1), epoch_of(one, 4))


class Lengthy(list[torch.Tensor]):
    """Samples of the lengths 0 to 4 in turn."""

    @property
    def lengths(self) -> list[int]:
        return [number % 5 for number in range(len(self))]


def test_buckets_keep_every_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbered, "hold", Lengthy)
    data = [mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60, batch_size=6, bucket=n) for n in (0, 10)]
    plain, bucketed = (epoch_of(each, 1) for each in data)
    assert sorted(plain.tolist()) == sorted(bucketed.tolist())
    lengths = (bucketed[:, 0] % 1000 % 5).view(10, 6)
    assert (lengths.amax(1) - lengths.amin(1)).max() <= 1
    sampler = data[1].train_dataloader().sampler
    chosen = data[1].train_set
    assert [chosen[index][0] for index in sampler.samples_of_batch(1, 2)] == bucketed[12:18, 0].tolist()


def test_validation_goes_through_all_parts_and_names_them() -> None:
    data = mixture()
    place(data, 0)
    numbers = torch.cat([*data.val_dataloader()])[:, 0].tolist()
    assert numbers == [1000 * k + i for k, size in enumerate(SIZES.values()) for i in range(size)]
    assert data.ids(data.val_set)[5:9] == ["a/5", "a/6", "b/0", "b/1"]
    assert data.test_set is None


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
    monkeypatch.setattr("src.data.text.LARGE_BYTES", 1)
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


def folders(root: Path, classes: tuple[str, ...] = ("x", "y"), count: int = 3) -> str:
    for split in ("train", "val"):
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                Image.fromarray(np.full((8, 8, 3), 20 * number, np.uint8)).save(root / split / name / f"{number}.png")
    return str(root)


def test_image_folders_mix_if_classes_and_sizes_agree(tmp_path: Path) -> None:
    one, two = folders(tmp_path / "zero"), folders(tmp_path / "two", count=5)
    data = ready(Mixture({"zero": ImageFolder(one, image_size=8), "two": ImageFolder(two, image_size=8)}, batch_size=4))
    assert data.facts["class_counts"] == [8, 8]
    assert data.ids(data.val_set)[6] == "two/val/x/0.png"
    assert next(iter(data.train_dataloader()))[0].shape == (4, 3, 8, 8)
    with pytest.raises(
        UserError, match=r"--data.parts: samples of zero and two do not fit into a batch: stack expects"
    ):
        ready(Mixture({"zero": ImageFolder(one, image_size=8), "two": ImageFolder(two, image_size=6)}))
    other = folders(tmp_path / "other", ("x", "z"))
    with pytest.raises(UserError, match=r"--data.parts.two.root: .*/train/z: training had no class of that name"):
        ready(Mixture({"zero": ImageFolder(one, image_size=8), "two": ImageFolder(other, image_size=8)}))


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


def test_a_part_without_samples_or_without_a_share_is_told() -> None:
    with pytest.raises(UserError, match=r"--data.parts.b: Numbered found no train samples"):
        mixture(sizes={"a": 3, "b": 0})
    with pytest.raises(UserError, match=r"--data.weights: b gets less than one of the 20 samples per epoch"):
        mixture({"a": 100, "b": 1}, {"a": 3, "b": 3}, samples_per_epoch=20)


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


@pytest.mark.slow
def test_a_run_that_was_cut_off_in_an_epoch_ends_with_the_same_weights(cli: Cli, texts: tuple[str, str]) -> None:
    whole = cli(*options(texts, "whole"))
    assert whole.code == 0, whole.err
    cut = "tests.playbook.training.resume.test_exact.CutAt"
    with pytest.raises(PowerCutError):
        cli(*options(texts, "run", f"--trainer.callbacks+={cut}", "--trainer.callbacks.step=16"))  # of 33, 11 an epoch
    assert cli(*options(texts, "run", "--trainer.callbacks", "null")).code == 0
    assert_same_ending("run", "whole")


@pytest.mark.slow
def test_a_killed_run_with_workers_ends_with_the_same_weights(cli: Cli, workdir: Path, texts: tuple[str, str]) -> None:
    args = options(texts, "run", "--data.num_workers", "2")
    checkpoint = Path("run/checkpoints/last.ckpt")
    with cli_process(*args, cwd=workdir, new_group=True) as run:
        while run.poll() is None and not (checkpoint.exists() and step_of(checkpoint) >= 12):
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGKILL)
    assert 12 <= step_of(checkpoint) < 22, "killed in the second epoch"
    assert cli(*args).code == 0
    assert cli(*options(texts, "whole")).code == 0
    assert_same_ending("run", "whole")


def step_of(checkpoint: Path) -> int:
    return torch.load(checkpoint, weights_only=True)["global_step"]

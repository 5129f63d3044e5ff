"""Pictures and captions in tar files, in the layout of WebDataset."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from PIL import Image
from torch import Tensor

from playbook import Data, UserError
from src.data.multimodal.pairs import (
    Captions,
    Inputs,
    OnImage,
    Pair,
    check_shares,
    collate,
    cut_by_picture,
    hold,
    number_of,
    unlabelled,
)
from src.data.multimodal.pictures import FORMATS, PictureReader, read_picture
from src.data.multimodal.tar_index import Member, members_of
from src.data.notices import name_some, refuse
from src.data.split_files import SPLITS
from src.ops.vocabularies import Kind

TEXTS = ("txt", "caption")  # extensions of captions
JSON_KEYS = ("caption", "text")  # of a caption in a .json


class Sample(NamedTuple):
    """Members of a tar file that belong together.

    Args:
        key: path of the members up to the first dot of their names.
        members: by extension, in lower case.
    """

    key: str
    members: dict[str, Member]


class ImageTextShards(Data):
    """Pictures with captions in tar files, as WebDataset and img2dataset write them.

    Members that follow each other and have the same path up to the first dot of their names are a sample: `7.jpg` with
    `7.txt`, or with `7.json` that has a `caption`. Extensions count in lower case; hidden files, folders, links and
    files without extension are left out.

    Shards are indexed once, by their headers. Every sample is then read on its own, so shuffling is complete, a run
    resumes exactly, and any number of processes and workers share the samples of any number of shards. Random reads are
    fast on local disks; for shards on a network file system, copy them first.

    Shards are in folders train, val and test, or their names begin so, as in `train-000.tar`. What is missing is taken
    from train; other names are divided into all three. Training crops pictures at random and never mirrors them.

    Args:
        root: folder of tar files, or one of them.
        batch_size: pairs per batch and process, B, at least 1; contrastive losses compare all of them.
        num_workers: loader processes; 0 loads in the main process.
        image_size: height and width of the net's input in pixels, S.
        channels: 1 for grey, 3 for RGB.
        crop: smallest share of the area that a training crop covers, in (0, 1]; 1 crops as evaluation does.
        mean: mean to subtract from each channel, for values in [0, 1]. Defaults to that of OpenAI's CLIP for RGB, and
            0.5 for grey.
        deviation: standard deviation to divide each channel by. Defaults to that of OpenAI's CLIP for RGB, and 0.25 for
            grey.
        context_length: largest number of tokens of a caption, T; longer ones are truncated and counted.
        vocabulary: words, in lower case; characters; bytes; or bpe, byte pairs (Sennrich et al. 2016). It is built from
            the training captions.
        vocab_size: largest number of tokens V of words, at least 3, and of bpe, at least 258.
        min_count: how often a word must occur in training to have a token of its own.
        vocabulary_of: run directory or checkpoint whose vocabulary to use, or directory or name of a Hugging Face
            model.
        val_share: share of the samples for validation if it has no shards, chosen with a fixed seed, in (0, 1).
        test_share: share of the samples for testing if nothing is divided, in [0, 1).
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to pictures
            without a caption, and captions without a picture. A damaged shard always ends the run.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        check_files: whether to load every sample once before training, to count those that cannot be loaded.

    Shapes:
        image (B, C, S, S), normalised; tokens (B, T); mask (B, T), True for tokens; and numbers (B, 2) of the picture
        and of the caption, which are equal where captions are.

    Raises:
        ValueError: a value is out of range.
        UserError: there are no shards, one is damaged, or a sample cannot be used.
    """

    formats = FORMATS
    collate = staticmethod(collate)
    picture = staticmethod(read_picture)

    def __init__(
        self,
        root: str,
        batch_size: int = 64,
        num_workers: int = 0,
        image_size: int = 128,
        channels: int = 3,
        crop: float = 0.9,
        mean: Sequence[float] | None = None,
        deviation: Sequence[float] | None = None,
        context_length: int = 64,
        vocabulary: Kind = "words",
        vocab_size: int = 20_000,
        min_count: int = 1,
        vocabulary_of: str | None = None,
        val_share: float = 0.1,
        test_share: float = 0.1,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        check_files: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s, check_files=check_files)
        self.reader = PictureReader(image_size, channels, crop, mean, deviation)
        self.captions = Captions(vocabulary, vocab_size, min_count, vocabulary_of, context_length)
        check_shares(val_share, test_share)
        self.root = Path(root).expanduser()
        self.val_share = val_share
        self.test_share = test_share
        self.augment = OnImage(self.reader.trained)
        self.save_hyperparameters()

    def prepare_data(self) -> None:
        for shards in find_shards(self.root).values():
            for shard in shards:
                members_of(shard)  # is indexed once for all processes

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # Lightning asks for every stage
            return
        self.captions.find_again(self.facts)
        shards = find_shards(self.root)
        others = {*self.root.glob("*.tar")}.difference(*shards.values())
        if others:
            text = f"{name_some(sorted(shard.name for shard in others))}, not named after a split"
            self._left_out("shards", len(others), text)
        splits = {split: self._pairs(of_split) for split, of_split in shards.items()}
        if "val" not in splits:
            is_whole = "test" not in splits
            splits |= cut_by_picture(splits["train"], self.val_share, self.test_share if is_whole else 0.0)
        hold(self, splits, self.captions, self.reader, _Pictures(self.reader))
        self.check_loading()

    def prepare_read(self) -> None:
        self.captions.find_again(self.facts)

    def ids(self, dataset: Any) -> list[str]:
        """Shard and key of each sample, as in train-000.tar/7."""
        return dataset.names

    def read(self, source: Any) -> Tensor:
        """Reads a picture (C, S, S) from a path or bytes, as in evaluation."""
        return self.reader.evaluated(self.reader(source))

    def unlabelled(self, source: Any) -> tuple[Inputs, Tensor]:
        return unlabelled(self.read(source))

    def preprocessing(self) -> dict[str, Any]:
        return self.reader.plan()

    def _pairs(self, shards: Sequence[Path]) -> list[Pair]:
        pairs: list[Pair] = []
        problems: list[tuple[str, str]] = []
        for shard in shards:
            for sample in samples_of(members_of(shard)):
                name = f"{shard.name}/{sample.key}"
                try:
                    picture, caption = _picture_of(sample), _caption_of(sample)
                except UserError as error:
                    problems.append((name, f"{shard.as_posix()}/{sample.key}: {error}"))
                    continue
                pairs.append(Pair(picture, caption, name, number_of(picture.place)))
        refuse(self, problems, len(pairs))
        if not pairs:
            raise UserError(f"--data.root: {shards[0].as_posix()}: expected pictures with captions, it holds no files")
        return pairs


class _Pictures:
    """Reads the picture in a member of a shard."""

    def __init__(self, reader: PictureReader) -> None:
        self.reader = reader

    def __call__(self, member: Member) -> Image.Image:
        return self.reader(member.read(), member.place)


def find_shards(root: Path) -> dict[str, list[Path]]:
    """The tar files of each split; those of no split are `train` alone.

    Args:
        root: folder, or a tar file.

    Raises:
        UserError: there are none.
    """
    if root.is_file():
        return {"train": [root]}
    if not root.is_dir():
        raise UserError(f"--data.root {root.as_posix()}: no such file or folder")
    splits: dict[str, list[Path]] = {}
    for split, names in SPLITS.items():
        folders = [root / name for name in names if (root / name).is_dir()]
        own = [shard for folder in folders for shard in sorted(folder.glob("*.tar"))]
        splits[split] = own or [shard for shard in sorted(root.glob("*.tar")) if shard.stem.lower().startswith(names)]
    splits = {split: shards for split, shards in splits.items() if shards}
    shards = sorted(root.glob("*.tar"))
    if not splits and shards:
        return {"train": shards}
    if "train" not in splits:
        entries = sorted(f"{path.name}/" if path.is_dir() else path.name for path in root.iterdir())
        holds = ", ".join(entries[:5]) + (f" and {len(entries) - 5} more" if len(entries) > 5 else "") or "nothing"
        compressed = "; unpack compressed ones" if any(".tar." in name for name in entries) else ""
        expected = "expected tar files in it or in its folder train"
        raise UserError(f"--data.root {root.as_posix()}: {expected}; it holds {holds}{compressed}")
    return splits


def samples_of(members: Iterable[Member]) -> Iterator[Sample]:
    """Groups members that follow each other and have the same key.

    Args:
        members: of one shard, in their order.

    Raises:
        UserError: two members of a sample have the same extension.
    """
    sample: Sample | None = None
    for member in members:
        folder, slash, name = member.name.rpartition("/")
        stem, dot, extension = name.partition(".")
        if not stem or not dot or not extension or member.name.startswith("__"):  # __ begins what describes a shard
            continue
        key = f"{folder}{slash}{stem}"
        if sample is None or sample.key != key:
            if sample is not None:
                yield sample
            sample = Sample(key, {})
        if extension.lower() in sample.members:
            raise UserError(f"--data.root: {member.place}: occurs twice in its sample, expected different extensions")
        sample.members[extension.lower()] = member
    if sample is not None:
        yield sample


def _picture_of(sample: Sample) -> Member:
    picture = next((member for end, member in sample.members.items() if f".{end}" in FORMATS), None)
    if picture is None:
        raise UserError(f"has no picture, but {', '.join(sample.members)}")
    return picture


def _caption_of(sample: Sample) -> str:
    """The caption of a sample.

    Raises:
        UserError: there is none.
    """
    text = next((sample.members[end] for end in TEXTS if end in sample.members), None)
    if text is None and "json" not in sample.members:
        raise UserError(f"has no caption, expected a .txt or .json beside {', '.join(sample.members)}")
    try:
        if text is not None:
            caption: Any = text.read().decode("utf-8-sig")
        else:
            content = json.loads(sample.members["json"].read())
            caption = next((content[key] for key in JSON_KEYS if content.get(key) is not None), None)
    except (ValueError, AttributeError) as error:
        raise UserError(f"its caption cannot be read: {error}") from None
    if not isinstance(caption, str) or not caption.strip():
        raise UserError("its caption is empty" if text is not None else f"its .json has no {' or '.join(JSON_KEYS)}")
    return " ".join(caption.split())

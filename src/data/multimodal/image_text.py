"""Pictures and their captions in files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from playbook import Data, check_encoding
from src.data.multimodal.caption_files import CAPTION_COLUMNS, IMAGE_COLUMNS, Columns, find_pairs
from src.data.multimodal.pairs import (
    Captions,
    Inputs,
    OnImage,
    check_shares,
    collate,
    cut_by_picture,
    hold,
    unlabelled,
)
from src.data.multimodal.pictures import FORMATS, PictureReader, read_picture
from src.data.row_files import Form, check_separator
from src.ops.vocabularies import Kind


class ImageText(Data):
    """Pictures with captions: a folder of both, a table, or COCO's captions.

    | root | content |
    |---|---|
    | a folder | `roses/7.jpg` and `roses/7.txt` beside it, a caption a line |
    | a table, or a folder with train.csv, val.csv and test.csv | a column of paths and one of captions |
    | a folder with annotations/captions_train2017.json | COCO's captions, and its pictures in train2017 |

    Folders train, val and test, or tables and lists of these names, are the splits. What is missing is taken from
    train, by picture, so that no picture is in two splits.

    Each caption of a picture is a sample. Training crops pictures at random and never mirrors them, as captions may say
    left and right.

    Args:
        root: folder, table or JSON file.
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
        image_column: column of paths, relative to the table or its folder `images`. Defaults to the first existing one
            of image, path, file, filename, file_name, filepath and image_path.
        caption_column: column of captions. Defaults to the first existing one of caption, text, title, description and
            sentence.
        separator: character between the fields of a CSV or TSV, such as ";". Defaults to the comma for .csv and the tab
            for .tsv.
        encoding: encoding of tables, such as latin-1 or utf-16.
        val_share: share of the pictures for validation if it has no files, chosen with a fixed seed, in (0, 1).
        test_share: share of the pictures for testing if nothing is divided, in [0, 1).
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to pictures
            without a caption, and to rows that cannot be used.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        check_files: whether to load every sample once before training, to count those that cannot be loaded.

    Shapes:
        image (B, C, S, S), normalised; tokens (B, T); mask (B, T), True for tokens; and numbers (B, 2) of the picture
        and of the caption, which are equal where captions are.

    Raises:
        ValueError: a value is out of range.
        UserError: there are no pairs, or one cannot be used.
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
        image_column: str | None = None,
        caption_column: str | None = None,
        separator: str | None = None,
        encoding: str = "utf-8",
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
        check_encoding(encoding)
        self.root = Path(root).expanduser()
        self.columns_of_table = Columns(
            (image_column,) if image_column else IMAGE_COLUMNS, (caption_column,) if caption_column else CAPTION_COLUMNS
        )
        self.form = Form(separator=check_separator(separator), encoding=encoding)
        self.val_share = val_share
        self.test_share = test_share
        self.augment = OnImage(self.reader.trained)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # Lightning asks for every stage
            return
        self.captions.find_again(self.facts)
        splits = find_pairs(self, self.root, self.columns_of_table, self.form)
        if "val" not in splits:
            is_whole = "test" not in splits
            splits |= cut_by_picture(splits["train"], self.val_share, self.test_share if is_whole else 0.0)
        hold(self, splits, self.captions, self.reader, self.reader)
        files = {name: list(dict.fromkeys(pair.image for pair in pairs)) for name, pairs in splits.items()}
        self.tell_copies(files)
        self.check_loading()

    def prepare_read(self) -> None:
        self.captions.find_again(self.facts)

    def ids(self, dataset: Any) -> list[str]:
        """File of each picture, with the number of its caption behind the first, or line of a table."""
        return dataset.names

    def read(self, source: Any) -> Tensor:
        """Reads a picture (C, S, S) from a path or bytes, as in evaluation."""
        return self.reader.evaluated(self.reader(source))

    def unlabelled(self, source: Any) -> tuple[Inputs, Tensor]:
        return unlabelled(self.read(source))

    def preprocessing(self) -> dict[str, Any]:
        return self.reader.plan()

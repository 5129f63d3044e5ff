"""A few made-up texts in the layouts of the published data sets that the recipes train on."""

from pathlib import Path


def write(folder: Path) -> None:
    """Writes them where and as they are published."""
    sst2, reviews, plays = (folder / name for name in ("sst2", "aclImdb/train/unsup", "tinyshakespeare"))
    for place in (sst2, reviews, plays):
        place.mkdir(parents=True)
    for number, split in enumerate(("train", "dev", "test")):  # no text is in two of them
        rows = [f"{'a good' if i % 2 else 'no'} film {'!' * (i % 7 + 7 * number)}\t{i % 2}\n" for i in range(40)]
        (sst2 / f"{split}.tsv").write_text("".join(rows))
    for i in range(40):
        (reviews / f"{i}_0.txt").write_text(f"{'No' if i % 2 else 'A'} film.<br />It's {i}!")
    (plays / "input.txt").write_text("First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 500)

"""One-line warnings about rows that a data module did not take as they are."""

import sys
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import PurePath

from playbook import Data, UserError


def warn(data: Data, text: str) -> None:
    """Prints a warning, once for all processes."""
    if data.speaks:
        print(f"warning: {text}", file=sys.stderr)


def warn_of_copies(data: Data, parts: Mapping[str, Sequence[tuple[Hashable, str]]], what: str) -> None:
    """Counts the samples of a split that equal one of an earlier split, as evaluation then measures memory.

    Args:
        data: that reads them.
        parts: content and name of each sample of train, val and test; some may be missing.
        what: the samples, in the plural.
    """
    if data.has_trained:
        return
    first: dict[Hashable, str] = {}
    for part in (name for name in ("train", "val", "test") if name in parts):
        copies = [(name, first[content]) for content, name in parts[part] if content in first]
        if copies:
            name, original = copies[0]
            warn(
                data,
                f"{len(copies):,} of {len(parts[part]):,} {part} {what} also occur in "
                f"{'train or val' if part == 'test' else 'train'}, such as {name}, which equals {original}",
            )
        for content, name in parts[part]:
            first.setdefault(content, name)


def refuse(data: Data, problems: Sequence[tuple[str, str]], num_usable: int, what: str = "rows") -> None:
    """Ends the run because of rows that cannot be used, or skips them, as `on_error` says and if there are others.

    Args:
        data: that reads them.
        problems: file and line of each row, and a sentence with both.
        num_usable: number of the other rows.
        what: what they are, in the plural.

    Raises:
        UserError: `on_error` is `stop`, or there are no others.
    """
    if problems and not num_usable:
        raise UserError(f"--data.root: {problems[0][1]}")
    if problems and data.on_error == "stop":
        rows = f"such {what} out ({len(problems):,} of {len(problems) + num_usable:,})"
        raise UserError(f"--data.root: {problems[0][1]}; --data.on_error skip leaves {rows}")
    for place, text in problems:
        data._skip(place, text)


def name_some(names: Sequence[str]) -> str:
    """The number of files, and the names of the first ones."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{len(names):,} file{'s' * (len(names) > 1)} ({', '.join(names[:3])}{more})"


def by_suffix(names: Sequence[str]) -> str:
    """The number of files of each suffix, the most frequent first, such as «3 .png, 1 .doc»."""
    counts = Counter(PurePath(name).suffix.lower() or "without suffix" for name in names)
    return ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common())

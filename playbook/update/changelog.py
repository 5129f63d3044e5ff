"""What a changelog in the manner of Keep a Changelog says between two versions."""

import re
from collections.abc import Iterator

HEADING = re.compile(r"^##\s+\[?v?(?P<version>[^\]\s]+)\]?")
ENTRY = re.compile(r"^[-*+]\s")


def between(old: str, new: str, version: str) -> str:
    """Sections and entries of the new text that the old one lacks, newest first.

    Sections older than the given version are left out, so that a later correction of an old line is not news.

    Args:
        old: the changelog of the former version.
        new: the changelog of the later version.
        version: the former version.
    """
    known_blocks = {_plain(block) for block in _blocks(old)}
    text: list[str] = []
    headings: list[str] = []  # those above the next entry that are not written yet
    section = None  # version of the section; None in the introduction
    for block in _blocks(new):
        if heading := HEADING.match(block):
            if section == version:
                break
            section = heading["version"]
        if section is None:
            continue
        if block.startswith("#"):
            headings = [*(heading for heading in headings if _level(heading) < _level(block)), block]
        elif _plain(block) not in known_blocks:
            text += [f"\n{heading}\n" for heading in headings] + [block]
            headings = []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip("\n")


def _blocks(text: str) -> Iterator[str]:
    """Headings, entries and paragraphs."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if block and (not line.strip() or line.startswith("#") or ENTRY.match(line) or block[0].startswith("#")):
            yield "\n".join(block)
            block = []
        if line.strip():
            block.append(line.rstrip())


def _level(heading: str) -> int:
    return len(heading) - len(heading.lstrip("#"))


def _plain(block: str) -> str:
    return " ".join(block.split())

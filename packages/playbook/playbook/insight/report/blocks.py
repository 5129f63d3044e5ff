"""What a section of a report consists of, as HTML and as Markdown. Imports no torch: `report` rebuilds from files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

MOST_ROWS = 200  # of a table; the rest is counted


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def html(self) -> str:
        return f"<p>{escape(self.text)}</p>"

    def markdown(self) -> str:
        return self.text


@dataclass(frozen=True)
class Code:
    """Text in a fixed width, behind a line that opens it where it is long.

    Args:
        title: of what it is.
        text: as it is shown.
        is_diff: whether lines that begin with + and - are added and removed.
    """

    title: str
    text: str
    is_diff: bool = False

    def html(self) -> str:
        lines = self.text.splitlines()
        body = "\n".join(_diff_line(line) if self.is_diff else escape(line) for line in lines)
        code = f"<pre><code>{body}</code></pre>"
        if len(lines) <= 8:
            return f"<h3>{escape(self.title)}</h3>{code}"
        return f"<details><summary>{escape(self.title)} ({len(lines):,} lines)</summary>{code}</details>"

    def markdown(self) -> str:
        fence = "`" * max(3, 1 + max((len(line) - len(line.lstrip("`")) for line in self.text.splitlines()), default=0))
        return f"{self.title}:\n\n{fence}\n{self.text.rstrip()}\n{fence}"


@dataclass(frozen=True)
class Table:
    """Rows with the same columns.

    Args:
        title: of what the rows are.
        rows: values by column; None is an empty cell.
    """

    title: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def html(self) -> str:
        numeric = {name for name in self.columns if all(_is_number(row.get(name)) for row in self.rows)}
        mark = {name: ' class="number"' if name in numeric else "" for name in self.columns}
        head = "".join(f'<th scope="col"{mark[name]}>{escape(name)}</th>' for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td{mark[name]}>{escape(cell(row.get(name)))}</td>" for name in self.columns) + "</tr>\n"
            for row in self.rows[:MOST_ROWS]
        )
        table = (
            f"<table><caption>{escape(self._caption)}</caption><thead><tr>{head}</tr></thead>\n"
            f"<tbody>{body}</tbody></table>"
        )
        return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(self.title)}">{table}</div>'

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[cell(row.get(name)) for name in self.columns] for row in self.rows[:MOST_ROWS]]
        return f"{self._caption}:\n\n" + "\n".join(
            "| " + " | ".join(entry.replace("|", "\\|").replace("\n", " ") for entry in line) + " |" for line in lines
        )

    @property
    def _caption(self) -> str:
        rest = len(self.rows) - MOST_ROWS
        return self.title if rest <= 0 else f"{self.title} (the first {MOST_ROWS}; {rest:,} more)"


@dataclass(frozen=True)
class Chart:
    """A drawing as SVG.

    Args:
        title: of what it shows.
        svg: made by charts.to_svg.
        alt: what it shows, in words.
    """

    title: str
    svg: str
    alt: str

    def html(self) -> str:
        svg = self.svg.replace("<svg ", f'<svg role="img" aria-label="{escape(self.alt)}" ', 1)
        return f"<figure><figcaption>{escape(self.title)}</figcaption>{svg}</figure>"

    def markdown(self) -> str:
        return f"{self.title}: {self.alt}."


@dataclass(frozen=True)
class Gallery:
    """Pictures beside each other.

    Args:
        title: of what they are.
        pictures: source (`data:image/…`), and the text below each, which is also its alternative text.
        is_wide: whether they need more room than a photo, as charts do.
    """

    title: str
    pictures: Sequence[tuple[str, str]]
    is_wide: bool = False

    def html(self) -> str:
        figures = "".join(
            f'<figure><img src="{source}" alt="{escape(text)}"><figcaption>{escape(text)}</figcaption></figure>'
            for source, text in self.pictures
        )
        kind = "gallery wide" if self.is_wide else "gallery"
        return f'<h3>{escape(self.title)}</h3><div class="{kind}">{figures}</div>'

    def markdown(self) -> str:
        return f"{self.title}:\n\n" + "\n".join(f"- {text}" for _, text in self.pictures)


Block = Text | Code | Table | Chart | Gallery
KINDS: dict[str, type] = {kind.__name__: kind for kind in (Text, Code, Table, Chart, Gallery)}


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Args:
        title: of the part.
        blocks: what it consists of, from top to bottom.
    """

    title: str
    blocks: Sequence[Block]

    def html(self) -> str:
        parts: list[str] = []
        charts: list[str] = []
        for block in [*self.blocks, None]:
            if isinstance(block, Chart):
                charts.append(block.html())
                continue
            if charts:
                parts.append(f'<div class="charts">{"".join(charts)}</div>')
                charts = []
            if block is not None:
                parts.append(block.html())
        return "\n".join(parts)

    def markdown(self) -> str:
        return "\n\n".join([f"## {self.title}", *(block.markdown() for block in self.blocks)])


def plain(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Blocks as values for JSON."""
    return [{"kind": type(block).__name__, **asdict(block)} for block in blocks]


def restored(entries: Iterable[Mapping[str, Any]]) -> list[Block]:
    """Blocks from the values that `plain` made; of a kind that this version does not know, none."""
    return [
        KINDS[entry["kind"]](**{name: value for name, value in entry.items() if name != "kind"})
        for entry in entries
        if entry.get("kind") in KINDS
    ]


def cell(value: Any) -> str:
    """A value as people read it: numbers with thousands and four digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"
    return str(value)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _diff_line(line: str) -> str:
    kind = "added" if line.startswith("+") else "removed" if line.startswith("-") else ""
    return f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line)

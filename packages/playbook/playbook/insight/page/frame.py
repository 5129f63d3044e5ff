"""The frame of every page: style sheet, heading, figures at a glance, sections. A page asks the network for nothing."""

from collections.abc import Iterable, Sequence
from html import escape

from playbook.pages import STYLE

# a page loads nothing and runs nothing, even if a text in it were no text
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, subtitle: str, figures: Iterable[tuple[str, str]], sections: Sequence[tuple[str, str]]) -> str:
    """A whole page.

    Args:
        title: of the page.
        subtitle: a line below it.
        figures: name and value of what to see at a glance.
        sections: title and HTML of each.
    """
    cards = "".join(f"<li>{escape(name)} <strong>{escape(value)}</strong></li>" for name, value in figures)
    links = "".join(f'<li><a href="#{anchor(name)}">{escape(name)}</a></li>' for name, _ in sections)
    body = "\n".join(
        f'<section id="{anchor(name)}"><h2>{escape(name)}</h2>\n{html}\n</section>' for name, html in sections
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="quiet">{escape(subtitle)}</p>
{f'<ul class="figures">{cards}</ul>' if cards else ""}
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{body}
</main>
<footer><p>Written by Playbook.</p></footer>
</body>
</html>
"""


def anchor(title: str) -> str:
    """The name of a section within the page."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())

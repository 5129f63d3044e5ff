"""The style sheet of all pages: reports, and those of the server, which starts without what makes reports."""

from pathlib import Path

STYLE = Path(__file__).parent / "style.css"

"""Reads the files of a run, which may be missing, half written or of another version. Imports no torch."""

import json
from pathlib import Path
from typing import Any


def read_text(path: Path) -> str:
    """The text of a file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file; empty where there is none, or one that was cut off."""
    try:
        values = json.loads(read_text(path) or "{}")
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}

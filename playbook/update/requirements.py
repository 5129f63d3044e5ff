"""What the machine asks of a project's `pyproject.toml`."""

import re
import tomllib
from typing import Any

MARKERS = "pytest marker"


def differences(theirs: str, yours: str) -> list[tuple[str, str]]:
    """Lines that the machine's `pyproject.toml` has and yours lacks, each with what yours says instead, or "".

    Args:
        theirs: text of the machine's file.
        yours: text of the project's file; nothing is compared if it cannot be read.
    """
    needed, present = _lines(theirs), _lines(yours)
    if not present:
        return []
    pairs = [(line, present.get(name, "")) for name, line in needed.items()]
    return [(line, other) for line, other in pairs if _plain(line) != _plain(other)]


def _lines(text: str) -> dict[str, str]:
    """Each requirement by what it is about."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
    project = _table(content, "project")
    groups = {"": project.get("dependencies", []), **_table(project, "optional-dependencies")}
    groups["test"] = _table(content, "dependency-groups").get("test", [])
    lines = {"python": f"requires-python {project['requires-python']}"} if "requires-python" in project else {}
    for group, requirements in groups.items():
        for requirement in filter(lambda line: isinstance(line, str), requirements):
            name = re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]
            lines[f"{group} {re.sub(r'[-_.]+', '-', name).lower()}"] = requirement.strip() + (
                f"  ({group})" if group else ""
            )
    for marker in _table(content, "tool", "pytest", "ini_options").get("markers", []):
        name = marker.partition(":")[0].strip()
        lines[f"{MARKERS} {name}"] = f"{MARKERS} {name}"
    return lines


def _plain(line: str) -> str:
    """As it is compared: names of packages are equal in any spelling."""
    return "".join(line.split()).lower().replace("_", "-")


def _table(content: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        content = content.get(key, {})
    return content

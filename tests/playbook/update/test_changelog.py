"""Between two versions of a changelog is what the newer one says and the older one does not."""

import pytest

from playbook.update.changelog import between

OLD = """\
# Changelog

In the manner of Keep a Changelog.

## [0.1.0] - 2026-01-01

### Added

- First line,
  which goes on.
- Second line.
"""


def grown(*sections: str) -> str:
    introduction, _, rest = OLD.partition("## ")
    return introduction + "".join(f"{section}\n\n" for section in sections) + "## " + rest


@pytest.mark.parametrize("heading", ["## [0.2.0] - 2026-02-01", "## 0.2.0", "## v0.2.0 (2026-02-01)", "## Unreleased"])
def test_sections_above_the_old_version(heading: str) -> None:
    section = f"{heading}\n\n### Fixed\n\n- Third line."
    assert between(OLD, grown(section), "0.1.0") == section


def test_several_sections_keep_their_order() -> None:
    sections = ["## 0.3.0\n\n- Newest.", "## 0.2.0\n\nA paragraph.\n\n### Added\n\n- Newer.\n\n### Fixed\n\n- Mended."]
    assert between(OLD, grown(*sections), "0.1.0") == "\n\n".join(sections)


def test_a_line_added_to_the_old_version_is_news() -> None:
    new = OLD.replace("- Second line.", "- Second line.\n- Added\n  afterwards.")
    assert between(OLD, new, "0.1.0") == "## [0.1.0] - 2026-01-01\n\n### Added\n\n- Added\n  afterwards."


def test_lines_that_only_move_to_a_release_are_no_news() -> None:
    old = OLD.replace("## [0.1.0] - 2026-01-01", "## Unreleased")
    assert between(old, grown("## 0.2.0\n\n- Third line."), "0.1.0") == "## 0.2.0\n\n- Third line."


def test_corrections_of_older_versions_are_left_out() -> None:
    new = grown("## 0.3.0\n\n- Newest.", "## 0.2.0\n\n- Newer.").replace("Second line", "Second, corrected line")
    assert between(grown("## 0.2.0\n\n- Newer."), new, "0.2.0") == "## 0.3.0\n\n- Newest."


def test_lines_broken_elsewhere_are_the_same() -> None:
    assert between(OLD, OLD.replace("line,\n  which", "line, which"), "0.1.0") == ""


@pytest.mark.parametrize(("old", "new"), [(OLD, OLD), (OLD, ""), ("", ""), (OLD, "# Changelog\n\nNo version.\n")])
def test_nothing_new(old: str, new: str) -> None:
    assert between(old, new, "0.1.0") == ""


def test_without_an_old_changelog_everything_is_new() -> None:
    assert between("", OLD, "0.0.1") == OLD.partition("Changelog.\n\n")[2].rstrip()

"""These tests are of the template as a whole: its documents, notebooks and projects name recipes of every domain."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.template.snapshot import DOMAINS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips them in a project without one of the domains, whose documents name recipes that are gone."""
    missing = [domain for domain in DOMAINS if not (ROOT / "src/nets" / domain).is_dir()]
    for item in items:
        if missing and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.skip(reason=f"a test of the template, for all domains; no {missing[0]} here"))

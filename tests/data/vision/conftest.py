"""Fixtures for the tests of image data."""

import pytest


@pytest.fixture(autouse=True)
def equal_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up pictures of different splits are often equal, of which nothing shall be said; see test_copies.py."""
    monkeypatch.setattr("playbook.data.base.copied_files", lambda splits: {})

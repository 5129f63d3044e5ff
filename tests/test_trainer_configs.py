"""Every file in configs/trainer says when to use it, what it costs and what it buys."""

from pathlib import Path

import pytest

from playbook.command import discovery
from tests.conftest import ROOT

PARTIALS = [entry.path for entry in discovery.partials() if Path(entry.path).parent.name == "trainer"]


@pytest.mark.parametrize("path", PARTIALS)
def test_header_has_room_for_when_what_it_costs_and_what_it_buys(path: str) -> None:
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    header = [line for line in lines if line.startswith("# ")]
    assert 3 <= len(header) <= 6, header

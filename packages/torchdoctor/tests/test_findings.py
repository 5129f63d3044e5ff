"""Findings as JSON has them."""

import pytest

from torchdoctor.findings import Defect, Finding

DEFECT = Defect("any", "warning", "None.")


@pytest.mark.parametrize(
    ("fix", "written"),
    [
        ("nn.init.zeros_(self.heads.0.conv.bias)", "nn.init.zeros_(self.heads[0].conv.bias)"),
        ("self.net.0.1.bias.fill_(0.5)", "self.net[0][1].bias.fill_(0.5)"),
        ("self.scale = 1.5", "self.scale = 1.5"),
    ],
)
def test_numbers_among_names_are_indices(fix: str, written: str) -> None:
    assert Finding(DEFECT, None, "", fix).as_dict()["fix"] == written

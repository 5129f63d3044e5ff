"""Which numbers decide about the best epoch of a script, followed in its source."""

from pathlib import Path

import pytest

from torchdoctor import source
from torchdoctor.probes.evaluation.selection import _compared

LOOPS = """
best = 1e9
for epoch in range(9):
    train_loss = 0.0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        train_loss += loss.item()
    train_loss /= len(loader)
    model.eval()
    val_loss = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            val_loss += criterion(model(x), y).item()
    current = VALUE
    if current < best:
        best = current
        torch.save(model.state_dict(), "best.pt")
"""
FUNCTIONS = """
def train(loader):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
    return loss.item()


def score(loader):
    return sum(criterion(model(x), y).item() for x, y in loader)


def run(loader, is_training):
    for x, y in loader:
        loss = criterion(model(x), y)
        if is_training:
            loss.backward()
    return loss.item()


best, patience = 1e9, 0
for epoch in range(9):
    first = train(loader)
    second = score(val_loader)
    third, fourth = run(loader, True), run(val_loader, False)
    if VALUE < best:
        best, patience = VALUE, 0
    else:
        patience += 1
"""


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (LOOPS, "train_loss", [True]),
        (LOOPS, "loss.item()", [True]),
        (LOOPS, "val_loss / len(val_loader)", [False]),
        (LOOPS, "0.9 * val_loss + 0.1 * train_loss", [False]),
        (LOOPS, "epoch", []),
        (FUNCTIONS, "first", [True]),
        (FUNCTIONS, "second", [False]),
        (FUNCTIONS, "fourth", [False]),
    ],
)
def test_values_are_followed_to_where_they_are_computed(
    tmp_path: Path, text: str, value: str, expected: list[bool]
) -> None:
    file = tmp_path / "script.py"
    file.write_text(text.replace("VALUE", value), encoding="utf-8")
    choices = list(_compared(str(file), source.tree(str(file))))
    assert [is_of_training for _, _, is_of_training in choices] == expected, choices

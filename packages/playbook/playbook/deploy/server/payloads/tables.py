"""Rows of a table."""

import csv
import io
from collections import Counter
from itertools import islice

from playbook.deploy.served import Served
from playbook.deploy.server.limits import Limits
from playbook.deploy.server.payloads.body import Body, Payload, refuse


def from_table(body: Body, served: Served, limits: Limits) -> Payload:
    """One input a row: numbers, or texts by the names in the header."""
    reading = served.manifest.get("preprocessing") or {}
    delimiter = "\t" if body.media_type.startswith("text/tab") else reading.get("separator") or ","
    try:
        lines = csv.reader(io.StringIO(body.text, newline=""), delimiter=delimiter)
        rows = list(islice(filter(None, lines), limits.max_queue + 2))  # with a header, and one too many
    except csv.Error as error:
        refuse(400, f"the table cannot be read: {error}")
    if len(rows) - 1 > limits.max_queue:
        refuse(413, f"rows: expected at most {limits.max_queue}, got more")
    if served.kind == "tensor":
        return Payload(_numbers_in(rows))
    header = [name.strip() for name in rows[0]] if rows else []
    if twice := [name for name, count in Counter(header).items() if count > 1 and name]:
        refuse(422, f"the header: two columns are called {twice[0][:40]}, expected one")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            refuse(422, f"row {number}: expected {len(header)} fields, as in the header, got {len(row)}")
    return Payload([dict(zip(header, row, strict=True)) for row in rows[1:]])


def _numbers_in(rows: list[list[str]]) -> list[list[float]]:
    """Rows of numbers; a first row of names is left out."""
    if rows and not any(_is_number(cell) for cell in rows[0]):
        rows = rows[1:]
    values = []
    for number, row in enumerate(rows, start=1):
        wrong = next((cell for cell in row if not _is_number(cell)), None)
        if wrong is not None:
            refuse(422, f"row {number}: expected numbers, got {wrong[:40]!r}")
        values.append([float(cell) for cell in row])
    return values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True

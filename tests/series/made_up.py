"""A made-up series in the layout of the published one that the recipes train on."""

import math
import random
from datetime import datetime, timedelta
from pathlib import Path

CHANNELS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
NUM_ROWS = 14_400  # the first 20 months, which the recipes divide


def write(folder: Path) -> None:
    """Writes it where and as it is published."""
    start, draw = datetime(2016, 7, 1), random.Random(0)
    lines = [",".join(("date", *CHANNELS))]
    for hour in range(NUM_ROWS):
        values = (math.sin(hour * math.tau / 24 + k) + draw.gauss(0, 0.2) for k in range(len(CHANNELS)))
        lines.append(",".join((str(start + timedelta(hours=hour)), *(f"{value:.4f}" for value in values))))
    (folder / "ett").mkdir(parents=True)
    (folder / "ett/ETTh1.csv").write_text("\n".join(lines) + "\n")

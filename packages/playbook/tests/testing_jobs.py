"""What the processes of test_testing.py do."""

import time
from pathlib import Path


def hang_once(rank: int, folder: str) -> None:
    """Hangs where no process has been before; else leaves a file."""
    with Path(folder, f"came-{rank}").open("a") as file:
        file.write("x")
    Path(folder, "store").touch()
    if Path(folder, f"came-{rank}").read_text() == "x" and rank == 1:
        time.sleep(1000)
    Path(folder, f"done-{rank}").touch()

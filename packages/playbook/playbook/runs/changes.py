"""The uncommitted changes of a working tree: code, and no data."""

import os
import re
import subprocess
import sys
from pathlib import Path

MOST_PER_FILE = 256 * 2**10  # bytes of a change that is recorded
MOST_IN_ALL = 2 * 2**20
MOST_NEW_FILES = 100


def uncommitted_changes() -> tuple[str, list[str]]:
    """The changes of tracked files and the new files as one patch, without binary and large ones.

    Returns:
        The patch, and each file left out with the reason.
    """
    parts, left_out, num_bytes, num_new = [], [], 0, 0
    for change in re.split(r"(?m)^(?=diff --git )", git("diff", "HEAD"))[1:]:
        name = change.partition("\n")[0].removeprefix("diff --git ").partition(" ")[0].removeprefix("a/")
        reason = "binary" if re.search(r"(?m)^Binary files .* differ$", change) else _fault(len(change), num_bytes)
        parts += [] if reason else [change]
        left_out += [f"{name} ({reason})"] if reason else []
        num_bytes += 0 if reason else len(change)
    for name in git("ls-files", "--others", "--exclude-standard", "-z").split("\0")[:-1]:
        reason = _fault_of_new(Path(name), num_bytes) or ("too many new files" if num_new >= MOST_NEW_FILES else "")
        left_out += [f"{name} ({reason})"] if reason else []
        if not reason:
            parts.append(git("diff", "--no-index", "--", os.devnull, name))
            num_bytes += len(parts[-1])
            num_new += 1
    heading = "".join(f"# left out: {entry}\n" for entry in left_out)  # `git apply` skips what is before a patch
    return heading + "".join(parts), left_out


def _fault_of_new(file: Path, num_bytes: int) -> str:
    """Why a new file is left out; empty if it is not."""
    try:
        if file.is_dir():
            return "a repository of its own"
        if reason := _fault(file.lstat().st_size, num_bytes):
            return reason
        with file.open("rb") as content:
            return "binary" if b"\0" in content.read(8000) else ""  # where git looks as well
    except OSError as error:
        return error.strerror or str(error)


def _fault(size: int, num_bytes: int) -> str:
    if size > MOST_PER_FILE:
        return f"{size / 2**20:.1f} MiB; at most {MOST_PER_FILE / 2**20:.2g} a file"
    return f"more than {MOST_IN_ALL / 2**20:.0f} MiB in all" if num_bytes + size > MOST_IN_ALL else ""


def git(*arguments: str) -> str:
    """Output of git; empty if it fails."""
    try:
        done = subprocess.run(["git", "-c", "color.ui=false", *arguments], check=False, capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"warning: git {arguments[0]}: {error}; not recorded", file=sys.stderr)
        return ""
    compared = "--no-index" in arguments and done.returncode == 1  # there is a difference
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 or compared else ""

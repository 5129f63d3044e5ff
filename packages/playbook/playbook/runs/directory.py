"""The run directory: one folder a run, the same whatever the logger. No torch here, so that errors come at once.

runs/<recipe>/<date-time>/
    config.yaml        the whole configuration, defaults included; `fit --config` repeats the run
    checkpoints/       best.ckpt, last.ckpt and its predecessor previous.ckpt
    metrics.csv        all logged values, one row per step
    metrics.json       status, limits and results
    environment.json   versions, hardware, command, commit
    git.diff           uncommitted changes of the working tree
    predictions/       output of `predict`
"""

import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import sys
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from playbook.errors import UserError, nearest
from playbook.processes import is_first_process
from playbook.project import current
from playbook.runs.changes import git, uncommitted_changes

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

ROOT = Path("runs")
_locks: dict[Path, int] = {}
PACKAGES = ("torch", "torchvision", "lightning", "torchmetrics", "jsonargparse", "numpy", "scikit-learn", "wandb")


class Run:
    """Where the files of one run are.

    Args:
        path: the run directory; made by `create`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.checkpoints = path / "checkpoints"
        self.metrics_csv = path / "metrics.csv"
        self.metrics_json = path / "metrics.json"
        self.predictions = path / "predictions"

    def __str__(self) -> str:
        return self.path.as_posix()

    @property
    def title(self) -> str:
        """Name of the run: its recipe if Playbook named the directory, the directory's name otherwise."""
        path = self.path.absolute()
        return path.parent.name if _is_dated(path) else path.name

    @property
    def label(self) -> str:
        """The title that also tells runs of one recipe apart."""
        path = self.path.absolute()
        return f"{path.parent.name}/{path.name}" if _is_dated(path) else path.name

    def create(self) -> None:
        """Creates the directory, or raises an error that says why it cannot; only in the first process."""
        if not is_first_process():
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock()
            for leftover in [*self.path.glob(".*.[0-9]*"), *self.checkpoints.glob(".*.[0-9]*")]:
                remove(leftover)  # of a process that was killed while it wrote
        except OSError as error:
            raise UserError(f"--run_dir {self}: cannot be written: {error.strerror or error}") from error

    def _lock(self) -> None:
        """Keeps a second training out of the directory for as long as this process lives.

        Raises:
            UserError: another process trains in it.
        """
        if self.path.absolute() in _locks:
            return
        file = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)  # open as long as the process lives
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                raise UserError(f"--run_dir {self}: another process is training in it") from None
        _locks[self.path.absolute()] = file

    def release(self) -> None:
        """Lets other processes in, and removes a directory that nothing was written to."""
        if (file := _locks.pop(self.path.absolute(), None)) is not None:
            os.close(file)
            (self.path / ".lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # what is not empty stays
            self.path.rmdir()
            if ROOT in self.path.parents:
                self.path.parent.rmdir()
                ROOT.rmdir()

    def has_checkpoint(self) -> bool:
        """Whether anything was saved."""
        return any(self.checkpoints.glob("*.ckpt"))

    def continue_command(self) -> str:
        """The command that resumes the run."""
        return f"{current().command} fit --run_dir {shlex.quote(str(self))} --ckpt_path last"

    def read_metrics(self) -> dict[str, Any]:
        """What metrics.json holds; empty if there is none yet."""
        try:
            return json.loads(self.metrics_json.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def update_metrics(self, **values: Any) -> None:
        """Replaces some entries of metrics.json; the file is whole at every moment."""
        write_atomically(self.metrics_json, json.dumps(self.read_metrics() | values, indent=2) + "\n")

    def record_environment(self, command: list[str]) -> None:
        """Writes environment.json and git.diff: what is needed to have this run again."""
        environment = {
            "command": command,
            "started": datetime.now().astimezone().isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpu_count": os.cpu_count(),
            "packages": {name: _version(name) for name in PACKAGES},
            "git_commit": git("rev-parse", "HEAD").strip() or None,
        }
        write_atomically(self.path / "environment.json", json.dumps(environment, indent=2) + "\n")
        text, left_out = uncommitted_changes()
        write_atomically(self.path / "git.diff", text)
        if left_out:
            more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
            print(f"git.diff  without data files: {left_out[0]}{more}", file=sys.stderr, flush=True)


def new_run(recipe: str, root: Path = ROOT) -> Run:
    """A dated run directory that no other run has, made at once so that no other takes it.

    Args:
        recipe: name of the folder that collects its runs.
        root: folder that the former lies in, named `runs`.
    """
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    path, number = root / recipe / stamp, 1
    while True:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            path = root / recipe / f"{stamp}-{number}"
        except OSError as error:
            raise UserError(f"--run_dir {path.as_posix()}: cannot be created: {error.strerror or error}") from error
        else:
            return Run(path)


def newest_run(recipe: str | None) -> Run:
    """The newest run of a recipe, or of all of them, that has a checkpoint.

    Raises:
        UserError: there is none.
    """
    checkpoints = ROOT.glob(f"{recipe or '*'}/*/checkpoints/*.ckpt")
    newest = max((path.parent.parent for path in checkpoints), key=lambda path: path.name, default=None)
    if newest is None:
        raise UserError(f"--ckpt_path: no run{f' of {recipe}' if recipe else ''} under {ROOT}/ has a checkpoint")
    return Run(newest)


def is_checkpoint(path: Path) -> bool:
    """Whether this is a file, or a folder that several processes wrote; a run directory is neither."""
    return path.is_file() or (path / ".metadata").is_file()


def remove(path: Path) -> None:
    """Deletes a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def run_of(checkpoint: Path) -> Run | None:
    """The run that a checkpoint lies in, if it lies in one."""
    folder = checkpoint.absolute().parent
    if folder.name != "checkpoints" or not (folder.parent / "config.yaml").is_file():
        return None
    return Run(checkpoint.parent.parent)


def require_there(spec: str, option: str) -> None:
    """Refuses the name of a checkpoint or a run that does not exist; best and last always pass.

    Raises:
        UserError: there is no such file or directory.
    """
    path = Path(spec)
    if spec in ("best", "last") or path.is_dir() or path.is_file():
        return
    siblings = [entry.as_posix() for entry in path.parent.glob("*")] if path.parent.is_dir() else []
    raise UserError(f"{option} {spec}: no such file or run directory{nearest(spec, [*siblings, 'best', 'last'])}")


def checkpoint_candidates(spec: str, run: Run | None, recipe: str | None, option: str) -> list[Path]:
    """Checkpoints that an option may mean, the one to prefer first.

    Args:
        spec: best, last, a run directory or a checkpoint.
        run: the run given by --run_dir, if any.
        recipe: whose newest run `best` and `last` mean without one.
        option: its name, for messages.

    Raises:
        UserError: nothing of that name exists.
    """
    if spec not in ("best", "last"):
        require_there(spec, option)
        path = Path(spec)
        if is_checkpoint(path):
            return [path]
        run = Run(path.parent if path.name == "checkpoints" else path)
    elif run is None:
        run = newest_run(recipe)
    # a kill while a folder takes the place of another leaves it under the name that it had before, and no other
    names = ("best.ckpt", "best.new", "last.ckpt", "last.new", "previous.ckpt")
    best, new, *lasts = (run.checkpoints / name for name in names)
    best = best if is_checkpoint(best) else new
    lasts = [path for path in lasts if is_checkpoint(path)]
    # the best stands in for damaged last ones only: without any, the first save was not reached, and afresh is exact
    preferred = {"best": [best], "last": [*lasts, best] if lasts else []}.get(spec, [best, *lasts])
    existing = [path for path in preferred if is_checkpoint(path)]
    if not existing:
        wanted = "best.ckpt; it needs a validation that logs --checkpoint.monitor" if spec == "best" else "checkpoint"
        raise UserError(f"{option} {spec}: {run} has no {wanted}")
    return existing


def write_atomically(path: Path, text: str) -> None:
    """Writes beside the file, then renames: a reader sees the old text or the new, and a crash loses neither."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(text.encode("utf-8", "surrogateescape"))
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _is_dated(path: Path) -> bool:
    """Whether `new_run` named it: runs/<recipe>/<date-time>."""
    is_stamp = re.fullmatch(r"\d{4}-\d{2}-\d{2}-\d{6}(-\d+)?", path.name) is not None
    return is_stamp and path.parent.parent.name == ROOT.name


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

"""A logger for reviewed trainings that accepts every call and stores nothing."""

import os
import sys
from collections.abc import Iterator
from typing import Any

from lightning.pytorch.loggers.logger import DummyLogger


class _Anything:
    """A stand-in for any object of a logging library: attributes, calls, `with` and iteration all work."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __getitem__(self, _: Any) -> Any:
        return self

    def __setitem__(self, *_: Any) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None: ...


class AcceptingLogger(DummyLogger):
    """A logger that has every method of the known libraries, such as `watch`, `log_image` and `experiment.add_image`.

    Args:
        folder: where modules put files beside their logs.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(_Anything(), name)

    @property
    def save_dir(self) -> str:
        return self.folder

    @property
    def log_dir(self) -> str:
        return self.folder

    @property
    def experiment(self) -> Any:
        return _Anything()


def make_folders_below(folder: str) -> None:
    """Creates missing subfolders whenever a file below this folder is opened."""

    def see(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and args[0].startswith(folder + os.sep):
            os.makedirs(os.path.dirname(args[0]), exist_ok=True)

    sys.addaudithook(see)

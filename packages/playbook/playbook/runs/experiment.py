"""What `self.logger.experiment` is where nothing but metrics.csv, or nothing at all, is recorded."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any


class Ignored:
    """Takes any call, attribute and item, so that code for TensorBoard or W&B runs without them.

    Args:
        name: the expression that gave it, for messages.
        tell: is called with the name of what is called.
    """

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        self._name = name
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # protocols, of copy and pickle among others, must not be answered
            raise AttributeError(name)
        return Ignored(f"{self._name}.{name}", self._tell)

    def __call__(self, *args: Any, **kwargs: Any) -> "Ignored":
        self._tell(self._name)
        return self

    def __getitem__(self, key: Any) -> "Ignored":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        self._tell(self._name)

    def __iter__(self) -> Iterator[Any]:  # otherwise __getitem__ would make it endless
        return iter(())

    def __enter__(self) -> "Ignored":
        return self

    def __exit__(self, *error: object) -> None:
        return None


class Experiment(Ignored):
    """As the writer of Lightning's CSVLogger; what else is called is ignored.

    Args:
        logger: whose experiment it is.
        tell: is called with the name of what is ignored.
    """

    def __init__(self, logger: Any, tell: Callable[[str], None]) -> None:
        super().__init__("self.logger.experiment", tell)
        self._logger = logger
        self.hparams: dict[str, Any] = {}

    @property
    def log_dir(self) -> str:
        return self._logger.log_dir

    logdir = dir = log_dir  # as TensorBoard and W&B call it

    @property
    def metrics_file_path(self) -> str:
        return os.path.join(self.log_dir, "metrics.csv")

    def get_logdir(self) -> str:
        """As TensorBoard's SummaryWriter has it."""
        return self.log_dir

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Adds a row to metrics.csv."""
        self._logger.log_metrics(metrics, step)

    def log_hparams(self, params: dict[str, Any]) -> None:
        """Keeps them; config.yaml holds those of the run."""
        self.hparams.update(params)

    def save(self) -> None:
        """Nothing is left to write."""


def say_nothing(name: str) -> None:
    """For what need not be recorded."""


class TellOnce:
    """Says on standard error, once, what the run's files do not record."""

    def __init__(self) -> None:
        self.told = False

    def __call__(self, name: str) -> None:
        if not self.told:
            self.told = True
            print(
                f"warning: {name} is not recorded: metrics.csv holds what self.log logs; for more, add "
                "--trainer.logger TensorBoardLogger or another logger",
                file=sys.stderr,
            )

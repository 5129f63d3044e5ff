"""Playbook: the names that a project imports to train its networks. Each is loaded on first use.

`import playbook` imports neither torch nor Lightning, so that `--help` and error messages appear immediately.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from playbook import moved
from playbook.training.quiet import quiet_warnings

__version__ = "0.2.0"

if TYPE_CHECKING:
    from playbook.command.main import main as main
    from playbook.command.rebuild import LoadedRun as LoadedRun
    from playbook.command.rebuild import load_run as load_run
    from playbook.data.base import Data as Data
    from playbook.data.base import split_indices as split_indices
    from playbook.data.files import files_below as files_below
    from playbook.data.loader import DataError as DataError
    from playbook.data.resident import ResidentImages as ResidentImages
    from playbook.data.tables import csv_rows as csv_rows
    from playbook.data.tables import parse_json as parse_json
    from playbook.data.tables import tsv_rows as tsv_rows
    from playbook.errors import UserError as UserError
    from playbook.errors import nearest as nearest
    from playbook.facts import class_name as class_name
    from playbook.network import is_restored as is_restored
    from playbook.network import networks as networks
    from playbook.parallel import Replicated as Replicated
    from playbook.parallel import spread as spread
    from playbook.runs.colours import class_colour as class_colour
    from playbook.task import OptimizerFactory as OptimizerFactory
    from playbook.task import ScheduleFactory as ScheduleFactory
    from playbook.task import Task as Task
    from playbook.training.lightning import ends_epoch as ends_epoch
    from playbook.training.lightning import finds_unused_parameters as finds_unused_parameters
    from playbook.training.nonfinite.replay import replay as replay
    from playbook.training.trainer import Trainer as Trainer

FACE = {
    "main": "command.main",
    "LoadedRun": "command.rebuild",
    "load_run": "command.rebuild",
    "Data": "data.base",
    "split_indices": "data.base",
    "files_below": "data.files",
    "DataError": "data.loader",
    "ResidentImages": "data.resident",
    "csv_rows": "data.tables",
    "parse_json": "data.tables",
    "tsv_rows": "data.tables",
    "UserError": "errors",
    "nearest": "errors",
    "class_name": "facts",
    "is_restored": "network",
    "networks": "network",
    "Replicated": "parallel",
    "spread": "parallel",
    "class_colour": "runs.colours",
    "OptimizerFactory": "task",
    "ScheduleFactory": "task",
    "Task": "task",
    "ends_epoch": "training.lightning",
    "finds_unused_parameters": "training.lightning",
    "replay": "training.nonfinite.replay",
    "Trainer": "training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in FACE:
        raise AttributeError(f"module 'playbook' has no attribute '{name}'")
    quiet_warnings()  # some come while Lightning is imported
    return getattr(import_module(f"playbook.{FACE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *FACE])


moved.install()

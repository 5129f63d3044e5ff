"""Playbook: the names that a project imports to train its networks. Each is loaded on first use.

`import playbook` imports neither torch nor Lightning, so that `--help` and error messages appear immediately, and
changes nothing in the process.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from playbook.block import blocks as blocks
    from playbook.charts import chart_axes as chart_axes
    from playbook.command.main import main as main
    from playbook.command.rebuild import LoadedRun as LoadedRun
    from playbook.command.rebuild import load_run as load_run
    from playbook.data.base import Data as Data
    from playbook.data.encodings import check_encoding as check_encoding
    from playbook.data.encodings import decode_text as decode_text
    from playbook.data.encodings import guess_encoding as guess_encoding
    from playbook.data.encodings import zeros_in as zeros_in
    from playbook.data.files import files_below as files_below
    from playbook.data.loader import DataError as DataError
    from playbook.data.resident import ResidentImages as ResidentImages
    from playbook.data.splits import split_indices as split_indices
    from playbook.data.tables import CsvTable as CsvTable
    from playbook.data.tables import csv_rows as csv_rows
    from playbook.data.tables import json_array as json_array
    from playbook.data.tables import named_separator as named_separator
    from playbook.data.tables import parquet_rows as parquet_rows
    from playbook.data.tables import parse_json as parse_json
    from playbook.data.tables import tsv_rows as tsv_rows
    from playbook.deploy.runtime.audio import AudioHeader as AudioHeader
    from playbook.deploy.runtime.audio import audio_header as audio_header
    from playbook.deploy.runtime.audio import audio_windows as audio_windows
    from playbook.deploy.runtime.audio import decode_audio as decode_audio
    from playbook.deploy.runtime.tables import TableReader as TableReader
    from playbook.deploy.runtime.tables import category_of as category_of
    from playbook.deploy.runtime.tables import is_missing as is_missing
    from playbook.deploy.runtime.tables import number_of as number_of
    from playbook.deploy.runtime.tables import seconds_of as seconds_of
    from playbook.errors import UserError as UserError
    from playbook.errors import nearest as nearest
    from playbook.facts import class_name as class_name
    from playbook.facts import require_room as require_room
    from playbook.from_data import build as build
    from playbook.insight.report.callback import Report as Report
    from playbook.network import is_restored as is_restored
    from playbook.network import networks as networks
    from playbook.parallel import any_process as any_process
    from playbook.results import TestReport as TestReport
    from playbook.runs.colours import class_colour as class_colour
    from playbook.task import OptimizerFactory as OptimizerFactory
    from playbook.task import ScheduleFactory as ScheduleFactory
    from playbook.task import Task as Task
    from playbook.training.lightning.position import ends_epoch as ends_epoch
    from playbook.training.lightning.settings import finds_unused_parameters as finds_unused_parameters
    from playbook.training.measure import direction as direction
    from playbook.training.measure import logged_measure as logged_measure
    from playbook.training.measure import own_measure as own_measure
    from playbook.training.nonfinite.replay import replay as replay
    from playbook.training.trainer import Trainer as Trainer

FACE = {
    "blocks": "block",
    "chart_axes": "charts",
    "main": "command.main",
    "LoadedRun": "command.rebuild",
    "load_run": "command.rebuild",
    "Data": "data.base",
    "split_indices": "data.splits",
    "check_encoding": "data.encodings",
    "decode_text": "data.encodings",
    "guess_encoding": "data.encodings",
    "zeros_in": "data.encodings",
    "files_below": "data.files",
    "DataError": "data.loader",
    "ResidentImages": "data.resident",
    "CsvTable": "data.tables",
    "csv_rows": "data.tables",
    "json_array": "data.tables",
    "named_separator": "data.tables",
    "parquet_rows": "data.tables",
    "parse_json": "data.tables",
    "tsv_rows": "data.tables",
    "AudioHeader": "deploy.runtime.audio",
    "audio_header": "deploy.runtime.audio",
    "audio_windows": "deploy.runtime.audio",
    "decode_audio": "deploy.runtime.audio",
    "TableReader": "deploy.runtime.tables",
    "category_of": "deploy.runtime.tables",
    "is_missing": "deploy.runtime.tables",
    "number_of": "deploy.runtime.tables",
    "seconds_of": "deploy.runtime.tables",
    "UserError": "errors",
    "nearest": "errors",
    "class_name": "facts",
    "require_room": "facts",
    "build": "from_data",
    "Report": "insight.report.callback",
    "is_restored": "network",
    "networks": "network",
    "any_process": "parallel",
    "TestReport": "results",
    "class_colour": "runs.colours",
    "OptimizerFactory": "task",
    "ScheduleFactory": "task",
    "Task": "task",
    "ends_epoch": "training.lightning.position",
    "finds_unused_parameters": "training.lightning.settings",
    "direction": "training.measure",
    "logged_measure": "training.measure",
    "own_measure": "training.measure",
    "replay": "training.nonfinite.replay",
    "Trainer": "training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in FACE:
        raise AttributeError(f"module 'playbook' has no attribute '{name}'")
    return getattr(import_module(f"playbook.{FACE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *FACE])

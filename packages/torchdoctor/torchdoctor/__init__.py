"""torchdoctor reviews PyTorch trainings by running them: any LightningModule, or a script in plain PyTorch.

`import torchdoctor` imports neither torch nor Lightning; each name below is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from torchdoctor.cli import main as main
    from torchdoctor.errors import ReviewError as ReviewError
    from torchdoctor.options import select_ids as select_ids
    from torchdoctor.report import Report as Report
    from torchdoctor.review import review_module as review_module
    from torchdoctor.scripts.command import review_script as review_script

FACE = {
    "main": "cli",
    "ReviewError": "errors",
    "select_ids": "options",
    "Report": "report",
    "review_module": "review",
    "review_script": "scripts.command",
}


def __getattr__(name: str) -> Any:
    if name not in FACE:
        raise AttributeError(f"module 'torchdoctor' has no attribute '{name}'")
    return getattr(import_module(f"torchdoctor.{FACE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *FACE])

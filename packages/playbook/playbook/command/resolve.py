"""Finds the checkpoint and the run directory of a command, and checks that the checkpoint fits the model."""

import os
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule

from playbook.checkpoints.io import describe, first_valid, misfits
from playbook.checkpoints.opened import Opened
from playbook.command.arguments import Invocation
from playbook.errors import UserError
from playbook.processes import is_first_process
from playbook.runs.directory import ROOT, Run, checkpoint_candidates, is_checkpoint, new_run, run_of
from playbook.task import Task

BUILDS = ("configure_model", "on_load_checkpoint")  # hooks that may change which weights a module has


def resolve_checkpoint(invocation: Invocation) -> Opened | None:
    """The checkpoint of --ckpt_path; None if a new run starts.

    Raises:
        UserError: there is none, or it is damaged.
    """
    spec = invocation.settings.get("ckpt_path")
    if not spec or invocation.shows_help:
        if invocation.verb.checkpoint == "required" and not invocation.shows_help:
            raise UserError(invocation.verb.lacks_checkpoint)
        return None
    folder = invocation.settings.get("run_dir")
    run = Run(Path(folder)) if folder else None
    is_run = Path(spec).is_dir() and not is_checkpoint(Path(spec))
    continues = invocation.verb.checkpoint == "continued"
    wanted = "last" if continues and is_run else spec
    if wanted != spec:
        run = Run(Path(spec))
    try:
        candidates = checkpoint_candidates(wanted, run, invocation.recipe, "--ckpt_path")
        checkpoint = Opened(first_valid(candidates, f"--ckpt_path {spec}"))
    except UserError:
        if continues and folder and spec == "last":
            if is_first_process():
                print(f"no checkpoint to resume in {folder}: starting a new run", flush=True)
            return None
        raise
    if continues and not checkpoint.has_position:
        raise UserError(f"--ckpt_path {spec}: contains only weights, so it cannot resume; use --init_from")
    return checkpoint


def choose_run(invocation: Invocation, checkpoint: Opened | None) -> Run:
    """The run directory: the one named, else the checkpoint's own, else a new one.

    Raises:
        UserError: a new run would overwrite the checkpoints of another.
    """
    if "PLAYBOOK_RUN_DIR" in os.environ and int(os.environ.get("LOCAL_RANK", "0")) > 0:
        return Run(Path(os.environ["PLAYBOOK_RUN_DIR"]))  # a further process of the same run
    folder = invocation.settings.get("run_dir")
    run = Run(Path(folder)) if folder else run_of(checkpoint.path) if checkpoint else None
    if invocation.shows_help:
        return run or Run(ROOT / "none")
    if run is None or (not folder and not os.access(run.path, os.W_OK)):
        if not is_first_process():
            return Run(ROOT / "none")  # the first one says where, once they can talk
        run = new_run(invocation.recipe or _name_of(checkpoint.path if checkpoint else None))
    anew = invocation.verb.checkpoint == "continued" and not invocation.settings.get("ckpt_path")
    if anew and run.has_checkpoint():
        raise UserError(
            f"--run_dir {run}: already contains a run; resume it with --ckpt_path last, or use another directory"
        )
    os.environ["PLAYBOOK_RUN_DIR"] = str(run)
    return run


def _name_of(checkpoint: Path | None) -> str:
    """What a new run is called that no recipe names."""
    if checkpoint is None:
        return "run"
    origin = run_of(checkpoint)
    return checkpoint.stem if origin is None else origin.title


def require_fit(model: Any, checkpoint: Opened) -> None:
    """Compares names and shapes before anything runs; modules that build or load in their own way are left alone."""
    kind, plain = type(model), (LightningModule, Task)
    if any(getattr(kind, hook) not in [getattr(base, hook) for base in plain] for hook in BUILDS):
        return
    differences = misfits(model.state_dict(), checkpoint.weights)
    if not model.strict_loading:
        differences = {"mismatched": differences["mismatched"]}
    if text := describe(differences):
        raise UserError(f"--ckpt_path {checkpoint.path.as_posix()}: does not fit this model: {text}")

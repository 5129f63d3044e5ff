"""Which checkpoint a command means, which run directory it works in, and whether the two fit its model."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import LightningModule

from playbook.checkpoints.io import describe, first_valid, load, misfits, weights_of
from playbook.command.arguments import Invocation
from playbook.errors import UserError
from playbook.processes import is_first_process
from playbook.runs.directory import ROOT, Run, checkpoint_candidates, is_checkpoint, new_run, run_of
from playbook.task import Task

STARTS_ANEW = ("fit", "find_lr", "find_batch_size", "doctor")  # verbs that need no checkpoint
BUILDS = ("configure_model", "on_load_checkpoint")  # hooks that may change which weights a module has


def shows_only(invocation: Invocation) -> bool:
    """Whether the command prints help or a configuration, and runs nothing."""
    return any(arg == "--help" or arg.partition("=")[0].endswith(".help") for arg in invocation.args)


def resolve_checkpoint(invocation: Invocation) -> Path | None:
    """The file that --ckpt_path means; None where a run is to start.

    Raises:
        UserError: there is none, or it is damaged.
    """
    spec = invocation.settings.get("ckpt_path")
    if not spec or shows_only(invocation):
        if invocation.verb not in STARTS_ANEW and not shows_only(invocation):
            raise UserError(
                f"--ckpt_path: {invocation.verb} needs one: best, last, a run directory or a checkpoint file"
            )
        return None
    folder = invocation.settings.get("run_dir")
    run = Run(Path(folder)) if folder else None
    is_run = Path(spec).is_dir() and not is_checkpoint(Path(spec))
    wanted = "last" if invocation.verb == "fit" and is_run else spec
    if wanted != spec:
        run = Run(Path(spec))
    try:
        candidates = checkpoint_candidates(wanted, run, invocation.recipe, "--ckpt_path")
        found = first_valid(candidates, f"--ckpt_path {spec}")
    except UserError:
        if invocation.verb == "fit" and folder and spec == "last":
            if is_first_process():
                print(f"no checkpoint to continue in {folder}: starting afresh", flush=True)
            return None
        raise
    if invocation.verb == "fit" and "loops" not in load(found, map_location="meta"):
        raise UserError(f"--ckpt_path {spec}: holds weights alone, nothing to continue; --init_from starts from them")
    return found


def choose_run(invocation: Invocation, checkpoint: Path | None) -> Run:
    """The run directory: the one named, else the checkpoint's own, else a new one.

    Raises:
        UserError: a new run would overwrite the checkpoints of another.
    """
    if "PLAYBOOK_RUN_DIR" in os.environ and int(os.environ.get("LOCAL_RANK", "0")) > 0:
        return Run(Path(os.environ["PLAYBOOK_RUN_DIR"]))  # a further process of the same run
    folder = invocation.settings.get("run_dir")
    run = Run(Path(folder)) if folder else run_of(checkpoint) if checkpoint else None
    if shows_only(invocation):
        return run or Run(ROOT / "none")
    if run is None or (not folder and not os.access(run.path, os.W_OK)):
        if not is_first_process():
            return Run(ROOT / "none")  # the first one says where, once they can talk
        run = new_run(invocation.recipe or _name_of(checkpoint))
    anew = invocation.verb == "fit" and not invocation.settings.get("ckpt_path")
    if anew and run.has_checkpoint():
        raise UserError(
            f"--run_dir {run}: holds a run already; continue it with --ckpt_path last, or name another directory"
        )
    os.environ["PLAYBOOK_RUN_DIR"] = str(run)
    return run


def _name_of(checkpoint: Path | None) -> str:
    """What a new run is called that no recipe names."""
    if checkpoint is None:
        return "run"
    origin = run_of(checkpoint)
    return checkpoint.stem if origin is None else origin.title


def config_of(checkpoint: Path) -> str:
    """The configuration a checkpoint was made with, as YAML; of foreign ones as much as they carry."""
    content = load(checkpoint, map_location="meta")
    if isinstance(config := content.get("config"), str):
        try:
            found = yaml.safe_load(config)
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", None) or error
            raise UserError(f"{checkpoint.as_posix()}: its configuration is not valid YAML: {problem}") from error
        if not isinstance(found, dict | None):
            raise UserError(f"{checkpoint.as_posix()}: its configuration is no mapping of options")
        return config
    sections = {}
    for section, key in (("model", "hyper_parameters"), ("data", "datamodule_hyper_parameters")):
        values = content.get(key)
        values = dict(values) if isinstance(values, Mapping) else {}
        values.pop("_instantiator", None)
        if class_path := values.pop("_class_path", None):
            sections[section] = {"class_path": class_path, "init_args": values}
    return yaml.safe_dump(sections)


def require_fit(model: Any, checkpoint: Path) -> None:
    """Compares names and shapes before anything runs; modules that build or load in their own way are left alone."""
    kind, plain = type(model), (LightningModule, Task)
    if any(getattr(kind, hook) not in [getattr(base, hook) for base in plain] for hook in BUILDS):
        return
    found = misfits(model.state_dict(), weights_of(load(checkpoint, map_location="meta"), checkpoint))
    if not model.strict_loading:
        found = {"mismatched": found["mismatched"]}
    if text := describe(found):
        raise UserError(f"--ckpt_path {checkpoint.as_posix()}: does not fit this model: {text}")

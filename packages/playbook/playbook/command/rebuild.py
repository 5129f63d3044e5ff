"""Rebuilds a trained module from its checkpoint alone."""

import re
from argparse import ArgumentError
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch import LightningDataModule, LightningModule

from playbook.checkpoints.io import describe, first_valid, load, misfits, weights_of
from playbook.checkpoints.opened import Opened
from playbook.command import parser as parsing
from playbook.command.hyperparameters import arguments_as_given
from playbook.command.links import has_links, resolve
from playbook.command.rejected import one_line
from playbook.errors import UserError
from playbook.facts import unpack
from playbook.network import restored
from playbook.runs.directory import checkpoint_candidates
from playbook.seeding import seeded
from playbook.training.lightning.settings import configured_by


class LoadedRun(NamedTuple):
    """The trained module of a run.

    Attributes:
        module: the module, in evaluation mode, on the CPU.
        facts: values that its data module learnt from the training data; empty in checkpoints without facts.
        checkpoint: the file or folder of the weights.
    """

    module: LightningModule
    facts: dict[str, Any]
    checkpoint: Path


def load_run(path: str | Path, option: str = "path") -> LoadedRun:
    """Rebuilds a module from the configuration and weights in its checkpoint, without drawing random numbers.

    Only the classes named in the configuration are run; the file itself cannot run code.

    Args:
        path: a run directory, whose best or else last checkpoint is used, or a checkpoint.
        option: name of the option, for messages.

    Raises:
        UserError: there is no such checkpoint, it is damaged, it has no configuration of its module, or the module can
            no longer be built from it.
    """
    if str(path) in ("best", "last"):
        raise UserError(f"{option} {path}: expected a run directory or a checkpoint, as runs/<recipe>/<date-time>")
    checkpoint = first_valid(checkpoint_candidates(str(path), None, None, option), f"{option} {path}")
    content = load(checkpoint)
    with seeded(0), restored(from_checkpoint=True):
        module = _build(checkpoint, option)
        module.configure_model()
    module.on_load_checkpoint(content)
    weights = weights_of(content, checkpoint)
    differences = misfits(module.state_dict(), weights)
    if not module.strict_loading:
        differences = {"mismatched": differences["mismatched"]}
    if text := describe(differences):
        raise UserError(f"{option} {checkpoint.as_posix()}: its weights do not fit its configuration: {text}")
    module.load_state_dict(weights, strict=module.strict_loading)
    return LoadedRun(module.eval(), unpack(content, checkpoint.as_posix()) or {}, checkpoint)


def _build(checkpoint: Path, option: str) -> LightningModule:
    config = yaml.safe_load(Opened(checkpoint).config) or {}
    options = config.get("model")
    if not options:
        raise UserError(
            f"{option} {checkpoint.as_posix()}: has no configuration of its module; "
            "expected a checkpoint of `fit` on the command line"
        )
    parsing.prepare()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(LightningModule, "model", fail_untyped=False, required=True)
    parser.add_subclass_arguments(LightningDataModule, "data", fail_untyped=False)
    try:
        parsed = parser.parse_object({"model": options})
        data = None
        if has_links(parsed.model):
            data_options = parser.parse_object({"model": options, "data": config["data"]}).data
            data = parser.instantiate(Namespace(data=data_options)).data
        _, objects = resolve(parsed.model, data)
        values = {**(options.get("init_args") or {}), **(options.get("dict_kwargs") or {})}
        with (
            parsing.linked(objects),
            arguments_as_given(parsing.class_of(parsed.model.class_path)),
            configured_by(options["class_path"], values),
        ):
            built: Any = parser.instantiate(parsed)
    except (ArgumentError, ImportError, TypeError, ValueError) as error:
        raise UserError(f"{option} {checkpoint.as_posix()}: cannot be rebuilt: {_innermost(str(error))}") from error
    return built.model


def _innermost(report: str) -> str:
    """The class and the reason in jsonargparse's nested report, which goes on to repeat the configuration."""
    end = "Expected a <class 'NoneType'>"
    if end not in report:
        return one_line(report)
    lines = [line.strip().removeprefix("- ") for line in report.splitlines()]
    lines = list(takewhile(lambda line: line != end, lines))
    names = re.findall(r"class_path '([^']+)'", "\n".join(lines))
    return ": ".join([*names[-1:], lines[-1]])

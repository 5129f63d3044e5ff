"""The input of a verb: the model, its data and a Trainer, built from one command."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule

from playbook.checkpoints.opened import Opened
from playbook.command.arguments import Invocation
from playbook.runs.directory import Run
from playbook.training.trainer import Trainer


@dataclass
class Session:
    """A running command.

    Args:
        invocation: the command line.
        run: the run directory.
        opened: the checkpoint that --ckpt_path means, if any.
        init_from: the file that --init_from means, if any.
        options: the whole configuration, before anything is built from it.
        config: the same as the text of config.yaml.
        values: the same as plain values.
        model: what the verb runs.
        datamodule: its data; None if the model has its own.
        trainer: with the callbacks that belong to the verb.
        own_options: of the verb itself.
    """

    invocation: Invocation
    run: Run
    opened: Opened | None = None
    init_from: Path | None = None
    options: Any = None
    config: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    model: LightningModule = field(init=False)
    datamodule: LightningDataModule | None = field(init=False)
    trainer: Trainer = field(init=False)
    own_options: dict[str, Any] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path | None:
        """The file that --ckpt_path means, if any."""
        return None if self.opened is None else self.opened.path

    @property
    def title(self) -> str:
        """Name of the recipe, or else of the model's class with its module."""
        return self.invocation.recipe or self.options.model.class_path

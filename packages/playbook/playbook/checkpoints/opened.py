"""A checkpoint that a command looks into before it runs: its configuration, and names and shapes of its weights."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from playbook.checkpoints.io import load, weights_of
from playbook.errors import UserError
from playbook.facts import unpack


class Opened:
    """Reads a checkpoint once, on the meta device, when something in it is first asked for.

    Args:
        path: a file or a folder, as for `load`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def content(self) -> dict[str, Any]:
        """All that the checkpoint holds; its tensors have names and shapes, but no values.

        Raises:
            UserError: it is damaged, or holds more than tensors and plain values.
        """
        return load(self.path, map_location="meta")

    @property
    def weights(self) -> dict[str, Tensor]:
        """The state dict, without values."""
        return weights_of(self.content, self.path)

    @property
    def has_position(self) -> bool:
        """Whether a training can be continued from it."""
        return "loops" in self.content

    @property
    def facts(self) -> dict[str, Any] | None:
        """What its run knew of its data; None if it was saved without.

        Raises:
            UserError: they are damaged, or a later version wrote them.
        """
        return unpack(self.content, self.path.as_posix())

    @property
    def config(self) -> str:
        """The configuration it was made with, as YAML; of a third-party checkpoint, as much of it as it carries.

        Raises:
            UserError: the configuration is not a mapping in YAML.
        """
        name = self.path.as_posix()
        if isinstance(config := self.content.get("config"), str):
            try:
                options = yaml.safe_load(config)
            except yaml.YAMLError as error:
                problem = getattr(error, "problem", None) or error
                raise UserError(f"{name}: its configuration is not valid YAML: {problem}") from error
            if not isinstance(options, dict | None):
                raise UserError(f"{name}: its configuration is not a mapping of options")
            return config
        sections = {}
        for section, key in (("model", "hyper_parameters"), ("data", "datamodule_hyper_parameters")):
            values = self.content.get(key)
            values = dict(values) if isinstance(values, Mapping) else {}
            values.pop("_instantiator", None)
            if class_path := values.pop("_class_path", None):
                sections[section] = {"class_path": class_path, "init_args": values}
        return yaml.safe_dump(sections, sort_keys=False)

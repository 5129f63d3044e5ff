"""The schema of recipes holds for every config of the project, and finds what is misspelt in them."""

from typing import Any

import pytest

from playbook import project
from playbook.command.json_schema import recipe_schema
from playbook.testing import schemas
from tests.conftest import ROOT

CONFIGS = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.glob("configs/*/*.yaml"))}
# what only a run can tell: names of devices, plugins, rules by name, and options of a class that stands in another file
# or takes any
OPEN = ("trainer.accelerator", "trainer.devices", "trainer.plugins", "trainer.logger.init_args", "data.init_args")
OPEN = (*OPEN, "model.init_args.parameter_groups.")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    project.choose("src")
    return recipe_schema()


@pytest.mark.parametrize("config", CONFIGS)
def test_config_passes(schema: dict[str, Any], config: str) -> None:
    assert not schemas.complaints(schema, schemas.read(CONFIGS[config]))


@pytest.mark.parametrize("config", CONFIGS)
def test_mistakes_in_a_config_are_found(schema: dict[str, Any], config: str) -> None:
    changed = list(schemas.mistakes(schemas.read(CONFIGS[config])))
    missed = [place for place, content in changed if not schemas.complaints(schema, content)]
    is_recipe = "/vision/" in config
    assert not [place for place in missed if is_recipe or not place.startswith(OPEN)]
    assert len(changed) > 20 or not is_recipe

"""The schema of recipes: what is right passes, what is wrong does not, and nothing is imported for it."""

import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import jsonschema
import pytest

from playbook import project
from playbook.command.json_schema import recipe_schema
from playbook.testing import schemas
from playbook.testing.command import Cli
from running import CNN_DIGITS, PROJECT

RECIPES = sorted(PROJECT.glob("configs/vision/*.yaml"))


def task(**arguments: str) -> str:
    """A recipe whose task is given some classes, as YAML."""
    entries = ", ".join(f"{name}: {text}" for name, text in arguments.items())
    return f"model: {{class_path: Classification, init_args: {{{entries}}}}}"


RIGHT = {
    "empty": "",
    "a partial file": "trainer: {max_epochs: 3, limit_train_batches: 0.5, precision: bf16-mixed}",
    "files": "{config: base.yaml, trainer: trainer/gpu.yaml, model: m.yaml, data: ../d.yaml, checkpoint: c.yaml}",
    "short names": "{model: Classification, data: Digits}",
    "full paths": "model: {class_path: example.tasks.classification.Classification, init_args: {net: their.CNN}}",
    "where torch defines it": task(optimizer="torch.optim.adamw.AdamW"),
    "third-party classes": """
        model: {class_path: theirs.Model, init_args: {anything: [1, {a: b}]}}
        data: {class_path: theirs.Data, init_args: {batch_size: many}, dict_kwargs: {more: 1}}
        trainer: {callbacks: [{class_path: theirs.Callback, init_args: {x: 1}}, theirs.Other], logger: theirs.Logger}
        """,
    "a net of torch": task(net="{class_path: torch.nn.Linear}"),
    "options of a class that stands elsewhere": "data: {init_args: {num_workers: 4, of_somebody_else: 1}}",
    "appended": "trainer: {callbacks+: [NonFinite, {class_path: ModelCheckpoint, init_args: {save_top_k: 2}}]}",
    "appended alone": "trainer: {callbacks+: EarlyStopping}",
    "none": "{data: null, trainer: {callbacks: null, logger: false, max_time: {hours: 1}}, seed_everything: true}",
    "a strategy of Lightning": "trainer: {strategy: {class_path: DDPStrategy, init_args: {static_graph: true}}}",
    "a strategy by its alias": "trainer: {strategy: ddp, devices: [0, 1], accelerator: gpu}",
    "a schedule": """
        model:
          class_path: Classification
          init_args: {schedule: {class_path: OneCycleLR, init_args: {max_lr: [1e-2], total_steps: 10}}}
        """,
    "options of verbs": "{severity: warning, only: dead_units, ckpt_path: best, run_dir: runs/x, init_from: null}",
}
WRONG = {
    "section": "modle: {class_path: Classification}",
    "option of the trainer": "trainer: {max_epoch: 3}",
    "type": "trainer: {max_epochs: three}",
    "half an epoch": "trainer: {max_epochs: 1.5}",
    "choice": "trainer: {precision: bf16-mixd}",
    "choice of the checkpoint": "checkpoint: {monitor: val/loss, mode: minimum}",
    "option of the checkpoint": "checkpoint: {every_n_step: 3}",
    "class": "model: {class_path: Classifcation}",
    "class alone": "data: Digts",
    "full path": "model: {class_path: example.tasks.classification.Classifcation}",
    "full path into torch": task(optimizer="torch.optim.AdmaW"),
    "kind of class": "model: {class_path: Digits}",
    "option of a class": "data: {class_path: Digits, init_args: {batch_sizes: 3}}",
    "option of a class by its full path": "data: {class_path: example.data.digits.Digits, init_args: {batch_sizes: 3}}",
    "type of an option": "data: {class_path: Digits, init_args: {batch_size: [3]}}",
    "type in a partial file": "data: {init_args: {num_workers: many}}",
    "init_args left out": "data: {class_path: Digits, batch_size: 3}",
    "init_arg": "data: {class_path: Digits, init_arg: {batch_size: 3}}",
    "entries": task(net="{class_path: CNN, init_args: {widths: [8, wide]}}"),
    "rate": task(optimizer="{class_path: AdamW, init_args: {lr: fast}}"),
    "length": task(optimizer="{class_path: Adam, init_args: {betas: [1]}}"),
    "what the task gives": task(optimizer="{class_path: SGD, init_args: {params: []}}"),
    "schedule": task(schedule="{class_path: StepLR, init_args: {step: 3}}"),
    "callback": "trainer: {callbacks: [{class_path: EarlyStoping}]}",
    "appended callback": "trainer: {callbacks+: [{class_path: EarlyStopping, init_args: {patient: 5}}]}",
    "callback of Lightning": "trainer: {callbacks: [{class_path: Timer, init_args: {durations: 5}}]}",
    "list of configs": "config: [a.yaml, b.yaml]",
    "seed": "seed_everything: one",
    "list": "[trainer]",
}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    project.choose("example")
    return recipe_schema()


def test_is_a_schema(schema: dict[str, Any]) -> None:
    jsonschema.Draft7Validator.check_schema(schema)
    json.dumps(schema, allow_nan=False)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipes_pass(schema: dict[str, Any], recipe: Any) -> None:
    assert not schemas.complaints(schema, schemas.read(recipe))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_any_misspelt_name_and_any_value_of_another_type_is_found(schema: dict[str, Any], recipe: Any) -> None:
    changed = list(schemas.mistakes(schemas.read(recipe)))
    assert len(changed) > 20
    assert not [place for place, content in changed if not schemas.complaints(schema, content)]


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_is_right(schema: dict[str, Any], text: str) -> None:
    assert not schemas.complaints(schema, schemas.read(text))


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_wrong(schema: dict[str, Any], text: str) -> None:
    assert schemas.complaints(schema, schemas.read(text))


def test_the_configuration_of_a_run_passes(schema: dict[str, Any], cli: Cli) -> None:
    """With every option of every class, and its default."""
    done = cli("fit", "--config", CNN_DIGITS, "--trainer.callbacks+=NonFinite", "--print_config")
    assert done.code == 0, done.err
    configuration = schemas.read(done.out)
    assert len(configuration["trainer"]) > 30
    assert not schemas.complaints(schema, configuration)


@pytest.mark.slow
def test_the_command_agrees(cli: Cli) -> None:
    """What the schema lets pass is parsed, and what it finds wrong is refused, stacked on a recipe."""
    # the former name files and classes that do not exist, or options that are for another class than the recipe's
    open_ones = {"files", "full paths", "third-party classes", "options of a class that stands elsewhere"}
    right = {name: text for name, text in RIGHT.items() if name not in {*open_ones, "options of verbs"}}
    for name, text in {**right, **WRONG}.items():
        Path("recipe.yaml").write_text(f"{dedent(text)}\n", encoding="utf-8")
        done = cli("fit", "--config", CNN_DIGITS, "--config", "recipe.yaml", "--print_config")
        assert done.code == (2 if name in WRONG else 0), f"{name}: {done.err}"


def test_options_carry_their_texts_types_and_defaults(schema: dict[str, Any]) -> None:
    digits = schema["definitions"]["example.data.digits.Digits"]["properties"]
    assert digits["batch_size"]["type"] == "integer"
    assert digits["batch_size"]["default"] == 64
    assert "samples per batch" in digits["batch_size"]["description"]
    assert digits["on_error"] == {
        "enum": ["stop", "skip"],
        "default": "stop",
        "description": digits["on_error"]["description"],
    }
    adamw = schema["definitions"]["torch.optim.AdamW"]["properties"]
    assert "learning rate" in adamw["lr"]["description"]
    assert adamw["betas"]["default"] == [0.9, 0.999]
    assert schema["definitions"]["lightning.pytorch.trainer.trainer.Trainer"]["properties"]["max_epochs"]["description"]


def test_names_carry_their_summaries(schema: dict[str, Any]) -> None:
    names = schema["definitions"]["net.name"]["anyOf"][0]
    summaries = dict(zip(names["enum"], names["enumDescriptions"], strict=True))
    assert list(summaries) == ["CNN", "MLP", "Transformer"]
    assert all(summaries.values())


def test_torch_is_not_needed(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "lightning", "jsonargparse"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    assert recipe_schema() == schema

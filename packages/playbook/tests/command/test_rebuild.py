"""A module rebuilt from a run, a checkpoint or an export equals the one that was trained."""

import random
import shutil
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import yaml
from torch import nn

from playbook import UserError, load_run
from playbook.checkpoints.io import AtomicCheckpointIO, load
from playbook.facts import pack
from playbook.testing.command import Cli
from playbook.training.hyperparameters import plain_hyperparameters
from running import MLP_DIGITS

SMALL = ("--config", MLP_DIGITS, "--data.batch_size", "512", "--model.net.widths", "[4]", "--trainer.max_epochs", "1")


class Late(pl.LightningModule):
    """Makes its net in configure_model, and counts how often it was loaded."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.width = width
        self.loads = 0

    def configure_model(self) -> None:
        self.body = nn.Linear(self.width, 1)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.loads += 1


def changed(source: str, target: str, **content: Any) -> Path:
    """A copy of a checkpoint with other entries."""
    AtomicCheckpointIO().save_checkpoint({**load(Path(source)), **content}, target)
    return Path(target)


def with_model(source: str, target: str, **changes: Any) -> Path:
    """A copy of a checkpoint whose configuration has another model."""
    config = yaml.safe_load(load(Path(source))["config"])
    config["model"] |= changes
    return changed(source, target, config=yaml.safe_dump(config))


def random_states() -> list[Any]:
    array: Any = np.random.get_state()
    return [random.getstate(), array[1].tolist(), torch.get_rng_state().tolist()]


@pytest.mark.slow
def test_every_form_of_a_run(cli: Cli) -> None:
    assert cli("fit", *SMALL, "--run_dir", "run").code == 0
    assert cli("export", "--ckpt_path", "run", "--output", "alone.safetensors").code == 0
    best, last = "run/checkpoints/best.ckpt", "run/checkpoints/last.ckpt"
    changed(best, "elsewhere/teacher.ckpt", facts=pack({"classes": ["a", "b"]}))
    paths = {"run": best, "run/checkpoints": best, last: last, "alone.safetensors": "alone.safetensors"}
    for path, file in {**paths, "elsewhere/teacher.ckpt": "elsewhere/teacher.ckpt"}.items():
        before = random_states()
        loaded = load_run(path)
        assert random_states() == before, "random numbers were drawn"
        assert loaded.checkpoint == Path(file)
        assert type(loaded.module).__qualname__ == "Classification"
        assert not any(module.training for module in loaded.module.modules())
        expected = load(Path(last if path == last else best))["state_dict"]
        state = loaded.module.state_dict()
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], value) for name, value in expected.items())
        assert loaded.facts == ({"classes": ["a", "b"]} if "elsewhere" in path else {})
    Path(best).unlink()
    assert load_run("run").checkpoint == Path(last)


def test_what_a_rebuilt_module_saves_rebuilds_it_again(cli: Cli) -> None:
    assert cli("fit", *SMALL, "--run_dir", "run").code == 0
    assert plain_hyperparameters(load_run("run").module)["net"]["init_args"]["widths"] == [4]


def test_a_third_party_module_from_its_hyperparameters(tmp_path: Path) -> None:
    values = {
        "_class_path": f"{__name__}.Late",
        "_instantiator": "lightning.pytorch.cli.instantiate_module",
        "width": 3,
    }
    weights = {"body.weight": torch.ones(1, 3), "body.bias": torch.zeros(1)}
    AtomicCheckpointIO().save_checkpoint({"state_dict": weights, "hyper_parameters": values}, tmp_path / "late.ckpt")
    module: Any = load_run(tmp_path / "late.ckpt").module
    assert module.loads == 1
    assert torch.equal(module.body.weight, weights["body.weight"])


@pytest.mark.slow
def test_one_line_for_what_cannot_be_rebuilt(cli: Cli) -> None:
    assert cli("fit", *SMALL, "--run_dir", "run").code == 0
    best = "run/checkpoints/best.ckpt"
    shutil.copy(best, "cut.ckpt")
    with open("cut.ckpt", "r+b") as file:
        file.truncate(500)
    AtomicCheckpointIO().save_checkpoint({"state_dict": {"w": torch.ones(1)}}, "weights.ckpt")
    with_model(best, "gone.ckpt", class_path="example.tasks.gone.Gone")
    with_model(best, "function.ckpt", class_path="os.system", init_args={"command": "touch ran"})
    options = yaml.safe_load(load(Path(best))["config"])["model"]["init_args"]
    with_model(best, "option.ckpt", init_args={**options, "colour": 1})
    with_model(best, "value.ckpt", init_args={**options, "num_classes": 1})
    system = {"class_path": "os.system", "init_args": {"command": "touch ran"}}
    with_model(best, "optimizer.ckpt", init_args={**options, "optimizer": system})
    net = {**options["net"], "init_args": {**options["net"]["init_args"], "widths": [5]}}
    with_model(best, "width.ckpt", init_args={**options, "net": net})
    Path("empty").mkdir()
    messages = {
        "rnu": "no such file or run directory. Nearest: run",
        "best": "expected a run directory or a checkpoint",
        "empty": "empty has no checkpoint",
        "cut.ckpt": "no valid checkpoint: cut.ckpt: ",
        "weights.ckpt": "has no configuration of its module",
        "gone.ckpt": "cannot be rebuilt: .*example.tasks.gone",
        "function.ckpt": "cannot be rebuilt: .*os.system",
        "option.ckpt": "cannot be rebuilt: .*colour",
        "value.ckpt": "cannot be rebuilt: num_classes: expected at least 2, got 1",
        "optimizer.ckpt": "cannot be rebuilt: .*os.system",
        "width.ckpt": r"its weights do not fit its configuration: mismatched \d: net.*\(4, 64\) in the file, \(5, 64\)",
    }
    for path, message in messages.items():
        with pytest.raises(UserError, match=f"^--teacher {path}: .*{message}") as raised:
            load_run(path, "--teacher")
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 400, str(raised.value)
    assert not Path("ran").exists()

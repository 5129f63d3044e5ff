"""A run that was cut off anywhere and continued ends with bitwise the same weights as one that never was."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torchmetrics import MeanMetric, MetricCollection

from playbook.testing.command import Cli
from playbook.testing.resume import BATCHES, EPOCHS, VARIANTS, assert_same_ending, cut, fit, resume
from playbook.training.resume.exact import ExactResume
from running import CNN_DIGITS, MLP_DIGITS


def sweep(cli: Cli, recipe: str, steps: Iterable[int], *args: str) -> None:
    assert fit(cli, recipe, "whole").code == 0
    for step in steps:
        cut(cli, recipe, f"cut-{step}", step, "--checkpoint.every_n_steps", "1", *args)
        done = resume(cli, recipe, f"cut-{step}", *args)
        assert done.code == 0
        assert "starting a new run" not in done.out
        assert_same_ending(f"cut-{step}", "whole")


@pytest.mark.slow
def test_first_epoch_border_and_mid_epoch(cli: Cli) -> None:
    sweep(cli, CNN_DIGITS, [2, BATCHES + 1, 2 * BATCHES])


@pytest.mark.slow
def test_two_workers(cli: Cli) -> None:
    sweep(cli, CNN_DIGITS, [BATCHES + 3], "--data.num_workers", "2")


@pytest.mark.slow
def test_a_limit_of_steps(cli: Cli) -> None:
    """Lightning counts such a run otherwise, and would go back into the epoch that is over."""
    limit = ("--trainer.max_epochs", "-1", "--trainer.max_steps", str(2 * BATCHES))
    assert fit(cli, CNN_DIGITS, "whole", *limit).code == 0
    for step in (BATCHES + 1, BATCHES + 3):
        cut(cli, CNN_DIGITS, f"cut-{step}", step, *limit)
        resume(cli, CNN_DIGITS, f"cut-{step}", *limit)
        assert_same_ending(f"cut-{step}", "whole")


@pytest.mark.slow
def test_an_epoch_that_max_steps_has_cut_is_said(cli: Cli) -> None:
    limit = ("--trainer.max_epochs", "-1", "--trainer.max_steps")
    assert fit(cli, CNN_DIGITS, "run", *limit, "3").code == 0
    done = resume(cli, CNN_DIGITS, "run", *limit, "4")
    assert "epoch 1 ended after 3 batches: its others are left out, epoch 2 is next" in done.out


@pytest.mark.parametrize(
    ("size", "again", "steps"), [(100, ", 50 of them are repeated", 4), (500, ", 250 of them", 2), (375, "", 1)]
)
@pytest.mark.slow
def test_another_batch_size_leaves_no_sample_out(cli: Cli, size: int, again: str, steps: int) -> None:
    """Three batches of 250 are seen; the rest of the epoch comes in `steps` steps of the new size."""
    cut(cli, CNN_DIGITS, "run", 4, "--checkpoint.every_n_steps", "1")
    done = resume(cli, CNN_DIGITS, "run", "--data.batch_size", str(size), "--trainer.max_epochs", "1")
    assert done.code == 0, done.err
    assert f"continuing with batches of {size} samples, not 250: 750 samples of the epoch done{again}" in done.out
    assert torch.load("run/checkpoints/last.ckpt", weights_only=True)["global_step"] == 3 + steps


@pytest.mark.slow
def test_without_a_seed_a_line_says_that_it_is_not_exact(cli: Cli) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PL_GLOBAL_SEED", raising=False)
        first = fit(cli, CNN_DIGITS, "run", "--seed_everything", "false", "--trainer.max_epochs", "1")
        assert "not exactly" not in first.out
        second = fit(cli, CNN_DIGITS, "run", "--seed_everything", "false", "--trainer.max_epochs", "2")
        assert "resuming, but not exactly: seed_everything is false" in second.out


def test_metrics_that_shared_a_sum_add_the_next_batch_once() -> None:
    """A MetricCollection has metrics of the same state share its tensors, which a checkpoint keeps shared."""
    module: Any = LightningModule()
    module.metrics = MetricCollection({"mean": MeanMetric(), "same": MeanMetric()})
    total, count = torch.tensor(6.0), torch.tensor(2.0)
    state = {"state": {"mean_value": total, "weight": count}, "updates": 2}
    states = {"metrics": {f"metrics.{name}": state for name in ("mean", "same")}, "logged": {}}
    trainer: Any = SimpleNamespace(state=SimpleNamespace(fn="fit"), world_size=1, global_rank=0)
    ExactResume().on_load_checkpoint(trainer, module, {"metric_states": [states]})
    module.metrics.update(torch.tensor(0.0))
    assert {name: value.item() for name, value in module.metrics.compute().items()} == {"mean": 2.0, "same": 2.0}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(cli: Cli, variant: str) -> None:
    """Cut at any step, saved at any cadence: what is lost is less than the cadence, what is continued is exact."""
    args, cadence = VARIANTS[variant], "123"[list(VARIANTS).index(variant) % 3]
    whole = fit(cli, CNN_DIGITS, "whole", *args)
    assert whole.code == 0, whole.err
    last = torch.load("whole/checkpoints/last.ckpt", weights_only=True)["global_step"]
    for step in {2, (2 + last) // 2, last}:  # test_every_step has all of them
        run = f"cut-{step}"
        cut(cli, CNN_DIGITS, run, step, "--checkpoint.every_n_steps", cadence, *args)
        if saved := sorted(Path(run).glob("checkpoints/last.ckpt")):
            lost = step - 1 - torch.load(saved[0], weights_only=True)["global_step"]
            assert lost <= int(cadence), f"{lost} steps lost at {step}"
        assert resume(cli, CNN_DIGITS, run, *args).code == 0
        assert_same_ending(run, "whole")


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "workers"), [(CNN_DIGITS, "2"), (MLP_DIGITS, "0")], ids=["cnn-2", "mlp-0"])
def test_every_step(cli: Cli, recipe: str, workers: str) -> None:
    sweep(cli, recipe, range(2, BATCHES * EPOCHS + 1), "--data.num_workers", workers)

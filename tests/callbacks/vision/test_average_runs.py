"""Averages through the command line: continuing exactly with the raw weights, all else with the averaged ones."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from playbook.checkpoints.io import load
from playbook.testing.command import Cli
from playbook.testing.resume import BATCHES, VARIANTS, assert_same_ending, cut, fit, resume
from src.callbacks.average import RAW
from tests.callbacks.test_average import assert_same
from tests.conftest import CNN_DIGITS, ROOT

AVERAGES: dict[str, tuple[str, ...]] = {
    "ema": ("--trainer.callbacks+=EMA",),
    "swa": ("--trainer.callbacks+=SWA", "--trainer.callbacks.start=0.3"),
}


def sweep(cli: Cli, steps: Iterable[int], *args: str) -> None:
    """As every other resume, and the weights that train on are the same too."""
    assert fit(cli, CNN_DIGITS, "whole", *args).code == 0
    whole = load(Path("whole/checkpoints/last.ckpt"))
    assert any(not torch.equal(value, whole[RAW][name]) for name, value in whole["state_dict"].items())
    for step in steps:
        cut(cli, CNN_DIGITS, f"cut-{step}", step, "--checkpoint.every_n_steps", "1", *args)
        done = resume(cli, CNN_DIGITS, f"cut-{step}", *args)
        assert done.code == 0, done.err
        assert "starting a new run" not in done.out
        assert_same_ending(f"cut-{step}", "whole")
        assert_same(load(Path(f"cut-{step}/checkpoints/last.ckpt"))[RAW], whole[RAW])


@pytest.mark.slow
@pytest.mark.parametrize("average", AVERAGES)
def test_continues_exactly(cli: Cli, average: str) -> None:
    sweep(cli, [BATCHES + 3], *AVERAGES[average])


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["plain", "accumulation", "validation within"])
@pytest.mark.parametrize("average", AVERAGES)
def test_continues_exactly_from_every_step(cli: Cli, average: str, variant: str) -> None:
    epochs = ("--trainer.max_epochs", "2")
    steps = range(2, 2 * BATCHES + 1) if variant == "plain" else (3, 4, 5)
    sweep(cli, steps, *AVERAGES[average], *epochs, *VARIANTS.get(variant, ()))


@pytest.mark.slow
def test_everything_after_the_training_takes_the_average(cli: Cli) -> None:
    """With the callback, without it, and as the start of another run."""
    constant = ("--model.schedule", "null", "--model.optimizer.lr", "0.01")
    assert fit(cli, CNN_DIGITS, "run", "--trainer.callbacks+=EMA", *constant).code == 0
    best = load(Path("run/checkpoints/best.ckpt"))
    assert not torch.equal(best["state_dict"]["net.head.1.weight"], best[RAW]["net.head.1.weight"])
    results = json.loads(Path("run/metrics.json").read_text())
    for options in ((), ("--trainer.callbacks", "null")):
        for verb, expected in (("test", results["test"]["test/loss"]), ("validate", results["best"]["score"])):
            done = cli(verb, "--ckpt_path", "run/checkpoints/best.ckpt", "--run_dir", "out", *options)
            assert done.code == 0, done.err
            assert f"{expected:.4g}" in done.out
    started = fit(cli, CNN_DIGITS, "second", "--init_from", "run", "--model.optimizer.lr", "0", "--trainer.max_steps=1")
    assert started.code == 0, started.err
    assert torch.equal(
        load(Path("second/checkpoints/last.ckpt"))["state_dict"]["net.head.1.weight"],
        best["state_dict"]["net.head.1.weight"],
    )


@pytest.mark.slow
def test_training_goes_on_from_the_raw_weights_when_the_average_is_gone(cli: Cli) -> None:
    """Cut at step 8, with a rate of 0 from there on; buffers of the batch norms still move."""
    cut(cli, CNN_DIGITS, "run", 8, "--checkpoint.every_n_steps", "1", "--trainer.callbacks+=EMA")
    saved = load(Path("run/checkpoints/last.ckpt"))
    still = ("--model.optimizer.lr", "0", "--model.schedule", "null")
    done = resume(cli, CNN_DIGITS, "run", *still)
    assert done.code == 0, done.err
    assert "continuing with trainer.callbacks none (was " in done.out
    now = load(Path("run/checkpoints/last.ckpt"))
    name = "net.head.1.weight"
    assert torch.equal(now["state_dict"][name], saved[RAW][name])
    assert not torch.equal(now["state_dict"][name], saved["state_dict"][name])


@pytest.mark.parametrize("name", ["ema", "swa", "mix", "early-stopping"])
@pytest.mark.slow
def test_partial_files_stack(cli: Cli, name: str) -> None:
    partial = ("--config", str(ROOT / f"configs/callbacks/{name}.yaml"))
    done = fit(cli, CNN_DIGITS, "run", *partial, "--trainer.max_epochs", "1")
    assert done.code == 0, done.err
    states = load(Path("run/checkpoints/last.ckpt"))["callbacks"]
    assert {"ema": "EMA", "swa": "SWA", "early-stopping": "EarlyStopping{"}.get(name, "") in str(list(states))
    assert (RAW in load(Path("run/checkpoints/last.ckpt"))) == (name in ("ema", "swa"))

"""Rules for parameters by name: what they set, and the messages for those that cannot be right."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim.lr_scheduler import OneCycleLR
from torchmetrics import MetricCollection

from playbook.errors import UserError
from playbook.optim.muon import Muon
from playbook.optim.schedules import WarmupCosine
from playbook.task import Task
from playbook.testing.command import Cli

MLP = ("fit", "--model", "Classification", "--model.net", "MLP", "--model.net.widths", "[8, 8, 8]", "--data", "Digits")


def net() -> nn.Module:
    """Four layers: a convolution with its norm, two blocks, a head."""
    stem = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4))
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))])
    return nn.ModuleDict({"stem": stem, "blocks": blocks, "head": nn.Linear(4, 2)})


def task(*rules: dict[str, Any], optimizer: Any = None, module: nn.Module | None = None, schedule: Any = None) -> Task:
    optimizer = optimizer or partial(optim.AdamW, lr=0.1, weight_decay=0.5)
    return Task(module or net(), optimizer, schedule, MetricCollection({}), list(rules))


def per_name(task: Task, key: str, optimizer: optim.Optimizer | None = None) -> dict[str, float]:
    """A value of each parameter's group, by the parameter's name in the net."""
    groups = (optimizer or task.configure_optimizers()).param_groups
    values = {id(parameter): group[key] for group in groups for parameter in group["params"]}
    names = {name.removeprefix("net."): id(parameter) for name, parameter in task.named_parameters()}
    return {name: values[key] for name, key in names.items() if key in values}


def test_factors_and_absolute_rates() -> None:
    rates = per_name(task({"pattern": "net.stem.*", "lr_factor": 0.1}, {"pattern": "*.head", "lr": 2.0}), "lr")
    assert rates == pytest.approx(
        {name: 0.01 if name.startswith("stem") else 2.0 if name.startswith("head") else 0.1 for name in rates}
    )
    assert len(rates) == 9


def test_layer_decay_is_a_power_by_layer() -> None:
    rates = per_name(task({"pattern": "net.*", "layer_decay": 0.5}), "lr")
    power = {"stem": 3, "blocks.0": 2, "blocks.1": 1, "head": 0}
    expected = {name: 0.1 * 0.5 ** next(p for prefix, p in power.items() if name.startswith(prefix)) for name in rates}
    assert rates == pytest.approx(expected)


def test_layer_decay_counts_from_the_last_layer_of_its_pattern_and_multiplies_other_rates() -> None:
    rules = ({"pattern": "net.blocks", "layer_decay": 0.5}, {"pattern": "net.blocks.0", "lr_factor": 3})
    rates = per_name(task(*rules), "lr")
    assert (rates["blocks.1.0.weight"], rates["blocks.0.0.weight"]) == pytest.approx((0.1, 0.1 * 3 * 0.5))
    assert rates["stem.0.weight"] == rates["head.weight"] == 0.1


def test_layer_decay_of_a_torchvision_transformer_is_that_of_beit() -> None:
    with torch.device("meta"):
        from torchvision.models import VisionTransformer

        vit = VisionTransformer(8, 4, 3, 2, 6, 12, num_classes=3)
    rates = per_name(task({"pattern": "net.*", "layer_decay": 0.75}, module=vit), "lr")
    expected = {"class_token": 4, "conv_proj.weight": 4, "encoder.pos_embedding": 4, "encoder.ln.weight": 0}
    expected |= {f"encoder.layers.encoder_layer_{i}.mlp.0.weight": 3 - i for i in range(3)}
    expected |= {"heads.head.weight": 0}
    for name, depth in expected.items():
        assert rates[name] == pytest.approx(0.1 * 0.75**depth), name


def test_weight_decay_is_of_weights_alone() -> None:
    decays = per_name(task({"pattern": "net.head", "weight_decay": 0.02}), "weight_decay")
    expected = {name: 0.02 if "head" in name else 0.5 for name in decays}
    expected |= {name: 0.0 for name in decays if name.endswith("bias") or name.startswith("stem.1")}
    assert decays == expected


def test_the_last_rule_counts_setting_by_setting() -> None:
    rules = (
        {"pattern": "*", "lr_factor": 0.1, "weight_decay": 0.2, "frozen": True},
        {"pattern": "net.head", "frozen": False, "lr": 0.5},
        {"pattern": "net.head.weight", "lr_factor": 2},
    )
    trained = task(*rules)
    assert per_name(trained, "lr") == pytest.approx({"head.weight": 0.2, "head.bias": 0.5})
    assert per_name(trained, "weight_decay") == {"head.weight": 0.2, "head.bias": 0.0}
    assert [name for name, p in trained.named_parameters() if p.requires_grad] == ["net.head.weight", "net.head.bias"]


def test_false_trains_what_the_net_has_frozen() -> None:
    module = net().requires_grad_(False)
    assert len(per_name(task({"pattern": "net.blocks", "frozen": False}, module=module), "lr")) == 4


def test_without_rules_the_groups_are_as_before() -> None:
    groups = task().configure_optimizers().param_groups
    assert [(len(group["params"]), group["lr"], group["weight_decay"]) for group in groups] == [
        (4, 0.1, 0.5),
        (5, 0.1, 0),
    ]


def test_equal_settings_share_a_group() -> None:
    rules = ({"pattern": "net.blocks.0", "lr_factor": 0.5}, {"pattern": "net.head", "lr_factor": 0.5})
    groups = task(*rules).configure_optimizers().param_groups
    sizes = [(len(group["params"]), group["lr"], group["weight_decay"]) for group in groups]
    assert sizes == [(2, 0.1, 0.5), (2, 0.05, 0.5), (3, 0.1, 0.0), (2, 0.05, 0.0)]


def test_batch_norms_of_wholly_frozen_modules_keep_their_statistics() -> None:
    trained = task({"pattern": "net.stem", "frozen": True})
    norm = trained.net.get_submodule("stem.1")
    trained.configure_model()
    assert not norm.training
    trained.train()
    assert not norm.training
    assert trained.net.training
    assert trained.net.get_submodule("head").training
    partly = task({"pattern": "net.stem.1.weight", "frozen": True})
    partly.configure_model()
    assert partly.train().net.get_submodule("stem.1").training, "its bias is trained"


def test_muon_keeps_the_kinds_apart() -> None:
    trained = task({"pattern": "net.*", "layer_decay": 0.5}, optimizer=partial(Muon, lr=0.1))
    optimizer = trained.configure_optimizers()
    hidden = per_name(trained, "hidden", optimizer)
    assert [name for name, value in hidden.items() if value] == ["blocks.0.0.weight", "blocks.1.0.weight"]
    rates = per_name(trained, "lr", optimizer)
    assert (rates["blocks.0.0.weight"], rates["blocks.0.0.bias"]) == pytest.approx((0.025, 0.025))


def test_optimizers_without_weight_decay_take_rates() -> None:
    rule = {"pattern": "net.head", "lr_factor": 0.5}
    assert set(per_name(task(rule, optimizer=partial(optim.Rprop, lr=0.1)), "lr").values()) == {0.1, 0.05}
    frozen = task({"pattern": "net.head", "frozen": True}, optimizer=partial(optim.LBFGS, lr=0.1))
    assert len(per_name(frozen, "lr")) == 7
    with pytest.raises(ValueError, match="parameter_groups: Rprop has no weight_decay"):
        task({"pattern": "*", "weight_decay": 0.1}, optimizer=partial(optim.Rprop, lr=0.1)).configure_optimizers()


def test_shared_parameters_are_known_by_either_name() -> None:
    module = nn.ModuleDict({"tokens": nn.Embedding(3, 2), "head": nn.Linear(2, 3)})
    module["head"].weight = module["tokens"].weight
    rates = per_name(task({"pattern": "net.head.weight", "lr_factor": 0.5}, module=module), "lr")
    assert rates == {"tokens.weight": 0.05, "head.bias": 0.1}


def test_an_absolute_rate_is_the_peak_under_a_schedule_of_its_own_rates() -> None:
    schedule = partial(OneCycleLR, max_lr=4.0, total_steps=10)
    optimizer = partial(optim.SGD, lr=0.1, momentum=0.9)
    configured = task({"pattern": "net.head", "lr": 1.0}, optimizer=optimizer, schedule=schedule).configure_optimizers()
    scheduler, peaks = configured["lr_scheduler"]["scheduler"], [0.0, 0.0]
    groups = sorted(configured["optimizer"].param_groups, key=lambda group: group["max_lr"])
    for _ in range(10):
        peaks = [max(peak, group["lr"]) for peak, group in zip(peaks, (groups[0], groups[-1]), strict=True)]
        configured["optimizer"].step()
        scheduler.step()
    assert peaks == pytest.approx([1.0, 4.0])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"pattern": "net.*", "lr_facter": 0.1}, r"parameter_groups: no such key lr_facter\. Nearest: lr_factor"),
        ({"lr": 0.1}, r"parameter_groups: expected a mapping with a pattern, got \{'lr': 0\.1\}"),
        ("net.*", "parameter_groups: expected a mapping with a pattern, got 'net"),
        ({"pattern": "net.*"}, r"net\.\*: expected at least one of lr_factor, lr, layer_decay, weight_decay, frozen"),
        ({"pattern": "net.*", "lr": -1.0}, r"net\.\*: lr: expected a number above 0 .*, got -1\.0"),
        ({"pattern": "net.*", "lr": "fast"}, r"lr: expected a number above 0 .*, got 'fast'"),
        ({"pattern": "net.*", "lr": float("nan")}, "lr: expected a number above 0 .*, got nan"),
        ({"pattern": "net.*", "lr_factor": 0}, r"lr_factor: expected a number above 0 .*, got 0"),
        ({"pattern": "net.*", "layer_decay": 1.5}, r"layer_decay: expected a number in \(0, 1\], got 1\.5"),
        ({"pattern": "net.*", "layer_decay": 0}, r"layer_decay: expected a number in \(0, 1\], got 0"),
        ({"pattern": "net.*", "weight_decay": -0.1}, "weight_decay: expected a number of at least 0, got -0.1"),
        ({"pattern": "net.*", "frozen": 1}, "frozen: expected true or false, got 1"),
        ({"pattern": "net.*", "lr": 1, "lr_factor": 1}, "lr, lr_factor: expected one of them"),
        ({"pattern": "", "lr": 1}, "pattern: expected a glob over parameter names, got ''"),
    ],
)
def test_rules_that_cannot_be(rule: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task(rule)


@pytest.mark.parametrize(
    ("pattern", "suggestion"),
    [
        ("net.stm.*", r"\. Nearest: net\.stem"),
        ("blocks.0.*", r"\. Nearest: net\.blocks\.0"),
        ("backbone", r"\. Names begin with net\.stem, net\.blocks, net\.head"),
    ],
)
def test_a_pattern_that_names_nothing(pattern: str, suggestion: str) -> None:
    with pytest.raises(UserError, match=f"parameter_groups: no parameter matches {re.escape(pattern)}{suggestion}"):
        task({"pattern": pattern, "lr_factor": 0.1}).configure_optimizers()


def test_everything_frozen_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="parameter_groups: every parameter is frozen, so there is nothing to optimise"
    ):
        task({"pattern": "*", "frozen": True}).configure_optimizers()


def test_an_absolute_rate_beside_an_optimizer_that_stands_still() -> None:
    with pytest.raises(ValueError, match="lr needs an optimizer whose own lr is above 0, got 0"):
        task({"pattern": "net.head", "lr": 1.0}, optimizer=partial(optim.SGD, lr=0.0)).configure_optimizers()


def weights(path: str) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["state_dict"]


def test_from_a_file_and_the_command_line(cli: Cli) -> None:
    """A frozen layer stays bitwise with its norm's statistics; one line says the groups."""
    rules = "[{pattern: net.*, layer_decay: 0.5}, {pattern: 'net.hidden.[01]', frozen: true}]"
    Path("rules.yaml").write_text(f"model: {{init_args: {{parameter_groups: {rules}}}}}\n")
    appended = "[{pattern: net.head, lr: 1e-2, weight_decay: 3e-4}]"
    args = ("--config", "rules.yaml", "--model.parameter_groups+", appended, "--trainer.max_epochs", "1")
    done = cli(*MLP, *args, "--trainer.limit_train_batches", "3", "--run_dir", "run")
    assert done.code == 0, done.err
    line = next(line for line in done.out.splitlines() if line.startswith("parameter_groups"))
    assert line == (
        "parameter_groups: net.* 8, lr 0.00025 to 0.01, decay 0.01, 3 frozen · net.hidden.[01] 3 frozen · "
        "net.head 2, lr 0.01, decay 0.0003"
    )
    left = weights("run/checkpoints/last.ckpt")
    assert left["net.hidden.1.num_batches_tracked"] == 0
    assert left["net.hidden.5.num_batches_tracked"] == 3
    assert torch.equal(left["net.hidden.1.weight"], torch.ones(8))
    assert not torch.equal(left["net.hidden.5.weight"], torch.ones(8))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["AdamW", "Muon"])
def test_a_resumed_run_is_the_same(cli: Cli, optimizer: str) -> None:
    rules = "[{pattern: net.*, layer_decay: 0.5}, {pattern: net.hidden.0, frozen: true}]"
    args = (*MLP, "--model.parameter_groups", rules, "--model.optimizer", optimizer, "--model.schedule", "StepLR")
    args = (*args, "--model.schedule.step_size", "1", "--trainer.limit_train_batches", "3")
    assert cli(*args, "--trainer.max_epochs", "3", "--run_dir", "whole").code == 0
    first = cli(*args, "--trainer.max_epochs", "1", "--run_dir", "parts")
    assert first.code == 0, first.err
    second = cli(*args, "--trainer.max_epochs", "3", "--run_dir", "parts", "--ckpt_path", "last")
    assert second.code == 0, second.err
    left, right = weights("whole/checkpoints/last.ckpt"), weights("parts/checkpoints/last.ckpt")
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.slow
def test_a_changed_factor_takes_effect_in_a_continued_run(cli: Cli) -> None:
    args = (*MLP, "--model.schedule", "WarmupCosine", "--trainer.limit_train_batches", "3", "--run_dir", "run")
    cli(*args, "--model.parameter_groups", "[{pattern: net.head, lr_factor: 0.5}]", "--trainer.max_epochs", "2")
    rules = "[{pattern: net.head, lr_factor: 0.25}]"
    done = cli(*args, "--model.parameter_groups", rules, "--trainer.max_epochs", "4", "--ckpt_path", "last")
    assert done.code == 0, done.err
    groups = torch.load("run/checkpoints/last.ckpt", weights_only=True)["optimizer_states"][0]["param_groups"]
    assert {group["initial_lr"] for group in groups} == {1e-3, 0.25e-3}
    assert "continuing with model.parameter_groups" in done.out


def test_a_wrong_pattern_on_the_command_line(cli: Cli) -> None:
    done = cli(
        *MLP,
        "--model.parameter_groups",
        "[{pattern: net.haed, lr_factor: 2}]",
        *("--run_dir", "run", "--trainer.max_epochs", "1"),
    )
    assert done.code == 2
    assert done.err.startswith("error: --model.parameter_groups: no parameter matches net.haed. Nearest: net.head")


def test_warmup_cosine_keeps_the_ratio() -> None:
    configured = task({"pattern": "net.head", "lr_factor": 3}, schedule=partial(WarmupCosine, total_steps=7, final=0.1))
    optimizer, scheduler = (made := configured.configure_optimizers())["optimizer"], made["lr_scheduler"]["scheduler"]
    for _ in range(7):
        rates = sorted({round(group["lr"], 12) for group in optimizer.param_groups})
        assert rates[1] / rates[0] == pytest.approx(3)
        optimizer.step()
        scheduler.step()

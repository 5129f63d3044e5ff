"""Forecasting against sums over single values in float64, its answers, pictures and exports."""

import json
import re
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook.deploy.program import build_program
from playbook.errors import UserError
from playbook.runs.predictions import WritePredictions
from playbook.testing.command import QUIET, UNSAVED
from playbook.testing.gradients import assert_same_steps, random_split, step_gradients
from src.nets.series.linear import DLinear, NLinear
from src.nets.series.recurrent_forecaster import RecurrentForecaster
from src.tasks.forecasting import Forecasting, pinball_loss
from tests.tasks.reports import assert_means, report_of

L, H, C = 6, 4, 2
LEVELS = [0.1, 0.4, 0.9]
FACTS = {"channels": ["load", "OT"], "frequency": "h", "target_mean": [10.0, -3.0], "target_std": [2.0, 0.5]}
ORIGIN = 1_483_228_800 - 3600  # 2016-12-31 23:00
Batches = list[tuple[dict[str, Tensor], Any]]


def windows(num_windows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    both = torch.randn(num_windows, L + H, C, generator=generator)
    return both[:, :L], both[:, L:]


def loader(num_windows: int, batch_size: int) -> Any:
    past, target = windows(num_windows)
    batches = [
        ({"past": past[i : i + batch_size]}, target[i : i + batch_size]) for i in range(0, num_windows, batch_size)
    ]
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]  # a list is a data set


def trained(net_class: Any = NLinear, num_quantiles: int = 1) -> Any:
    torch.manual_seed(0)
    net = net_class(look_back=L, horizon=H, num_channels=C, num_quantiles=num_quantiles)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net


def slow_pinball(values: Tensor, target: Tensor, levels: list[float]) -> float:
    losses = []
    for outputs, y in zip(values.double().reshape(-1, len(levels)).tolist(), target.flatten().tolist(), strict=True):
        losses += [q * (y - v) if y >= v else (1 - q) * (v - y) for v, q in zip(outputs, levels, strict=True)]
    return sum(losses) / len(losses)


@pytest.mark.parametrize(("num_windows", "batch_size"), [(11, 4), (9, 8), (3, 5)])
@pytest.mark.parametrize("loss", ["mse", "l1"])
def test_every_window_counts_equally(num_windows: int, batch_size: int, loss: Any) -> None:
    task = Forecasting(trained(), loss)
    trainer = Trainer(**UNSAVED)
    validated = trainer.validate(task, loader(num_windows, batch_size), verbose=False)[0]
    tested = trainer.test(task, loader(num_windows, batch_size), verbose=False)[0]
    past, target = windows(num_windows)
    error = (task.net(past) - target).double()
    measures = {"mse": error.square().mean().item(), "mae": error.abs().mean().item()}
    measures["loss"] = measures["mse" if loss == "mse" else "mae"]
    assert validated == pytest.approx({f"val/{name}": value for name, value in measures.items()}, rel=1e-6)
    assert tested == pytest.approx({f"test/{name}": value for name, value in measures.items()}, rel=1e-6)


def test_quantiles_are_measured_by_pinball_loss_and_coverage() -> None:
    task = Forecasting(trained(num_quantiles=3), "quantile", LEVELS)
    tested = Trainer(**UNSAVED).test(task, loader(11, 4), verbose=False)[0]
    past, target = windows(11)
    values = task.net(past).detach()
    assert (values.diff(dim=-1) < 0).any(), "quantiles cross"
    ordered = values.double().sort(dim=-1).values
    inside = (ordered[..., 0] <= target) & (target <= ordered[..., 2])
    error = ordered[..., 1] - target  # 0.4 is the level nearest to 0.5
    expected = {
        "test/loss": slow_pinball(values, target, LEVELS),
        "test/coverage": inside.double().mean().item(),
        "test/mse": error.square().mean().item(),
        "test/mae": error.abs().mean().item(),
    }
    assert 0 < expected["test/coverage"] < 1
    assert tested == pytest.approx(expected, rel=1e-6)


def test_pinball_loss_by_hand() -> None:
    values, levels = torch.tensor([[1.0, 4.0]]), torch.tensor([0.1, 0.8])
    # 0.1 · (3 - 1) below, 0.2 · (4 - 3) above
    assert pinball_loss(values, torch.tensor([3.0]), levels).item() == pytest.approx((0.2 + 0.2) / 2)


def test_the_pinball_loss_is_least_at_the_quantile() -> None:
    target = torch.arange(101, dtype=torch.float64)
    losses = [pinball_loss(torch.full((101, 1), float(v)), target, torch.tensor([0.3])).item() for v in range(101)]
    assert losses.index(min(losses)) == 30


@pytest.mark.parametrize("loss", ["mse", "l1", "quantile"])
def test_steps_do_not_depend_on_how_they_are_split(loss: Any) -> None:
    task = Forecasting(
        trained(num_quantiles=3 if loss == "quantile" else 1).double(),
        loss,
        optimizer=partial(torch.optim.SGD, lr=0.0),
    )
    samples = tuple(part.double() for part in windows(30))
    batches, large = random_split(samples, 0, 2)
    assert_same_steps(step_gradients(task, batches, accumulate=2), step_gradients(task, large))


def test_a_linear_series_is_learnt() -> None:
    time = torch.arange(60.0)[:, None] * torch.tensor([0.02, -0.03])
    both = time.unfold(0, L + H, 1).transpose(1, 2)
    batches = [({"past": both[i::5, :L]}, both[i::5, L:]) for i in range(5)]
    data: Any = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    torch.manual_seed(0)
    task = Forecasting(NLinear(L, H, C), optimizer=partial(torch.optim.Adam, lr=3e-2))
    before = Trainer(**UNSAVED).validate(deepcopy(task), data, verbose=False)[0]["val/mse"]
    Trainer(**UNSAVED, max_epochs=8).fit(task, data, data)
    after = Trainer(**UNSAVED).validate(task, data, verbose=False)[0]["val/mse"]
    assert after < before / 5, (before, after)


def test_metrics_are_exact_in_half_precision() -> None:
    task = Forecasting(trained())
    tested = Trainer(**UNSAVED, precision="bf16-mixed").test(task, loader(8, 8), verbose=False)[0]
    past, target = windows(8)
    with torch.autocast("cpu", torch.bfloat16):
        values = task.net(past).double()
    assert tested["test/mse"] == pytest.approx((values - target).square().mean().item(), rel=1e-6)


# predictions


def unlabelled(num_windows: int, **more: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    past, _ = windows(num_windows)
    scale = torch.stack([torch.arange(num_windows * C).view(-1, C) + 1e6, torch.full((num_windows, C), 0.5)], dim=1)
    return {"past": past}, {"origin": torch.full((num_windows,), ORIGIN), "scale": scale, **more}


def test_forecasts_are_in_the_units_of_the_facts() -> None:
    task, (past, target) = Forecasting(trained()), windows(3)
    task.facts = FACTS
    outputs = task.predict_step(({"past": past}, target), 0)
    mean, deviation = torch.tensor(FACTS["target_mean"]), torch.tensor(FACTS["target_std"])
    rounding = 1e-5 * deviation.double()
    for name, scaled in (("forecast", task.net(past)), ("target", target)):
        error = (outputs[name] - (scaled.double() * deviation + mean)).abs()
        assert (error <= rounding).all(), name
    assert list(task.predict_step(({"past": past}, torch.full((3,), -1)), 0)) == ["forecast"], "an unknown target"


def test_each_unlabelled_window_has_its_own_units() -> None:
    task, (inputs, target) = Forecasting(trained(), "quantile", [0.5]), unlabelled(3)
    task.facts = FACTS
    outputs = task.predict_step((inputs, target), 0)
    assert set(outputs) == {"forecast", "quantiles", "origin"}
    for i in range(3):
        for c in range(C):
            expected = task.net(inputs["past"])[i, :, c].double() * 0.5 + (1e6 + i * C + c)
            torch.testing.assert_close(outputs["forecast"][i, :, c], expected, rtol=1e-12, atol=1e-7)


def test_a_known_target_beside_the_scale_is_in_own_units() -> None:
    _, values = windows(3)
    inputs, target = unlabelled(3, target=values)
    outputs = Forecasting(trained()).predict_step((inputs, target), 0)
    expected = values.double() * 0.5 + target["scale"][:, :1]
    torch.testing.assert_close(outputs["target"], expected, rtol=1e-12, atol=1e-7)


@pytest.mark.parametrize("quantiles", [[], LEVELS])
def test_the_report_has_errors_by_window_step_and_channel(quantiles: list[float]) -> None:
    options: Any = {"loss": "quantile", "quantiles": quantiles} if quantiles else {}
    task = Forecasting(trained(num_quantiles=max(1, len(quantiles))), **options)
    task.facts = FACTS
    report, logged, _ = report_of(task, loader(11, 4))
    assert_means(report, logged, {"mse", "mae"} | ({"coverage"} if quantiles else set()))
    past, target = windows(11)
    values = deepcopy(task.net).double()(past.double()).detach().reshape(11, H, C, -1).sort(dim=-1).values.numpy()
    error = values[..., values.shape[-1] // 2] - target.double().numpy()
    np.testing.assert_allclose(report.rankings["Largest errors"], (error**2).mean(axis=(1, 2)), rtol=1e-4)
    lines = {line.get_label(): line for line in report.figures["Error by step of the horizon"][0].axes[0].lines}
    np.testing.assert_allclose(np.asarray(lines["mse"].get_ydata()), (error**2).mean(axis=(0, 2)), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(lines["mae"].get_ydata()), abs(error).mean(axis=(0, 2)), rtol=1e-4)
    for c, row in enumerate(report.tables["Errors by channel"]):
        mse, mae = (error[..., c] ** 2).mean(), abs(error[..., c]).mean()
        assert row.pop("channel") == FACTS["channels"][c]
        own = {"mae in own units": mae * FACTS["target_std"][c]}
        assert row == pytest.approx({"mse": mse, "mae": mae} | own, rel=1e-4)
    below = (target.double().numpy()[..., None] <= values).mean(axis=(0, 1, 2))
    shares = [row["targets at or below"] for row in report.tables.get("Quantiles", [])]
    assert shares == pytest.approx(below if quantiles else [])


def test_a_picture_shows_targets_that_are_known() -> None:
    task = Forecasting(trained())
    task.facts = FACTS
    past, target = windows(1)
    [answer] = task.answer(task.predict_step(({"past": past}, target), 0), FACTS)
    unknown = [{name: value for name, value in row.items() if "_target" not in name} for row in answer["forecast"]]
    pictures = [np.asarray(task.draw({"past": past[0]}, {"forecast": rows})) for rows in (answer["forecast"], unknown)]
    assert (pictures[0] != pictures[1]).any()


def test_answers_name_every_step() -> None:
    task = Forecasting(trained(num_quantiles=3), "quantile", LEVELS)
    inputs, target = unlabelled(2, steps=torch.tensor([4, 1]))
    outputs = task.predict_step((inputs, target), 0)
    answers = task.answer(outputs, FACTS)
    times = [[row["ds"] for row in answer["forecast"]] for answer in answers]
    assert times[0] == [f"2017-01-01 0{h}:00:00" for h in range(4)]
    assert times[1] == times[0][:1], "as many as are asked for"
    last = answers[0]["forecast"][3]
    assert list(last) == ["ds", "load", "load_0.1", "load_0.4", "load_0.9", "OT", "OT_0.1", "OT_0.4", "OT_0.9"]
    for q, level in enumerate(LEVELS):
        assert last[f"OT_{level:g}"] == outputs["quantiles"][0, 3, 1, q].item()
    assert last["OT_0.1"] <= last["OT"] == last["OT_0.4"] <= last["OT_0.9"], "sorted, and the level nearest to 0.5"


def test_labelled_windows_are_answered_beside_their_targets() -> None:
    task, (past, target) = Forecasting(trained()), windows(2)
    answers = task.answer(task.predict_step(({"past": past}, target), 0), {})
    rows = answers[1]["forecast"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert list(rows[0]) == ["step", "y0", "y0_target", "y1", "y1_target"]
    assert [row["y1_target"] for row in rows] == pytest.approx(target[1, :, 1].tolist(), abs=1e-5)


def test_the_table_has_a_row_for_every_step(tmp_path: Path) -> None:
    inputs, target = unlabelled(2)
    data: Any = DataLoader([(inputs, target)], batch_size=None)  # type: ignore[arg-type]
    writer = WritePredictions(tmp_path)
    writer.facts = FACTS
    Trainer(**UNSAVED, callbacks=[writer]).predict(Forecasting(trained()), data, return_predictions=False)
    lines = (tmp_path / "predictions.csv").read_text().splitlines()
    assert lines[0] == "id,ds,load,OT"
    assert len(lines) == 1 + 2 * H
    assert lines[1 + H].startswith("1,2017-01-01 00:00:00,")


@pytest.mark.parametrize("facts", [FACTS, {}])
def test_a_picture_shows_history_and_interval(facts: dict[str, Any]) -> None:
    task = Forecasting(trained(num_quantiles=3), "quantile", LEVELS)
    task.facts = facts
    inputs, target = unlabelled(1)
    (answer,) = task.answer(task.predict_step((inputs, target), 0), facts | {"frequency": "h"})
    picture = task.draw({"past": inputs["past"][0], "scale": target["scale"][0]}, answer)
    assert picture.size == (900, 500), "a panel for each channel"
    calm = {"past": inputs["past"][0].clone(), "scale": target["scale"][0]}
    calm["past"][:4] = 0
    assert (np.asarray(picture) != np.asarray(task.draw(calm, answer))).any(), "the history is drawn"


def test_the_history_is_drawn_in_the_units_of_the_facts() -> None:
    task, (past, target) = Forecasting(trained()), windows(1)
    task.facts = FACTS
    (answer,) = task.answer(task.predict_step(({"past": past}, target), 0), FACTS)
    scale = torch.tensor([FACTS["target_mean"], FACTS["target_std"]])
    pictures = [np.asarray(task.draw({"past": past[0], **more}, answer)) for more in ({}, {"scale": scale})]
    assert np.array_equal(pictures[0], pictures[1])


# options, checkpoints and exports


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "huber"}, "loss: expected one of mse, l1, quantile, got huber"),
        ({"quantiles": [0.5]}, "quantiles: expected loss quantile, got loss mse"),
        ({"loss": "quantile", "quantiles": []}, "quantiles: expected ascending levels in (0, 1), got []"),
        ({"loss": "quantile", "quantiles": [0.5, 0.1]}, "quantiles: expected ascending levels in (0, 1)"),
        ({"loss": "quantile", "quantiles": [0.5, 0.5]}, "quantiles: expected ascending levels in (0, 1)"),
        ({"loss": "quantile", "quantiles": [0.0, 0.5]}, "quantiles: expected ascending levels in (0, 1)"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Forecasting(trained(), **options)


@pytest.mark.parametrize(
    ("num_quantiles", "options", "message"),
    [
        (1, {"loss": "quantile"}, "num_quantiles: expected 3 for 3 quantiles, the net returned (2, 4, 2)"),
        (3, {}, "num_quantiles: expected 1 for loss mse, the net returned (2, 4, 2, 3)"),
    ],
)
def test_a_net_with_other_quantiles(num_quantiles: int, options: dict[str, Any], message: str) -> None:
    task = Forecasting(trained(num_quantiles=num_quantiles), **options)
    with pytest.raises(UserError, match=re.escape(message)):
        Trainer(**UNSAVED).validate(task, loader(2, 2), verbose=False)


def test_a_net_with_another_horizon() -> None:
    task = Forecasting(NLinear(L, H + 1, C))
    message = "horizon, num_channels: expected forecasts (2, 4, 2), as the targets of the data, the net returned"
    with pytest.raises(UserError, match=re.escape(message)):
        Trainer(**UNSAVED).validate(task, loader(2, 2), verbose=False)


def test_a_checkpoint_keeps_facts_and_forecasts(tmp_path: Path) -> None:
    task, data = Forecasting(trained()), loader(8, 4)
    trainer = Trainer(**QUIET, max_steps=1, default_root_dir=tmp_path, num_sanity_val_steps=0)
    trainer.fit(task, data, data)
    trainer.save_checkpoint(tmp_path / "task.ckpt")
    loaded = Forecasting.load_from_checkpoint(tmp_path / "task.ckpt", net=NLinear(L, H, C))
    past, target = windows(2)
    expected = task.predict_step(({"past": past}, target), 0)
    assert torch.equal(loaded.predict_step(({"past": past}, target), 0)["forecast"], expected["forecast"])


@pytest.mark.parametrize("net_class", [DLinear, RecurrentForecaster])
@pytest.mark.parametrize("loss", ["mse", "quantile"])
def test_the_program_takes_inputs_by_name(net_class: Any, loss: Any) -> None:
    """Without past covariates, static ones must not take their place."""
    num_quantiles = 3 if loss == "quantile" else 1
    net: nn.Module = net_class(L, H, C, num_static=3, num_quantiles=num_quantiles)
    past, target = windows(4)
    program = build_program(Forecasting(net, loss), [({"static": torch.randn(4, 3), "past": past}, target)], {})
    assert program.shapes == {"past": ["B", L, C], "static": ["B", 3]}
    name, shape = ("forecast", ["B", H, C]) if loss == "mse" else ("quantiles", ["B", H, C, 3])
    assert program.outputs == [name]
    assert json.loads(json.dumps(program.describe_outputs())) == [["float32", shape]]

"""Averages against their closed forms; where they are swapped in, and what checkpoints hold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from playbook.checkpoints.io import AtomicCheckpointIO, load
from playbook.testing.command import QUIET
from playbook.testing.line import Line, points
from playbook.training.resume.checkpoint import Checkpoint
from src.callbacks.average import EMA, RAW, SWA

State = dict[str, Tensor]


class Norm(Line):
    """In float64, with BatchNorm's buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        self.double()

    def _error(self, batch: Sequence[Tensor]) -> Tensor:
        x, y = batch
        return (self.net(x.double()) - y).square().mean()


class Watch(pl.Callback):
    """Notes the weights after every batch, and those that are validated."""

    def __init__(self) -> None:
        self.raw: list[State] = []
        self.steps: list[int] = []
        self.validated: list[State] = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        self.raw.append(copied(pl_module))
        self.steps.append(trainer.global_step)

    def on_validation_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        self.validated.append(copied(pl_module))


class Compare(pl.Callback):
    """After a validation the raw weights are back, bitwise, for whoever comes after the average."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.compared = 0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.watch.raw:
            assert_same(copied(pl_module), self.watch.raw[-1])
            self.compared += 1


def copied(module: nn.Module) -> State:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def assert_same(a: State, b: State) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


def train(folder: Path, average: EMA | SWA, **settings: Any) -> tuple[pl.LightningModule, Watch, dict[str, Any]]:
    """Two epochs of four batches unless said otherwise; returns the module, what was seen, last.ckpt."""
    checkpoint = Checkpoint("val/loss")
    checkpoint.folder = folder
    watch = Watch()
    compare = Compare(watch)
    callbacks = [watch, average, compare, *settings.pop("callbacks", []), checkpoint]
    module = settings.pop("module", None) or Norm()
    trainer = pl.Trainer(
        **{**QUIET, "max_epochs": 2, "num_sanity_val_steps": 0, "callbacks": callbacks, **settings},
        plugins=[AtomicCheckpointIO()],
    )
    trainer.fit(module, points(), points())
    assert compare.compared >= 1
    return module, watch, load(folder / "last.ckpt")


def weighted(states: list[State], shares: list[float]) -> State:
    """Sum of share · state over floating-point entries; the newest of others."""
    assert sum(shares) == pytest.approx(1)
    total = {}
    for name, newest in states[-1].items():
        parts = [share * state[name] for share, state in zip(shares, states, strict=True)]
        total[name] = torch.stack(parts).sum(0) if newest.is_floating_point() else newest
    return total


def ema_shares(decays: list[float]) -> list[float]:
    """Of the first state, which starts the average, and of each that came later, from its decay: the closed form."""
    shares = []
    for i, decay in enumerate([0.0, *decays]):
        share = 1 - decay
        for later in decays[i:]:
            share *= later
        shares.append(share)
    return shares


EMAS: list[tuple[dict[str, Any], list[int], list[float]]] = [
    # arguments, the steps of 8 that count, the decay at each but the first
    ({"decay": 0.9, "warmup": False}, [1, 2, 3, 4, 5, 6, 7, 8], [0.9] * 7),
    ({"decay": 0.99}, [1, 2, 3, 4, 5, 6, 7, 8], [(1 + t) / (10 + t) for t in range(1, 8)]),
    ({"decay": 0.3}, [1, 2, 3, 4, 5, 6, 7, 8], [2 / 11, 3 / 12, 0.3, 0.3, 0.3, 0.3, 0.3]),
    ({"decay": 0.9, "warmup": False, "every_n_steps": 3}, [3, 6], [0.9**3]),
    ({"decay": 0.9, "every_n_steps": 2}, [2, 4, 6, 8], [(3 / 12) ** 2, (5 / 14) ** 2, (7 / 16) ** 2]),
]


@pytest.mark.parametrize(("arguments", "steps", "decays"), EMAS, ids=str)
def test_ema_is_its_closed_form(tmp_path: Path, arguments: Any, steps: list[int], decays: list[float]) -> None:
    module, watch, checkpoint = train(tmp_path, EMA(**arguments), max_epochs=4)
    assert watch.steps == [1, 2, 3, 4, 5, 6, 7, 8]
    expected = weighted([watch.raw[step - 1] for step in steps], ema_shares(decays))
    expected["net.1.num_batches_tracked"] = watch.raw[-1]["net.1.num_batches_tracked"]
    for name, value in expected.items():
        torch.testing.assert_close(checkpoint["state_dict"][name], value, rtol=1e-12, atol=1e-12, msg=name)
    assert not torch.equal(expected["net.1.running_var"], watch.raw[-1]["net.1.running_var"]), "buffers count too"
    assert_same(copied(module), checkpoint["state_dict"])
    assert_same(checkpoint[RAW], watch.raw[-1])


def test_ema_is_that_of_torch(tmp_path: Path) -> None:
    _, watch, checkpoint = train(tmp_path, EMA(0.8, warmup=False))
    model = Norm()
    theirs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True)
    for state in watch.raw:
        model.load_state_dict(state)
        theirs.update_parameters(model)
    expected = copied(theirs.module) | {"net.1.num_batches_tracked": watch.raw[-1]["net.1.num_batches_tracked"]}
    assert_same(checkpoint["state_dict"], expected)


def test_average_moves_with_the_optimizer_not_with_the_batch(tmp_path: Path) -> None:
    """Batches of one step share it: 2 epochs of 2 batches are 2 steps, each after the second batch."""
    _, watch, checkpoint = train(tmp_path, EMA(0.9, warmup=False), accumulate_grad_batches=2)
    assert watch.steps == [0, 1, 1, 2]
    expected = weighted([watch.raw[1], watch.raw[3]], [0.9, 0.1])
    torch.testing.assert_close(checkpoint["state_dict"]["net.0.weight"], expected["net.0.weight"])


@pytest.mark.parametrize(
    ("start", "settings", "steps"),
    [
        (0.75, {"max_epochs": 8}, [12, 14, 16]),
        (0.0, {"max_epochs": 3}, [2, 4, 6]),
        (0.9, {"max_epochs": 2}, [4]),
        (0.5, {"max_epochs": -1, "max_steps": 5}, [4, 5]),  # the last step ends the training within an epoch
    ],
)
def test_swa_is_the_mean_of_the_last_epochs(tmp_path: Path, start: float, settings: Any, steps: list[int]) -> None:
    module, watch, checkpoint = train(tmp_path, SWA(start), **settings)
    expected = weighted([watch.raw[step - 1] for step in steps], [1 / len(steps)] * len(steps))
    for name, value in expected.items():
        torch.testing.assert_close(checkpoint["state_dict"][name], value, rtol=1e-12, atol=1e-12, msg=name)
    assert_same(copied(module), checkpoint["state_dict"])
    assert_same(checkpoint[RAW], watch.raw[-1])


def test_swa_validates_the_epoch_it_ends_with_and_the_raw_weights_before(tmp_path: Path) -> None:
    _, watch, _ = train(tmp_path, SWA(0.5), max_epochs=4)
    validated = watch.validated[::2]  # two batches an epoch
    assert_same(validated[0], watch.raw[1])
    assert_same(validated[1], watch.raw[3])
    mean = weighted([watch.raw[3], watch.raw[5]], [0.5, 0.5])
    torch.testing.assert_close(validated[2]["net.0.weight"], mean["net.0.weight"])


def test_validation_and_best_take_the_average_in_mid_epoch(tmp_path: Path) -> None:
    """A validation after every step: the best is saved once the raw weights are back, and holds both."""
    _, watch, _ = train(tmp_path, EMA(0.9, warmup=False), val_check_interval=1, max_epochs=1)
    expected = weighted(watch.raw[:2], [0.9, 0.1])
    torch.testing.assert_close(watch.validated[2]["net.0.weight"], expected["net.0.weight"])
    best = load(tmp_path / "best.ckpt")
    step = best["global_step"]
    assert_same(best[RAW], watch.raw[step - 1])
    assert_same(best["state_dict"], watch.validated[2 * step - 1])


class SaveAmidValidation(pl.Callback):
    """As a signal to stop may."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "amid.ckpt"

    def on_validation_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        trainer.save_checkpoint(self.path)


def test_checkpoint_amid_a_validation_holds_both(tmp_path: Path) -> None:
    _, watch, last = train(tmp_path, EMA(0.9), callbacks=[SaveAmidValidation(tmp_path)])
    amid = load(tmp_path / "amid.ckpt")
    assert_same(amid["state_dict"], last["state_dict"])
    assert_same(amid[RAW], watch.raw[-1])


def test_exception_amid_a_validation_gives_the_raw_weights_back(tmp_path: Path) -> None:
    class Broken(Norm):
        def on_validation_epoch_end(self) -> None:
            raise RuntimeError("broken")

    module, watch = Broken(), Watch()
    callbacks = [watch, EMA(0.9, warmup=False)]
    settings = {**QUIET, "max_steps": 3, "val_check_interval": 2, "check_val_every_n_epoch": None}
    trainer = pl.Trainer(**settings, num_sanity_val_steps=0, callbacks=callbacks, enable_checkpointing=False)
    with pytest.raises(RuntimeError, match="broken"):
        trainer.fit(module, points(), points())
    assert not torch.equal(watch.validated[-1]["net.0.weight"], watch.raw[-1]["net.0.weight"])
    assert_same(copied(module), watch.raw[-1])


def test_low_precision_weights_are_averaged_in_float32(tmp_path: Path) -> None:
    class Low(Norm):
        def _error(self, batch: Sequence[Tensor]) -> Tensor:
            return (self.net(batch[0]) - batch[1]).square().mean()

    _, watch, checkpoint = train(tmp_path, EMA(0.99, warmup=False), module=Low().float(), precision="bf16-true")
    assert watch.raw[0]["net.0.weight"].dtype == torch.bfloat16
    doubles = [{name: value.double() for name, value in state.items()} for state in watch.raw]
    expected = weighted(doubles, ema_shares([0.99] * 3))["net.0.weight"]
    average = checkpoint["state_dict"]["net.0.weight"]
    assert average.dtype == torch.float32
    torch.testing.assert_close(average.double(), expected, rtol=1e-6, atol=1e-7)
    assert_same(checkpoint[RAW], watch.raw[-1])


def test_shared_weights_move_once(tmp_path: Path) -> None:
    class Tied(Line):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(1, 1).double()
            self.other = nn.Linear(1, 1).double()
            self.other.weight = self.net.weight

        def _error(self, batch: Sequence[Tensor]) -> Tensor:
            return (self.other(self.net(batch[0].double())) - batch[1]).square().mean()

    _, watch, checkpoint = train(tmp_path, EMA(0.9, warmup=False), module=Tied())
    expected = weighted(watch.raw, ema_shares([0.9] * 3))
    for name in ("net.weight", "other.weight"):
        torch.testing.assert_close(checkpoint["state_dict"][name], expected[name])
        assert torch.equal(checkpoint[RAW][name], watch.raw[-1][name])


def test_a_second_fit_begins_anew(tmp_path: Path) -> None:
    """As in a notebook: the averaged weights are what it starts from."""
    average = EMA(0.9, warmup=False)
    module, _, first = train(tmp_path, average)
    _, watch, second = train(tmp_path, average, module=module, max_epochs=1)
    assert second["callbacks"]["EMA"] == {"num_averaged": 2}
    torch.testing.assert_close(second["state_dict"]["net.0.weight"], weighted(watch.raw, [0.9, 0.1])["net.0.weight"])
    assert first["callbacks"]["EMA"] == {"num_averaged": 4}


def test_swa_says_when_it_came_to_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Early(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.should_stop = True

    _, watch, checkpoint = train(tmp_path, SWA(0.75), max_epochs=8, callbacks=[Early()])
    assert "warning: SWA: training ended before its start, nothing was averaged" in capsys.readouterr().err
    assert RAW not in checkpoint
    assert_same(checkpoint["state_dict"], watch.raw[-1])


def test_one_average_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^trainer\.callbacks: expected one weight average, got EMA, SWA$"):
        train(tmp_path, EMA(), callbacks=[SWA()])


def test_sharded_weights_are_refused(tmp_path: Path) -> None:
    """By what they all have, as FSDP2's: a way to become whole."""

    class Sharded(nn.Parameter):
        def full_tensor(self) -> Tensor:
            raise NotImplementedError

    module = Line()
    module.net.weight = Sharded(torch.zeros(1, 1))
    with pytest.raises(ValueError, match=r"^trainer\.strategy: EMA does not support sharded weights$"):
        train(tmp_path, EMA(), module=module)


def test_swa_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^start: needs a known end"):
        train(tmp_path, SWA(), max_epochs=-1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EMA(decay=1.0), r"decay: expected a share in \(0, 1\), got 1.0"),
        (lambda: EMA(decay=0.0), r"decay: expected a share in \(0, 1\), got 0.0"),
        (lambda: EMA(every_n_steps=0), "every_n_steps: expected at least 1, got 0"),
        (lambda: SWA(start=1.0), r"start: expected a share of the training in \[0, 1\), got 1.0"),
        (lambda: SWA(start=-0.1), r"start: expected a share of the training in \[0, 1\), got -0.1"),
    ],
)
def test_arguments_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()

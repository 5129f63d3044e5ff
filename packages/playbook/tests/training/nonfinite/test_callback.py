"""Nets that break for real: what is named, what is kept, and that nothing else moves."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook.errors import UserError
from playbook.testing.command import UNSAVED, Cli
from playbook.testing.processes import values_logged
from playbook.training.nonfinite.callback import NonFinite
from playbook.training.nonfinite.replay import replay
from running import CNN_DIGITS, cli_process, python_path

BAD = 13  # the sample that breaks; in batches of four, the second row of the fourth
SETTINGS: dict[str, Any] = {**UNSAVED, "max_epochs": 1}


class Divide(nn.Module):
    """Divides by what is zero for the bad sample."""

    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        return x / (key != BAD)[:, None].float()


class Log(nn.Module):
    """Takes the logarithm of what is negative for the bad sample."""

    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        return x + (1 - 2 * (key == BAD).float()).log()[:, None]


class _BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, is_bad: Tensor) -> Tensor:
        ctx.save_for_backward(is_bad)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return gradients[0].masked_fill(ctx.saved_tensors[0][:, None], torch.nan), None


class Backward(nn.Module):
    """Fails in its backward pass alone."""

    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        return _BadBackward.apply(x, key == BAD)


class Fine(nn.Module):
    """Does nothing."""

    def forward(self, x: Tensor, key: Tensor) -> Tensor:
        return x


class Regression(pl.LightningModule):
    """Dropout, batch norm, a middle that may break, and a counter of its own."""

    def __init__(self, middle: str = "Fine", loss: str = "plain", lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.first = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
        self.middle = {"Divide": Divide, "Log": Log, "Backward": Backward, "Fine": Fine}[middle]()
        self.last = nn.Linear(8, 1)
        self.loss, self.lr = loss, lr
        self.num_steps, self.kept = 0, []

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        self.num_steps += 1
        self.kept.append(batch_idx)
        error = self.last(self.middle(self.first(batch["x"]), batch["key"]))[:, 0] - batch["y"]
        if self.loss == "bad":
            error = error / (batch["key"] != BAD).float()
        return error.square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.1)


def rows(pixel: float = 0.0, num: int = 32) -> DataLoader:
    """Numbered samples; `pixel` is added to one number of the bad one."""
    x = torch.randn(num, 3, generator=torch.Generator().manual_seed(0))
    x[BAD, 1] += pixel
    keys = torch.arange(num)
    samples = [{"x": x[i], "y": x[i].sum().nan_to_num(0), "key": keys[i]} for i in range(num)]
    return DataLoader(samples, batch_size=4)  # type: ignore[arg-type]


def fit(
    folder: Path, module: pl.LightningModule, callback: NonFinite, loader: Any = None, **settings: Any
) -> pl.Trainer:
    settings = {**SETTINGS, "default_root_dir": folder, **settings}
    trainer = pl.Trainer(callbacks=[*settings.pop("callbacks", []), callback], **settings)
    pl.seed_everything(1, verbose=False)
    trainer.fit(module, loader or rows())
    return trainer


def seeded(*args: Any, **kwargs: Any) -> Regression:
    pl.seed_everything(0, verbose=False)
    return Regression(*args, **kwargs)


NAMED = {
    "division by zero": ({"middle": "Divide"}, 0.0, r"output of middle \(Divide\) is (NaN|infinite), its inputs are"),
    "log of a negative": ({"middle": "Log"}, 0.0, r"output of middle \(Log\) is NaN, its inputs are finite"),
    "a NaN pixel": ({}, torch.nan, r"the batch holds NaN in \['x'\]"),
    "the loss": ({"loss": "bad"}, 0.0, r"the loss is infinite, the outputs of all modules are finite"),
    "backward": (
        {"middle": "Backward"},
        0.0,
        r"gradient of first\.1\.weight is NaN, .* backward pass of middle \(Backward\)",
    ),
}


@pytest.mark.parametrize("case", NAMED)
def test_names_where_and_which_sample_and_replays(tmp_path: Path, case: str) -> None:
    options, pixel, expected = NAMED[case]
    module = seeded(**options)
    with pytest.raises(UserError, match=expected) as caught:
        fit(tmp_path, module, NonFinite(), rows(pixel))
    text = str(caught.value)
    assert text.startswith("not finite in epoch 1, batch 4: ")
    sample = "; sample 13" if case not in ("the loss", "backward") else "; one of the samples 12, 13, 14, 15"
    assert text.endswith(sample)
    file = tmp_path / "nonfinite/epoch-1-batch-4.pt"
    found = replay(file, Regression)
    assert str(found) in text
    assert replay(file, seeded(**options)) == found
    weights = torch.load(file, weights_only=True)["state_dict"]
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())
    assert module.first[1].num_batches_tracked == 3, "batch norm as before the step"
    assert module.num_steps == 4, "the replay leaves counters and lists alone"
    assert module.kept == [0, 1, 2, 3]


class Later(Regression):
    """Divides by zero from the second epoch on."""

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx) / float(self.current_epoch == 0)


def test_a_replay_knows_its_epoch(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not finite in epoch 2, batch 1: the loss is infinite"):
        fit(tmp_path, Later(), NonFinite(), max_epochs=3)
    assert replay(tmp_path / "nonfinite/epoch-2-batch-1.pt", Later).kind == "loss"


def test_a_parameter_that_is_bad_already(tmp_path: Path) -> None:
    module = seeded()
    module.last.weight.data[0, 3] = torch.inf
    with pytest.raises(UserError, match=r"parameter last\.weight is infinite before the step; .*skipping steps"):
        fit(tmp_path, module, NonFinite("skip"))


def test_exploding_rate(tmp_path: Path) -> None:
    module = seeded(lr=1e18)
    with pytest.raises(UserError, match=r"batch [2-4]: (the output of|the loss is infinite|parameter)"):
        fit(tmp_path, module, NonFinite())


class Record(pl.Callback):
    """Everything that a step may move, after each."""

    def __init__(self) -> None:
        self.states: list[list[Tensor]] = []
        self.draws: list[Tensor] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        moments = [v for state in trainer.optimizers[0].state.values() for v in state.values()]
        self.states.append([value.detach().clone() for value in [*pl_module.state_dict().values(), *moments]])
        self.draws.append(torch.get_rng_state())


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_skip_moves_nothing_in_the_bad_step_and_nothing_else(tmp_path: Path, accumulate: int) -> None:
    record, callback = Record(), NonFinite("skip")
    trainer = fit(
        tmp_path, seeded("Divide"), callback, callbacks=[record], accumulate_grad_batches=accumulate, max_epochs=2
    )
    moved = [not same(*pair) for pair in zip(record.states, record.states[1:], strict=False)]
    steps = [step for step in range(1, 16) if moved[step - 1]]
    if accumulate == 1:
        assert steps == [step for step in range(1, 16) if step not in (3, 11)], "batch 4 of each epoch"
    else:  # batch norm moves at every batch but those left out
        parameters = [state[0] for state in record.states]
        stepped = [i for i in range(1, 16) if not torch.equal(parameters[i], parameters[i - 1])]
        assert stepped == [1, 5, 7, 9, 13, 15][: len(stepped)]
        assert same(record.states[1], record.states[3]), "the window's first batch leaves nothing either"
    assert callback.skipped_steps == 2
    assert trainer.global_step == 16 // accumulate, "the position goes on"
    assert trainer.callback_metrics["train/skipped_steps"] == 2


def test_skip_goes_on_as_if_the_step_were_not(tmp_path: Path) -> None:
    """The same weights as a run whose fourth step has neither gradients nor statistics, with the same dropout."""

    class LeaveOut(pl.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            self.before = [b.clone() for b in pl_module.buffers()]

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            if trainer.global_step == 3:
                optimizer.zero_grad(set_to_none=True)
                for buffer, former in zip(pl_module.buffers(), self.before, strict=True):
                    buffer.copy_(former)

    broken, whole = seeded("Divide"), seeded("Fine")
    fit(tmp_path, broken, NonFinite("skip"))
    fit(tmp_path, whole, NonFinite("stop"), callbacks=[LeaveOut()])
    assert same(list(broken.state_dict().values()), list(whole.state_dict().values()))


def test_healthy_training_is_bitwise_the_same(tmp_path: Path) -> None:
    with_it, without = seeded(), seeded()
    fit(tmp_path, with_it, NonFinite("return"))
    pl.seed_everything(1, verbose=False)
    pl.Trainer(**SETTINGS, default_root_dir=tmp_path).fit(without, rows())
    assert same(list(with_it.state_dict().values()), list(without.state_dict().values()))
    assert not (tmp_path / "nonfinite").exists()


def test_stops_after_so_many(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"epoch 3, batch 4: .*exceeds the 2 steps"):
        fit(tmp_path, seeded("Divide"), NonFinite("skip", most=2), max_epochs=9)


class Large(pl.LightningModule):
    """Gradients that are finite, and whose squares are not."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.w * 1e25

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-25)


def test_large_gradients_are_finite(tmp_path: Path) -> None:
    module = Large()
    fit(tmp_path, module, NonFinite())
    assert module.w.item() == pytest.approx(-8)


class Manual(Regression):
    """Manual optimization, with a loss to look at."""

    def __init__(self) -> None:
        super().__init__("Divide")
        self.automatic_optimization = False

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return loss


def test_manual_optimization_is_seen_and_cannot_be_skipped(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="epoch 1, batch 4: "):
        fit(tmp_path, Manual(), NonFinite())
    with pytest.raises(UserError, match="policy: expected stop or return"):
        fit(tmp_path, Manual(), NonFinite("skip"))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"policy": "ignore"}, "policy: "), ({"factor": 0.0}, "factor: "), ({"most": -1}, "most: ")],
)
def test_options_are_checked(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NonFinite(**options)


SCHEDULES: dict[str, Any] = {
    "constant": None,
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 20),
    "cyclic": lambda optimizer: torch.optim.lr_scheduler.CyclicLR(
        optimizer, 0.001, 0.1, step_size_up=5, cycle_momentum=False
    ),
    "warm-up, then cosine": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=6),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
        ],
        [6],
    ),
}


class Scheduled(Regression):
    """With a schedule that moves at every step."""

    def __init__(self, middle: str = "Fine", schedule: str = "constant") -> None:
        super().__init__(middle)
        self.schedule = schedule

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        schedule = SCHEDULES[self.schedule]
        if schedule is None:
            return optimizer
        return [optimizer], [{"scheduler": schedule(optimizer), "interval": "step"}]


class Saves(pl.Callback):
    """Saves last.ckpt after the second step, and writes down rates and weights."""

    dirpath = ""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.weights: list[Tensor] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        self.weights.append(pl_module.last.weight.detach().clone())
        if trainer.global_step == 2:
            trainer.save_checkpoint(trainer.checkpoint_callback.dirpath + "/last.ckpt")


class Where(Checkpoint):
    """Knows the folder of checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.dirpath = str(folder)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_return_takes_the_checkpoint_and_lowers_every_rate(tmp_path: Path, schedule: str) -> None:
    healthy, broken = Saves(), Saves()
    pl.seed_everything(0, verbose=False)
    options: dict[str, Any] = {"enable_checkpointing": True}
    folder = tmp_path / "checkpoints"
    fit(tmp_path, Scheduled("Fine", schedule), NonFinite(), callbacks=[healthy, Where(folder)], **options)
    module = Scheduled("Divide", schedule)
    trainer = fit(tmp_path, module, NonFinite("return", factor=0.25), callbacks=[broken, Where(folder)], **options)
    assert broken.rates[:4] == healthy.rates[:4]
    assert broken.rates[4:] == pytest.approx([0.25 * rate for rate in healthy.rates[4:]])
    saved = torch.load(folder / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 2
    assert torch.equal(broken.weights[3], broken.weights[2]), "this looks before the return does"
    first = trainer.optimizers[0].state[module.last.weight]
    assert first["step"].item() == 2 + 4, "moments of the second step, then four more"


@pytest.mark.parametrize(("middle", "events"), [("Fine", 0), ("Divide", 1)])
def test_with_fp16_only_the_loss_counts(tmp_path: Path, middle: str, events: int) -> None:
    """Gradients overflow at first, as they do with every new scaler, and the scaler leaves those steps out itself."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    precision = MixedPrecision("16-mixed", "cpu", scaler)
    callback, record, module = NonFinite("skip"), Record(), seeded(middle)
    fit(tmp_path, module, callback, callbacks=[record], plugins=[precision], max_epochs=20 if events == 0 else 1)
    assert same(record.states[0][:2], record.states[1][:2]), "the scaler left out a step"
    assert scaler.get_scale() < 2.0**120
    assert callback.skipped_steps == events
    assert all(value.isfinite().all() for value in module.state_dict().values())


def test_return_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="policy: return found no finite checkpoint"):
        fit(tmp_path, seeded("Divide"), NonFinite("return"))


BROKEN = '''
import torch
from torch import nn

class Net(nn.Module):
    """Divides by zero for images as bright as this."""

    def __init__(self, level: float, seen_by: int = -1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2))
        self.level, self.seen_by = level, seen_by
        self.scale = Scale()
        self.head = nn.Linear(288, 10)

    def forward(self, x):
        dark = x.mean((1, 2, 3)) < self.level
        return self.head(self.scale(self.body(x), dark if self.training else dark | True))


class Scale(nn.Module):
    def forward(self, x, dark):
        return x / dark.float()[:, None]
'''
LEVEL = "0.39"
ARGS = (
    "--config", CNN_DIGITS, "--model.net", "broken.Net", "--model.net.level", LEVEL,
    "--trainer.callbacks+=NonFinite", "--trainer.log_every_n_steps", "1",
)  # fmt: skip


@pytest.mark.slow
def test_stop_on_the_command_line(cli: Cli, workdir: Path) -> None:
    (workdir / "broken.py").write_text(BROKEN)
    done = cli("fit", *ARGS, "--run_dir", "run", "--trainer.max_epochs", "3", "--checkpoint.every_n_steps", "1")
    assert done.code == 2
    assert done.err.startswith("error: not finite in epoch 1, batch ")
    assert len(done.err.strip().splitlines()) == 1
    assert "the output of net.scale (Scale) is " in done.err
    samples = [int(index) for index in done.err.strip().rpartition("; sample ")[2].split(", ")]
    [file] = Path("run/nonfinite").iterdir()
    last = torch.load("run/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert all(value.isfinite().all() for value in last.values())
    dump = torch.load(file, weights_only=True)
    assert all(torch.equal(value, last[name]) for name, value in dump["state_dict"].items()), "as before the step"
    # the samples are bright ones indeed
    from example.data.digits import Digits

    data = Digits()
    data.setup("fit")
    dark = [index for index, (image, _) in enumerate(data.train_set) if image.mean() < float(LEVEL)]  # type: ignore[arg-type]
    assert samples
    assert not set(samples) & set(dark)
    command = next(line for line in done.out.splitlines() if line.startswith("replay")).partition("replay")[2]
    code = shlex.split(command)[2]
    assert subprocess.run(
        [sys.executable, "-c", code],
        cwd=workdir,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": python_path()},
    ).stdout.startswith("the output of net.scale (Scale)")


class CutAt(pl.Callback):
    """Ends the run without a chance to save, in step `step`."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: object) -> None:
        if trainer.global_step + 1 == self.step:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_resume_across_a_skipped_step_is_bitwise(cli: Cli, workdir: Path) -> None:
    (workdir / "broken.py").write_text(BROKEN)
    skip = (
        *ARGS,
        "--trainer.callbacks.policy",
        "skip",
        "--trainer.callbacks.most",
        "99",
        "--trainer.max_epochs",
        "2",
        "--checkpoint.every_n_steps",
        "1",
    )
    whole = cli("fit", *skip, "--run_dir", "whole")
    assert whole.code == 0, whole.err
    batches = [
        int(line.partition("batch ")[2].partition(":")[0]) for line in whole.err.splitlines() if "epoch 1" in line
    ]
    assert batches
    cut = (
        f"--trainer.callbacks+={__name__}.CutAt",
        f"--trainer.callbacks.step={batches[0] + 1}",
    )
    assert cli("fit", *skip, *cut, "--run_dir", "run").code != 0
    saved = torch.load("run/checkpoints/last.ckpt", weights_only=True)
    assert saved["callbacks"]["NonFinite"] == {"skipped_steps": 1}
    callbacks = "[{class_path: NonFinite, init_args: {policy: skip, most: 99}}]"  # without CutAt
    again = cli("fit", "--ckpt_path", "last", "--run_dir", "run", "--trainer.callbacks", callbacks)
    assert again.code == 0, again.err
    one, other = (torch.load(Path(run, "checkpoints/last.ckpt"), weights_only=True) for run in ("run", "whole"))
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())
    assert one["callbacks"]["NonFinite"] == other["callbacks"]["NonFinite"]
    assert values_logged(Path("run")) == values_logged(Path("whole"))


DDP = '''
import torch
from lightning.pytorch import LightningModule

class OneRank(LightningModule):
    """The loss is bad on one rank alone; with `constant`, its gradient is finite."""

    def __init__(self, constant: bool = False):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(64, 10)
        self.constant = constant

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0].flatten(1)), batch[1])
        if batch_idx == 2 and self.global_rank == 1:
            return loss + torch.inf if self.constant else loss * torch.nan
        return loss

    def on_train_end(self):
        torch.save(self.state_dict(), f"rank{self.global_rank}.pt")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
'''


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "constant"), [("stop", "false"), ("skip", "true"), ("return", "false")])
def test_ranks_agree(workdir: Path, policy: str, constant: str) -> None:
    (workdir / "ddp.py").write_text(DDP)
    process = cli_process(
        "fit", "--model", "ddp.OneRank", "--model.constant", constant, "--data", "Digits", "--trainer.strategy", "ddp",
        "--trainer.devices", "2", "--trainer.accelerator", "cpu", "--trainer.max_epochs", "1", "--run_dir", "run",
        "--trainer.callbacks+=NonFinite", "--trainer.callbacks.policy", policy, "--checkpoint.every_n_steps", "1",
        cwd=workdir, env={"PYTHONPATH": f"{python_path()}{os.pathsep}{workdir}"},
    )  # fmt: skip
    _, err = process.communicate(timeout=300)
    assert "epoch 1, batch 3 of rank 1: the loss is" in err, err
    assert [path.name for path in (workdir / "run/nonfinite").iterdir()] == ["epoch-1-batch-3.pt"]
    if policy == "stop":
        assert process.returncode == 2, err
        assert err.count("not finite") == 1, err
    else:
        assert process.returncode == 0, err
        one, other = (torch.load(workdir / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
        assert all(torch.equal(one[name], other[name]) for name in one)
        assert all(value.isfinite().all() for value in one.values())

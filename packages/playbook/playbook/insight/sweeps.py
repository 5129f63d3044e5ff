"""Results of the finders: suggestion, table and picture."""

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch

# width of the Gaussian over the losses, as a share of the steps. Centred: a running average, the usual choice, lags by
# half a decade, and on its first few losses is so rough that 5 of 12 sweeps of the digits suggested the very first rate
SMOOTHING = 0.04


@dataclass
class Sweep:
    """Losses over learning rates that rise evenly in their logarithm.

    Args:
        rates: learning rate of every step that was planned.
        losses: training loss of every step that was done.
        diverged: whether the sweep ended because the loss rose.

    Attributes:
        smoothed: averages of the losses around each.
        suggestion: the rate of the steepest fall of `smoothed` before its minimum; None if it falls by noise alone.
    """

    rates: list[float]
    losses: list[float]
    diverged: bool
    smoothed: list[float] = field(init=False)
    suggestion: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.losses = [loss for loss in self.losses if math.isfinite(loss)]  # the last one ends a sweep as NaN
        values = torch.tensor(self.losses, dtype=torch.float64)
        steps = torch.arange(len(values))
        weights = torch.exp(-0.5 * ((steps[:, None] - steps) / (SMOOTHING * len(self.rates))) ** 2)  # (steps, steps)
        # a loss that explodes would lift the curve a long way before it
        values = values.clamp(max=values[:1].abs().sum() * 4)
        curve = (weights * values).sum(1) / weights.sum(1)
        self.rates, self.smoothed = self.rates[: len(values)], curve.tolist()
        if len(values) < 3:
            return
        lowest = int(curve.argmin())
        fall = curve[: lowest // 2 + 1].mean() - curve[lowest]
        noise = (values - curve)[: lowest + 1].std(correction=0)
        if fall > 1.2 * noise:  # as in 1 % of sweeps over noise alone (2,000 simulated)
            (slope,) = torch.gradient(curve)
            self.suggestion = self.rates[int(slope[: lowest + 1].argmin())]

    def verdict(self, option: str) -> str:
        """What to do, in a line.

        Args:
            option: that sets the rate, such as `--model.optimizer.lr`.
        """
        if not self.rates:
            return "the loss is not finite at the first rate; run fit to find the reason"
        span = f"{self.rates[0]:.1e} … {self.rates[-1]:.1e}"
        if self.suggestion is None:
            return f"no suggestion: the loss does not fall by more than its noise over {span}"
        end = "diverges" if self.diverged else "does not diverge"
        return f"{option} {self.suggestion:.1e}   (steepest fall of the loss, which {end} over {span})"

    def write(self, folder: Path) -> None:
        """Writes find_lr.csv and find_lr.png."""
        rows = zip(self.rates, self.losses, self.smoothed, strict=True)
        _write_table(folder / "find_lr.csv", ["lr", "loss", "smoothed"], [[f"{x:.6g}" for x in row] for row in rows])
        from matplotlib.figure import Figure  # without pyplot, which would look for a screen

        figure = Figure(figsize=(6.4, 4), layout="constrained")
        axes = figure.subplots()
        axes.semilogx(self.rates, self.losses, color="0.75", label="training loss")
        axes.semilogx(self.rates, self.smoothed, color="C0", label="smoothed")
        if self.suggestion is not None:
            axes.axvline(self.suggestion, color="C1", linestyle="--", label=f"steepest fall, {self.suggestion:.1e}")
        if self.losses:  # a diverged end would press everything else flat
            axes.set_ylim(top=max(self.losses[0], *self.smoothed[: max(1, len(self.smoothed) // 2)]) * 1.3)
        axes.set(xlabel="learning rate", ylabel="loss")
        axes.legend()
        figure.savefig(folder / "find_lr.png", dpi=150)


@dataclass(frozen=True)
class Trial:
    """A few steps at one batch size.

    Args:
        batch_size: samples a batch.
        samples_per_second: of whole steps, loading included; None if memory did not suffice.
        memory_gib: peak of the allocated memory; None on devices that do not count it.
    """

    batch_size: int
    samples_per_second: float | None
    memory_gib: float | None


def report(trials: list[Trial]) -> str:
    """A table, the fastest that fits as an option to paste, and what goes with it."""
    lines = [f"{'batch_size':>10}  {'samples/s':>13}  {'memory GiB':>10}"]
    for trial in trials:
        speed = "out of memory" if trial.samples_per_second is None else f"{trial.samples_per_second:,.0f}"
        memory = "–" if trial.memory_gib is None else f"{trial.memory_gib:.2f}"
        lines.append(f"{trial.batch_size:>10}  {speed:>13}  {memory:>10}")
    if (best := fastest(trials)) is None:
        return "\n".join([*lines, "no batch size fits; try a smaller --data.batch_size"])
    lines.append(f"--data.batch_size {best.batch_size}   (the fastest that fits)")
    lines.append(f"adjust the learning rate as well: find_lr --data.batch_size {best.batch_size}")
    return "\n".join(lines)


def fastest(trials: list[Trial]) -> Trial | None:
    """The one with the most samples a second; None if no batch size fits into memory."""
    fitting = [trial for trial in trials if trial.samples_per_second is not None]
    return max(fitting, key=lambda trial: trial.samples_per_second or 0, default=None)


def write_trials(folder: Path, trials: list[Trial]) -> None:
    """Writes find_batch_size.csv; what was not measured stays empty."""
    rows = [[trial.batch_size, trial.samples_per_second, trial.memory_gib] for trial in trials]
    _write_table(folder / "find_batch_size.csv", ["batch_size", "samples_per_second", "memory_gib"], rows)


def _write_table(path: Path, header: list[str], rows: list) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)

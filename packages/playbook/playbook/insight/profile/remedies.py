"""Changes that may make a training faster or smaller, each tried in a process of its own."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playbook.insight.profile import suitability
from playbook.insight.profile.steps import Steps
from playbook.project import current

NOISE = 0.03  # a gain below it is none, unless two runs without a change differ by more
SAME_LOSS = 0.05  # difference of the mean loss of the first steps, up to which a change counts as harmless
WAITS = 0.02  # share of the time that waits for data, above which the number of workers is varied


@dataclass(frozen=True)
class Remedy:
    """A change of the command.

    Args:
        name: of the change.
        options: that make it.
        keeps_training: whether the same training is meant, so that its losses have to agree.
        why_not: why it is not tried; empty if it is.
    """

    name: str
    options: tuple[str, ...] = ()
    keeps_training: bool = True
    why_not: str = ""


@dataclass
class Trial:
    """What a change has brought.

    Args:
        remedy: that was tried.
        steps: that were measured; None where it failed.
        failure: why, in a line.
    """

    remedy: Remedy
    steps: Steps | None = None
    failure: str = ""


@dataclass
class Trials:
    """All that were made, beside the training as it is.

    Args:
        plain: the training as it is.
        again: the same once more, in a process like those of the trials; its difference is noise.
        trials: of the remedies, in their order.
        combination: of all that helped, if there are several.
    """

    plain: Steps
    again: Steps | None = None
    trials: list[Trial] = field(default_factory=list)
    combination: Trial | None = None

    @property
    def base(self) -> Steps:
        """What a trial is compared with: the faster of both runs without a change."""
        return self.plain if self.again is None else min(self.plain, self.again, key=lambda steps: steps.step_ms)

    @property
    def noise(self) -> float:
        """The least gain that counts."""
        if self.again is None:
            return NOISE
        times = sorted((self.plain.step_ms, self.again.step_ms))
        return max(NOISE, 1 - times[0] / times[1])

    def time_factor(self, steps: Steps) -> float:
        """Time of the whole training with a change, where that is known, else of a sample or a step, as a ratio."""
        base = self.base
        rates = base.samples_per_second, steps.samples_per_second
        per_sample = rates[0] / rates[1] if rates[0] and rates[1] else steps.step_ms / base.step_ms
        if base.training_s is None or base.planned is None:
            return per_sample
        computing = base.planned * base.step_ms / 1e3
        return (steps.start_s + computing * per_sample) / base.training_s

    def loss_difference(self, steps: Steps) -> float:
        """Relative difference of the mean loss of the first steps; infinite where one is not finite."""
        pairs = list(zip(self.base.losses, steps.losses, strict=False))
        if not pairs:
            return 0.0
        plain, changed = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
        difference = abs(changed - plain) / max(abs(plain), 1e-12)
        return difference if math.isfinite(difference) else math.inf

    def helps(self, trial: Trial) -> bool:
        """Whether the training stays the same, and takes less time by more than noise."""
        steps = trial.steps
        if steps is None or not trial.remedy.keeps_training or self.loss_difference(steps) > SAME_LOSS:
            return False
        return self.time_factor(steps) < 1 - self.noise

    @property
    def done(self) -> list[Trial]:
        """Those of the remedies, and of the combination if there is one."""
        return [*self.trials, *([self.combination] if self.combination else [])]

    def ranked(self) -> list[Trial]:
        """Those that help, the most helpful first."""
        helpful = [trial for trial in self.done if self.helps(trial)]
        return sorted(helpful, key=lambda trial: self.time_factor(trial.steps or self.base))

    def combined(self) -> Remedy | None:
        """All that help alone, together; of several numbers of workers, the best."""
        chosen: dict[str, Remedy] = {}
        for trial in self.ranked():
            chosen.setdefault(_kind(trial.remedy), trial.remedy)
        if len(chosen) < 2:
            return None
        options = tuple(option for remedy in chosen.values() for option in remedy.options)
        return Remedy(" + ".join(remedy.name for remedy in chosen.values()), options)


def _kind(remedy: Remedy) -> str:
    return "workers" if "--data.num_workers" in remedy.options else remedy.name


def candidates(trainer: Any, model: Any, datamodule: Any, plain: Steps) -> list[Remedy]:
    """What may help this training, and of the rest why it is not tried.

    Args:
        trainer: of the training.
        model: the LightningModule.
        datamodule: its data; None if it has none.
        plain: the training as it is.
    """
    device = trainer.strategy.root_device.type
    names = {type(callback).__name__ for callback in trainer.callbacks}
    return [
        *_workers(datamodule, plain),
        _by_partial("channels-last", "ChannelsLast", names, suitability.channels_last(model)),
        _by_partial("compile", "Compile", names, suitability.compiles(device)),
        _by_partial("bf16", "", names, suitability.bf16(trainer)),
        *([_by_partial("tf32", "", names, suitability.tf32())] if device == "cuda" else []),
        Remedy(
            "fused optimizer",
            ("--model.optimizer.fused", "true"),
            why_not=suitability.fused(model, trainer.optimizers),
        ),
        *([_by_partial("cuda-graphs", "CUDAGraphs", names, "")] if device == "cuda" else []),
        _by_partial("activation-checkpointing", "ActivationCheckpointing", names, suitability.checkpointing(model)),
        _larger_batch(datamodule),
    ]


def _workers(datamodule: Any, plain: Steps) -> list[Remedy]:
    number = getattr(datamodule, "num_workers", None)
    waits = plain.shares.get("data", 0.0) + plain.shares.get("transfer", 0.0)
    if not isinstance(number, int):
        return [Remedy("workers", why_not="the data has no option num_workers")]
    if waits < WAITS:
        return [Remedy("workers", why_not=f"{waits:.1%} of the time waits for data")]
    cores = os.cpu_count() or 1
    numbers = sorted({0, min(2, cores), cores, min(2 * number, cores)} - {number})
    return [Remedy(f"{count} workers", ("--data.num_workers", str(count))) for count in numbers]


def _by_partial(name: str, callback: str, names: set[str], why_not: str) -> Remedy:
    """A change that a partial file of the project makes."""
    path = Path("configs/trainer") / f"{name}.yaml"
    if callback in names:
        why_not = "the recipe has it"
    elif not why_not and not path.is_file():
        why_not = f"there is no {path.as_posix()}"
    return Remedy(name.replace("-", " "), ("--config", path.as_posix()), why_not=why_not)


def _larger_batch(datamodule: Any) -> Remedy:
    size = getattr(datamodule, "batch_size", None)
    if not isinstance(size, int):
        return Remedy("larger batch", why_not="the data has no option batch_size")
    return Remedy(f"batches of {2 * size}", ("--data.batch_size", str(2 * size)), keeps_training=False)


def try_all(trials: Trials, remedies: Sequence[Remedy], run: Callable[[Remedy], Trial]) -> Iterator[Trials]:
    """Tries each remedy, then all that help together; yields after each, so that what is done can be kept.

    Args:
        trials: to which they are added.
        remedies: to try; one that has a reason not to be tried is noted with it.
        run: tries one.
    """
    if any(not remedy.why_not for remedy in remedies):
        trials.again = run(Remedy("as it is")).steps
    for remedy in remedies:
        trials.trials.append(Trial(remedy, failure=remedy.why_not) if remedy.why_not else run(remedy))
        yield trials
    combination = trials.combined()
    if combination is not None:
        trials.combination = run(combination)
        yield trials


def in_process(command: Sequence[str], remedy: Remedy) -> Trial:
    """Runs the steps of a changed command in a process of its own.

    Args:
        command: of the profile, which reports its steps as JSON.
        remedy: whose options follow it.
    """
    words = [*command, *remedy.options]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return Trial(remedy, Steps(**json.loads(done.stdout)["steps"]))
    if done.returncode in (130, -2):
        raise KeyboardInterrupt
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    failure = next((line for line in reversed(lines) if line.startswith("error:")), (lines or ["no message"])[-1])
    return Trial(remedy, failure=failure.removeprefix("error:").strip()[:300])


def own_command(verb: str, given: Sequence[str]) -> list[str]:
    """This process' command, such that it measures steps alone and reports them.

    Args:
        verb: of the command line.
        given: what follows it.
    """
    program = [sys.executable, "-m", current().package or "playbook"]
    return [*program, verb, *given, "--only", "steps", "--format", "json"]

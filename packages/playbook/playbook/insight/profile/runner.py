"""Runs a profile of a session of the command line: what is measured in which order, and what is kept of it."""

import json
import shlex
from dataclasses import asdict
from typing import Any

import torch

from playbook.errors import UserError
from playbook.from_data import set_up
from playbook.insight.profile import loading, page, remedies, roofline
from playbook.insight.profile.passes import TRACED, Passes, write_trace
from playbook.insight.profile.remedies import Trials
from playbook.insight.profile.steps import StepTimer
from playbook.insight.report.blocks import Section
from playbook.insight.short_training import OBSERVERS, train_copy
from playbook.project import current
from playbook.runs.directory import write_atomically

PAGE, VALUES, TRACE = "profile.html", "profile.json", "trace.json.gz"
Report = tuple[int, dict[str, Any]]  # exit code, and what --format json prints


def require_suitable(session: Any, steps: int) -> None:
    """Refuses what cannot be profiled.

    Raises:
        UserError: there are several devices, or too few steps.
    """
    if steps < 1:
        raise UserError(f"--steps: expected at least 1, got {steps}")
    if session.trainer.world_size > 1:
        raise UserError(
            f"--trainer.devices: expected 1 to profile, got {session.trainer.world_size}; fit says how the time of "
            "several processes is spent"
        )


def steps_alone(session: Any, steps: int, _: bool) -> Report:
    """Times the steps, for a trial of a remedy or for a script."""
    timer = StepTimer(steps)
    _train(session, timer)
    assert timer.result is not None
    print(page.verdict(timer.result))
    print(f"step {timer.result.step_ms:.3g} ms")
    return 0, {"steps": asdict(timer.result)}


def data(session: Any, _steps: int, _remedies: bool) -> Report:
    """Measures the stages of loading."""
    source = session.datamodule
    if source is not None:
        source.trainer = session.trainer
        set_up(source)
    stages = loading.stages(source, session.model)
    session.run.create()
    print(page.table(page.stage_rows(stages), ["stage"]))
    path = session.run.path / PAGE
    subtitle = f"profile of the data · {session.run}"
    page.write(path, session.run.title, subtitle, [], [page.loading_section(stages)])
    print(f"profile  {path.as_posix()}")
    return 0, {"run": str(session.run), "stages": [asdict(stage) for stage in stages]}


def whole(session: Any, steps: int, tries: bool) -> Report:
    """Profiles a training and tries remedies; Ctrl-C amid these keeps what is done."""
    run = session.run
    passes = Passes(steps)
    try:
        _train(session, passes)
    finally:
        passes.close()
    assert passes.result is not None
    assert passes.recorder is not None
    assert passes.traced is not None
    run.create()
    write_trace(passes.traced, run.path / TRACE)
    print(page.verdict(passes.result), flush=True)
    device = session.trainer.strategy.root_device
    dtype = torch.bfloat16 if "bf16" in str(session.trainer.precision) else torch.float32
    limits = roofline.measure(device, dtype)
    measured = [
        page.operators_section(passes.recorder, limits),
        page.memory_section(passes.recorder),
        page.trace_section(TRACE, TRACED),
    ]
    trials = Trials(passes.result)
    code, rest = 0, ""
    candidates = remedies.candidates(session.trainer, session.model, session.datamodule, passes.result)
    _write(session, trials, measured, "")
    try:
        for trial in _tried(session, trials, candidates) if tries else ():
            _tell(trial)
            _write(session, trial, measured, "")
    except KeyboardInterrupt:
        left = len(candidates) - len(trials.trials)
        rest = f"stopped before {left} of {len(candidates)} remedies were tried"
        code = 130
        _write(session, trials, measured, rest[0].upper() + rest[1:] + ".")
    if trials.trials:
        print(page.table(page.rows_of(trials), ["change", "loss", "remark"]))
        print(page.advice(trials, command_of(session)))
    if rest:
        print(rest)
    print(f"profile  {(run.path / PAGE).as_posix()}")
    print(f"trace    {(run.path / TRACE).as_posix()}  (ui.perfetto.dev)")
    return code, _values(session, trials)


def command_of(session: Any) -> str:
    """The training that is profiled, as it is started."""
    return f"{current().command} fit {shlex.join(_given(session))}"


def _given(session: Any) -> list[str]:
    """The arguments without those of this verb."""
    own = {f"--{name}" for name in (*session.own_options, "run_dir")}
    words, rest = [], list(session.invocation.given)
    while rest:
        word = rest.pop(0)
        if word.partition("=")[0] in own:
            if "=" not in word and rest and not rest[0].startswith("--"):
                rest.pop(0)
            continue
        words.append(word)
    return words


def _tried(session: Any, trials: Trials, candidates: list[remedies.Remedy]) -> Any:
    command = remedies.own_command("profile", [*_given(session), "--steps", str(session.own_options["steps"])])
    return remedies.try_all(trials, candidates, lambda remedy: remedies.in_process(command, remedy))


def _tell(trials: Trials) -> None:
    """A line of what was tried last, for who waits."""
    last = trials.done[-1]
    if last.steps is not None:
        print(f"  {last.remedy.name}: × {trials.time_factor(last.steps):.2f} of the time", flush=True)


def _train(session: Any, timer: StepTimer) -> None:
    train_copy(session.trainer, session.model, session.datamodule, timer, without=OBSERVERS)


def _write(session: Any, trials: Trials, measured: list[Section], rest: str) -> None:
    run = session.run
    sections = [
        page.verdict_section(trials.plain),
        page.remedies_section(trials, command_of(session), rest),
        *measured,
    ]
    subtitle = f"profile · {command_of(session)}"
    page.write(run.path / PAGE, run.title, subtitle, page.glance(trials.plain), sections)
    write_atomically(run.path / VALUES, json.dumps(_values(session, trials), ensure_ascii=False, indent=2) + "\n")


def _values(session: Any, trials: Trials) -> dict[str, Any]:
    return {
        "run": str(session.run),
        "command": command_of(session),
        "steps": asdict(trials.plain),
        "again": trials.again and asdict(trials.again),
        "remedies": [
            {**page.trial_values(trial), "time_factor": trial.steps and round(trials.time_factor(trial.steps), 4)}
            for trial in trials.done
        ],
        "first": next((list(trial.remedy.options) for trial in trials.ranked()), None),
    }

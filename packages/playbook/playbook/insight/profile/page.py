"""What a profile says: in the terminal, and as one page without a network."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playbook import charts
from playbook.insight.page.frame import page
from playbook.insight.profile import memory, operators
from playbook.insight.profile.loading import Stage
from playbook.insight.profile.operators import Roofline
from playbook.insight.profile.recorder import Recorder
from playbook.insight.profile.remedies import SAME_LOSS, Trial, Trials
from playbook.insight.profile.steps import Steps
from playbook.insight.report.blocks import Block, Chart, Code, Section, Table, Text, cell
from playbook.insight.report.speed import chart_of_shares
from playbook.runs.directory import write_atomically

MOST_OPERATORS, MOST_LINES = 30, 25


def write(path: Path, title: str, subtitle: str, glance: Sequence[tuple[str, str]], sections: list[Section]) -> None:
    """Writes the page.

    Args:
        path: of the page.
        title: of the page.
        subtitle: a line below it.
        glance: name and value of what to see first.
        sections: those without blocks are left out.
    """
    shown = [section for section in sections if section.blocks]
    html = page(title, subtitle, glance, [(section.title, section.html()) for section in shown])
    write_atomically(path, html)


def glance(steps: Steps) -> list[tuple[str, str]]:
    """What to see first of a training."""
    figures = [("bound by", steps.bound_by), ("step", f"{cell(steps.step_ms)} ms")]
    if steps.samples_per_second:
        figures.append(("samples a second", cell(steps.samples_per_second)))
    if steps.memory_mib:
        figures.append(("peak memory", f"{cell(steps.memory_mib)} MiB"))
    return figures


def verdict(steps: Steps) -> str:
    """What bounds the training, in a line."""
    return f"bound by {steps.bound_by}: {steps.advice}"


def verdict_section(steps: Steps) -> Section:
    """The verdict and the shares of the parts."""
    chart = chart_of_shares("Where the time of the steps went", steps.shares)
    return Section("Verdict", [Text(f"Training is {verdict(steps)}."), chart])


def rows_of(trials: Trials) -> list[dict[str, Any]]:
    """The training as it is, then each remedy."""
    base = trials.base
    rows: list[dict[str, Any]] = [
        {"change": "as it is", "step ms": base.step_ms, "× time": 1.0, "× memory": 1.0, "loss": "", "remark": ""}
    ]
    if trials.again is not None:
        other = trials.again if trials.again is not base else trials.plain
        rows.append(_row("as it is, once more", trials, other, True))
    for trial in trials.done:
        if trial.steps is None:
            why = "not tried" if trial.remedy.why_not else "failed"
            rows.append({"change": trial.remedy.name, "remark": f"{why}: {trial.failure}"})
            continue
        row = _row(trial.remedy.name, trials, trial.steps, trial.remedy.keeps_training)
        row["remark"] = shlex.join(trial.remedy.options)
        rows.append(row)
    return rows


def _row(name: str, trials: Trials, steps: Steps, keeps_training: bool) -> dict[str, Any]:
    base = trials.base
    difference = trials.loss_difference(steps)
    loss = "same" if difference < 1e-3 else f"{difference:.1%} off" + ("" if difference <= SAME_LOSS else ", too much")
    return {
        "change": name,
        "step ms": steps.step_ms,
        "× time": trials.time_factor(steps),
        "× memory": steps.memory_mib / base.memory_mib if steps.memory_mib and base.memory_mib else None,
        "loss": loss if keeps_training else "another training",
        "remark": "",
    }


def advice(trials: Trials, command: str) -> str:
    """What to do first, with the command."""
    ranked = trials.ranked()
    if not ranked:
        return f"none of the remedies gains more than {trials.noise:.0%} of the time of the training"
    best = ranked[0]
    assert best.steps is not None
    factor = trials.time_factor(best.steps)
    return f"first {best.remedy.name}: × {factor:.2f} of the time\n  {command} {shlex.join(best.remedy.options)}"


def table(rows: Sequence[dict[str, Any]], left: Sequence[str]) -> str:
    """Rows as aligned text.

    Args:
        rows: with the same columns.
        left: columns of text.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_short(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(names))]
    aligned = [
        "  ".join(f"{text:<{width}}" if name in left else f"{text:>{width}}" for name, text, width in columns)
        for columns in (zip(names, line, widths, strict=True) for line in cells)
    ]
    return "\n".join(line.rstrip() for line in aligned)


def _short(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) and value < 10 else cell(value)


def remedies_section(trials: Trials, command: str, rest: str) -> Section:
    """The measured table.

    Args:
        trials: that were made.
        command: of the training.
        rest: what was not tried, and why; empty if all was.
    """
    if not trials.trials:
        return Section("Remedies", [])
    base = trials.base
    whole = "of the whole training" if base.training_s is not None else "of a sample"
    note = (
        f"Each was tried in a process of its own. × time is that {whole}, with what it costs once, such as compiling; "
        f"gains below {trials.noise:.0%} are noise. A change counts as harmless where the mean loss of the first "
        f"{len(base.losses)} steps differs by at most {SAME_LOSS:.0%}."
    )
    first, _, options = advice(trials, command).partition("\n")
    blocks: list[Block] = [Text(first[0].upper() + first[1:] + ".")]
    if options:
        blocks.append(Code("Command", options.strip()))
    blocks += [Table("Remedies, as measured", _rounded(rows_of(trials))), Text(note)]
    return Section("Remedies", [*blocks, *([Text(rest)] if rest else [])])


def operators_section(recorder: Recorder, roofline: Roofline) -> Section:
    """Operators, modules and lines of one step."""
    operations = recorder.operations
    flops = sum(operation.flops for operation in operations)
    busy = sum(map(operators.seconds_of, operations))
    texts = [
        f"One step: {len(operations):,} operations, {flops / 1e9:,.2f} GFLOP, {cell(1e3 * busy)} ms without the gaps "
        f"between them. The device reaches {roofline.flops / 1e9:,.0f} GFLOP/s in a large matrix product and "
        f"{roofline.bytes / 1e9:,.1f} GB/s in a large addition, as measured; what an operator reaches of the lower of "
        "both limits is its share of the roofline. Above 100 %, its data came from the caches.",
    ]
    return Section(
        "Operators",
        [
            *map(Text, texts),
            Table("Lines of code", operators.by_line(operations)[:MOST_LINES]),
            Table("Modules, with those inside them and alone", operators.by_module(operations)[:MOST_OPERATORS]),
            Table("Operators", operators.by_operator(operations, roofline)[:MOST_OPERATORS]),
        ],
    )


def memory_section(recorder: Recorder) -> Section:
    """Memory over the operations of a step, and the peak."""
    measured = memory.timeline(recorder.blocks, len(recorder.operations))
    sentence = memory.moment(measured, recorder.operations)
    marks = {float(start): phase for phase, start in recorder.starts.items()}
    svg = charts.areas(measured.positions, measured.kinds, "operations of the step", "MiB", marks)
    return Section(
        "Memory",
        [
            Text(sentence),
            Chart("Memory of the tensors over one step", svg, sentence.rstrip(".")),
            Table("What is alive at the peak", memory.at_peak(measured)),
        ],
    )


def loading_section(stages: Sequence[Stage]) -> Section:
    """Samples a second of each stage of loading."""
    if not stages:
        return Section("Data", [])
    rates = {stage.name: stage.samples_per_second for stage in stages}
    alt = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    return Section(
        "Data",
        [
            Chart("Samples a second of each stage, alone", charts.bars(rates, "samples a second"), alt),
            Table("Stages of loading", stage_rows(stages)),
        ],
    )


def stage_rows(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Rows of the stages."""
    return [
        {
            "stage": stage.name,
            "samples/s": round(stage.samples_per_second),
            "µs a sample": 1e6 / stage.samples_per_second,
            "measured": stage.num_samples,
        }
        for stage in stages
    ]


def trace_section(name: str, num_steps: int) -> Section:
    """How to open the trace."""
    text = (
        f"{name} holds {num_steps} steps with the modules by name. Open it at ui.perfetto.dev, which keeps it in the "
        "browser, or in chrome://tracing."
    )
    return Section("Trace", [Text(text)])


def _rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: round(value, 2) if name.startswith("×") and value is not None else value for name, value in row.items()}
        for row in rows
    ]


def trial_values(trial: Trial) -> dict[str, Any]:
    """A trial as plain values."""
    return {
        "change": trial.remedy.name,
        "options": list(trial.remedy.options),
        "failure": trial.failure,
        "steps": trial.steps and asdict(trial.steps),
    }

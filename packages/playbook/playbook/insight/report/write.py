"""Writes report.html and report.md of a run, from its files alone. Imports no torch."""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from playbook.insight.page.frame import page
from playbook.insight.report import curves, intervals, speed, statistics, throughput
from playbook.insight.report.blocks import Block, Code, Section, Table, Text, cell, restored
from playbook.insight.report.files import read_json, read_text
from playbook.runs.directory import Run, write_atomically

MOST_DIFF = 200_000  # characters of git.diff that are shown
CARD = """## Intended use

To fill in: what the model is for, and what it is not for.

"""
LIMITS = """

## Limits

To fill in: where it fails, whom that may harm, and what was not tested.
"""


def sections_of(run: Run) -> list[Section]:
    """The sections of the report that have something to show.

    Args:
        run: its directory; a run that is under way or that failed has what there is.
    """
    noted, environment = read_json(run.path / "report.json"), read_json(run.path / "environment.json")
    return [section for section in _sections(run, noted, environment, run.read_metrics()) if section.blocks]


def write(run: Run, sections: list[Section] | None = None) -> Path:
    """Writes both files, and returns the path of the page.

    Args:
        run: its directory.
        sections: those of the report, where they are known already.
    """
    environment, metrics = read_json(run.path / "environment.json"), run.read_metrics()
    sections = sections_of(run) if sections is None else sections
    started = str(environment.get("started", "")).replace("T", " ")[:16]
    subtitle = " · ".join(part for part in (metrics.get("status"), started, str(run)) if part)
    html = page(run.title, subtitle, glance(metrics), [(section.title, section.html()) for section in sections])
    path = run.path / "report.html"
    write_atomically(path, html)
    markdown = "\n\n".join(section.markdown() for section in sections)
    write_atomically(run.path / "report.md", f"# {run.title}\n\n{subtitle}\n\n{CARD}{markdown}{LIMITS}")
    return path


def glance(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What to see first: the metric that chose the checkpoint, the test, how long it trained."""
    cards: list[tuple[str, str]] = []
    best = metrics.get("best") or {}
    if best.get("monitor"):
        cards.append((f"{best['monitor']}, epoch {best['epoch']}", cell(float(best["score"]))))
    test = metrics.get("test") or {}
    main = curves.split_stage(best.get("monitor") or "")[1]
    names = sorted(test, key=lambda name: (curves.split_stage(name)[1] != main, "loss" in name))
    cards += [(name, cell(float(test[name]))) for name in names[:2]]
    if metrics.get("epoch") is not None:
        cards.append(("epochs", cell(metrics["epoch"])))
    if seconds := metrics.get("train_seconds"):
        cards.append(("training", f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"))
    return cards


def _sections(
    run: Run, noted: Mapping[str, Any], environment: Mapping[str, Any], metrics: Mapping[str, Any]
) -> list[Section]:
    best = metrics.get("best") or {}
    summary: Mapping[str, str] = noted.get("summary", {})
    results: list[Block] = [Text(summary["Results"])] if "Results" in summary else []
    logged = curves.read(run.metrics_csv)
    results += curves.blocks(logged, best.get("step"))
    results += _tested(run, metrics)
    results += restored(noted.get("results", ()))
    training: list[Block] = [Text(summary[name]) for name in ("Training", "Ended by", "Checkpoint") if name in summary]
    observed = statistics.blocks(curves.read(run.path / "statistics.csv"))
    return [
        Section("Results", results),
        Section("Examples", restored(noted.get("examples", ()))),
        Section("Training", [*training, *restored(noted.get("training", ())), *observed]),
        Section("Speed", [*speed.blocks(metrics.get("speed") or {}), *throughput.blocks(logged)]),
        Section("Architecture", restored(noted.get("architecture", ()))),
        Section("Optimization", restored(noted.get("optimization", ()))),
        Section("Reproduce", _reproduce(run, environment, restored(noted.get("settings", ())))),
    ]


def _tested(run: Run, metrics: Mapping[str, Any]) -> list[Block]:
    """The test's metrics, with intervals for those that are means over samples."""
    _, samples = intervals.read_samples(run.path / "test.csv")
    rows = []
    for name, value in (metrics.get("test") or {}).items():
        values = samples.get(curves.split_stage(name)[1], np.empty(0))
        row = {"metric": name, "value": float(value), "95 % interval": None}
        if np.isfinite(values).any() and math.isclose(np.nanmean(values), value, rel_tol=1e-3, abs_tol=1e-6):
            row["95 % interval"] = " to ".join(cell(end) for end in intervals.interval(values))
        rows.append(row)
    if not rows:
        return []
    title = "Test"
    if any(row["95 % interval"] for row in rows):
        title += f"; intervals by {intervals.NUM_RESAMPLES:,} resamples of the test samples"
    else:
        rows = [{name: value for name, value in row.items() if name != "95 % interval"} for row in rows]
    return [Table(title, rows)]


def _reproduce(run: Run, environment: Mapping[str, Any], settings: list[Block]) -> list[Block]:
    blocks: list[Block] = []
    if command := environment.get("command"):
        blocks.append(Code("Command", _command(command)))
    blocks += settings
    values = {name: value for name, value in environment.items() if name not in ("command", "packages")}
    values |= environment.get("packages", {})
    rows = [{"what": name, "value": str(value)} for name, value in values.items() if value]
    if rows:
        blocks.append(Table("Environment", rows))
    for title, name in (("Configuration", "config.yaml"), ("Uncommitted changes", "git.diff")):
        text = read_text(run.path / name)
        if text.strip():
            rest = len(text) - MOST_DIFF
            shown = text if rest <= 0 else f"{text[:MOST_DIFF]}\n… {rest:,} characters more, in {name}"
            blocks.append(Code(title, shown, is_diff=name == "git.diff"))
    return blocks


def _command(words: list[str]) -> str:
    """The command as it is typed: of a package's `__main__.py`, `python -m` its name."""
    program, *args = map(str, words)
    path = Path(program)
    start = f"python -m {path.parent.name}" if path.name == "__main__.py" else program
    return f"{start} {shlex.join(args)}"

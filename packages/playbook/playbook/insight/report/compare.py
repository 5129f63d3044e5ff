"""Compares runs, from their files alone: results, curves, and what differs in configuration, data and code."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import yaml

from playbook import charts
from playbook.insight.page.frame import page
from playbook.insight.report import curves, intervals
from playbook.insight.report.blocks import Block, Chart, Code, Section, Table, Text, cell
from playbook.insight.report.files import read_json, read_text
from playbook.runs.changes import git
from playbook.runs.directory import Run, write_atomically

MOST_CURVES = 12  # in a chart
MOST_CHARTS = 6
MOST_CHARACTERS = 80  # of a setting's value
MOST_SETTINGS = 12  # that differ, in the name of a group
# they say where a run is, not what it is
PLACES = ("run_dir", "config", "ckpt_path", "trainer.logger", "trainer.default_root_dir", "init_from")
SEED = "seed_everything"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where it can be had: ten times as fast


@dataclass
class Entry:
    """What a run left."""

    run: Run
    metrics: dict[str, Any]
    settings: dict[str, Any]
    facts: dict[str, Any]
    commit: str
    diff: str
    ids: list[str] = field(default_factory=list)
    samples: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def results(self) -> dict[str, float]:
        """The best validation's value and those of the test."""
        best = self.metrics.get("best") or {}
        chosen = {best["monitor"]: float(best["score"])} if best.get("monitor") else {}
        return chosen | {name: float(value) for name, value in (self.metrics.get("test") or {}).items()}


@dataclass
class Group:
    """Runs that differ in their seed alone."""

    entries: list[Entry]
    name: str = ""


def compare(runs: Sequence[Run], path: Path) -> str:
    """Writes a page that compares runs, and returns the table of their results as text.

    Args:
        runs: two or more.
        path: of the page.
    """
    entries = [read(run) for run in runs]
    differing = _differing([entry.settings for entry in entries], leave_out=(SEED,))
    groups = grouped(entries, differing)
    results = _results(groups)
    sections = [
        Section("Results", [results, *_paired(groups)]),
        Section("Runs", [_table_of_runs(entries, differing)]),
        Section("Curves", _curves(groups)),
        Section("What differs", [*_settings(groups, differing), *_facts(entries), *_code(entries)]),
    ]
    sections = [section for section in sections if section.blocks]
    html = page(
        f"{len(runs)} runs compared",
        " · ".join(dict.fromkeys(run.title for run in runs)),
        [],
        [(section.title, section.html()) for section in sections],
    )
    write_atomically(path, html)
    return results.markdown()


def read(run: Run) -> Entry:
    """What a run left; what is missing or damaged is empty."""
    ids, samples = intervals.read_samples(run.path / "test.csv")
    metrics = run.read_metrics()
    environment = read_json(run.path / "environment.json")
    return Entry(
        run,
        metrics,
        dict(_flat(_yaml(run.config))),
        dict(_flat(metrics.get("facts") or {})),
        str(environment.get("git_commit") or ""),
        read_text(run.path / "git.diff"),
        ids,
        samples,
    )


def grouped(entries: Sequence[Entry], differing: Sequence[str]) -> list[Group]:
    """Runs of the same settings, facts and code, named by the settings that differ between groups."""
    groups: dict[str, Group] = {}
    for entry in entries:
        settings = {name: entry.settings.get(name) for name in differing}
        key = json.dumps([settings, entry.commit, entry.diff], default=str, sort_keys=True)
        groups.setdefault(key, Group([])).entries.append(entry)
    for group in groups.values():
        settings = group.entries[0].settings
        parts = [f"{_short(name)} {_word(settings.get(name))}" for name in differing[:MOST_SETTINGS]]
        group.name = ", ".join(parts) or group.entries[0].run.title
    names = [group.name for group in groups.values()]
    for number, group in enumerate(groups.values(), 1):
        if names.count(group.name) > 1:
            group.name = f"{group.name}, code {number}"
    return list(groups.values())


def _results(groups: Sequence[Group]) -> Table:
    names = list(dict.fromkeys(name for group in groups for entry in group.entries for name in entry.results))
    rows = []
    for group in groups:
        row: dict[str, Any] = {"group": group.name, "runs": len(group.entries)}
        for name in names:
            values = [entry.results[name] for entry in group.entries if name in entry.results]
            row[name] = _spread(values)
        rows.append(row)
    return Table("Mean ± standard deviation over runs that differ in their seed alone", rows)


def _spread(values: Sequence[float]) -> str | None:
    if not values:
        return None
    return cell(mean(values)) + (f" ± {stdev(values):.2g}" if len(values) > 1 else "")


def _paired(groups: Sequence[Group]) -> list[Block]:
    """Differences to the first group on the same test samples, with intervals by resampling the samples."""
    first, *others = groups
    ids, former = _mean_samples(first)
    rows = []
    for other in others:
        other_ids, values = _mean_samples(other)
        if not ids or other_ids != ids:
            continue
        for name in former.keys() & values.keys():
            difference = values[name] - former[name]
            low, high = intervals.interval(difference)
            rows.append(
                {
                    "group": other.name,
                    "metric": name,
                    "difference": float(np.nanmean(difference)),
                    "95 % interval": f"{cell(low)} to {cell(high)}",
                    "beyond chance": "yes" if low > 0 or high < 0 else "no",
                }
            )
    if not rows:
        return []
    title = f"Difference to «{first.name}» on the same {len(ids):,} test samples (paired bootstrap)"
    return [Table(title, sorted(rows, key=lambda row: (row["group"], row["metric"])))]


def _mean_samples(group: Group) -> tuple[list[str], dict[str, np.ndarray]]:
    """Ids, and the values of each test sample as means over the group's runs."""
    entries = group.entries
    if any(entry.ids != entries[0].ids for entry in entries):
        return [], {}
    names = set.intersection(*(set(entry.samples) for entry in entries))
    return entries[0].ids, {name: np.mean([entry.samples[name] for entry in entries], axis=0) for name in names}


def _table_of_runs(entries: Sequence[Entry], differing: Sequence[str]) -> Table:
    rows = [
        {
            "run": str(entry.run),
            "status": entry.metrics.get("status"),
            "seed": entry.settings.get(SEED),
            **{_short(name): _word(entry.settings.get(name)) for name in differing[:MOST_SETTINGS]},
            **entry.results,
        }
        for entry in entries
    ]
    return Table("Runs", rows)


def _curves(groups: Sequence[Group]) -> list[Block]:
    """The first run of each group in one chart a metric."""
    shown = [(group.name, curves.read(group.entries[0].run.metrics_csv)) for group in groups[:MOST_CURVES]]
    names = list(dict.fromkeys(name for _, own in shown for name in own if not name.startswith(curves.SPEED)))
    names = [name for name in names if curves.split_stage(name)[0] == "val"] or names
    blocks: list[Block] = []
    for name in names[:MOST_CHARTS]:
        lines = {label: curves.thinned(own[name]) for label, own in shown if name in own}
        lines = {label: curve for label, curve in lines.items() if any(map(math.isfinite, curve[1]))}
        if any(len(steps) > 1 for steps, _ in lines.values()):
            alt = "; ".join(f"{label} ends at {values[-1]:.4g}" for label, (_, values) in lines.items())
            blocks.append(Chart(name, charts.lines(lines, "step"), alt))
    if blocks and len(groups) > MOST_CURVES:
        blocks.append(Text(f"The first {MOST_CURVES} of {len(groups)} groups are drawn."))
    if blocks and any(len(group.entries) > 1 for group in groups):
        blocks.append(Text("Each curve is that of the first run of its group."))
    return blocks


def _settings(groups: Sequence[Group], differing: Sequence[str]) -> list[Block]:
    rows = [
        {"setting": name, **{group.name: _word(group.entries[0].settings.get(name)) for group in groups[:MOST_CURVES]}}
        for name in differing
    ]
    return [Table("Settings", rows)] if rows else [Text("The settings are the same, but for the seed.")]


def _facts(entries: Sequence[Entry]) -> list[Block]:
    names = _differing([entry.facts for entry in entries])
    rows = [
        {"fact": name, **{entry.run.label: _word(entry.facts.get(name)) for entry in entries[:MOST_CURVES]}}
        for name in names
    ]
    return [Table("What was learnt from the data", rows)] if rows else []


def _code(entries: Sequence[Entry]) -> list[Block]:
    """What differs between the commits, and between the uncommitted changes, of the first run and each other."""
    blocks: list[Block] = []
    first, *others = entries
    told: set[tuple[str, str]] = {(first.commit, first.diff)}
    for other in others:
        if (other.commit, other.diff) in told:
            continue
        told.add((other.commit, other.diff))
        if other.commit != first.commit:
            text = git("diff", first.commit, other.commit) if first.commit and other.commit else ""
            own, former = (entry.commit[:10] or "unknown" for entry in (other, first))
            title = f"Code of {other.run.label}: commit {own}, not {former}"
            blocks.append(Code(title, text, is_diff=True) if text else Text(f"{title}."))
        if other.diff != first.diff:
            blocks.append(Code(f"Uncommitted changes of {other.run.label}", other.diff or "none", is_diff=True))
    return blocks or [Text("The code is the same.")]


def _differing(values: Sequence[Mapping[str, Any]], leave_out: Iterable[str] = ()) -> list[str]:
    names = dict.fromkeys(name for own in values for name in own)
    return [
        name
        for name in names
        if name not in leave_out
        and not name.startswith(PLACES)
        and any(own.get(name) != values[0].get(name) for own in values)
    ]


def _flat(value: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """Plain values by the dotted path of their names."""
    if isinstance(value, Mapping) and value:
        for key, entry in value.items():
            yield from _flat(entry, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, value


def _short(name: str) -> str:
    return name.replace(".init_args", "").replace(".class_path", "")


def _word(value: Any) -> str:
    if value is None:
        return "none"
    is_class = isinstance(value, str) and value.count(".") > 1
    text = value.rpartition(".")[2] if is_class else cell(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _yaml(path: Path) -> Any:
    try:
        return yaml.load(read_text(path), Loader=LOADER) or {}  # noqa: S506  # one of the two safe ones
    except yaml.YAMLError:
        return {}

"""Defects planted into real programs: which does the review find, and at their lines?

    cd packages/torchdoctor
    python benchmarks/review_mutants.py RESULTS.jsonl --programs DIR --scripts DIR --most 100 [--only NAME …]

DIR of programs: Python files with `Model` and `Data`; DIR of scripts: folders with train.py and args.txt. A mutant
changes one expression or statement, found by syntax on a line that two steps of training run; all other lines stay
where they are. Each review is added to RESULTS.jsonl at once, and what is there is not run again; --most 0 only prints
the table. Found: a finding that the unchanged program does not have, of an id that names the defect. Right line: within
the changed statement ±1, or within the function where a statement was deleted. A mutant that does not parse or cannot
be built is discarded; one whose training ends with an error counts as crashed, unless the review names the defect. Not
new: the review finds this defect in the unchanged program already, so that a mutant tells nothing.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import runpy
import select
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from mutants import KINDS, Mutant, mutants_of, sampled, unchanged

ROOT = Path(__file__).parent.parent


def lines_that_run(file: Path, arguments: list[str] | None) -> list[int]:
    """Lines of a program that run in two steps of a training, or of a script in its first 60 seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_trace, args=(file, arguments, sender))
    process.start()
    lines = receiver.recv() if receiver.poll(120) else []
    process.kill()
    return lines


def _trace(file: Path, arguments: list[str] | None, sender: Any) -> None:
    lines: set[int] = set()

    def note(frame: Any, _: str, __: Any) -> Any:
        if frame.f_code.co_filename != str(file):
            return None
        lines.add(frame.f_lineno)
        return note

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    sys.argv = [file.name, *(arguments or [])]
    sys.settrace(note)
    try:
        if arguments is None:
            _train_briefly(import_module(file.stem))
        else:
            runpy.run_path(str(file), run_name="__main__")
    except BaseException:  # what ran until then counts
        pass
    finally:
        sys.settrace(None)
        sender.send(sorted(lines))


def _train_briefly(module: Any) -> None:
    pl = import_module("lightning.pytorch")
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(accelerator="cpu", max_epochs=1, limit_train_batches=2, limit_val_batches=2, **quiet)
    trainer.fit(module.Model(), module.Data())


@contextlib.contextmanager
def doctor(command: list[str], folder: Path, modules: Path | None = None) -> Iterator[subprocess.Popen[Any]]:
    """A command of the review, with all its processes ended at the end."""
    path = os.pathsep.join(map(str, filter(None, [ROOT, ROOT / "tests", modules])))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
    process = subprocess.Popen([sys.executable, *command], cwd=folder, env=environment, start_new_session=True, **pipes)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def review_modules(folder: Path, names: list[str], limit: float) -> Iterator[tuple[str, Any]]:
    """One after the other in one command; None for a program that takes longer than the limit."""
    while names:
        (folder / "names.txt").write_text("\n".join(names))
        with doctor([str(ROOT / "benchmarks/batch.py"), str(folder / "names.txt")], ROOT, folder) as process:
            while names and process.stdout and select.select([process.stdout], [], [], limit)[0]:
                line = process.stdout.readline()
                if not line:
                    break
                yield names[0], json.loads(line)
                names = names[1:]
        if names:
            yield names[0], None
            names = names[1:]


def arguments_of(script: Path) -> list[str]:
    file = script / "args.txt"
    return shlex.split(file.read_text()) if file.exists() else []


def review_scripts(folder: Path, names: list[str], limit: float) -> Iterator[tuple[str, Any]]:
    for name in names:
        arguments = arguments_of(folder / name)
        with doctor(["-m", "torchdoctor", "--format", "json", "train.py", *arguments], folder / name) as process:
            try:
                yield name, json.loads(process.communicate(timeout=limit)[0])
            except (subprocess.TimeoutExpired, json.JSONDecodeError):
                yield name, None


def prepare(mutant: Mutant, original: Path, target: Path) -> bool:
    """Writes a mutant of a module or of a script's folder; False if it does not parse."""
    file = original / "train.py" if original.is_dir() else original
    changed = mutant.apply(file.read_bytes())
    if original.is_dir():
        shutil.copytree(original, target, copy_function=shutil.copy)
        target.chmod(0o755)
        target = target / "train.py"
        target.chmod(0o644)
    target.write_bytes(changed)
    try:
        compile(changed, str(file), "exec")
    except SyntaxError:
        return False
    return True


def new_findings(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, list[dict[str, Any]]]]:
    """For every mutant its outcome, and what the review says of it and not of the unchanged program."""
    known = {(row["program"], item["id"], item["line"]) for row in rows if not row["kind"] for item in row["findings"]}
    known_ids = {(name, id_) for name, id_, _ in known}
    for row in rows:
        if row["kind"]:
            ids = KINDS[row["kind"]][0]
            new = [item for item in row["findings"] if (row["program"], item["id"], item["line"]) not in known]
            is_found = any(item["id"] in ids for item in new)
            outcome = row["outcome"]
            if outcome == "reviewed" and not is_found:
                if any((row["program"], id_) in known_ids for id_ in ids):
                    outcome = "not new"
                elif any(item["id"] == "crash" for item in new):
                    outcome = "crashed"
            yield row, outcome, new


def table(rows: list[dict[str, Any]]) -> None:
    """Prints, in Markdown, what was found by kind, the misses, and what is said of unchanged programs."""
    by_kind: dict[str, Counter[str]] = {}
    misses = []
    for row, outcome, new in new_findings(rows):
        count = by_kind.setdefault(row["kind"], Counter())
        count[outcome] += 1
        hits = [item for item in new if item["id"] in KINDS[row["kind"]][0]]
        if outcome == "reviewed":
            count["found"] += bool(hits)
            count["right line"] += any(row["first"] <= item["line"] <= row["last"] for item in hits)
        if outcome == "reviewed" and not hits:
            said = ", ".join(f"{item['id']} {item['line']}" for item in new) or "nothing new"
            late = "; probes out of time" if any("took more than" in note for note in row["notes"]) else ""
            misses.append(f"- {row['kind']}: {row['program']}:{row['line']} `{row['text'][:70]}`: {said}{late}")
    columns = ("reviewed", "found", "right line", "crashed", "not new", "discarded", "out of time")
    print(f"| kind | mutants | {' | '.join(columns[1:])} |\n|{'---|' * (len(columns) + 1)}")
    for kind in [kind for kind in KINDS if kind in by_kind]:
        print(f"| {kind} | " + " | ".join(str(by_kind[kind][name] or "") for name in columns) + " |")
    total = sum(by_kind.values(), Counter())
    print("| **all** | " + " | ".join(str(total[name]) for name in columns) + " |\n\nMissed:\n" + "\n".join(misses))
    plain = [row for row in rows if not row["kind"] and row["outcome"] == "reviewed"]
    alarms = [(row["program"], item) for row in plain for item in row["findings"] if item["severity"] != "advice"]
    print(f"\nUnchanged programs: {len(plain)}, {len(alarms)} warnings and criticals")
    print("\n".join(f"- {name}: {item['severity']} {item['id']} {item['line']}" for name, item in alarms))
    seconds = [row["seconds"] for row in rows if row["outcome"] == "reviewed"]
    print(f"\nMedian of {len(seconds)} reviews: {statistics.median(seconds or [0]):.1f} s")


def run(mutants: list[Mutant], originals: dict[str, Path], limit: float) -> Iterator[dict[str, Any]]:
    """Reviews mutants, those of modules first; a row each."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        by_name: dict[str, Mutant] = {}
        for number, mutant in enumerate(mutants):
            original = originals[mutant.program]
            name = f"m{number:03}_{mutant.program}"
            if prepare(mutant, original, folder / (name if original.is_dir() else f"{name}.py")):
                by_name[name] = mutant
            else:
                yield asdict(mutant) | {"outcome": "discarded", "findings": [], "notes": [], "seconds": 0.0}
            data = original.parent / "data"  # that scripts share
            if data.is_dir() and not (folder / "data").exists():
                (folder / "data").symlink_to(data)
        scripts = [name for name, mutant in by_name.items() if originals[mutant.program].is_dir()]
        modules = [name for name in by_name if name not in scripts]
        for name, answer in chain(review_modules(folder, modules, limit), review_scripts(folder, scripts, limit)):
            findings = answer["findings"] if answer else []
            for item in findings:  # lines of other files are not the program's
                item["line"] *= Path(item["file"]).stem in (name, "train")
            unbuilt = any(item["probe"] == "start" and item["id"] == "crash" for item in findings)
            outcome = "discarded" if unbuilt else "reviewed" if answer else "out of time"
            seconds, notes = (answer["seconds"], answer["notes"]) if answer else (limit, [])
            yield asdict(by_name[name]) | {"outcome": outcome, "findings": findings, "notes": notes, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--programs", type=Path, help="folder of Python files with Model and Data")
    parser.add_argument("--scripts", type=Path, help="folder of folders with train.py and args.txt")
    parser.add_argument("--only", nargs="*", default=[], help="names of programs and scripts")
    parser.add_argument("--most", type=int, default=100, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one review")
    options = parser.parse_args()
    originals = (
        {file.stem: file.absolute() for file in sorted(options.programs.glob("*.py"))} if options.programs else {}
    )
    if options.scripts:
        originals |= {file.parent.name: file.parent.absolute() for file in sorted(options.scripts.glob("*/train.py"))}
    originals = {name: path for name, path in originals.items() if not options.only or name in options.only}
    rows = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    with options.results.open("a") as results:

        def note(row: dict[str, Any]) -> None:
            rows.append(row)
            print(json.dumps(row), file=results, flush=True)

        lines = {row["program"]: row["lines"] for row in rows if row["kind"] == "lines"}
        import_module("lightning.pytorch")  # once, for all the copies that trace
        for name, path in originals.items():
            if name not in lines:
                arguments = arguments_of(path) if path.is_dir() else None
                with tempfile.TemporaryDirectory() as temporary:
                    copy = Path(temporary) / path.name
                    prepare(unchanged(name), path, copy)
                    if path.is_dir():
                        (Path(temporary) / "data").symlink_to(path.parent / "data")
                    lines[name] = lines_that_run(copy / "train.py" if path.is_dir() else copy, arguments)
                note({"program": name, "kind": "lines", "lines": lines[name]})
        sources = {
            name: (path / "train.py" if path.is_dir() else path).read_bytes() for name, path in originals.items()
        }
        found = [mutant for name, source in sources.items() for mutant in mutants_of(name, source, {*lines[name]})]
        chosen = sampled(found, options.most, options.seed)
        done = {(row["program"], row["kind"], row["start"]) for row in rows if row["kind"] != "lines"}
        jobs = [mutant for mutant in [*map(unchanged, originals), *chosen] if mutant.key not in done]
        print(f"{len(found)} mutants of {len(originals)} programs, {len(jobs)} reviews to do", file=sys.stderr)
        for row in run(jobs if options.most else [], originals, options.limit):
            note(row)
    table([row for row in rows if row["kind"] != "lines"])


if __name__ == "__main__":
    main()

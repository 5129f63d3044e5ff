r"""The review beside its peers on the same programs: defects found, at their lines, and alarms where nothing is wrong.

    cd packages/torchdoctor
    python benchmarks/review_peers.py RESULTS.jsonl --mutants MUTANTS.jsonl --programs DIR --written 40 \\
        --torch-audit PYTHON --torch-preflight PYTHON

Programs: pairs of `tests/cases`, sampled with a seed; the mutants and the unchanged programs that
`review_mutants.py` has reviewed, with what it noted. PYTHON: the interpreter of an environment with the peer, torch and
lightning; a peer without one is skipped. torch-audit looks at every step of a training of 20 steps, Lightning at a
fast_dev_run with anomaly detection (`peers_on_cases.py` also says what their messages may mean), torch-preflight
at the source. An alarm: what a tool shows as a warning or worse, without torch-audit's hints on hardware. Answers are
added to RESULTS.jsonl at once; the table is of the programs that every tool has answered.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from mutants import KINDS, Mutant
from peers_on_cases import look
from review_mutants import new_findings, review_modules

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))
from case_files import cases

PREFLIGHT = {  # its rules, and the defects that each may mean
    "TG001": ["graph-retained"],
    "TG003": ["missing-zero-grad"],
    "TG004": ["slow-loader"],
    "TG005": ["double-softmax"],
    "TG006": ["sigmoid-before-logits-loss", "amp-unsafe"],
    "TG007": ["host-sync"],
    "TG011": ["stuck-in-eval"],
    "TG014": ["unequal-accumulation"],
}
HARDWARE = ("TA200", "TA201", "TA203")  # hints on tensor cores, memory format and AMP, which are no alarms
LIMIT_S = 120
CHUNK = 16


@dataclass(frozen=True)
class Program:
    """What a tool looks at: the ids that name its defect, none without one, and the lines that are right for it."""

    group: str
    name: str
    source: bytes
    ids: frozenset[str]
    lines: frozenset[int]
    own: range = range(sys.maxsize)  # its lines, in a file that may hold other programs too


def written(number: int, seed: int) -> Iterator[Program]:
    """Pairs of written programs; the repair of one takes the place of its defect."""
    pairs = sorted((case for case in cases() if case.defect), key=lambda case: case.name.replace("-", "__"))
    for case in random.Random(seed).sample(pairs, number):
        near = frozenset(mark + step for mark in case.marks for step in range(-3, 4))
        name, prefix = case.name.replace("-", "__"), case.prefix
        source = case.file.read_text(encoding="utf-8") + f"\n\nModel, Data = {prefix}Model, {prefix}Data\n"
        yield Program("written", f"w_{name}", source.encode(), frozenset({case.defect}), near, case.lines)
        for part, repair in (("Model", "Repaired"), ("Data", "RepairedData")):
            source += f"{part} = globals().get('{prefix}{repair}', {part})\n"
        yield Program("repaired", f"r_{name}", source.encode(), frozenset(), near, case.lines)


def reviewed(file: Path, folder: Path) -> Iterator[tuple[Program, dict[str, Any]]]:
    """The mutants and unchanged programs of `review_mutants.py`, each with the review's answer."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row for row in rows if "outcome" in row and (folder / f"{row['program']}.py").exists()]
    plain = [(row, row["findings"]) for row in rows if row["kind"] == "" and row["outcome"] == "reviewed"]
    changed = [(row, new) for row, outcome, new in new_findings(rows) if outcome == "reviewed"]
    for place, (row, findings) in enumerate([*changed, *plain]):
        mutant = Mutant(**{name: row[name] for name in Mutant.__dataclass_fields__})
        source = mutant.apply((folder / f"{row['program']}.py").read_bytes())
        group, ids, lines = "real", set[str](), range(0)
        if mutant.kind:
            group, ids, lines = "mutants", KINDS[mutant.kind][0], range(mutant.first, mutant.last + 1)
        program = Program(group, f"x{place:03}_{row['program']}", source, frozenset(ids), frozenset(lines))
        yield program, {"findings": ours(findings), "seconds": row["seconds"]}


def ours(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"ids": [item["id"]], "line": item["line"], "loud": item["severity"] != "advice"} for item in findings]


def doctor(folder: Path, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, answer in review_modules(folder, names, LIMIT_S):
        if answer:
            yield name, {"findings": ours(answer["findings"]), "seconds": answer["seconds"]}


def watched(python: str, way: str, folder: Path, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Answers of torch-audit or Lightning, a program a copy of one process that has imported them."""
    command = [python, __file__, "--look", way, str(folder), *names]
    path = os.pathsep.join([str(ROOT), str(TESTS), str(folder)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        name = ""
        for line in process.stdout or ():
            if line.startswith("look at "):
                name = line.split()[-1]
            elif line.startswith('{"findings"'):
                answer = json.loads(line)
                for item in answer["findings"]:
                    item["loud"] = not item["message"].startswith(HARDWARE)
                yield name, answer


def look_at_each(way: str, folder: Path, names: list[str]) -> None:
    import_module("lightning.pytorch")
    if way == "torch-audit":
        import_module("torch_audit")
    for name in names:
        process = os.fork()
        if not process:
            signal.alarm(LIMIT_S)
            print("look at", name, flush=True)
            look(way, folder, name)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(process, 0)


def preflight(python: str, folder: Path, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in names:
        command = [python, "-m", "torch_preflight", "check", "--format", "json", str(folder / f"{name}.py")]
        start = time.monotonic()
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)["diagnostics"]
        findings = [
            {"ids": PREFLIGHT.get(item["code"], []), "line": item["line"], "loud": item["severity"] != "note"}
            for item in said
        ]
        yield name, {"findings": findings, "seconds": time.monotonic() - start}


def ask(way: str, python: str, folder: Path, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    if not names:
        return iter(())
    if way == "doctor":
        return doctor(folder, names)
    return preflight(python, folder, names) if way == "torch-preflight" else watched(python, way, folder, names)


def table(programs: list[Program], answers: dict[str, dict[str, Any]]) -> None:
    """Prints a row for each group and tool, in Markdown."""
    print("| programs | tool | found | right line | alarms | median |\n|---|---|---|---|---|---|")
    common = [program for program in programs if all(program.name in said for said in answers.values())]
    for group in dict.fromkeys(program.group for program in common):
        of_group = [program for program in common if program.group == group]
        for way, said in answers.items():
            found = placed = alarmed = 0
            for program in of_group:
                findings = said[program.name]["findings"]
                if way == "torch-preflight":  # which reads the whole file
                    findings = [item for item in findings if item["line"] in program.own]
                hits = [item for item in findings if program.ids & {*item["ids"]} or "*" in item["ids"]]
                found += bool(hits)
                placed += any(item["line"] in program.lines for item in hits)
                # a file of a repaired program still holds the defective class, which only the source shows
                alarmed += any(
                    item["loud"] for item in findings if way != "torch-preflight" or item["line"] not in program.lines
                )
            seconds = statistics.median(said[program.name]["seconds"] for program in of_group)
            total = len(of_group)
            counts = f"{found}/{total} | {placed} | " if of_group[0].ids else "| | "
            print(f"| {group} | {way} | {counts}{'' if of_group[0].ids else f'{alarmed}/{total}'} | {seconds:.2f} s |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--mutants", type=Path, help="results of review_mutants.py")
    parser.add_argument("--programs", type=Path, help="the folder of programs that it was given")
    parser.add_argument("--written", type=int, default=40, help="number of pairs of written programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch-audit", metavar="PYTHON", help="interpreter with torch-audit")
    parser.add_argument("--torch-preflight", metavar="PYTHON", help="interpreter with torch-preflight")
    options = parser.parse_args()
    programs = [*written(options.written, options.seed)]
    rows = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    answers: dict[str, dict[str, Any]] = {"doctor": {}, "lightning": {}}
    if options.mutants:
        for program, answer in reviewed(options.mutants, options.programs):
            programs.append(program)
            answers["doctor"][program.name] = answer
    pythons = {"torch-audit": options.torch_audit, "torch-preflight": options.torch_preflight}
    for way, python in pythons.items():
        if python and shutil.which(python):
            answers[way] = {}
        else:
            print(f"{way}: skipped, no interpreter with it", file=sys.stderr)
    for row in rows:
        if row["way"] in answers:
            answers[row["way"]][row["name"]] = row["answer"]
    with tempfile.TemporaryDirectory() as temporary, options.results.open("a") as results:
        folder = Path(temporary)
        for program in programs:
            (folder / f"{program.name}.py").write_bytes(program.source)
        random.Random(options.seed).shuffle(programs)  # a run that is cut has looked at some of each group
        for start in range(0, len(programs), CHUNK):
            for way, said in answers.items():
                names = [program.name for program in programs[start : start + CHUNK] if program.name not in said]
                for name, answer in ask(way, pythons.get(way, sys.executable), folder, names):
                    said[name] = answer
                    print(json.dumps({"way": way, "name": name, "answer": answer}), file=results, flush=True)
    table(programs, answers)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"]:
        look_at_each(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    else:
        main()
